"""How long each page with code ran when it was last executed for the website. Prints, and never fails on a time.

    python tests/bench_chapters.py

`make book` runs as many pages at once as there are cores, so a page's seconds are those of a shared machine;
`python -m book._tools.execute --jobs 1`, before, measures one page at a time.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jupyter_cache import get_cache                                               # noqa: E402

from book._tools.execute import ROOT, cache_path, cached, pages                   # noqa: E402

cache, total = get_cache(cache_path()), 0.0
for path, notebook in pages().items():
    result = cached(cache, notebook)
    seconds = result[1] if result else float("nan")
    total += seconds
    print(f"{seconds:7.1f} s  {path.relative_to(ROOT)}")
print(f"{total:7.1f} s  all")
