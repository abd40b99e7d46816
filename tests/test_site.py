"""The built website in a browser that reaches no other server. `make book` builds it.

Each check is a function that returns a list of problems. The second half of the file breaks pages on purpose: every
check must then find the problem.
"""
import functools
import gzip
import html.parser
import json
import re
import urllib.parse
from pathlib import Path
from xml.etree import ElementTree

import axe_core_python
import numpy as np
import pytest
from browser import open_page, site_server, skip_unless_ci, stop_browser
from explorers import contents, unpack

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
FILES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")
               if "_static" not in path.relative_to(SITE).parts)
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]                # width, dark
PAGE_KB, EXPLORER_KB = 1024, 100                                                # compressed
AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")

FIGURE = re.compile(r'<figure class="explore">.*?</figure>', re.S)


@functools.cache
def source(name):
    return (SITE / name).read_text(encoding="utf-8")


REDIRECT = re.compile(r'http-equiv="refresh" content="0; *url=([^"]*)"', re.I)
PAGES = [name for name in FILES if not REDIRECT.search(source(name))]


def explorers(text):
    """The HTML of each figure with sliders on a page."""
    return [figure for figure in FIGURE.findall(text) if "application/json" in figure]


EXPLORERS = [(name, number) for name in PAGES for number in range(len(explorers(source(name))))]


def test_the_site_is_built():
    if not PAGES:
        skip_unless_ci("the website is not built, so nothing of it was tested: run `make book` first")
    assert "index.html" in FILES and EXPLORERS
    for name in set(FILES) - set(PAGES):
        target = REDIRECT.search(source(name))[1]
        assert (SITE / name).parent.joinpath(target).is_file(), f"{name} leads to {target}, which does not exist"


@pytest.fixture(scope="module")
def address():
    """The address at which the site is served."""
    with site_server(SITE) as address:
        yield address
    stop_browser()


# ---- checks of a page ----

def request_problems(page):
    return [f"asked another server: {url}" for url in page.requests_elsewhere]


def console_problems(page):
    return [f"console: {message}" for message in page.console_problems]


def formula_problems(page):
    """Formulas that MathJax left as TeX or could not read."""
    return page.evaluate(r"""() => {
        const problems = [];
        for (const element of document.querySelectorAll(".math"))
            if (!element.querySelector("mjx-container"))
                problems.push(`formula not set: ${element.textContent.slice(0, 60)}`);
        for (const element of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
            problems.push(`MathJax error: ${element.dataset.mjxError ?? element.textContent.slice(0, 60)}`);
        for (const element of document.querySelectorAll("mjx-container mtext"))
            if (/^\\[a-zA-Z]+$/.test(element.textContent))
                problems.push(`unknown to MathJax: ${element.textContent}`);
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const node = walker.currentNode, text = node.textContent;
            if (node.parentElement.closest("code, pre, script, noscript, style, textarea, mjx-container, svg")) continue;
            const found = text.match(/\$[^$\n]+\$|\\\(|\\\[|\\begin\{|\\(frac|theta|mathbb|pi|sum|gamma)\b/);
            if (found) problems.push(`TeX in the text: ${text.slice(Math.max(0, found.index - 20), found.index + 40)}`);
        }
        return problems;
    }""")


def alternative_problems(page):
    """Figures and images without a text for readers who do not see them."""
    return page.evaluate("""() => {
        const problems = [];
        for (const image of document.querySelectorAll("img"))
            if (!image.hasAttribute("alt") || (image.closest("article") && !image.alt.trim()))
                problems.push(`image without alternative text: ${image.src}`);
        for (const svg of document.querySelectorAll("article svg"))          // not icons, which are hidden
            if (!svg.closest("[role=img][aria-label], mjx-container, a, button, [aria-hidden=true]"))
                problems.push(`picture outside a figure with a name: ${svg.outerHTML.slice(0, 80)}`);
        for (const figure of document.querySelectorAll("figure.explore")) {
            const name = figure.querySelector("[role=img]")?.getAttribute("aria-label") ?? "";
            if (!name.trim()) problems.push(`figure without alternative text: ${figure.outerHTML.slice(0, 80)}`);
        }
        return problems;
    }""")


