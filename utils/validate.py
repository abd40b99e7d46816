"""Arguments become arrays here, and bad ones are refused with an error that names the argument.

NumPy arrays (and lists) stay NumPy, torch tensors stay torch: `namespace(x)` is the library whose functions apply to `x`.
"""
import numbers
import reprlib

import numpy as np
import torch


def namespace(array):
    """The library of `array`: the module `torch` for a tensor, `numpy` for anything else."""
    return torch if isinstance(array, torch.Tensor) else np


def floats(name, value, *, mask=None):
    """`value` as a floating-point array or tensor; float32 and float64 are kept, integers become floats.

    Raises ValueError when it is empty, is not made of real numbers, or holds NaN or infinity (where `mask` is False
    nothing is checked).
    """
    try:
        array = value if isinstance(value, torch.Tensor) else np.asarray(value)
    except (TypeError, ValueError, RuntimeError):       # a ragged list, a list of tensors that require a gradient
        array = None
    if isinstance(array, torch.Tensor) and not array.is_complex():
        array = array if array.is_floating_point() else array.to(torch.get_default_dtype())
    elif isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        array = array if array.dtype.kind == "f" else array.astype(np.float64)
    else:
        raise ValueError(f"{name}: expected an array of real numbers, got {reprlib.repr(value)}")
    if 0 in array.shape:
        raise ValueError(f"{name}: expected at least one number, got the shape {tuple(array.shape)}")
    bad = ~namespace(array).isfinite(array)
    if mask is not None:
        bad = bad & mask
    if bad.any():
        raise ValueError(f"{name}: expected finite numbers, got {int(bad.sum())} NaN or infinite "
                         f"value(s) in an array of shape {tuple(array.shape)}")
    return array


def float64(name, value):
    """`value` (a number, list, array or tensor) as a new float64 NumPy array; raises as `floats` does."""
    array = floats(name, value)
    return np.array(array.detach().cpu().double().numpy() if isinstance(array, torch.Tensor) else array, np.float64)


def flags(name, value, like):
    """`value` as a boolean array of the shape and library of `like`. Raises ValueError unless it holds only 0 and 1."""
    array = floats(name, value)
    if isinstance(like, torch.Tensor):
        array = torch.as_tensor(array.copy() if isinstance(array, np.ndarray) else array, device=like.device)
    elif isinstance(array, torch.Tensor):
        array = array.detach().cpu().numpy()
    if tuple(array.shape) != tuple(like.shape):
        raise ValueError(f"{name}: expected the shape {tuple(like.shape)}, got {tuple(array.shape)}")
    if not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{name}: expected only True and False (or 1 and 0), got other values")
    return array == 1


def blank(name, array, mask):
    """`array` with 0 where `mask` is False, so that nothing there (even NaN) reaches a result or its gradient.

    mask: boolean, of the shape and library of `array`. Raises ValueError on NaN or infinity where `mask` is True.
    """
    array = floats(name, array, mask=mask)
    return namespace(array).where(mask, array, namespace(array).zeros_like(array))


def same_shape(**arrays):
    """Raises ValueError unless all named arrays have one shape, and all are NumPy or all are torch; None is skipped."""
    given = {name: array for name, array in arrays.items() if array is not None}
    first, reference = next(iter(given.items()))
    for name, array in given.items():
        if tuple(array.shape) != tuple(reference.shape):
            raise ValueError(f"{name}: expected the shape of {first}, {tuple(reference.shape)}, "
                             f"got {tuple(array.shape)}")
        if namespace(array) is not namespace(reference):
            raise ValueError(f"{name}: expected the same library as {first} ({namespace(reference).__name__}), "
                             f"got {namespace(array).__name__}")


def time_axis(name, array):
    """Raises ValueError unless `array` has a time axis (shape [T, ...])."""
    if array.ndim == 0:
        raise ValueError(f"{name}: expected the shape [T, ...], got a single number")


def in_range(name, value, low=-np.inf, high=np.inf, *, open_low=False):
    """`value` as a float. Raises ValueError unless it is one finite number in [low, high], or in (low, high] if
    `open_low`."""
    finite = "" if np.isfinite([low, high]).all() else "finite "
    wanted = f"a {finite}number in {'(' if open_low else '['}{low:g}, {high:g}]"
    if getattr(value, "ndim", None) == 0:                                  # NumPy and torch scalars
        value = value.item()
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ValueError(f"{name}: expected {wanted}, got {reprlib.repr(value)}")
    if not (abs(value) < np.inf and low <= value <= high) or (open_low and value == low):
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
    return float(value)


def whole(name, value, low=1):
    """`value` as an int. Raises ValueError unless it is a whole number >= low."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name}: expected a whole number >= {low}, got {reprlib.repr(value)}")
    return int(value)


def choice(name, value, allowed):
    """`value` itself. Raises ValueError unless it is one of `allowed`."""
    if not isinstance(value, (str, numbers.Real, type(None))) or value not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {reprlib.repr(value)}")
    return value
