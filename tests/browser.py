"""A headless Chromium for tests, cut off from every server but the one that serves the site.

    with site_server(folder) as address, open_page(address + "index.html", dark=True) as page:
        assert page.requests_elsewhere == page.console_problems == []

One browser serves a whole test module; each page gets a context (storage, cache) of its own.
"""
import atexit
import contextlib
import functools
import http.server
import os
import shutil
import threading
import urllib.parse

import pytest

CANDIDATES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOW_TO = "no Chromium found: `apt-get install chromium`, or set CHROMIUM=/path/to/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update"]

# The only message that a clean console may hold. The theme (pydata-sphinx-theme) logs it on a reader's first
# visit, when no mode is stored yet, and then takes the mode of the reader's system, as it should.
THEME_NOTE = "Got invalid theme mode"


def find_chromium():
    """The path of a Chromium. Without one the test is skipped; under CI it fails, as none may be missing there."""
    named = os.environ.get("CHROMIUM")
    path = shutil.which(named) if named else next(filter(None, map(shutil.which, CANDIDATES)), None)
    if path is None:
        skip_unless_ci(f"CHROMIUM={named} is no program" if named else HOW_TO)
    return path


def skip_unless_ci(reason):
    """Skip the test for this reason; under CI (CI=true) fail, so that nothing is silently left out there."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{reason} (CI is set: this test must not be skipped)", pytrace=False)
    pytest.skip(reason)


running = []                                # playwright and the browser, while it runs


def start_browser():
    """The browser, started when it is first asked for. `stop_browser` ends it."""
    if not running:
        from playwright.sync_api import sync_playwright

        path = find_chromium()
        running.append(sync_playwright().start())
        running.append(running[0].chromium.launch(executable_path=path, headless=True, args=ARGUMENTS))
    return running[1]


@atexit.register
def stop_browser():
    """End the browser. A test module calls it at its end: playwright's event loop would be in the way of others."""
    if running:
        playwright, browser = running
        running.clear()
        browser.close()
        playwright.stop()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def site_server(folder):
    """Serve a folder on a free port of this machine; gives the address, which ends in a slash."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextlib.contextmanager
def open_page(url, *, width=1280, height=900, dark=False, javascript=True, throttle=1, formulas=True, alter=None):
    """Open `url` and wait until it is loaded and its formulas are set; gives playwright's page.

    width, height  of the window in CSS pixels; below 600 it is a phone: touch, two device pixels for each
    dark           the reader's system asks for dark colours
    javascript     False: scripts do not run
    throttle       the processor is slowed down by this factor
    formulas       False: do not wait for MathJax
    alter          {end of a URL: function from the file's text to another text}; for negative controls

    The page has two more attributes: `requests_elsewhere`, URLs that it asked other servers for, and
    `console_problems`, errors and warnings of its console and exceptions of its scripts.
    """
    phone = {"device_scale_factor": 2, "is_mobile": True, "has_touch": True} if width < 600 else {}
    context = start_browser().new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
        java_script_enabled=javascript, service_workers="block", **phone)
    try:
        page = context.new_page()
        page.requests_elsewhere, page.console_problems = [], []
        own = urllib.parse.urlsplit(url)

        def decide(route):
            wanted = urllib.parse.urlsplit(route.request.url)
            local = (wanted.scheme, wanted.netloc) == (own.scheme, own.netloc)
            if not local and wanted.scheme not in ("data", "blob"):
                page.requests_elsewhere.append(route.request.url)
                route.abort()
                return
            changes = [change for end, change in (alter or {}).items() if wanted.path.endswith(end)]
            if changes:
                answer = route.fetch()
                route.fulfill(response=answer, body=changes[0](answer.text()))
            else:
                route.continue_()

        context.route("**/*", decide)
        page.on("console", lambda message: note_message(page, message))
        page.on("pageerror", lambda error: page.console_problems.append(f"exception: {error}"))
        if throttle != 1:
            context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": throttle})
        page.goto(url, wait_until="load")
        if javascript and formulas:
            page.evaluate("() => window.MathJax?.startup?.promise")
        yield page
    finally:
        context.close()


def note_message(page, message):
    if message.type in ("error", "warning") and THEME_NOTE not in message.text:
        page.console_problems.append(f"{message.type}: {message.text}")
