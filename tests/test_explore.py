"""`utils.explore` without a browser: arguments, frames, packing, the three forms."""
import functools
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
from xml.etree import ElementTree

import hypothesis
import hypothesis.strategies as st
import matplotlib
import numpy as np
import pytest
from explorers import RESTLESS, contents, examples, restless, unpack, weights
from matplotlib import rc_context
from matplotlib.figure import Figure

import utils.explore
from utils.explore import (BITMAP_DPI, GREEK, LIMIT_KB, Painter, Row, dump_figure, explore, number_ids, pack,
                           svg_text)
from utils.plotting import STYLE

NAMES = list(examples())
each_example = pytest.mark.parametrize("name", NAMES)


def line(ax, k):
    ax.plot([0, 1], [0, k])
    ax.set(xlim=(0, 1), ylim=(0, 10))
    return f"slope {k:g}"


class FromScratch(Painter):
    """A Painter that forgets: every frame is drawn on newly made axes, nothing is kept."""

    def frame(self, values):
        with rc_context(STYLE):
            self.blanks = [dump_figure(self.blank_figure(places[0])) for places in self.places]
        self.axes_drawn = {}
        return super().frame(values)


def from_scratch(explorer):
    return FromScratch(explorer.draw, explorer.panels, explorer.size, explorer.values(explorer.first))


@functools.cache
def page_of(name):
    """The example as HTML for the website."""
    return examples()[name].static()


def sample(explorer, at_most=18):
    """Some of the grid's positions, the corners among them."""
    grid = explorer.grid
    return [grid[n] for n in np.unique(np.linspace(0, len(grid) - 1, at_most).astype(int))]


# ---- arguments ----

def test_an_alternative_text_is_required():
    for missing in ({}, {"alt": ""}, {"alt": "  \n"}, {"alt": None}, {"alt": 3}):
        with pytest.raises(ValueError, match="alt: expected a text"):
            explore(line, k=(0, 1, 3), **missing)


def test_a_tuple_is_evenly_spaced_and_tidy():
    [slider] = explore(line, k=(0, 1, 11), alt="x").sliders
    assert slider.values == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert slider.texts == ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    assert slider.first == 5
    [slider] = explore(line, k=(2, -1e-7, 3), alt="x").sliders
    np.testing.assert_allclose(slider.values, np.linspace(2, -1e-7, 3), rtol=1e-9)


def test_choices_are_handed_over_as_they_are():
    seen = []

    def draw(ax, k):
        seen.append(k)

    for choices in (["a", "b"], range(3), [1, 2, 5], [1e-4, 1e-2, 1.0], np.array([1, 2, 4]), np.array([0.5, 1.5]),
                    [True, False], [0.1 + 0.2, 1]):
        seen.clear()
        explorer = explore(draw, k=choices, alt="x")
        explorer.static()
        assert set(seen) == set(choices) and {type(k) for k in seen} <= {int, float, str, bool}


def test_where_the_sliders_start():
    def draw(ax, k, gamma, mode):
        pass

    explorer = explore(draw, k=(0, 1, 11), gamma=[0.9, 0.99, 1], mode=["a", "b"], alt="x",
                       start={"k": 0.1 + 0.2, "gamma": 1.0, "mode": "a"}, labels={"k": "step k"})
    assert explorer.values(explorer.first) == {"k": 0.3, "gamma": 1, "mode": "a"}
    assert [slider.label for slider in explorer.sliders] == ["step k", "γ", "mode"]
    assert GREEK["lam"] == "λ"


def panelless(*, k):
    pass


