"""The notebooks: anatomy, sizes, what is stored, verdicts, citations; and that a broken one is noticed."""

import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter

import nbformat
import pytest
from pybtex.database import parse_file

from book._tools.execute import cache_path, execute, pages
from book._tools.outputs import CHECKED, committed
from book._tools.template import BADGES, ROOT, notebooks

SECTIONS = ["The idea", "Derivation", "Check it exactly", "In code", "Run it", "Explore", "Pitfalls",
            "In the libraries", "Exercises", "Summary"]
CHAPTERS = notebooks()
BIBLIOGRAPHY = parse_file(str(ROOT / "book" / "references.bib"))
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name)


def read(path):
    return nbformat.read(path, as_version=4)


def tags(cell):
    return cell.metadata.get("tags", [])


def code_cells(notebook):
    """The code that a chapter's author wrote: all but the set-up cell."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and "set-up" not in tags(cell)]


def prose(source):
    """The text of a Markdown cell without formulas, code, markup and badges: what a reader reads as words."""
    source = re.sub(r"(?ms)^(```|~~~|:::).*?$", " ", source)            # the fences, not what they hold
    source = re.sub(r"(?s)\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", " x ", source)
    lines = [line for line in source.splitlines() if not line.startswith((BADGES, "#", ":", "|", "---"))]
    return re.findall(r"[^\W_][\w'’-]*", " ".join(lines))


def lines_of(cell):
    return len(cell.source.splitlines())


def test_the_table_of_contents_lists_every_chapter():
    assert CHAPTERS and CHAPTERS == sorted(path for path in pages() if path.suffix == ".ipynb")


@each_chapter
def test_sections(path):
    """Every part of a chapter is there, once, in the order that all chapters share."""
    headings = [line[3:].strip() for cell in read(path).cells if cell.cell_type == "markdown"
                for line in cell.source.splitlines() if line.startswith("## ")]
    assert headings == SECTIONS


@each_chapter
def test_lengths_of_code_cells(path):
    lengths = sorted(lines_of(cell) for cell in code_cells(read(path)))
    median, most = statistics.median(lengths), lengths[-1]
    p90 = statistics.quantiles(lengths, n=10, method="inclusive")[-1]
    figures = f"median {median} (at most 8), 90th percentile {p90} (25), longest {most} (60); all: {lengths}"
    assert median <= 8 and p90 <= 25 and most <= 60, figures


@each_chapter
def test_code_and_printed_lines_fit_the_column(path, executed):
    """The page shows 77 characters; folded drawing code may have 110."""
    wide = []
    for cell in code_cells(executed[path.name]):
        printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        folded = {"hide-input", "hide-cell", "remove-input"} & set(tags(cell))
        wide += [line for line in cell.source.splitlines() if len(line) > (110 if folded else 77)]
        wide += [line for line in printed.splitlines() if len(line) > 77]
    assert not wide, "\n".join(wide)


@each_chapter
def test_lengths_of_text_cells(path):
    """The median text cell has 30 to 60 words; cells that hold only a heading do not count."""
    texts = [prose(cell.source) for cell in read(path).cells if cell.cell_type == "markdown"]
    lengths = sorted(len(words) for words in texts if words)
    median = statistics.median(lengths)
    assert 30 <= median <= 60, f"the median text cell has {median} words (30 to 60); all: {lengths}"


@each_chapter
def test_no_more_than_three_code_cells_in_a_row(path):
    run = 0
    for number, cell in enumerate(read(path).cells, start=1):
        run = run + 1 if cell.cell_type == "code" else 0
        assert run <= 3, f"cell {number} is the fourth code cell in a row"


@each_chapter
def test_stored_as_committed(path):
    """No outputs but checked texts, no execution counts, no editor's metadata: what `make outputs` writes."""
    assert path.read_text(encoding="utf-8") == nbformat.writes(committed(read(path), path.name)) + "\n", \
        "run `make outputs`"
    for cell in read(path).cells:
        assert cell.cell_type != "code" or bool(cell.outputs) == (CHECKED in tags(cell)), \
            f"cell {cell.id}: outputs are stored where the cell is tagged {CHECKED} and nowhere else"


@each_chapter
def test_no_widget_state(path):
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert set(raw["metadata"]) == {"kernelspec", "language_info"}
    assert "widget" not in json.dumps([cell.get("outputs", []) for cell in raw["cells"]])


