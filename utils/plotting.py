"""The book's look: one style, one palette, learning curves whose band is named.

Every figure of the book goes through `utils.explore`, which applies `STYLE`. In a figure of your own, wrap
the drawing in `with matplotlib.rc_context(STYLE): ...`.
"""
import numpy as np
from matplotlib import cycler

from utils.validate import choice, floats, in_range, whole

# Blue, vermilion, green, magenta, violet, brown. Each has a contrast of at least 3.8 : 1 with white and with
# the dark theme's background, so all are about equally bright; their hues were chosen to stay apart also for
# readers with red-, green- or blue-blindness. tests/test_plotting.py measures both.
PALETTE = ("#197cff", "#e5370a", "#08881b", "#cb399b", "#8a62cb", "#ae6e68")
GREY = "#7f7f7f"                              # reference lines and what should stay in the background

STYLE = {
    "axes.edgecolor": "#000000",              # black becomes the page's text colour, see `utils.explore`
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.labelsize": 10,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titley": 1.0,                       # fixed: finding a place for it costs half of the drawing time
    "figure.dpi": 100,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],       # comes with matplotlib: the same layout on every machine
    "font.size": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "none",                   # text stays text: it can be searched and coloured by the page
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}

BANDS = {
    "bootstrap": "95 % bootstrap interval of the mean",
    "range": "smallest to largest seed",
}
THRESHOLD = "threshold {:g}"


def learning_curve(ax, steps, returns, *, label, band="bootstrap", color=None, threshold=None):
    """Draw the mean over seeds against the steps, with a band whose name stands in the legend.

    steps      [K]     environment steps at which the returns were measured, increasing
    returns    [K, S]  mean return of each of S seeds at these steps
    label      name of the curve in the legend
    band       "bootstrap": seeds are drawn with replacement 2,000 times; the band is the middle 95 %
               of the means
               "range": from the smallest to the largest seed
    color      a matplotlib colour; by default the next one of the palette
    threshold  the return that counts as solved, drawn as a dashed line

    Returns three arrays of shape [K]: mean, low, high. The bootstrap is seeded: same input, same band.
    Raises ValueError for wrong shapes, fewer than two seeds, steps that do not increase, NaN and infinity.
    """
    choice("band", band, tuple(BANDS))
    steps, returns = to_numpy("steps", steps), to_numpy("returns", returns)
    threshold = None if threshold is None else in_range("threshold", threshold)
    if steps.ndim != 1 or len(steps) == 0 or (np.diff(steps) <= 0).any():
        raise ValueError(f"steps: expected increasing numbers of shape [K], got {steps!r}")
    if returns.ndim != 2 or len(returns) != len(steps):
        raise ValueError(f"returns: expected the shape [K, S] with K = {len(steps)}, got {returns.shape}")
    if returns.shape[1] < 2:
        raise ValueError("returns: expected at least 2 seeds, because a band shows how seeds differ; got "
                         f"{returns.shape[1]}")
    mean = returns.mean(axis=1)
    if band == "bootstrap":
        low, high = bootstrap_interval(returns)
    else:
        low, high = returns.min(axis=1), returns.max(axis=1)

    line, = ax.plot(steps, mean, label=label, color=color)
    named = f"{BANDS[band]}, {returns.shape[1]} seeds"
    taken = ax.get_legend_handles_labels()[1]          # several curves, one entry for their common band
    ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0,
                    label=None if named in taken else named)
    if threshold is not None and THRESHOLD.format(threshold) not in taken:
        threshold_line(ax, threshold)
    ax.legend()
    return mean, low, high


def to_numpy(name, values):
    """Finite numbers as a NumPy array; a tensor may still hang on a graph. Raises ValueError."""
    array = floats(name, values)
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


def bootstrap_interval(samples, *, level=0.95, resamples=2000, seed=0):
    """Percentile bootstrap interval of the mean over the last axis: two arrays low, high of shape [...].

    A resample draws S of the S entries with replacement, the same ones for every row: a seed is a whole run.
    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    samples = to_numpy("samples", samples)
    in_range("level", level, 0, 1)
    whole("resamples", resamples)
    if samples.ndim == 0 or samples.shape[-1] == 0:
        raise ValueError(f"samples: expected the shape [..., S] with S >= 1, got {samples.shape}")
    count = samples.shape[-1]
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    shares = (drawn[:, :, None] == np.arange(count)).mean(axis=1)      # of each entry in each resample
    low, high = np.quantile(samples @ shares.T, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return low, high


def threshold_line(ax, value, *, label=None):
    """Draw a dashed horizontal line at the return `value` that counts as solved, named in the legend."""
    value = in_range("value", value)
    return ax.axhline(value, color=GREY, linestyle="--", linewidth=1.2, label=label or THRESHOLD.format(value))


def arrow(ax, start, end, *, color=None, label=None):
    """Draw an arrow between two points (x, y) given in data coordinates; returns the matplotlib arrow."""
    style = {"arrowstyle": "-|>,head_length=0.5,head_width=0.25", "shrinkA": 0, "shrinkB": 0, "linewidth": 2}
    color = PALETTE[0] if color is None else color
    if label is not None:
        ax.plot([], [], color=color, label=label)
    return ax.annotate("", xy=end, xytext=start, arrowprops=style | {"color": color}, annotation_clip=False)
