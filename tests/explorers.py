"""Example figures that the tests and the benchmark of `utils.explore` share, and a reader of their pages."""
import html
import json
import re
from xml.etree import ElementTree

import numpy as np

from utils.explore import explore
from utils.plotting import PALETTE, arrow, learning_curve

X = np.linspace(0, 1, 101)


def weights(ax, lam):
    """Thirty bars, one slider."""
    n = np.arange(1, 31)
    ax.bar(n, (1 - lam) * lam ** (n - 1), width=0.8)
    ax.set(xlim=(0, 31), ylim=(0, 1), xlabel="$n$", ylabel=r"weight of $G^{(n)}$")
    return f"mean horizon {1 / (1 - lam):.1f} steps"


def trade_off(ax, bx, gamma, lam):
    """Two panels, smooth curves, a legend, two sliders."""
    ax.plot(X, 1 - gamma * X, label="bias")
    ax.plot(X, X * gamma / (1.01 - gamma * lam * X) / 10, label="variance")
    ax.plot([lam], [0.5], "o", color="black")
    ax.set(xlim=(0, 1), ylim=(0, 1.05), xlabel=r"$\lambda$", ylabel="error", title="Trade-off")
    ax.legend(loc="upper right")
    bx.bar(range(10), gamma ** np.arange(10), color=PALETTE[2])
    bx.set(ylim=(0, 1.05), xlabel="delay $k$", ylabel=r"$\gamma^k$", title="Discount")
    return f"γ = {gamma:g}, λ = {lam:g}: {gamma * lam:.3f}"


def arrows(ax, policy, count):
    """Things that appear and disappear, text choices, characters that are special in HTML."""
    ax.set(xlim=(-1, 5), ylim=(-1, 1), xlabel='state < & "γ"', yticks=[])
    for i in range(count):
        arrow(ax, (i, 0), (i + 0.8, 0.7 if policy == "greedy" else -0.5), color=PALETTE[i])
    if count > 2:
        ax.scatter(range(count), [0] * count, color="black", marker="s")
        ax.set_title("many <b> & γ")
    return f'{policy}: {count} arrows, 1 < 2 & "γ" </script>'


def heat(ax, k):
    """A colour bar (a second Axes), text in cells, log-spaced choices."""
    table = np.add.outer(np.arange(4), np.arange(4)) * k
    image = ax.pcolormesh(table, vmin=0, vmax=6)
    for row, column in np.ndindex(4, 4):
        ax.text(column + 0.5, row + 0.5, f"{table[row, column]:.1f}", ha="center", va="center", color="#fefefe")
    ax.figure.colorbar(image, ax=ax)
    ax.set(xlabel="action", ylabel="state")
    return f"k = {k:g}"


def restless(ax, what):
    """Each choice changes something else about the axes; nothing may leak into another frame."""
    ax.plot([0, 1, 2], [0.5, 3, 2], marker="|")
    ax.plot([2], [2], "o", color="black", markeredgecolor="white")
    if what == "limits":
        ax.set(xlim=(-1, 4), ylim=(0.1, 5))
    elif what == "log":
        ax.set(yscale="log", ylim=(0.1, 10))
    elif what == "log 2":
        ax.set_yscale("log", base=2)
        ax.set(ylim=(0.1, 10))
    elif what == "rotated":
        ax.set_xticks([0, 1, 2], labels=["low", "middle", "high"], rotation=45)
    elif what == "coloured":
        for label in ax.get_xticklabels():
            label.set_color("red")
    elif what == "one tick":
        ax.yaxis.get_major_ticks()[1].label1.set_fontsize(14)
    elif what == "grid":
        ax.grid(True)
    elif what == "lambda":
        ax.yaxis.set_major_formatter(lambda value, _: f"<{value:.0f}>")
    elif what == "another lambda":
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    elif what == "spines":
        ax.spines["left"].set_position("zero")
    elif what == "inverted":
        ax.invert_yaxis()
    elif what == "label":
        ax.set_xlabel("only here", color=PALETTE[1])
    elif what == "off":
        ax.axis("off")
    elif what == "equal":
        ax.set_aspect("equal")
    elif what == "ticks outside":
        ax.tick_params(length=9, labelsize=6, top=True)
    elif what == "twin":
        ax.twinx().plot([0, 2], [100, 0], color=PALETTE[3])
    elif what == "empty":
        ax.clear()
    return what


RESTLESS = ["plain", "limits", "log", "log 2", "rotated", "coloured", "one tick", "grid", "lambda", "another lambda",
            "spines", "inverted", "label", "off", "equal", "ticks outside", "twin", "empty"]


def curve(ax):
    """No slider: a learning curve."""
    steps = np.arange(0, 20_000, 500)
    speeds = np.random.default_rng(0).uniform(3000, 8000, 10)
    learning_curve(ax, steps, 500 * (1 - np.exp(-steps[:, None] / speeds)), label="made-up agent", threshold=475)
    ax.set(ylim=(0, 520), xlabel="environment steps", ylabel="return")
    return "ten seeds"


def examples(positions=6):
    """{name: a new explorer}; "trade_off" has two sliders of so many positions each."""
    return {
        "weights": explore(weights, lam=(0, 0.975, 40), alt="Bars: weights of the n-step returns."),
        "trade_off": explore(trade_off, gamma=(0.5, 1, positions), lam=(0, 1, positions), start={"gamma": 0.9, "lam": 0.8},
                             labels={"gamma": "discount γ", "lam": "trace λ"}, alt="Two curves and ten bars."),
        "arrows": explore(arrows, policy=["greedy", "softer & <calm>"], count=range(5),
                          alt='Arrows "up" or <down> & γ'),
        "heat": explore(heat, k=[0.001, 0.01, 0.1, 1.0, 10.0], alt="A table of coloured cells."),
        "restless": explore(restless, what=RESTLESS, start={"what": "plain"}, alt="A line and its axes."),
        "curve": explore(curve, alt="A learning curve."),
    }


# ---- reading a figure's HTML ----

def unpack(packed, page_svg, number):
    """What explore.js does: picture `number` of what `pack` stored, as a list of (tag, attributes, text)."""
    group, *indices = packed["frames"][number]
    parts = packed["groups"][group]
    elements = list(ElementTree.fromstring(page_svg if parts["svg"] is None else parts["svg"]).iter())
    for (element, attribute), index in zip(parts["slots"], indices, strict=True):
        if attribute:
            elements[element].set(attribute, parts["values"][index])
        else:
            elements[element].text = parts["values"][index]
    return [(element.tag, element.attrib, element.text or "") for element in elements]


def contents(page):
    """(data, [svg of each panel], caption) of a page's figure."""
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])
    panels = re.findall(r'<div class="explore-panel"[^>]*>(<svg.*?</svg>)</div>', page, re.S)
    caption = re.search(r"<figcaption[^>]*>(.*?)</figcaption>", page, re.S)
    return data, panels, html.unescape(caption[1]) if caption else ""