@pytest.mark.parametrize("message, draw, arguments", [
    (r"k: expected \(start, stop, count\)", line, {"k": (0, 1)}),
    (r"k: expected \(start, stop, count\)", line, {"k": ("a", "b", 3)}),
    (r"k: expected \(start, stop, count\)", line, {"k": (0, float("nan"), 3)}),
    ("start != stop", line, {"k": (1, 1, 3)}),
    ("whole count >= 2", line, {"k": (0, 1, 1)}),
    ("whole count >= 2", line, {"k": (0, 1, 2.5)}),
    ("k: expected at least two choices", line, {"k": [1]}),
    ("k: expected at least two choices, all finite", line, {"k": [1.0, float("inf")]}),
    ("k: expected choices that look different, got 1, 1", line, {"k": [1.0, 1.0000000001]}),
    ("q: expected a parameter of draw of that name", line, {"k": (0, 1, 3), "q": (0, 1, 3)}),
    ("start: expected one of 0, 0.5, 1 for k, got 0.3", line, {"k": (0, 1, 3), "start": {"k": 0.3}}),
    ("start: expected names of sliders .k., got q", line, {"k": (0, 1, 3), "start": {"q": 0}}),
    ("labels: expected names of sliders .there are none., got k", weights, {"labels": {"k": "x"}}),
    ("size: expected .width, height.", line, {"k": (0, 1, 3), "size": 3}),
    ("size: expected .width, height.", line, {"k": (0, 1, 3), "size": (3, -1)}),
    ("draw: expected draw.ax, ...., one Axes for each panel", panelless, {"k": (0, 1, 3)}),
])
def test_bad_arguments_are_named(message, draw, arguments):
    with pytest.raises(ValueError, match=message):
        explore(draw, alt="x", **arguments)


def test_panels_are_the_parameters_that_are_no_sliders():
    def draw(ax, bx, k, points=7):
        assert points == 7 and ax is not bx
        return "two"

    explorer = explore(draw, k=(0, 1, 2), alt="x")
    assert explorer.panels == 2 and len(explorer.frame((0,))[0]) == 2
    assert explore(lambda ax, **values: None, k=(0, 1, 2), alt="x").panels == 1


# ---- frames ----

@each_example
def test_frames_are_those_drawn_from_scratch(name):
    """What Painter keeps between frames, blank figures and drawn axes, changes nothing."""
    explorer = examples()[name]
    scratch = from_scratch(explorer)
    for positions in reversed(sample(explorer)):
        pictures, caption = explorer.frame(positions)
        expected, expected_caption = scratch.frame(explorer.values(positions))
        assert caption == expected_caption
        assert [number_ids(rows, "id") for rows in pictures] == [number_ids(rows, "id") for rows in expected]


def test_axes_are_drawn_once_where_they_do_not_change():
    explorer = examples()["trade_off"]
    for positions in explorer.grid[:20]:
        explorer.frame(positions)
    assert 4 <= len(explorer.painter.axes_drawn) <= 8           # 84 without the saving


def test_no_transform_of_a_copied_figure_can_be_mistaken_for_a_new_one():
    """matplotlib finds what depends on a transform by id; a copy must not hold ids that a new object can get."""
    figure = Figure()
    figure.add_axes((0.1, 0.1, 0.8, 0.8))

    def keys(figure):
        ax = figure.axes[0]
        nodes = [ax.bbox, ax.viewLim, ax.transAxes, ax.transData, ax.transLimits, ax.transScale, figure.transFigure]
        return [key for node in nodes for key in node._parents]

    assert keys(figure) and min(keys(figure)) > 0
    assert min(keys(pickle.loads(pickle.dumps(figure)))) > 0                  # what is wrong in matplotlib
    copy = pickle.loads(dump_figure(figure))
    assert len(keys(copy)) >= len(keys(figure)) and max(keys(copy)) < 0


def test_the_comparison_with_scratch_notices_a_wrong_axis(monkeypatch):
    """Negative control: axes kept regardless of their state give frames that differ."""
    monkeypatch.setattr(utils.explore, "axis_state", lambda axis: f"axis-{axis.axis_name}")
    explorer = examples()["restless"]
    wrong = []
    for positions in explorer.grid:
        pictures = explorer.frame(positions)[0]
        expected = from_scratch(explorer).frame(explorer.values(positions))[0]
        wrong += [RESTLESS[positions[0]]] * (number_ids(pictures[0], "id") != number_ids(expected[0], "id"))
    assert {"limits", "log", "rotated", "grid", "lambda", "label"} <= set(wrong)