def width_problems(page):
    """What makes the page scroll sideways."""
    return page.evaluate("""() => {
        const problems = [], room = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth > room) {
            const wide = [...document.querySelectorAll("article *")].filter(
                (element) => element.getBoundingClientRect().right > room + 1).map((element) => element.outerHTML.slice(0, 80));
            problems.push(`scrolls sideways: ${document.documentElement.scrollWidth} > ${room} pixels: ${wide[0]}`);
        }
        return problems;
    }""")


def letter_problems(page, least=7):
    """Letters of figures that are too small to read."""
    return page.evaluate("""(least) => {
        const problems = [];
        for (const svg of document.querySelectorAll("figure.explore svg")) {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            for (const text of svg.querySelectorAll("text")) {
                const sizes = [text, ...text.children].map((part) => parseFloat(part.style.fontSize) || 0);
                const pixels = Math.max(...sizes) * scale;
                if (text.textContent.trim() && pixels < least)
                    problems.push(`letters of ${pixels.toFixed(1)} pixels: "${text.textContent}"; make the panel narrower`);
            }
        }
        return problems;
    }""", least)


def contrast_problems(page, least=3.0):
    """Letters of figures that contrast too little with what lies behind them."""
    return page.evaluate("""(least) => {
        const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
        const rgba = (color) => {                                          // any CSS colour as four numbers
            canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const luminance = (color) => color.slice(0, 3).map((v) => v / 255).map(
            (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
        ).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const contrast = (a, b) => {
            const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
            return (high + 0.05) / (low + 0.05);
        };
        const mix = (top, share, below) => top.map((v, i) => share * v + (1 - share) * below[i]);
        const opacity = (element) => {
            let result = 1;
            for (let e = element; e instanceof SVGElement; e = e.parentElement) result *= getComputedStyle(e).opacity;
            return result;
        };
        const behind = (text) => {                                         // the colour behind the middle of a text
            const box = text.getBoundingClientRect();
            const stack = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            const layers = [];
            for (const element of stack) {
                if (element.contains(text) && element instanceof SVGElement || text.contains(element)) continue;
                if (element instanceof SVGElement) {
                    const style = getComputedStyle(element);
                    if (!element.getAttribute("d") && element.tagName !== "rect" || style.fill === "none") continue;
                    layers.push([rgba(style.fill), style.fillOpacity * opacity(element)]);
                } else {
                    const color = rgba(getComputedStyle(element).backgroundColor);
                    layers.push([color, color[3] / 255]);
                }
            }
            return layers.reverse().reduce((below, [color, share]) => mix(color, share, below), [255, 255, 255, 255]);
        };
        const problems = [];
        for (const text of document.querySelectorAll("figure.explore svg text")) {
            if (!text.textContent.trim()) continue;
            text.scrollIntoView({block: "center"});
            const back = behind(text);
            const letter = text.querySelector("tspan") ?? text;
            const ratio = contrast(mix(rgba(getComputedStyle(letter).fill), opacity(letter), back), back);
            if (ratio < least) problems.push(`letters hard to read (${ratio.toFixed(1)} : 1): "${text.textContent}"`);
        }
        scrollTo(0, 0);
        return problems;
    }""", least)


def page_problems(page):
    return (request_problems(page) + console_problems(page) + formula_problems(page) + alternative_problems(page)
            + width_problems(page) + letter_problems(page) + contrast_problems(page))


