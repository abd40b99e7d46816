"""The truth table: every tied row holds and fails under its wrong variants, and no written chapter has a loose row."""
import json
import re
from pathlib import Path

import mutants
import pytest
import truth

ROOT = Path(__file__).parents[1]
PAIRS = [(name, mutant) for name, tied in truth.TIED.items() for mutant in tied.wrong]


def written_chapters(folder):
    """Numbers of the chapters whose notebook stands in `folder`."""
    return {int(path.name[:2]) for path in folder.glob("[0-9][0-9]_*.ipynb")}


def loose_rows(chapters, tied):
    """Rows of `chapters` that no code recomputes."""
    return sorted(name for name, entry in truth.TABLE.items() if entry["chapter"] in chapters and name not in tied)


def claimed_rows(notebook):
    """Names of the rows that the code cells of a notebook claim."""
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return set(re.findall(r"""claim\(\s*f?["'](T\d+\.\d+)["']""", code))


@pytest.mark.parametrize("name", truth.TIED)
def test_row_holds(name):
    assert truth.check(name) == []


@pytest.mark.parametrize("name, mutant", PAIRS, ids=[f"{name}-{mutant.name}" for name, mutant in PAIRS])
def test_row_fails_under_a_wrong_variant(name, mutant):
    assert truth.check(name, mutant), f"{name} does not notice {mutant.name}: {mutant.mistake}"


def test_every_row_of_a_written_chapter_is_tied():
    chapters = written_chapters(ROOT / "book")
    assert chapters, "no notebook found"
    assert loose_rows(chapters, truth.TIED) == []


def test_a_loose_row_is_noticed(tmp_path):
    (tmp_path / "02_reinforce.ipynb").touch()
    (tmp_path / "index.md").touch()
    assert written_chapters(tmp_path) == {2}
    assert loose_rows({2}, set(truth.TIED) - {"T2.3"}) == ["T2.3"]
    assert loose_rows({1}, set(truth.TIED) - {"T2.3"}) == []


@pytest.mark.parametrize("path", sorted((ROOT / "book").glob("[0-9][0-9]_*.ipynb")), ids=lambda path: path.name)
def test_notebooks_claim_rows_of_the_table(path):
    claimed = claimed_rows(json.loads(path.read_text()))
    chapter = int(path.name[:2])
    assert claimed, "the notebook claims nothing"
    assert sorted(claimed - set(truth.TABLE)) == []
    assert {truth.TABLE[name]["chapter"] for name in claimed} <= set(range(1, chapter + 1)), "a later chapter's row"


def test_claims_are_found_in_code_only():
    cells = [{"cell_type": "code", "source": ['claim("T1.1", 1, 1)\n', "claim('T99.1', 2, 2)"]},
             {"cell_type": "markdown", "source": ['claim("T3.1", 1, 1)']}]
    assert claimed_rows({"cells": cells}) == {"T1.1", "T99.1"}


def test_table_is_well_formed():
    keys = {"id", "slug", "chapter", "statement", "testbed", "inputs", "expected", "tolerance", "kind", "note"}
    entries = json.loads((ROOT / "tests" / "truth.json").read_text())
    assert len(entries) == len(truth.TABLE) >= 171, "two rows of one name, or rows lost"
    assert len({entry["slug"] for entry in entries}) == len(entries)
    for entry in entries:
        assert set(entry) == keys, entry["id"]
        assert entry["id"].startswith(f"T{entry['chapter']}."), entry["id"]
        assert entry["kind"] in ("exact", "relation", "inequality", "monte-carlo"), entry["id"]
        assert 0 < entry["tolerance"] <= 0.1, entry["id"]
        assert entry["expected"] and entry["statement"], entry["id"]


@pytest.mark.parametrize("value, expected, found", [
    (1.0 + 0.9e-9, 1.0, 0), (1.0 + 1.1e-9, 1.0, 1), (1000 + 0.9e-6, 1000.0, 0), (1000 + 1.1e-6, 1000.0, 1),
    (1e-4 + 1e-8, 1e-4, 1), (float("nan"), 1.0, 1), (float("inf"), 1.0, 1), (True, True, 0), (False, True, 1),
    ([1.0, 2.0], [1.0, 2.0], 0), ([1.0], [1.0, 2.0], 1), ([1.0, 2.0, 3.0], [1.0, 2.0], 1), (1.0, [1.0], 1),
    ({"a": 1.0}, {"a": 1.0}, 0), ({"a": 1.0}, {"a": 1.0, "b": 2.0}, 1), ({"a": 1.0, "b": 2.0}, {"a": 1.0}, 1),
    ({1: 2.0}, {"1": 2.0}, 0), ([[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0], [3.0, 4.0]], 1), ("x", "x", 0), ("y", "x", 1),
    (truth.AtMost(0.9, 1.0), 0.5, 0), (truth.AtMost(1.1, 1.0), 1.1, 1), ([], [], 0)])
def test_comparison(value, expected, found):
    assert len(truth.misses(value, expected, 1e-9)) == found


def test_a_row_is_tied_once_with_a_wrong_variant():
    for name, variants in (("T1.1", [mutants.sign_forgotten]), ("T99.9", [mutants.sign_forgotten]), ("T3.1", [])):
        with pytest.raises(ValueError, match=name):
            truth.row(name, wrong=variants)(lambda lib, given: {})


def test_an_inequality_states_its_bound(monkeypatch):
    entry = {"inputs": {"x": 0.9}, "expected": {"ratio": 0.9}, "kind": "inequality", "tolerance": 1e-9}
    monkeypatch.setitem(truth.TABLE, "T0.1", entry)
    monkeypatch.setitem(truth.TIED, "T0.1", truth.Tied(lambda lib, given: {"ratio": truth.AtMost(given.x, 1)}, ()))
    assert truth.check("T0.1") == []
    monkeypatch.setitem(truth.TIED, "T0.1", truth.Tied(lambda lib, given: {"ratio": truth.AtMost(given.x, 0.8)}, ()))
    assert len(truth.check("T0.1")) == 1
    monkeypatch.setitem(truth.TIED, "T0.1", truth.Tied(lambda lib, given: {"ratio": given.x}, ()))
    with pytest.raises(ValueError, match="AtMost"):
        truth.check("T0.1")
