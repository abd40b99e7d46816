"""Sizes and times of figures with sliders; prints, never fails on a number. Run by `make bench`.

Times to draw are processor time, so that a busy machine changes them little; times of a step are wall-clock time in
headless Chromium from the slider's event to the painted frame, at full speed and slowed down four times (about a
phone). "work" is what the page's main thread did for one step.
"""
import gzip
import pickle
import statistics
import sys
import time
from pathlib import Path

from matplotlib import rc_context

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from browser import open_page, site_server, stop_browser  # noqa: E402
from explorers import examples  # noqa: E402

from utils.explore import Painter  # noqa: E402
from utils.plotting import STYLE  # noqa: E402

STEP = """async ([number, steps]) => {
    const figure = document.querySelectorAll("figure.explore")[number];
    const inputs = [...figure.querySelectorAll("input")], times = [];
    let seed = 1;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    figure.scrollIntoView();
    for (let step = 0; step < steps; step++) {
        const input = inputs[step % inputs.length];
        let value = input.value;
        while (value === input.value) value = String(Math.floor(random() * (Number(input.max) + 1)));
        const start = performance.now();
        input.value = value;
        input.dispatchEvent(new Event("input", {bubbles: true}));
        await new Promise((done) => requestAnimationFrame(() => {
            const {port1, port2} = new MessageChannel();           // a task after the frame is painted
            port1.onmessage = done;
            port2.postMessage(0);
        }));
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b);
}"""


def cpu(function, at_least=0.5):
    """Seconds of processor time for one call: the smallest of several rounds."""
    rounds, spent = [], 0
    while spent < at_least or len(rounds) < 3:
        start = time.process_time()
        function()
        rounds.append(time.process_time() - start)
        spent += rounds[-1]
    return min(rounds)


def drawing(explorer):
    """(ms for a panel-frame as the book draws it, ms from scratch)."""
    grid = explorer.grid
    some = grid[:: max(1, len(grid) // 12)][:12]
    scratch = Painter(explorer.draw, explorer.panels, explorer.size, explorer.values(explorer.first))

    def from_scratch():
        for positions in some[:4]:
            with rc_context(STYLE):
                scratch.blanks = [pickle.dumps(scratch.blank_figure(places[0])) for places in scratch.places]
            scratch.axes_drawn = {}
            scratch.frame(explorer.values(positions))

    ours = cpu(lambda: [explorer.frame(positions) for positions in some]) / len(some)
    return 1e3 * ours / explorer.panels, 1e3 * cpu(from_scratch) / len(some[:4]) / explorer.panels


def stepping(url, number, throttle, steps=60):
    """(median, 95th percentile, work) in ms of one step of the explorer with this number on a page."""
    with open_page(url, throttle=throttle) as page:
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def busy():
            return {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

        page.evaluate(STEP, [number, 5])
        before = busy()
        times = page.evaluate(STEP, [number, steps])
        return statistics.median(times), times[int(0.95 * len(times))], 1e3 * (busy() - before) / steps


def print_steps(name, url, number):
    numbers = [f"{value:6.1f}" for throttle in (1, 4) for value in stepping(url, number, throttle)]
    print(f"{name:34s}", *numbers[:3], "   ", *numbers[3:])


def main(folder):
    print("Drawing                    frames  panels   ms/panel-frame  from scratch     KB  KB compressed  s for all")
    pages = {}
    chosen = examples(positions=11) | {"trade_off 21 x 21": examples(positions=21)["trade_off"]}
    for name, explorer in chosen.items():
        ours, scratch = drawing(explorer)
        start = time.process_time()
        pages[name] = explorer.static()
        seconds = time.process_time() - start
        size = len(gzip.compress(pages[name].encode())) / 1024
        print(f"{name:26s} {len(explorer.grid):6d}  {explorer.panels:6d}  {ours:15.1f} {scratch:13.1f} "
              f"{len(pages[name]) / 1024:6.0f} {size:14.1f} {seconds:10.1f}")

    print("\nA step, ms                          full speed             slowed down 4 times")
    print(f"{'':34s} median    95 %   work      median    95 %   work")
    style, script = ((ROOT / "utils" / f"explore.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    moving = {name: page for name, page in pages.items() if "<input" in page}
    text = (f"<!doctype html><meta charset='utf-8'><link rel='icon' href='data:,'><style>{style}</style>"
            f"{''.join(moving.values())}<script>{script}</script>")
    (folder / "examples.html").write_text(text, encoding="utf-8")
    with site_server(folder) as address:
        for number, name in enumerate(moving):
            print_steps(name, address + "examples.html", number)
    site = ROOT / "_build" / "html"
    with site_server(site) as address:
        for path in sorted((site / "book").rglob("*.html")):
            name, figures = path.relative_to(site).as_posix(), path.read_text(encoding="utf-8").split('<figure class="explore">')
            for number, figure in enumerate(figures[1:]):
                if "application/json" in figure.split("</figure>")[0]:
                    print_steps(f"{name} {number}", address + name, number)
    stop_browser()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
