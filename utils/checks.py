"""Checks that speak: a claim of the text against a number, a reader's own gradient, a reader's own solution."""
import reprlib
import textwrap

import numpy as np
import torch

from .validate import float64, in_range


def _short(array):
    """At most four numbers of an array, for a message."""
    flat = np.atleast_1d(array).ravel()
    text = ", ".join(f"{x:.6g}" for x in flat[:4])
    return text if np.ndim(array) == 0 else f"[{text}{', ...' if flat.size > 4 else ''}]"


def _shown(argument):
    """An argument of a reader's function, for a message."""
    try:
        return _short(float64("argument", argument))
    except ValueError:
        return reprlib.repr(argument)


def _gap(value, expected):
    """Largest difference, absolute where |expected| <= 1 and relative above."""
    return float(np.max(np.abs(value - expected) / np.maximum(1, np.abs(expected))))


def claim(name, value, expected, *, tolerance=1e-9, text=""):
    """Compare a number of the text with the number computed for it, print one line, raise AssertionError if they differ.

    name: the row of the truth table ("T2.3"). value, expected: number or array of one shape, or bools.
    tolerance: absolute where |expected| <= 1, relative above. text: what is claimed, in a few words.
    Raises ValueError when value or expected holds no finite number, or tolerance is not a finite number >= 0.
    """
    value, expected = float64("value", value), float64("expected", expected)
    in_range("tolerance", tolerance, 0)
    if value.shape != expected.shape:
        raise AssertionError(f"✗ {name}  {text}: expected the shape {expected.shape}, got {value.shape}")
    gap = _gap(value, expected)
    line = f"{name}  {text + ': ' if text else ''}{_short(value)}"
    if not gap <= tolerance:
        raise AssertionError(f"✗ {line}, but {_short(expected)} was expected (difference {gap:.2g} > {tolerance:g})")
    print(f"✓ {line}  (within {tolerance:g})")


def gradient_check(loss, parameters, gradient, *, tolerance=1e-6):
    """Does minimising `loss` follow `gradient`, the exact gradient of J? Prints a verdict, returns True or False.

    loss: a function without arguments that returns a scalar torch tensor. parameters: the tensor (requires_grad) that
    it depends on. gradient: the exact gradient of J, same shape; -d loss / d parameters is compared with it.
    tolerance: for the largest difference, as a share of the largest entry of `gradient` (absolute when all are 0).
    The verdict names the usual mistakes: wrong sign, wrong scale, zero, NaN.
    Raises ValueError when an argument is not of this kind.
    """
    exact = float64("gradient", gradient)
    in_range("tolerance", tolerance, 0)
    if not isinstance(parameters, torch.Tensor) or not parameters.requires_grad:
        raise ValueError(f"parameters: expected a tensor that requires a gradient, got {reprlib.repr(parameters)}")
    if exact.shape != parameters.shape:
        raise ValueError(f"gradient: expected the shape of parameters, {tuple(parameters.shape)}, got {exact.shape}")
    value = loss() if callable(loss) else loss
    if not callable(loss) or not isinstance(value, torch.Tensor) or value.ndim != 0:
        raise ValueError(f"loss: expected a function that returns a scalar tensor, got {reprlib.repr(value)}")
    if not value.requires_grad:
        return _verdict(False, "the loss does not depend on the parameters: was something detached that must not be?")
    (found,) = torch.autograd.grad(value, parameters, allow_unused=True)
    if found is None or (exact.any() and not found.any()):
        return _verdict(False, "the gradient is zero: was something detached that must not be?")
    if not found.isfinite().all():
        return _verdict(False, "the gradient has NaN or infinite entries")
    found = -float64("loss", found)
    size = np.abs(exact).max() or 1.0
    if np.abs(found - exact).max() <= tolerance * size:
        return _verdict(True, f"minus the gradient of the loss is the gradient of J, {_short(exact)}")
    scale = float((found * exact).sum() / max((exact * exact).sum(), 1e-300))
    if scale and np.abs(found - scale * exact).max() <= tolerance * abs(scale) * size:
        hint = "the sign is wrong" if np.isclose(scale, -1) else f"the direction is right, the scale is {scale:.6g} times J's"
        return _verdict(False, f"{hint}: expected {_short(exact)}, got {_short(found)}")
    return _verdict(False, f"another vector: expected {_short(exact)}, got {_short(found)}")


def check_exercise(attempt, cases, *, hint="", tolerance=1e-6):
    """Try a reader's function on examples and print a verdict that starts with "✓" or "✗"; never raises for the reader.

    attempt: the function. cases: list of (arguments tuple, expected number or array). hint: what to think about.
    Returns True if every case agrees within `tolerance` (as in `claim`). Raises ValueError for cases or a tolerance
    that could not tell right from wrong.
    """
    in_range("tolerance", tolerance, 0)
    if not isinstance(cases, (list, tuple)) or not cases:
        raise ValueError(f"cases: expected a list of (arguments, expected), got {reprlib.repr(cases)}")
    if not callable(attempt):
        return _verdict(False, f"expected a function, got {reprlib.repr(attempt)}. {hint}")
    name = getattr(attempt, "__name__", "your function")
    for arguments, expected in cases:
        shown, expected = ", ".join(map(_shown, arguments)), float64("expected", expected)
        try:
            result = attempt(*arguments)
        except Exception as error:                     # a learner's function may fail in any way; show how
            return _verdict(False, f"{name}({shown}) raised {type(error).__name__}: {error}. {hint}")
        if result is None:
            return _verdict(False, f"{name} is not written yet. {hint}")
        try:
            value = float64(f"{name}({shown})", result)
        except ValueError as error:
            return _verdict(False, f"{error}. {hint}")
        if value.shape != expected.shape:
            return _verdict(False, f"{name}({shown}) has the shape {value.shape}, expected {expected.shape}. {hint}")
        if not _gap(value, expected) <= tolerance:
            return _verdict(False, f"{name}({shown}) = {_short(value)}, expected {_short(expected)}. {hint}")
    return _verdict(True, f"{name} is right on {len(cases)} example{'s' if len(cases) > 1 else ''}")


def _verdict(passed, message):
    print(textwrap.fill(("✓ " if passed else "✗ ") + message.strip(), 77, subsequent_indent="  "))
    return passed