class Links(html.parser.HTMLParser):
    """Collects what a page names (`ids`) and what it refers to (`links`)."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if values.get("id") else []
        self.ids += [values["name"]] if tag == "a" and values.get("name") else []
        for key in ("href", "src"):
            if values.get(key) and tag not in ("use", "image"):
                self.links.append(values[key])


@functools.cache
def page_ids(path):
    return set(Links(path.read_text(encoding="utf-8")).ids)


def link_problems(name, text):
    """Links of a page to files of the site that do not exist, or to places in a page that do not."""
    problems, here = [], SITE / name
    own = Links(text)
    for link in own.links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = here if not parts.path else (here.parent / urllib.parse.unquote(parts.path)).resolve()
        if target.is_dir():
            target = target / "index.html"
        anchor = urllib.parse.unquote(parts.fragment)
        if not target.is_file():
            problems.append(f"link to nothing: {link}")
        elif anchor and target.suffix == ".html" and anchor not in (own.ids if target == here else page_ids(target)):
            problems.append(f"link to a place that does not exist: {link}")
    return problems


def id_problems(text):
    """Ids that occur twice in the page's figures."""
    ids = [name for figure in FIGURE.findall(text) for name in re.findall(r'<[^>]*\sid="([^"]*)"', figure)]
    return [f"id used twice: {name}" for name in sorted({name for name in ids if ids.count(name) > 1})]


# ---- checks of an explorer ----

READ = """(figure) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done({
    positions: [...figure.querySelectorAll("input")].map((input) => Number(input.value)),
    spoken: [...figure.querySelectorAll("input")].map((input) => input.getAttribute("aria-valuetext")),
    written: [...figure.querySelectorAll("output")].map((output) => output.textContent),
    caption: figure.querySelector("figcaption").textContent,
    pictures: [...figure.querySelectorAll(".explore-panel svg")].map(
        (svg) => new XMLSerializer().serializeToString(svg)),
}))))"""


class Explorer:
    """One figure with sliders in an open page, and the frames that its data hold."""

    def __init__(self, page, number, figure_html):
        self.page = page
        self.figure = page.locator("figure.explore:has(script)").nth(number)
        self.inputs = self.figure.locator("input[type=range]")
        self.data, self.first_svgs, _ = contents(figure_html)
        self.counts = [len(texts) for texts in self.data["texts"]]
        self.start = list(np.unravel_index(self.data["first"], self.counts))

    def read(self):
        """What the figure shows and says once its page has drawn; pictures in the form of `unpack`."""
        state = self.figure.evaluate(READ)
        state["pictures"] = [[(element.tag.rpartition("}")[2], element.attrib, element.text or "")
                              for element in ElementTree.fromstring(svg).iter()] for svg in state["pictures"]]
        return state

    def problems_of(self, state, after):
        """Differences between what the figure shows and says, and what it should at its sliders' positions."""
        problems = []
        number = np.ravel_multi_index(state["positions"], self.counts)
        texts = [texts[n] for texts, n in zip(self.data["texts"], state["positions"])]
        for kind, expected in (("spoken", texts), ("written", texts), ("caption", self.data["captions"][number])):
            if state[kind] != expected:
                problems.append(f"{after}: {kind} {state[kind]!r} instead of {expected!r}")
        expected = [unpack(packed, svg, number) for packed, svg in zip(self.data["panels"], self.first_svgs)]
        if state["pictures"] != expected:
            problems.append(f"{after}: the figure does not show the frame of {texts}")
        return problems

    def state_problems(self, after):
        return self.problems_of(self.read(), after)


def press_on_track(explorer, n, share):
    """Click or tap the track of slider n at this share of its length."""
    slider = explorer.inputs.nth(n)
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    point = box["x"] + 8 + (box["width"] - 16) * share, box["y"] + box["height"] / 2
    if explorer.page.viewport_size["width"] < 600:
        explorer.page.touchscreen.tap(*point)
    else:
        explorer.page.mouse.click(*point)


def drag(explorer, n, share):
    """Drag the thumb of slider n to this share of its length."""
    slider, mouse = explorer.inputs.nth(n), explorer.page.mouse
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    thumb = int(slider.input_value()) / (explorer.counts[n] - 1)
    mouse.move(box["x"] + 8 + (box["width"] - 16) * thumb, middle)
    mouse.down()
    mouse.move(box["x"] + 8 + (box["width"] - 16) * share, middle, steps=5)
    mouse.up()


