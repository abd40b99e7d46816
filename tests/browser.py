"""A headless Chromium for tests, cut off from every server but the one that serves the site.

    with site_server(folder) as address, open_page(address + "index.html", dark=True) as page:
        page.requests_elsewhere      # URLs that the page asked for and did not get
        page.console_problems        # errors and warnings of the console, exceptions of the page

One browser serves the whole test session; each page gets a context (storage, cache) of its own.
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
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]

# The theme (pydata-sphinx-theme) logs this on every first visit, before it has stored a mode; it then works as meant.
THEME_NOTE = "Got invalid theme mode"


def find_chromium():
    """The path of a Chromium. Without one the test is skipped, or fails under CI, where it must not be missing."""
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


@functools.cache
def start_browser(path):
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=path, headless=True, args=ARGUMENTS)

    @atexit.register
    def stop():
        with contextlib.suppress(Exception):          # pytest may have closed the connection already
            browser.close()
            playwright.stop()

    return browser


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
def open_page(url, *, width=1280, height=900, dark=False, javascript=True, throttle=1, formulas=True):
    """Open `url` and wait until it is loaded and its formulas are set; gives playwright's page.

    width, height  of the window in CSS pixels; below 600 it is a phone: touch, two device pixels for each of these
    dark           the reader's system asks for dark colours
    javascript     False: scripts do not run
    throttle       the processor is slowed down by this factor
    formulas       False: do not wait for MathJax
    """
    phone = {"device_scale_factor": 2, "is_mobile": True, "has_touch": True} if width < 600 else {}
    context = start_browser(find_chromium()).new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
        java_script_enabled=javascript, service_workers="block", **phone)
    try:
        page = context.new_page()
        page.requests_elsewhere, page.console_problems = [], []
        own = urllib.parse.urlsplit(url)

        def decide(route):
            wanted = urllib.parse.urlsplit(route.request.url)
            if wanted.scheme in ("data", "blob") or (wanted.scheme, wanted.netloc) == (own.scheme, own.netloc):
                route.continue_()
            else:
                page.requests_elsewhere.append(route.request.url)
                route.abort()

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