def drawn(root):
    """What an SVG shows, in drawing order: tag, attributes and text, with references replaced by what they name.

    A list of (text with # instead of each number, its numbers).
    """
    named = {element.get("id"): element for element in root.iter() if element.get("id")}
    found = []

    def visit(element, inherited):
        tag = element.tag.rpartition("}")[2]
        if tag in ("defs", "metadata", "style"):
            return
        attributes = {}
        for key, value in element.items():
            key = key.rpartition("}")[2]
            if key == "id" or value.startswith("rotate(-0 "):
                continue
            if reference := re.search(r"#([a-zA-Z][\w-]*)", value) if key in ("href", "clip-path") else None:
                target = named[reference[1]]
                shape = target if target.get("d") else target[0]
                value = " ".join(v for k, v in sorted(shape.items()) if k != "id")
            value = value.replace("#000000", "currentColor").replace("#ffffff", "var(--explore-paper)")
            attributes[key] = re.sub(r"font-family: [^;]*(; |$)", "", value).strip("; ")
        if tag == "g":
            inherited = inherited | attributes
        elif tag != "svg":
            text = f"{tag} {sorted((inherited | attributes).items())} {(element.text or '').strip()}"
            text = re.sub(r"\s+", " ", text.replace("\\n", " "))
            number = r"(?<![\w.#])-?\d+(?:\.\d+)?(?![\w.])"
            found.append((re.sub(number, "#", text), [float(x) for x in re.findall(number, text)]))
        for child in element:
            visit(child, inherited)

    visit(root, {})
    return found


@each_example
def test_frames_are_what_matplotlib_saves(name):
    """Independent of Painter: the file that savefig writes shows the same elements in the same order."""
    explorer = examples()[name]
    for positions in sample(explorer):
        with rc_context(STYLE):
            figures = [Figure(explorer.size, dpi=72) for _ in range(explorer.panels)]
            explorer.draw(*(figure.add_subplot() for figure in figures), **explorer.values(positions))
            files = []
            for figure, places in zip(figures, explorer.painter.places):
                for ax, place in zip(figure.axes, places):
                    ax.set_position(place)
                figure.savefig(file := io.StringIO(), format="svg", dpi=BITMAP_DPI)
                files.append(file.getvalue())
        for rows, saved in zip(explorer.frame(positions)[0], files):
            own = ElementTree.fromstring(svg_text(number_ids(rows, "id")))
            ours, theirs = drawn(own), drawn(ElementTree.fromstring(saved))
            assert [text for text, _ in ours] == [text for text, _ in theirs]
            for (text, numbers), (_, expected) in zip(ours, theirs):
                np.testing.assert_allclose(numbers, expected, rtol=0, atol=0.0501, err_msg=text)


def test_frames_are_laid_out_once():
    """The place of the axes is that of the first frame, whatever a later one would need."""
    def draw(ax, k):
        ax.set(xlim=(0, 1), ylim=(0, 10**k), ylabel="long\nlabel\n" * int(k))

    explorer = explore(draw, k=[0, 3], start={"k": 0}, alt="x")
    paths = [next(row for row in explorer.frame((n,))[0][0] if row.tag == "path" and row.depth == 1)
             for n in (0, 1)]
    boxes = [[row.attributes["d"] for row in explorer.frame((n,))[0][0] if row.tag == "path"][:2] for n in (0, 1)]
    assert boxes[0] == boxes[1] and paths[0] == paths[1]


@pytest.mark.parametrize("result, message", [
    (3, "expected the caption, a text, got 3"),
    ("mean $\\gamma$", "expected a caption without formulas"),
])
def test_captions_are_plain_text(result, message):
    with pytest.raises(RuntimeError, match=message):
        explore(lambda ax, k: result, k=(0, 1, 2), alt="x").static()
    assert explore(lambda ax, k: "costs $5", k=(0, 1, 2), alt="x").frame((0,))[1] == "costs $5"