def slider_problems(explorer, n):
    """Move slider n with mouse or finger and with keys; the figure, its caption and the spoken value must follow."""
    last, problems, seen = explorer.counts[n] - 1, [], []

    def expect(what, position):
        state = explorer.read()
        if state["positions"][n] not in position:
            problems.append(f"{what}: slider {n} is at {state['positions'][n]}, expected {sorted(position)}")
        problems.extend(explorer.problems_of(state, f"{what} on slider {n}"))
        seen.append(state["pictures"])

    middle = {round(last / 2), last // 2, (last + 1) // 2}
    press_on_track(explorer, n, 0)
    expect("press at the left end", {0})
    press_on_track(explorer, n, 1)
    expect("press at the right end", {last})
    if explorer.page.viewport_size["width"] >= 600:
        drag(explorer, n, 0.5)
        expect("drag to the middle", middle)
    for key, position in (("Home", {0}), ("ArrowRight", {1}), ("End", {last}), ("ArrowLeft", {last - 1}),
                          ("PageDown", set(range(last - 1)) or {0}), ("PageUp", set(range(1, last + 1)))):
        explorer.inputs.nth(n).press(key)
        expect(f"key {key}", position)
    if all(picture == seen[0] for picture in seen):
        problems.append(f"slider {n} changes nothing in the figure")
    return problems


def reset_problems(explorer):
    """The reset button must bring back the first frame."""
    explorer.figure.locator("button.explore-reset").click()
    state = explorer.read()
    problems = explorer.problems_of(state, "reset")
    if state["positions"] != explorer.start:
        problems.append(f"reset: sliders at {state['positions']}, expected {explorer.start}")
    return problems


def access_problems(explorer):
    """Names, sizes, focus: what keyboard, touch and screen reader need; axe-core's rules among them."""
    problems = explorer.figure.evaluate("""(figure) => {
        const problems = [];
        for (const input of figure.querySelectorAll("input")) {
            if (!input.labels[0]?.textContent.trim()) problems.push("slider without a visible name");
            if (input.getBoundingClientRect().width < 120) problems.push("slider shorter than 120 pixels");
        }
        for (const control of figure.querySelectorAll("input, button")) {
            const {width, height} = control.getBoundingClientRect();
            if (Math.min(width, height) < 44) problems.push(`target of ${width} x ${height} pixels`);
        }
        const caption = figure.querySelector("figcaption");
        if (caption.getAttribute("aria-live") !== "polite") problems.push("caption is not announced");
        return problems;
    }""")
    explorer.inputs.first.focus()
    explorer.page.keyboard.press("ArrowRight")
    explorer.page.keyboard.press("ArrowLeft")
    if explorer.inputs.first.evaluate("input => getComputedStyle(input).outlineStyle") == "none":
        problems.append("focus is not visible")
    if not explorer.page.evaluate("() => 'axe' in window"):
        explorer.page.evaluate(AXE)
    found = explorer.figure.evaluate("figure => axe.run(figure)")
    return problems + [f"axe: {violation['id']}: {violation['nodes'][0]['html'][:100]}"
                       for violation in found["violations"]]


def explorer_problems(explorer):
    """All problems of an explorer, one after the other."""
    yield from explorer.state_problems("at first") + access_problems(explorer)
    for n in range(len(explorer.counts)):
        yield from slider_problems(explorer, n) + reset_problems(explorer)


# ---- the site ----

@pytest.mark.parametrize("width, dark", LOOKS, ids=lambda value: {True: "dark", False: "light"}.get(value, value))
@pytest.mark.parametrize("name", PAGES)
def test_page(address, name, width, dark):
    with open_page(address + name, width=width, dark=dark) as page:
        assert page_problems(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_links_and_ids(name):
    assert link_problems(name, source(name)) + id_problems(source(name)) == []


@pytest.fixture(scope="module")
def opened(request, address):
    """An open page, kept for all explorers on it."""
    name, width = request.param
    with open_page(address + name, width=width) as page:
        page.name = name
        yield page


@pytest.mark.parametrize("opened, number", [pytest.param((name, width), number, id=f"{name}-{number}-{width}")
                                            for width in (1280, 390) for name, number in EXPLORERS],
                         indirect=["opened"])
def test_explorer(opened, number):
    explorer = Explorer(opened, number, explorers(source(opened.name))[number])
    assert list(explorer_problems(explorer)) == []


@pytest.mark.parametrize("name", dict(EXPLORERS))
def test_narrow_phone(address, name):
    """No sideways scroll at 360 pixels on the pages with explorers."""
    with open_page(address + name, width=360) as page:
        assert width_problems(page) == []


def script_off_problems(page):
    """Without scripts every figure must show its first frame, and say so instead of showing dead sliders."""
    return page.locator("figure.explore").evaluate_all("""(figures) => figures.flatMap((figure, number) => {
        const problems = [], size = (element) => element?.getBoundingClientRect().height ?? 0;
        for (const panel of figure.querySelectorAll(".explore-panel"))
            if (size(panel.querySelector("svg")) < 50) problems.push(`figure ${number} shows nothing`);
        if (figure.querySelector("script") && size(figure.querySelector("noscript p")) < 10)
            problems.push(`figure ${number} does not say that the sliders need JavaScript`);
        if (size(figure.querySelector(".explore-controls")) > 0) problems.push(`figure ${number} shows dead sliders`);
        return problems;
    })""")


@pytest.mark.parametrize("name", dict(EXPLORERS))
def test_without_scripts(address, name):
    with open_page(address + name, javascript=False) as page:
        assert page.locator("figure.explore svg").count() > 0
        assert script_off_problems(page) == []


def test_theme_button(address):
    """The reader can leave the system's theme: figures follow the button, too."""
    name = EXPLORERS[0][0]
    with open_page(address + name) as page:
        ink = "() => getComputedStyle(document.querySelector('figure.explore svg text')).fill"
        before = page.evaluate(ink)
        for _ in range(3):
            page.locator("button.theme-switch-button:visible").first.click()
            if page.evaluate("document.documentElement.dataset.theme") == "dark":
                break
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate(ink) != before and contrast_problems(page) == []


def search_problems(page, word):
    """Type a word into the search page; a result must appear and lead to a page that holds the word."""
    box = page.locator("main input[name=q], article input[name=q], #search-documentation, input[name=q]").locator(
        "visible=true").first
    box.fill(word)
    box.press("Enter")
    try:
        page.locator("#search-results li a").first.wait_for(timeout=10_000)
    except Exception:
        return [f"no result for {word!r}"]
    page.goto(page.locator("#search-results li a").first.evaluate("link => link.href"), wait_until="load")
    return [] if word in page.locator("body").inner_text().lower() else [f"{word!r} led to {page.url}"]


def file_address(name):
    return (SITE / name).as_uri()


@pytest.mark.parametrize("where", ["server", "file"])
def test_search(address, where):
    url = address + "search.html" if where == "server" else file_address("search.html")
    with open_page(url) as page:
        assert search_problems(page, "trajectory") == []
        assert request_problems(page) == []
        if where == "server":              # from a file, a browser lets no page read others to quote from them
            assert console_problems(page) == []
    with open_page(url) as page:
        assert search_problems(page, "xylophone") == ["no result for 'xylophone'"]       # negative control


@pytest.mark.parametrize("name", dict(EXPLORERS))
def test_from_a_file(name):
    """Opened from the disk, without a server: formulas are set and sliders work."""
    with open_page(file_address(name)) as page:
        assert request_problems(page) + console_problems(page) + formula_problems(page) == []
        figures = explorers(source(name))
        explorer = Explorer(page, 0, figures[0])
        assert explorer.state_problems("at first") + slider_problems(explorer, 0) + reset_problems(explorer) == []


def loaded_kilobytes(url):
    """{file: KB when compressed} of all that a browser fetches to show a page."""
    with open_page("about:blank", formulas=False) as blank:
        answers = []
        context = blank.context
        context.unroute_all()
        page = context.new_page()
        page.on("response", lambda answer: answers.append(answer))
        page.goto(url, wait_until="networkidle")
        page.evaluate("() => window.MathJax?.startup?.promise")
        page.wait_for_load_state("networkidle")
        return {answer.url: len(gzip.compress(answer.body())) / 1024 for answer in answers if answer.ok}


@pytest.mark.parametrize("name", PAGES)
def test_weight_of_a_page(address, name):
    sizes = loaded_kilobytes(address + name)
    assert len(sizes) > 3 and any(url.endswith(name) for url in sizes)
    assert sum(sizes.values()) <= PAGE_KB, sorted(((round(size), url) for url, size in sizes.items()), reverse=True)[:8]


@pytest.mark.parametrize("name, number", EXPLORERS)
def test_weight_of_an_explorer(name, number):
    assert len(gzip.compress(explorers(source(name))[number].encode())) <= EXPLORER_KB * 1024


# ---- breaking pages on purpose ----

def sample_page():
    """The explorer with the most sliders: the name of its page, and its number there."""
    return max(EXPLORERS, key=lambda place: explorers(source(place[0]))[place[1]].count("<input"))


def in_page(text):
    """An `alter` for open_page that puts this HTML at the end of the article."""
    return {".html": lambda page: page.replace("</article>", f"{text}</article>", 1)}


@pytest.mark.parametrize("check, alter, message", [
    (request_problems, in_page('<img alt="x" src="https://example.org/pixel.png">'), "another server: https://example.org"),
    (request_problems, in_page('<script>fetch("http://127.0.0.2/x").catch(() => 0)</script>'), "another server"),
    (console_problems, in_page("<script>missing_function()</script>"), "missing_function is not defined"),
    (console_problems, in_page('<script src="_static/not_there.js"></script>'), "404"),
    (console_problems, in_page("<script>console.warn('careful')</script>"), "warning: careful"),
    (formula_problems, in_page('<p>with $x^2$ in it</p>'), "TeX in the text"),
    (formula_problems, in_page('<span class="math">\\(\\frac{1\\)</span>'), "TeX in the text"),
    (formula_problems, in_page('<span class="math">\\(x^1^2\\)</span>'), "MathJax error"),
    (formula_problems, in_page('<span class="math">\\(\\unheard{2}\\)</span>'), "unknown to MathJax"),
    (formula_problems, {"tex-chtml-full.js": lambda script: ""}, "formula not set"),
    (alternative_problems, in_page('<img src="_static/file.png">'), "image without"),
    (alternative_problems, in_page('<img src="_static/file.png" alt="">'), "image without"),
    (alternative_problems, {".html": lambda page: page.replace('role="img" aria-label="', 'role="img" data-label="')},
     "figure without"),
    (width_problems, in_page('<div style="width: 2000px">wide</div>'), "scrolls sideways"),
    (letter_problems, {"explore.css": lambda style: style + "figure.explore { max-width: 150px; }"}, "letters of"),
    (contrast_problems, {"explore.css": lambda style: style.replace("fill: currentColor", "fill: black")},
     "letters hard to read"),
    (contrast_problems, {".html": lambda page: page.replace('style="font-size: ', 'style="fill: #222; font-size: ')},
     "letters hard to read"),
])
def test_a_broken_page_is_noticed(address, check, alter, message):
    with open_page(address + sample_page()[0], dark=True, alter=alter) as page:
        problems = check(page)
    assert any(message in problem for problem in problems), problems


def test_a_broken_link_is_noticed():
    text = ('<a href="nowhere.html">a</a><a href="index.html#nowhere">b</a><a href="#missing">c</a><a href="#here">d</a>'
            '<p id="here"></p><a href="https://example.org">e</a>')
    assert link_problems("index.html", text) == [
        "link to nothing: nowhere.html", "link to a place that does not exist: index.html#nowhere",
        "link to a place that does not exist: #missing"]
    figure = '<figure class="explore"><svg><path id="a"></path></svg></figure>'
    assert id_problems(figure * 2) == ["id used twice: a"] and id_problems(figure) == []


def replace(file, old, new):
    """An `alter` that replaces a piece of a file; the piece must be there."""
    def change(text):
        assert old in text, f"{old!r} is not in {file}"
        return text.replace(old, new)
    return {file: change}


SLIDER_MUTANTS = {
    "dead: explore.js is gone": {"explore.js": lambda script: ""},
    "dead: moving changes nothing": replace("explore.js", 'addEventListener("input", update)', 'addEventListener("x", update)'),
    "the figure stands still": replace("explore.js", "panels.forEach((panel) => panel.show(number));", ""),
    "attributes stand still": replace("explore.js", "if (attribute) view", "if (attribute) ({setAttribute() {}}) || view"),
    "the frame of the wrong sliders": replace("explore.js", "sum * data.texts[slider].length", "sum + data.texts[slider].length"),
    "the caption stands still": replace("explore.js", "caption.textContent = data.captions[number];", ";"),
    "the spoken value stands still": replace("explore.js", 'input.setAttribute("aria-valuetext", text);', ""),
    "the written value stands still": replace("explore.js", "outputs[slider].textContent = text;", ""),
    "reset forgets the sliders": replace("explore.js", "input.value = start[slider];", ""),
    "reset forgets the figure": replace("explore.js", "input.value = start[slider]; });\n      update();",
                                        "input.value = start[slider]; });"),
    "sliders too low for a finger": replace("explore.css", "height: 44px", "height: 20px"),
    "no visible focus": replace("explore.css", "outline: 2px solid", "outline: none; x: 2px solid"),
    "no names": {".html": lambda page: re.sub(r"<label><span>[^<]*</span>", "<label><span></span>", page)},
    "values never spoken": {".html": lambda page: page.replace('aria-live="polite"', "")},
}


@pytest.mark.parametrize("mutant", SLIDER_MUTANTS)
def test_a_broken_slider_is_noticed(address, mutant):
    name, number = sample_page()
    with open_page(address + name, alter=SLIDER_MUTANTS[mutant]) as page:
        page.set_default_timeout(3000)
        explorer = Explorer(page, number, explorers(source(name))[number])
        try:
            assert next(explorer_problems(explorer), None)
        except Exception as error:                        # sliders that stay hidden cannot be moved at all
            assert "Timeout" in type(error).__name__ and mutant.startswith("dead: explore.js")


def test_a_figure_that_needs_scripts_is_noticed(address):
    name, _ = sample_page()
    alter = {".html": lambda page: re.sub(r"<noscript>.*?</noscript>", "", page).replace(
        'class="explore-controls" hidden', 'class="explore-controls"')}
    with open_page(address + name, javascript=False, alter=alter) as page:
        problems = script_off_problems(page)
    assert any("does not say" in problem for problem in problems)
    assert any("dead sliders" in problem for problem in problems)


def test_a_wrong_frame_is_noticed(address):
    """Frames exchanged in the page's data, so that figure and caption do not belong together."""
    name, number = sample_page()
    figure = explorers(source(name))[number]
    data = json.loads(re.search(r'"application/json">(.*?)</script>', figure, re.S)[1])
    for panel in data["panels"]:
        panel["frames"].reverse()
    broken = re.sub(r'("application/json">).*?(</script>)', lambda match: match[1] + json.dumps(data).replace(
        "<", "\\u003c") + match[2], figure, flags=re.S)
    with open_page(address + name, alter={".html": lambda page: page.replace(figure, broken)}) as page:
        assert slider_problems(Explorer(page, number, figure), 0)
