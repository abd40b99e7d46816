"""What the tests share: the built website and the executed notebooks."""

import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))               # `pytest` works without `make`, too

# The same examples in every run: a red test is red again for whoever looks into it.
hypothesis.settings.register_profile("book", derandomize=True, deadline=None)
hypothesis.settings.load_profile("book")


@pytest.fixture(scope="session")
def site():
    """The folder of the built website."""
    path = ROOT / "_build" / "html"
    if not (ROOT / "_build" / ".built").exists():
        pytest.fail("the website is not built: run `make book` first")
    return path


@pytest.fixture(scope="session")
def executed():
    """{file name: executed notebook} of every chapter, as the website shows it."""
    from jupyter_cache import get_cache

    from book._tools.execute import cache_path, cached, pages
    found = {path: cached(get_cache(cache_path()), notebook) for path, notebook in pages().items()}
    missing = [path.name for path, result in found.items() if result is None]
    if missing:
        pytest.fail(f"not executed yet: {', '.join(missing)}. Run `make book` first")
    return {path.name: result[0] for path, result in found.items() if path.suffix == ".ipynb"}
