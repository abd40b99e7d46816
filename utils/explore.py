"""`explore(draw, gamma=(0.5, 1, 11), alt="...")`: a figure with sliders from one matplotlib function.

The environment variable EXPLORE chooses the form:

    live    (default) ipywidgets; a frame is drawn when a slider asks for it: JupyterLab, VS Code, Colab
    static  for the website: all frames are drawn now. The page holds the first one as SVG and, as JSON, only
            what differs in the others; explore.js applies it. No kernel, no library, nothing to fetch.
    check   for tests: the corners of the grid are drawn and thrown away

Four parts follow: the sliders, drawing one frame, packing many frames, the three forms.
"""
import dataclasses
import functools
import gzip
import hashlib
import html
import inspect
import io
import itertools
import json
import math
import numbers
import os
import pickle
import re
import traceback
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure, FigureBase
from matplotlib.transforms import TransformNode

from utils.plotting import STYLE

LIMIT_KB = 100          # of one explorer on the website, compressed
BITMAP_DPI = 144        # of images, and of artists that are rasterized
GREEK = {"alpha": "α", "beta": "β", "delta": "δ", "epsilon": "ε", "eta": "η", "gamma": "γ", "kappa": "κ",
         "lam": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ", "theta": "θ"}


def explore(draw, /, *, alt="", size=None, start=None, labels=None, **sliders):
    """A figure that `draw` draws, with one slider for each further keyword. Put it last in a cell.

    draw     draw(ax, **values) draws one frame and returns its caption, a plain text (or None). `values` has
             one keyword for each slider. With several panels: draw(ax, bx, ..., **values). The same values
             must give the same frame. Fix the limits of the axes, or each frame is rescaled and hides what
             the slider changes.
    alt      text for readers who do not see the figure: what it shows, and what a slider changes
    size     width and height of one panel in inches, by default (4.6, 2.9), or (3.3, 2.6) if there are
             several; a wider panel has smaller letters on a phone
    start    {slider: value} of the first frame; by default the middle position of each slider
    labels   {slider: text} beside the slider; by default its name, or the Greek letter of that name
    sliders  (start, stop, count), `count` evenly spaced numbers; or a list of choices, numbers or texts

    Without sliders this is a plain figure with an alternative text. Figures follow the page's light or dark
    theme: black becomes the colour of the page's text, white that of its background. For a white or black
    that must stay, say on a coloured cell, take "#fefefe" or "#010101".

    Raises ValueError for a bad argument, and RuntimeError with the slider values at which `draw` failed.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt: expected a text for readers who do not see the figure, got {alt!r}")
    panels = count_panels(draw, sliders)
    if size is None:
        size = (4.6, 2.9) if panels == 1 else (3.3, 2.6)
    if np.shape(size) != (2,) or not all(isinstance(x, numbers.Real) and 0 < x < 50 for x in size):
        raise ValueError(f"size: expected (width, height) of a panel in inches, got {size!r}")
    start, labels = start or {}, labels or {}
    for name, given in (("start", start), ("labels", labels)):
        if unknown := set(given) - set(sliders):
            raise ValueError(f"{name}: expected names of sliders ({', '.join(sliders) or 'there are none'}), "
                             f"got {', '.join(sorted(unknown))}")
    rows = [make_slider(name, given, start.get(name), labels.get(name)) for name, given in sliders.items()]
    return Explorer(draw, panels, alt.strip(), tuple(size), rows)


# ---- the sliders ----------------------------------------------------------------------------------------

class Slider(NamedTuple):
    """One slider: `values` go to draw, `texts` are shown, `first` is the position at which it starts."""
    name: str
    label: str
    values: list
    texts: list
    first: int


def make_slider(name, given, start, label):
    """The Slider for a tuple (start, stop, count) or a list of choices. Raises ValueError."""
    if isinstance(given, tuple):
        if len(given) != 3 or not all(isinstance(x, numbers.Real) and math.isfinite(x) for x in given):
            raise ValueError(f"{name}: expected (start, stop, count) or a list of choices, got {given!r}")
        low, high, count = given
        if low == high or count < 2 or count != int(count):
            raise ValueError(f"{name}: expected (start, stop, count) with start != stop and a whole count "
                             f">= 2, got {given!r}")
        # Ten digits: without the tail that linspace leaves, as in 0.30000000000000004.
        values = [float(f"{x:.10g}") for x in np.linspace(low, high, int(count))]
    else:
        values = [x.item() if isinstance(x, np.generic) else x for x in given]
    if len(values) < 2 or any(isinstance(x, float) and not math.isfinite(x) for x in values):
        raise ValueError(f"{name}: expected at least two choices, all finite, got {given!r}")
    texts = [f"{x:g}" if isinstance(x, float) else str(x) for x in values]
    if len(set(texts)) < len(texts):
        raise ValueError(f"{name}: expected choices that look different, got {', '.join(texts)}")
    first = len(values) // 2
    if start is not None:
        matches = [n for n, value in enumerate(values) if same(value, start)]
        if not matches:
            raise ValueError(f"start: expected one of {', '.join(texts)} for {name}, got {start!r}")
        first = matches[0]
    return Slider(name, label or GREEK.get(name, name), values, texts, first)


def same(a, b):
    """Whether two choices are the same text or, but for rounding, the same number."""
    if isinstance(a, numbers.Real) and isinstance(b, numbers.Real):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return a == b


def count_panels(draw, sliders):
    """The number of panels: parameters of `draw` that are neither sliders nor optional. Raises ValueError."""
    parameters = inspect.signature(draw).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if missing := [name for name in sliders if name not in parameters and not takes_all]:
        raise ValueError(f"{', '.join(missing)}: expected a parameter of draw of that name, got a draw"
                         f"({', '.join(parameters)})")
    panels = [name for name, p in parameters.items() if name not in sliders and p.default is p.empty
              and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not panels:
        raise ValueError(f"draw: expected draw(ax, ...), one Axes for each panel, got draw"
                         f"({', '.join(parameters)})")
    return len(panels)


# ---- drawing one frame ----------------------------------------------------------------------------------

class Row(NamedTuple):
    """One element of an SVG picture; a picture is a list of rows in document order."""
    depth: int
    tag: str
    attributes: dict
    text: str | None


class Painter:
    """Draws frames as SVG pictures, one for each panel, and does only once what frames share.

    Every frame starts from blank axes, in the place that the layout of the first frame gave them. Blank
    figures are kept pickled, because reading one back is faster than making one. Most of matplotlib's time
    goes into ticks and labels, which seldom change: an axis whose state has been drawn before is not drawn
    again. The pictures are the same, to the last digit, as those drawn from scratch; a test compares them.
    """

    def __init__(self, draw, panels, size, values):
        self.draw, self.size = draw, size
        with rc_context(STYLE):
            figures = [Figure(size, dpi=72, layout="constrained") for _ in range(panels)]
            self.call_draw([figure.add_subplot() for figure in figures], values)
            for figure in figures:
                figure.draw_without_rendering()
            self.places = [[ax.get_position() for ax in figure.axes] for figure in figures]
            self.blanks = [dump_figure(self.blank_figure(places[0])) for places in self.places]
        self.axes_drawn = {}                                     # state of an axis: its rows

    def blank_figure(self, place):
        figure = Figure(self.size, dpi=72)
        figure.add_axes(place)
        return figure

    def call_draw(self, axes, values):
        """The caption that draw returns. Raises RuntimeError that names the slider values."""
        where = ", ".join(f"{name}={value!r}" for name, value in values.items()) or "no sliders"
        try:
            caption = self.draw(*axes, **values)
        except Exception as error:
            raise RuntimeError(f"draw failed at {where}: {type(error).__name__}: {error}") from error
        if caption is not None and not isinstance(caption, str):
            raise RuntimeError(f"draw at {where}: expected the caption, a text, got {caption!r}")
        if caption and re.search(r"\$[^$]+\$", caption):
            raise RuntimeError(f"draw at {where}: expected a caption without formulas (write γ, x²), "
                               f"got {caption!r}")
        return caption or ""

    def frame(self, values):
        """([the picture of each panel], caption). Raises RuntimeError that names the slider values."""
        with rc_context(STYLE | {"svg.hashsalt": "explore"}):
            figures = [pickle.loads(blank) for blank in self.blanks]
            caption = self.call_draw([figure.axes[0] for figure in figures], values)
            try:
                return [self.picture(*pair) for pair in zip(figures, self.places)], caption
            except Exception as error:
                raise RuntimeError(f"draw at {values} drew what matplotlib cannot show: {error}") from error

    def picture(self, figure, places):
        """The SVG of a figure whose axes are put where the layout of the first frame had them."""
        for ax, place in zip(figure.axes, places):
            ax.set_position(place)
        for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
            axis.draw = functools.partial(self.draw_axis, axis)
        rows = []
        for row in self.render(figure):
            drawn = self.axes_drawn.get(row.attributes.get("id"))
            if drawn is None:
                rows.append(row)
            else:                                                # the group that draw_axis left
                rows.extend(part._replace(depth=row.depth + part.depth - 1) for part in drawn)
        return rows

    def draw_axis(self, axis, renderer):
        """Instead of an axis, draw an empty group named by its state; draw the axis apart if it is new."""
        del axis.draw                                            # from here on, matplotlib's own method
        state = axis_state(axis)
        if state not in self.axes_drawn:
            self.axes_drawn[state] = self.render(axis)[1:]       # without the outer <svg>
        renderer.open_group("axis", gid=state)
        renderer.close_group("axis")

    def render(self, artist):
        """The SVG that an artist, a figure or an axis, draws."""
        stream, (width, height) = io.StringIO(), self.size
        vectors = RendererSVG(width * 72, height * 72, stream, image_dpi=BITMAP_DPI)
        renderer = MixedModeRenderer(artist.get_figure(), width, height, BITMAP_DPI, vectors)
        artist.draw(renderer)
        renderer.finalize()
        return list(read_rows(ElementTree.fromstring(stream.getvalue())))


class FigurePickler(pickle.Pickler):
    """Pickles a figure so that its copies never miss a change of their limits.

    matplotlib lists what depends on a transform under id(dependant), and keeps these keys in the pickle. In a copy a
    new transform may have an old one's id and take its place in the list. No id is negative, so -id is safe.
    """

    def reducer_override(self, thing):
        if not isinstance(thing, TransformNode):
            return NotImplemented
        create, arguments, state, *rest = thing.__reduce_ex__(2)
        parents = {-abs(key): parent for key, parent in state["_parents"].items()}
        return create, arguments, state | {"_parents": parents}, *rest


def dump_figure(figure):
    """The figure as bytes for pickle.loads."""
    stream = io.BytesIO()
    FigurePickler(stream, pickle.HIGHEST_PROTOCOL).dump(figure)
    return stream.getvalue()


class AxisPickler(pickle.Pickler):
    """Pickles the state of an axis without what it hangs on: axes, figure, transforms, the other axis."""

    def persistent_id(self, thing):
        return type(thing).__name__ if isinstance(thing, (Axes, Axis, FigureBase, TransformNode)) else None


def axis_state(axis):
    """A digest of all that decides how an axis looks: its own state, the spines' state, and where it lies."""
    ax = axis.axes
    limits = [ax.get_xlim(), ax.get_ylim()]
    pixels = ax.transData.transform(np.linspace(*np.transpose(limits), 5))      # tells place and scale
    stream = io.BytesIO()
    try:
        AxisPickler(stream).dump((limits, pixels, vars(axis), *ax.spines.values()))
    except (pickle.PicklingError, AttributeError, TypeError):    # a formatter that is a lambda, for example:
        stream.write(os.urandom(16))                             # no two are known to be the same
    return f"axis-{hashlib.sha256(stream.getvalue()).hexdigest()}"


def read_rows(element, depth=0):
    """The rows of an SVG element, without metadata, styles and mere wrappers."""
    tag = element.tag.rpartition("}")[2]
    if tag in ("metadata", "style") or (tag == "defs" and not element.findall("*[@id]")):
        return
    if depth == 0:
        attributes = {"viewBox": element.get("viewBox"), "aria-hidden": "true"}
    else:
        attributes = {name.rpartition("}")[2]: compact(name, value) for name, value in element.items()
                      if not value.startswith("rotate(-0 ")}
    wrapper = tag == "g" and attributes.keys() <= {"id"} and not element.get("id", "").startswith("axis-")
    if not wrapper:
        text = element.text if element.text and not element.text.isspace() else None
        yield Row(depth, tag, attributes, text)
    for child in element:
        yield from read_rows(child, depth if wrapper else depth + 1)


def compact(name, value):
    """An attribute's value in the page's ink, paper and font instead of fixed ones, and with few decimals.

    Straight lines, which make up most of a picture, get one: 0.05 points are less than a tenth of a pixel.
    """
    if value.startswith("data:"):                                # a bitmap
        return value
    decimals = 1 if name == "d" and "C" not in value else 2
    value = re.sub(r"\d+\.\d+", lambda number: str(round(float(number[0]), decimals)), value)
    value = value.replace("#000000", "currentColor").replace("#ffffff", "var(--explore-paper)")
    return re.sub(r"font-family: [^;]*(; |$)", "", re.sub(r"\s+", " ", value)).strip("; ")


# ---- packing many frames --------------------------------------------------------------------------------

REFERENCE = re.compile(r"(?:^|url\()#([A-Za-z]\w+)")     # in href="#m1" and url(#p1), but not in "#2a7fd4"


def number_ids(rows, prefix):
    """The rows with all ids that are referred to renamed prefix-0, prefix-1, ... and without the other ids.

    matplotlib's ids are digests of what they name; a second element with the same id is left out.
    """
    used = {name for row in rows for value in row.attributes.values() for name in REFERENCE.findall(value)}
    defined = dict.fromkeys(row.attributes["id"] for row in rows if row.attributes.get("id") in used)
    names = {name: f"{prefix}-{number}" for number, name in enumerate(defined)}

    def rename(value):
        return REFERENCE.sub(lambda match: match[0].replace(match[1], names[match[1]]), value)

    result, seen, repeated = [], set(), math.inf         # repeated: the depth of an element to leave out
    for row in rows:
        if row.depth > repeated:
            continue
        name = row.attributes.get("id")
        repeated = row.depth if name in seen else math.inf
        if name in seen:
            continue
        attributes = {key: rename(value) for key, value in row.attributes.items() if key != "id"}
        if name in names:
            seen.add(name)
            attributes["id"] = names[name]
        result.append(row._replace(attributes=attributes))
    return result


def svg_text(rows):
    """The picture as SVG text."""
    parts, unclosed = [], []
    for row in rows:
        while len(unclosed) > row.depth:
            parts.append(f"</{unclosed.pop()}>")
        attributes = [f' {name}="{html.escape(value)}"' for name, value in row.attributes.items()]
        parts.append(f"<{row.tag}{''.join(attributes)}>{html.escape(row.text or '')}")
        unclosed.append(row.tag)
    return "".join(parts + [f"</{tag}>" for tag in reversed(unclosed)])


def pack(pictures, first):
    """Pictures of one panel as a dictionary that holds only their differences.

    Pictures with the same elements and attributes form a group:
        svg     one picture of the group as SVG text; None where picture number `first`, which the page shows,
                belongs to the group
        slots   [element, attribute] of each value that differs within the group; "" is the element's text
        values  all values that stand in these slots
    `frames` holds for each picture the number of its group, then for each slot an index into `values`.
    """
    groups, members = {}, []
    for rows in pictures:
        shape = tuple((row.depth, row.tag, tuple(row.attributes), row.text is None) for row in rows)
        group = groups.setdefault(shape, {"number": len(groups), "rows": rows, "contents": []})
        content = [value for row in rows for value in (*row.attributes.values(), row.text or "")]
        group["contents"].append(content)
        members.append((group, content))
    for group in groups.values():
        slots = [[n, name] for n, row in enumerate(group["rows"]) for name in (*row.attributes, "")]
        group["differ"] = [n for n, column in enumerate(zip(*group["contents"])) if len(set(column)) > 1]
        group["slots"] = [slots[n] for n in group["differ"]]
        group["values"] = {}                             # value: its index
    frames = []
    for group, content in members:
        values = group["values"]
        indices = [values.setdefault(content[n], len(values)) for n in group["differ"]]
        frames.append([group["number"], *indices])
    shown = frames[first][0]
    return {"frames": frames, "groups": [
        {"svg": None if group["number"] == shown else svg_text(group["rows"]),
         "slots": group["slots"], "values": list(group["values"])} for group in groups.values()]}


# ---- the three forms ------------------------------------------------------------------------------------

@dataclasses.dataclass
class Explorer:
    """What `explore` returns. A notebook displays it in the form that EXPLORE names."""
    draw: Any
    panels: int
    alt: str
    size: tuple
    sliders: list

    @property
    def first(self):
        """The positions of the sliders in the first frame."""
        return tuple(slider.first for slider in self.sliders)

    @property
    def grid(self):
        """All combinations of slider positions; the last slider moves fastest."""
        return list(itertools.product(*(range(len(slider.values)) for slider in self.sliders)))

    @functools.cached_property
    def painter(self):
        return Painter(self.draw, self.panels, self.size, self.values(self.first))

    def values(self, positions):
        """The keywords for draw at these slider positions."""
        return {slider.name: slider.values[n] for slider, n in zip(self.sliders, positions)}

    def frame(self, positions):
        """([the picture of each panel], caption) at these slider positions."""
        return self.painter.frame(self.values(positions))

    def check(self):
        """Draw the corners of the grid, and the first frame twice. Raises RuntimeError when one fails."""
        if self.frame(self.first) != self.frame(self.first):
            raise RuntimeError(f"draw at {self.values(self.first)}: expected the same frame when drawn twice, "
                               "got two that differ; take random numbers from outside, or from a seed")
        for positions in itertools.product(*((0, len(slider.values) - 1) for slider in self.sliders)):
            self.frame(positions)

    def static(self):
        """The figure as HTML for the website. Raises ValueError when it is too large."""
        grid = self.grid
        first = grid.index(self.first)
        pictures, captions = zip(*map(self.frame, grid))
        prefix = digest([pictures, captions, self.alt])
        panels = [[number_ids(rows, f"{prefix}-{number}") for rows in frames]
                  for number, frames in enumerate(zip(*pictures))]
        controls = ""
        if self.sliders:
            controls = controls_html(self.sliders, {
                "first": first, "texts": [slider.texts for slider in self.sliders], "captions": captions,
                "panels": [pack(frames, first) for frames in panels]})
        page = self.figure_html([frames[first] for frames in panels], html.escape(captions[first]), controls)
        size = len(gzip.compress(page.encode())) / 1024
        if size > LIMIT_KB:
            raise ValueError(f"explore: this figure takes {size:.0f} KB compressed on the website, the limit "
                             f"is {LIMIT_KB} KB: give the sliders fewer positions (now {len(grid)} frames), "
                             "or draw fewer points and fewer lines that change")
        return page

    def live(self):
        """The figure as a widget for a running kernel; ipywidgets 7 (Colab) and 8."""
        import ipywidgets

        sliders = [ipywidgets.SelectionSlider(
            options=[(text, position) for position, text in enumerate(slider.texts)], value=slider.first,
            description=slider.label, style={"description_width": "8em"}, layout={"width": "32em"})
            for slider in self.sliders]
        button = ipywidgets.Button(description="Reset")
        picture = ipywidgets.HTML(self.frame_html(self.first))
        drawn = {self.first: picture.value}

        def show(_change):
            positions = tuple(slider.value for slider in sliders)
            try:
                if positions not in drawn:
                    drawn[positions] = self.frame_html(positions)
                picture.value = drawn[positions]
            except Exception:                            # ipywidgets would hide it in a log
                picture.value = f"<pre>{html.escape(traceback.format_exc())}</pre>"

        def reset(_button):
            for slider, position in zip(sliders, self.first):
                slider.value = position

        for slider in sliders:
            slider.observe(show, names="value")
        button.on_click(reset)
        return ipywidgets.VBox([ipywidgets.HTML(style_html()), *sliders, button, picture])

    def frame_html(self, positions):
        """One frame as HTML for a running kernel, whose sliders tell a screen reader no values: text does."""
        pictures, caption = self.frame(positions)
        prefix = digest([pictures, self.alt])
        rows = [number_ids(picture, f"{prefix}-{number}") for number, picture in enumerate(pictures)]
        at = "".join(f"{slider.label}: {slider.texts[n]}. " for slider, n in zip(self.sliders, positions))
        spoken = f'<span class="explore-spoken">{html.escape(at)}</span>' if at else ""
        return self.figure_html(rows, spoken + html.escape(caption), "")

    def figure_html(self, pictures, caption, controls):
        """Pictures, sliders, caption. An inch is shown as 6.6 rem, so that 10 points are about 15 pixels."""
        width = f"max-width: {self.size[0] * 6.6:g}rem"
        panels = "".join(f'<div class="explore-panel" style="{width}">{svg_text(rows)}</div>'
                         for rows in pictures)
        live = ' aria-live="polite"' if self.sliders else ""
        below = f"<figcaption{live}>{caption}</figcaption>" if self.sliders or caption else ""
        return (f'<figure class="explore"><div class="explore-panels" role="img" '
                f'aria-label="{html.escape(self.alt)}">{panels}</div>{controls}{below}</figure>')

    def _ipython_display_(self):
        from IPython.display import display

        form = os.environ.get("EXPLORE", "live")
        bundle = {"text/plain": self.alt}
        if form == "check":
            self.check()
        elif form == "static":
            bundle["text/html"] = self.static()
        elif form != "live":
            raise ValueError(f"EXPLORE: expected live, static or check, got {form!r}")
        elif self.sliders:
            display(self.live())
            return
        else:
            bundle["text/html"] = style_html() + self.frame_html(())
        display(bundle, raw=True)


def digest(content):
    """A name for a figure: the same for the same content, another one for other content."""
    return f"explore-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]}"


def style_html():
    return f"<style>{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}</style>"


def controls_html(sliders, data):
    """Sliders, reset button and data for the website; hidden until explore.js makes them work."""
    rows = ""
    for slider in sliders:
        text = html.escape(slider.texts[slider.first])
        widest = min(max(map(len, slider.texts)), 14)    # the slider must not move while its value changes
        rows += (f'<div class="explore-slider"><label><span>{html.escape(slider.label)}</span>'
                 f'<input type="range" min="0" max="{len(slider.texts) - 1}" step="1" value="{slider.first}" '
                 f'aria-valuetext="{text}" autocomplete="off"></label>'
                 f'<output aria-live="off" style="width: {widest}ch">{text}</output></div>')
    script = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (f'<div class="explore-controls" hidden><div class="explore-sliders">{rows}</div>'
            '<button type="button" class="explore-reset">Reset</button></div>'
            "<noscript><p>This is the first frame; the sliders need JavaScript.</p></noscript>"
            f'<script type="application/json">{script}</script>')
