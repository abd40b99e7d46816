"""Runs the book's notebooks, in parallel, into the cache that the website is built from.

    python -m book._tools.execute [--jobs N]

A page whose code has not changed is taken from the cache. Each result is stored as soon as it is there, so
that an interrupted run goes on where it was. The cache itself knows only a page's code cells and their
metadata; what else the outputs depend on is in the name of its folder: the helpers, the pinned versions and
the Python version.
"""

import argparse
import hashlib
import multiprocessing
import os
import re
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 600               # seconds a cell
KEPT_CACHES = 3             # of earlier versions of the helpers; older ones are deleted
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def cache_path(root=ROOT):
    """The cache's folder for the present helpers, pinned versions and Python version."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in [*sorted((root / "utils").rglob("*.py")), root / "constraints.txt"]:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return root / "_build" / f".jupyter_cache-{digest.hexdigest()[:12]}"


def read_page(path):
    """The notebook that a page holds (.ipynb, or Markdown with code cells), None where a page has no code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return nbformat.reads(text, as_version=4)
    if is_myst_markdown_notebook(text):
        return read_myst_markdown_notebook(text, path=path)
    return None


def pages(root=ROOT):
    """{path: notebook} of every page with code, in the order of the table of contents."""
    found = {}
    for name in parse_toc_yaml(root / "_toc.yml"):
        path = next((p for p in (root / f"{name}.ipynb", root / f"{name}.md") if p.exists()), None)
        if path is None:
            raise SystemExit(f"_toc.yml names {name}, but there is neither {name}.ipynb nor {name}.md")
        notebook = read_page(path)
        if notebook is not None:
            found[path] = notebook
    return found


def cached(cache, notebook):
    """(executed notebook, seconds) from the cache, or None."""
    try:
        record = cache.match_cache_notebook(notebook)
        return cache.merge_match_into_notebook(notebook)[1], record.data["execution_seconds"]
    except KeyError:
        return None


def run(path, notebook):
    """Run a page in its folder: (executed notebook, seconds, error or None). Called in a worker process."""
    client = NotebookClient(notebook, timeout=TIMEOUT, record_timing=False, kernel_name="python3",
                            extra_arguments=["--log-level=ERROR"],
                            resources={"metadata": {"path": str(path.parent)}})
    # All frames of sliders are drawn now; a page without a set-up cell finds `utils`; pages share the cores.
    environment = os.environ | {"EXPLORE": "static", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start, error = time.perf_counter(), None
    try:
        client.execute(env=environment)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failure:
        code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        at = next((i for i in code if any(o.output_type == "error" for o in notebook.cells[i].outputs)), None)
        where = "" if at is None else f", code cell {code.index(at) + 1} (cell {at + 1} of the notebook)"
        error = f"{path.name}{where}\n{COLOURS.sub('', str(failure))}"
    return notebook, time.perf_counter() - start, error


def execute(root=ROOT, jobs=None):
    """Run every page that is not in the cache. Returns the list of errors, one text for each failed page."""
    cache = get_cache(cache_path(root))
    found = pages(root)
    todo = {path: notebook for path, notebook in found.items() if cached(cache, notebook) is None}
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(todo)))
    print(f"{len(found)} pages with code: {len(found) - len(todo)} unchanged, {len(todo)} to run"
          + (f", {jobs} at a time" if todo else ""), flush=True)
    errors = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(run, path, notebook): path for path, notebook in todo.items()}
        for future in as_completed(running):
            path, (executed, seconds, error) = running[future], future.result()
            if error is None:
                bundle = CacheBundleIn(executed, str(path), data={"execution_seconds": seconds})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
            else:
                errors.append(error)
            note = "" if error is None else "  FAILED"
            print(f"{seconds:7.1f} s  {path.relative_to(root)}{note}", flush=True)
    return errors


def forget_old_caches(root=ROOT):
    """Delete all but the newest few caches of earlier helpers."""
    current = cache_path(root)
    old = [p for p in (root / "_build").glob(".jupyter_cache-*") if p != current]
    for path in sorted(old, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_CACHES:]:
        shutil.rmtree(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, help="pages to run at a time (default: one a core)")
    arguments = parser.parse_args()
    try:
        errors = execute(jobs=arguments.jobs)
    except KeyboardInterrupt:
        raise SystemExit("Interrupted. What has finished is stored: the next run goes on there") from None
    forget_old_caches()
    for error in errors:
        print(f"\nFAILED {error}", file=sys.stderr)
    if errors:
        raise SystemExit(f"{len(errors)} of the book's pages failed")


if __name__ == "__main__":
    main()