def test_errors_name_the_slider_values():
    def draw(ax, gamma, mode):
        if gamma == 1 and mode == "b":
            raise ZeroDivisionError("division by zero")

    explorer = explore(draw, gamma=(0, 1, 3), mode=["a", "b"], alt="x")
    for form in (explorer.static, explorer.check):
        with pytest.raises(RuntimeError, match="gamma=1.0, mode='b': ZeroDivisionError: division by zero"):
            form()


def test_what_matplotlib_cannot_draw_is_an_error_too():
    def draw(ax, k):
        ax.set_title(r"$\nosuchcommand$" if k else "fine")

    with pytest.raises(RuntimeError, match="'k': 1.*matplotlib cannot show"):
        explore(draw, k=[0, 1], start={"k": 0}, alt="x").check()


# ---- packing ----

@each_example
def test_the_page_holds_every_frame_exactly(name):
    explorer = examples()[name]
    page = page_of(name)
    if not explorer.sliders:
        assert "<script" not in page and "<input" not in page
        return
    data, panels, caption = contents(page)
    scratch = from_scratch(explorer)
    prefix = re.search(r"explore-[0-9a-f]{8}", page)[0]
    assert len(data["captions"]) == len(explorer.grid) and caption == data["captions"][data["first"]]
    for positions in sample(explorer):
        number = explorer.grid.index(positions)
        pictures, caption = scratch.frame(explorer.values(positions))
        assert data["captions"][number] == caption
        for panel, rows in enumerate(pictures):
            expected = [(row.tag, row.attributes, row.text or "") for row in number_ids(rows, f"{prefix}-{panel}")]
            assert unpack(data["panels"][panel], panels[panel], number) == expected
    assert len(panels) == len(data["panels"]) == explorer.panels


def test_a_changed_value_in_the_page_is_noticed():
    """Negative control of the test above."""
    data, panels, _ = contents(page_of("weights"))
    packed = data["panels"][0]
    before = [unpack(packed, panels[0], n) for n in range(40)]
    packed["frames"][3][5] = packed["frames"][3][5] + 1
    after = [unpack(packed, panels[0], n) for n in range(40)]
    assert [n for n in range(40) if before[n] != after[n]] == [3]


words = st.text(alphabet='ab<>&"γ1. ', max_size=4)
tags = st.sampled_from("gp")
trees = st.deferred(lambda: st.builds(
    lambda tag, attributes, text, children: (tag, attributes, None if children else text, children), tags,
    st.dictionaries(st.sampled_from("xyd"), words, max_size=3), st.none() | words, st.lists(trees, max_size=2)))


def to_rows(tree, depth=0):
    tag, attributes, text, children = tree
    return [Row(depth, tag, attributes, text or None), *(row for child in children for row in to_rows(child, depth + 1))]


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(trees, min_size=1, max_size=5), st.data())
def test_packing_loses_nothing(forest, data):
    """For any pictures, in any order, with any of them on the page."""
    pictures = [to_rows(tree) for tree in forest] * 2
    first = data.draw(st.integers(0, len(pictures) - 1))
    packed = json.loads(json.dumps(pack(pictures, first)))
    for number, rows in enumerate(pictures):
        expected = [(row.tag, row.attributes, row.text or "") for row in rows]
        assert unpack(packed, svg_text(pictures[first]), number) == expected


def test_only_differences_are_stored():
    data, _, _ = contents(page_of("weights"))
    [panel] = data["panels"]
    assert len(panel["groups"]) == 1 and panel["groups"][0]["svg"] is None
    assert {attribute for _, attribute in panel["groups"][0]["slots"]} == {"d"}          # the bars, nothing else
    assert len(panel["groups"][0]["slots"]) <= 30


def test_ids_are_unique_on_a_page_and_all_references_hold():
    pages = [page_of(name) for name in NAMES]
    svgs = []
    for page in pages:
        svgs.append("".join(re.findall(r"<svg.*?</svg>", page, re.S)))
        if "application/json" in page:
            for panel in contents(page)[0]["panels"]:
                for group in panel["groups"]:
                    here = group["svg"] or svgs[-1]
                    ids = re.findall(r'\sid="([^"]*)"', here)
                    assert len(set(ids)) == len(ids)
                    assert set(re.findall(r'(?:href="|url\()#([\w-]+)', here)) == set(ids)
    ids = [re.findall(r'\sid="([^"]*)"', svg) for svg in svgs]
    assert len(set(sum(ids, []))) == len(sum(ids, [])) > 0


