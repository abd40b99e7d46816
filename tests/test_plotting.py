"""`utils.plotting`: colours that everybody can tell apart, learning curves whose band is what its name says."""
import io
import itertools

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from utils.plotting import (BANDS, GREY, PALETTE, STYLE, arrow, bootstrap_interval, learning_curve,
                            threshold_line)

LIGHT, DARK = "#ffffff", "#121212"            # backgrounds of sphinx-book-theme
DARKEST_BUT_ONE = "#14181e"                   # pydata-sphinx-theme's own dark background


def linear(color):
    """The colour's red, green and blue as amounts of light. Source: IEC 61966-2-1 (sRGB)."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """Contrast ratio as WCAG 2.2 defines it."""
    low, high = sorted(linear(color) @ [0.2126, 0.7152, 0.0722] for color in (a, b))
    return (high + 0.05) / (low + 0.05)


# Severity 1.0. Source: Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color Vision
# Deficiency, 2009.
VISION = {
    "usual": np.eye(3),
    "red-blind": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                           [-0.003882, -0.048116, 1.051998]]),
    "green-blind": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                             [-0.011820, 0.042940, 0.968881]]),
    "blue-blind": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}


def oklab(light):
    """Coordinates in which distances are about those that people see. Source: B. Ottosson, Oklab, 2020."""
    cones = light @ np.array([[0.4122214708, 0.2119034982, 0.0883024619], [0.5363325363, 0.6806995451, 0.2817188376],
                              [0.0514459929, 0.1073969566, 0.6299787005]])
    return np.cbrt(cones) @ np.array([[0.2104542553, 1.9779984951, 0.0259040371],
                                      [0.7936177850, -2.4285922050, 0.7827717662],
                                      [-0.0040720468, 0.4505937099, -0.8086757660]])


def closest(palette, vision):
    """The smallest distance of two colours of a palette, as seen with this vision; 0.02 is just noticeable."""
    seen = [oklab(np.clip(VISION[vision] @ linear(color), 0, 1)) for color in palette]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


def test_the_tools_of_this_test():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=5e-3)
    assert oklab(linear("#ffffff")) == pytest.approx([1, 0, 0], abs=1e-4)
    # A palette that is known to fail: matplotlib's red and green for the green-blind, its orange on white.
    assert closest(["#d62728", "#2ca02c"], "usual") > 0.3 > 0.12 > closest(["#d62728", "#2ca02c"], "green-blind")
    assert contrast("#ff7f0e", LIGHT) < 3


@pytest.mark.parametrize("background", [LIGHT, DARK, DARKEST_BUT_ONE])
def test_palette_contrasts_with_both_themes(background):
    assert len(PALETTE) == len(set(PALETTE)) == 6
    assert min(contrast(color, background) for color in PALETTE) >= 3.8
    assert contrast(GREY, background) >= 3.8


@pytest.mark.parametrize("vision", VISION)
def test_palette_for_the_colour_blind(vision):
    """Four just noticeable differences between any two colours."""
    assert closest(PALETTE, vision) >= 0.08


def test_style_is_valid_and_uses_the_palette():
    with rc_context(STYLE):
        ax = Figure().add_subplot()
        lines = [ax.plot([0, 1])[0].get_color() for _ in range(7)]
    assert lines == [*PALETTE, PALETTE[0]]
    assert set(STYLE) <= set(matplotlib.rcParams)


def curve(returns, **options):
    ax = Figure().add_subplot()
    steps = np.arange(1, len(returns) + 1) * 100
    return ax, learning_curve(ax, steps, returns, label="agent", **options)


RETURNS = np.random.default_rng(5).normal(100, 20, size=(7, 10)).cumsum(axis=0)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_range_is_from_the_smallest_to_the_largest_seed():
    ax, (mean, low, high) = curve(RETURNS, band="range")
    np.testing.assert_array_equal(low, RETURNS.min(1))
    np.testing.assert_array_equal(high, RETURNS.max(1))
    np.testing.assert_allclose(mean, RETURNS.sum(1) / 10, rtol=1e-14)
    assert legend(ax) == ["agent", "smallest to largest seed, 10 seeds"]
    assert BANDS["range"] in legend(ax)[1]


def test_what_is_drawn_is_what_is_returned():
    ax, (mean, low, high) = curve(RETURNS, color="#08881b", threshold=475)
    line, dashes = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), np.arange(100, 701, 100))
    np.testing.assert_array_equal(line.get_ydata(), mean)
    [band] = ax.collections
    corners = band.get_paths()[0].vertices
    for x, bottom, top in zip(line.get_xdata(), low, high):
        heights = corners[corners[:, 0] == x, 1]
        assert heights.min() == bottom and heights.max() == top
    assert to_hex(band.get_facecolor()[0]) == line.get_color() == "#08881b"
    assert set(dashes.get_ydata()) == {475} and dashes.get_linestyle() == "--"
    assert legend(ax) == ["agent", "95 % bootstrap interval of the mean, 10 seeds", "threshold 475"]


def test_two_curves_share_the_entry_of_their_band_and_threshold():
    ax = Figure().add_subplot()
    for label in ("first", "second"):
        learning_curve(ax, range(7), RETURNS, label=label, threshold=475)
    assert legend(ax) == ["first", "95 % bootstrap interval of the mean, 10 seeds", "threshold 475", "second"]
    first, second = ax.collections
    assert to_hex(first.get_facecolor()[0]) != to_hex(second.get_facecolor()[0])


def test_bootstrap_is_a_plain_resampling_of_whole_seeds():
    """Against the definition, written with loops."""
    rng, means = np.random.default_rng(0), []
    for chosen in rng.integers(10, size=(2000, 10)):
        means.append([np.mean([row[seed] for seed in chosen]) for row in RETURNS])
    low, high = bootstrap_interval(RETURNS)
    np.testing.assert_allclose(low, np.quantile(means, 0.025, axis=0), rtol=1e-12)
    np.testing.assert_allclose(high, np.quantile(means, 0.975, axis=0), rtol=1e-12)
    _, (mean, *band) = curve(RETURNS)
    np.testing.assert_array_equal(band, [low, high])
    assert (low < mean).all() and (mean < high).all()


def test_bootstrap_covers_the_mean_about_as_often_as_it_says():
    """Of 400 samples of 30 normal numbers the 95 % interval should hold the true mean about 0.94 of the time."""
    samples = np.random.default_rng(1).normal(3, 2, size=(400, 30))
    low, high = bootstrap_interval(samples)
    covered = ((low < 3) & (3 < high)).mean()
    assert 0.90 <= covered <= 0.97
    narrow = bootstrap_interval(samples, level=0.5)
    assert 0.4 <= ((narrow[0] < 3) & (3 < narrow[1])).mean() <= 0.6


def test_bootstrap_of_equal_seeds_has_no_width_and_is_reproducible():
    low, high = bootstrap_interval(np.full((3, 5), 7.25))
    np.testing.assert_allclose([low, high], 7.25)
    np.testing.assert_array_equal(bootstrap_interval(RETURNS), bootstrap_interval(RETURNS))
    assert (np.array(bootstrap_interval(RETURNS, seed=1)) != bootstrap_interval(RETURNS)).any()


def test_tensors_are_taken_too():
    _, expected = curve(RETURNS)
    _, got = curve(torch.tensor(RETURNS, requires_grad=True))
    np.testing.assert_array_equal(got, expected)
    assert all(type(array) is np.ndarray for array in got)


@pytest.mark.parametrize("steps, returns, options, message", [
    (range(7), RETURNS, {"band": "std"}, "band: expected one of 'bootstrap', 'range', got 'std'"),
    (range(6), RETURNS, {}, r"returns: expected the shape \[K, S\] with K = 6, got \(7, 10\)"),
    (range(7), RETURNS[:, 0], {}, r"returns: expected the shape \[K, S\]"),
    (range(7), RETURNS[:, :1], {}, "returns: expected at least 2 seeds"),
    ([0, 1, 2, 2, 3, 4, 5], RETURNS, {}, "steps: expected increasing numbers"),
    ([], np.zeros((0, 3)), {}, "steps: expected"),
    (range(7), np.where(RETURNS > 150, np.nan, RETURNS), {}, "returns: expected finite numbers"),
    ([0, 1, 2, 3, 4, 5, np.inf], RETURNS, {}, "steps: expected finite numbers"),
    (range(7), RETURNS, {"threshold": "high"}, "threshold: expected a .*number"),
])
def test_bad_input_is_named(steps, returns, options, message):
    with pytest.raises(ValueError, match=message):
        learning_curve(Figure().add_subplot(), steps, returns, label="agent", **options)


@pytest.mark.parametrize("options, message", [
    ({"level": 1.5}, "level: expected a number in"), ({"resamples": 0}, "resamples: expected a whole number"),
])
def test_bad_intervals_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(RETURNS, **options)
    with pytest.raises(ValueError, match="samples: expected the shape"):
        bootstrap_interval(3.0)


def test_threshold_line_and_arrow():
    ax = Figure(dpi=72).add_subplot()
    assert threshold_line(ax, 475).get_label() == "threshold 475"
    assert threshold_line(ax, 195.5, label="solved").get_label() == "solved"
    with pytest.raises(ValueError, match="value: expected a finite number"):
        threshold_line(ax, float("nan"))
    ax.set(xlim=(0, 4), ylim=(0, 2))
    drawn = arrow(ax, (1, 0), (3, 2), color=PALETTE[3], label="push")
    ax.figure.savefig(io.BytesIO(), format="svg")
    path = drawn.arrow_patch.get_path().vertices
    start, end = ax.transData.transform([(1, 0), (3, 2)])
    assert all(np.linalg.norm(path - point, axis=1).min() < 3 for point in (start, end))       # in points
    assert to_hex(drawn.arrow_patch.get_edgecolor()) == PALETTE[3]
    assert "push" in ax.get_legend_handles_labels()[1]