@each_chapter
def test_cell_ids(path):
    ids = Counter(cell.get("id") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    assert None not in ids
    assert [name for name, count in ids.items() if count > 1] == []


def verdicts(cell):
    text = "".join(output.get("text", "") for output in cell.outputs if output.output_type == "stream")
    return [line for line in text.splitlines() if line.startswith(("✓", "✗"))]


@each_chapter
def test_exercises_fail_and_solutions_pass(path, executed):
    """An untouched stub is told what is wrong with it, and the book's solution passes the same check."""
    cells = {kind: [cell for cell in executed[path.name].cells if kind in tags(cell)]
             for kind in ("exercise", "solution")}
    assert cells["exercise"], "no cell is tagged `exercise`"
    assert len(cells["exercise"]) <= len(cells["solution"]), "every coded exercise needs a coded solution"
    for kind, sign in (("exercise", "✗"), ("solution", "✓")):
        for cell in cells[kind]:
            found = verdicts(cell)
            assert any(line.startswith(sign) for line in found), f"{kind} {cell.source!r} printed {found}"
            assert kind == "exercise" or not any("✗" in line for line in found), (cell.source, found)


def make_test(path):
    """`make test` for one notebook instead of all tests."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
    command = ["make", "test", f"VENV={sys.prefix}", f"TESTS={path}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_broken_notebook_turns_make_test_red(tmp_path, site):
    cells = [nbformat.v4.new_code_cell("x = 1"), nbformat.v4.new_code_cell("print(x)")]
    cells[1].metadata["tags"], cells[1].execution_count = [CHECKED], 2
    cells[1].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for first_line, green in [("x = 1", True), ("x = 2", False), ("x = 1; raise ValueError", False)]:
        cells[0].source = first_line
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "copy.ipynb")
        done = make_test(tmp_path / "copy.ipynb")
        assert ("2 passed" in done.stdout) == (done.returncode == 0) == green, done.stdout + done.stderr


@pytest.fixture
def small_book(tmp_path):
    """The folder of a book with one sound page, one that fails, and a page without code."""
    for folder in ("book", "utils"):
        (tmp_path / folder).mkdir()
    (tmp_path / "utils" / "helper.py").write_text("x = 1\n")
    (tmp_path / "constraints.txt").write_text("numpy==2.0\n")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/text\nchapters:\n"
                                       "- file: book/sound\n- file: book/failing\n")
    (tmp_path / "book" / "text.md").write_text("# No code here\n")
    (tmp_path / "book" / "sound.md").write_text(
        "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n"
        "# Sound\n\n```{code-cell} python\n:tags: [one]\nprint(6 * 7)\n```\n")
    cells = [nbformat.v4.new_code_cell("x = 1"), nbformat.v4.new_code_cell("x / 0")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    failing = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(failing, tmp_path / "book" / "failing.ipynb")
    return tmp_path


def test_execution_goes_on_where_it_was(small_book, capsys):
    """A failed page is named with cell and error; sound ones are stored: only the failed one runs again."""
    [error] = execute(small_book)
    assert error.startswith("failing.ipynb, code cell 2 (cell 2 of the notebook)\n")
    assert "x / 0" in error and "ZeroDivisionError: division by zero" in error
    assert "2 pages with code: 0 unchanged, 2 to run" in capsys.readouterr().out
    failing = small_book / "book" / "failing.ipynb"
    failing.write_text(failing.read_text().replace("x / 0", "x / 1"))
    assert execute(small_book) == []
    assert "2 pages with code: 1 unchanged, 1 to run" in capsys.readouterr().out
    assert execute(small_book) == []
    assert "2 pages with code: 2 unchanged, 0 to run" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["utils/helper.py", "constraints.txt"])
def test_a_changed_helper_or_version_means_a_new_cache(small_book, name):
    before = cache_path(small_book)
    assert before == cache_path(small_book)
    (small_book / name).write_text("# changed\n")
    assert cache_path(small_book) != before


@each_chapter
def test_badges_on_the_website(path, site):
    """The built page offers its notebook and says how long it ran."""
    page = (site / "book" / path.name).with_suffix(".html").read_text(encoding="utf-8")
    [download] = re.findall(r'<span class="download"><a href="([^"]+)" download>', page)
    assert (site / "book" / download).read_bytes() == path.read_bytes()
    assert re.search(r'<span class="run-time">Ran in \d+ s', page)


def cited():
    """{key: files} of every citation in the book's text."""
    found = {}
    for path in [*CHAPTERS, *(ROOT / "book").glob("*.md")]:
        text = path.read_text(encoding="utf-8") if path.suffix == ".md" else "\n".join(
            cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text):
            for key in keys.split(","):
                found.setdefault(key.strip(), set()).add(path.name)
    return found


def test_every_citation_has_an_entry():
    assert {key: files for key, files in cited().items() if key not in BIBLIOGRAPHY.entries} == {}


def test_every_entry_is_cited():
    assert sorted(set(BIBLIOGRAPHY.entries) - set(cited())) == []


@pytest.mark.parametrize("key", BIBLIOGRAPHY.entries)
def test_entries_are_complete(key):
    entry = BIBLIOGRAPHY.entries[key]
    assert entry.persons.get("author") or entry.persons.get("editor")
    assert entry.fields.get("title") and re.fullmatch(r"(19|20)\d\d", entry.fields.get("year", ""))
    assert any(entry.fields.get(field) for field in ("doi", "eprint", "url", "isbn"))
