"""The truth table: the numbers of the book, each tied to code that recomputes it and to a wrong variant that misses it.

tests/truth.json holds the rows. A file chapter_NN.py of this folder ties those of its chapter:

    @row("T2.3", wrong=[mutants.gradient_of_the_product])
    def naive_product(lib, given):
        return {"true_grad": ..., "naive_grad": ..., "opposite_signs": ...}

`given` holds the row's inputs and nothing else; the result has the keys of the row's `expected`. `lib` holds the public
functions of utils: a wrong variant (tests/mutants.py) replaces one of them, and the row must then miss its numbers.
"""
import copy
import importlib
import inspect
import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import utils.estimators
import utils.kl
import utils.losses
import utils.mdp

MODULES = [utils.mdp, utils.estimators, utils.losses, utils.kl]
TABLE = {entry["id"]: entry for entry in json.loads((Path(__file__).parents[1] / "truth.json").read_text())}
TIED = {}


@dataclass(frozen=True)
class Tied:
    """The code of one row: `recompute(lib, given)`, and the wrong variants that it must not survive."""
    recompute: callable
    wrong: tuple


@dataclass(frozen=True)
class AtMost:
    """The left side of an inequality; the number in the table is not compared, the bound is."""
    value: float
    bound: float


def row(name, *, wrong):
    """Tie the decorated function to the row `name`. wrong: variants of tests/mutants.py under which it must fail."""
    def tie(function):
        if name in TIED or name not in TABLE or not wrong:
            raise ValueError(f"{name}: tied twice, not in truth.json, or without a wrong variant")
        TIED[name] = Tied(function, tuple(wrong))
        return function
    return tie


def public_functions(module):
    """name -> function or class that the module defines and offers."""
    return {name: thing for name, thing in vars(module).items() if not name.startswith("_")
            and (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module.__name__}


def library(mutant=None):
    """The public functions of utils side by side, as the attributes of one object; one replaced by a mutant."""
    functions = [public_functions(module) for module in MODULES]
    right = {name: thing for group in functions for name, thing in group.items()}
    if len(right) != sum(map(len, functions)):
        raise ValueError("two modules of utils have a public function of the same name")
    lib = SimpleNamespace(**right)
    if mutant is not None:
        setattr(lib, mutant.replaces, mutant.build(SimpleNamespace(**right)))
    return lib


def recompute(name, mutant=None):
    """The numbers of the row `name`, from its inputs alone."""
    given = copy.deepcopy(TABLE[name]["inputs"])
    with np.errstate(all="ignore" if mutant else "warn"):                # a wrong variant may divide by 0
        return TIED[name].recompute(library(mutant), SimpleNamespace(**given))


def misses(value, expected, tolerance, where=""):
    """List of the places at which `value` is not `expected`: absolute up to |expected| = 1, relative above."""
    if isinstance(value, AtMost):
        return [] if value.value <= value.bound + tolerance else [f"{where}: {value.value} > {value.bound}"]
    if isinstance(expected, dict):
        if not isinstance(value, dict) or {str(key) for key in value} != set(expected):
            return [f"{where}: expected the keys {sorted(expected)}, got {value!r}"]
        value = {str(key): part for key, part in value.items()}
        return [m for key in expected for m in misses(value[key], expected[key], tolerance, f"{where}.{key}")]
    if isinstance(expected, list):
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(value, (list, tuple)) or len(value) != len(expected):
            return [f"{where}: expected {len(expected)} entries, got {value!r}"]
        return [m for i, e in enumerate(expected) for m in misses(value[i], e, tolerance, f"{where}[{i}]")]
    if isinstance(expected, (bool, str)):
        return [] if value == expected else [f"{where}: expected {expected}, got {value}"]
    gap = abs(float(value) - expected) / max(1, abs(expected))
    return [] if math.isfinite(gap) and gap <= tolerance else [f"{where}: expected {expected}, got {value}"]


def check(name, mutant=None):
    """Places at which the row `name` misses its table entry; empty when it holds."""
    entry, value = TABLE[name], recompute(name, mutant)
    if entry["kind"] == "inequality" and not any(isinstance(part, AtMost) for part in _leaves(value)):
        raise ValueError(f"{name}: an inequality must return at least one AtMost")
    return misses(value, entry["expected"], entry["tolerance"], name)


def _leaves(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else None
    return [value] if parts is None else [leaf for part in parts for leaf in _leaves(part)]


for _path in sorted(Path(__file__).parent.glob("chapter_*.py")):
    importlib.import_module(f"{__name__}.{_path.stem}")