# ---- the website's form ----

def test_the_same_figure_is_the_same_bytes():
    assert {name: explorer.static() for name, explorer in reversed(examples().items())} == {
        name: page_of(name) for name in NAMES}


def test_the_bytes_do_not_depend_on_the_process():
    code = ("import hashlib, sys; sys.path.insert(0, 'tests'); from explorers import examples\n"
            "print(hashlib.sha256(examples()['arrows'].static().encode()).hexdigest())")
    digests = {subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                              env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
                              cwd=os.path.dirname(os.path.dirname(__file__))).stdout.strip() for seed in "12"}
    assert digests == {hashlib.sha256(page_of("arrows").encode()).hexdigest()}


def test_text_with_special_characters_stays_text():
    page = page_of("arrows")
    data, _, caption = contents(page)
    assert caption == 'softer & <calm>: 2 arrows, 1 < 2 & "γ" </script>'
    assert page.count("<script") == page.count("</script>") == 1 and "<calm>" not in page and "<b>" not in page
    assert 'aria-label="Arrows &quot;up&quot; or &lt;down&gt; &amp; γ"' in page
    assert data["texts"] == [["greedy", "softer & <calm>"], ["0", "1", "2", "3", "4"]]


@each_example
def test_colours_and_font_are_the_page_s(name):
    page = page_of(name)
    assert "#000000" not in page and "#ffffff" not in page and "font-family" not in page
    assert "currentColor" in page and "<style" not in page
    if name == "restless":
        assert "var(--explore-paper)" in page


def test_sliders_have_names_values_and_a_reset():
    page = page_of("trade_off")
    labels = re.findall(r"<label><span>(.*?)</span><input ([^>]*)></label><output aria-live=\"off\"[^>]*>(.*?)</output>",
                        page)
    assert [(name, value) for name, _, value in labels] == [("discount γ", "0.9"), ("trace λ", "0.8")]
    for _, attributes, value in labels:
        assert 'type="range" min="0" max="5" step="1"' in attributes and f'aria-valuetext="{value}"' in attributes
    assert '<div class="explore-controls" hidden>' in page and "<noscript>" in page
    assert '<button type="button" class="explore-reset">Reset</button>' in page
    assert '<figcaption aria-live="polite">' in page


def test_a_figure_that_is_too_large_says_what_to_do():
    noise = np.random.default_rng(0).standard_normal((12, 12, 400)).cumsum(-1)

    def draw(ax, i, j):
        ax.plot(noise[i, j])
        ax.set(ylim=(-60, 60))

    with pytest.raises(ValueError, match=rf"takes \d+ KB .* limit is {LIMIT_KB} KB: .*fewer positions \(now 144 frames\)"):
        explore(draw, i=range(12), j=range(12), alt="x").static()


@each_example
def test_the_examples_are_far_below_the_limit(name):
    assert len(gzip.compress(page_of(name).encode())) < LIMIT_KB * 1024 * 0.6


# ---- display ----

@pytest.fixture
def shown(monkeypatch):
    """The list of what IPython's display was called with."""
    calls = []
    monkeypatch.setattr("IPython.display.display", lambda thing, raw=False: calls.append(thing))
    return calls


def test_check_draws_the_corners_only_and_shows_text(shown, monkeypatch):
    monkeypatch.setenv("EXPLORE", "check")
    seen = set()

    def draw(ax, gamma, lam):
        seen.add((gamma, lam))
        return "caption"

    explore(draw, gamma=(0, 1, 5), lam=(0, 1, 21), alt="what it shows")._ipython_display_()
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5)}
    assert shown == [{"text/plain": "what it shows"}]


def test_check_fails_where_a_corner_fails(shown, monkeypatch):
    monkeypatch.setenv("EXPLORE", "check")

    def draw(ax, gamma):
        return f"{1 / (1 - gamma):.1f}"

    with pytest.raises(RuntimeError, match="draw failed at gamma=1.0: ZeroDivisionError"):
        explore(draw, gamma=(0, 1, 11), alt="x")._ipython_display_()
    assert shown == []


def test_check_refuses_a_draw_that_never_draws_the_same_twice():
    rng = np.random.default_rng(0)

    def draw(ax, k):
        ax.plot(rng.standard_normal(5))

    with pytest.raises(RuntimeError, match="expected the same frame when drawn twice"):
        explore(draw, k=(0, 1, 3), alt="x").check()


def test_static_shows_html(shown, monkeypatch):
    monkeypatch.setenv("EXPLORE", "static")
    explorer = explore(line, k=(0, 10, 3), alt="a line")
    explorer._ipython_display_()
    assert shown == [{"text/plain": "a line", "text/html": explorer.static()}]


def test_an_unknown_form_is_refused(monkeypatch):
    monkeypatch.setenv("EXPLORE", "png")
    with pytest.raises(ValueError, match="EXPLORE: expected live, static or check, got 'png'"):
        explore(line, k=(0, 1, 3), alt="x")._ipython_display_()


def test_live_shows_a_plain_figure_without_widgets(shown, monkeypatch):
    monkeypatch.delenv("EXPLORE", raising=False)
    explore(weights, lam=(0, 0.5, 2), alt="x")                 # nothing is drawn before it is displayed
    examples()["curve"]._ipython_display_()
    [bundle] = shown
    assert bundle["text/plain"] == "A learning curve." and "<svg" in bundle["text/html"]
    assert "<style>" in bundle["text/html"] and "figcaption" in bundle["text/html"]


def parts(widget):
    """(sliders, button, picture) of a live figure."""
    style, *sliders, button, picture = widget.children
    assert "figure.explore" in style.value
    return sliders, button, picture


def test_live_sliders_move_the_figure(shown, monkeypatch):
    monkeypatch.setenv("EXPLORE", "live")
    explorer = examples()["trade_off"]
    explorer._ipython_display_()
    sliders, button, picture = parts(shown[0])
    assert [slider.description for slider in sliders] == ["discount γ", "trace λ"]
    start = picture.value
    assert start == explorer.frame_html((4, 4)) and "γ = 0.9, λ = 0.8" in start
    for slider, caption in zip(sliders, ("γ = 1, λ = 0.8", "γ = 1, λ = 0:")):
        slider.value = 5 if slider is sliders[0] else 0
        assert caption in picture.value
    assert picture.value == explorer.frame_html((5, 0)) != start
    assert '<span class="explore-spoken">discount γ: 1. trace λ: 0. </span>' in picture.value
    button.click()
    assert [slider.value for slider in sliders] == [4, 4] and picture.value == start


def test_live_uses_only_widgets_of_ipywidgets_7():
    widget = examples()["arrows"].live()
    assert {type(part).__name__ for part in widget.children} == {"HTML", "SelectionSlider", "Button"}
    slider = widget.children[1]
    assert slider.options == (("greedy", 0), ("softer & <calm>", 1)) and slider.label == "softer & <calm>"


def test_live_shows_the_error_of_a_later_frame_and_recovers():
    def draw(ax, gamma):
        return f"{1 / (1 - gamma):.1f}"

    [slider], _, picture = parts(explore(draw, gamma=(0, 1, 3), alt="x").live())
    slider.value = 2
    assert "ZeroDivisionError" in picture.value and "draw failed at gamma=1.0" in picture.value
    slider.value = 0
    assert "1.0</figcaption>" in picture.value


def test_live_raises_when_the_first_frame_fails():
    with pytest.raises(RuntimeError, match="draw failed at k=0.5: NameError"):
        explore(lambda ax, k: undefined, k=(0, 1, 3), alt="x").live()           # noqa: F821


def test_figures_leave_matplotlib_s_settings_alone():
    before = dict(matplotlib.rcParams)
    page_of("weights")
    assert dict(matplotlib.rcParams) == before
    assert restless.__doc__
