"""Arguments become arrays here, and bad ones are refused with an error that names the argument.

NumPy arrays (and lists) stay NumPy, torch tensors stay torch: `namespace(x)` is the library whose functions apply to `x`.
"""
import numbers

import numpy as np
import torch


def namespace(array):
    """The library of `array`: the module `torch` for a tensor, `numpy` for anything else."""
    return torch if isinstance(array, torch.Tensor) else np


def floats(name, value, *, mask=None):
    """`value` as a floating-point array or tensor; float32 and float64 are kept, integers become floats.

    Raises ValueError when it is not numeric or holds NaN or infinity (where `mask` is False nothing is checked).
    """
    if isinstance(value, torch.Tensor):
        array = value if value.is_floating_point() else value.to(torch.get_default_dtype())
    else:
        try:
            array = np.asarray(value)
            array = array if array.dtype.kind == "f" else array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: expected numbers, got {value!r}") from None
    bad = ~namespace(array).isfinite(array)
    if mask is not None:
        bad = bad & mask
    if bad.any():
        raise ValueError(f"{name}: expected finite numbers, got {int(bad.sum())} NaN or infinite "
                         f"value(s) in an array of shape {tuple(array.shape)}")
    return array


def flags(name, value, like):
    """`value` as a boolean array of the shape and library of `like`. Raises ValueError unless it holds only 0 and 1."""
    if isinstance(like, torch.Tensor):
        array = torch.as_tensor(value, device=like.device)
    else:
        array = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
    if tuple(array.shape) != tuple(like.shape):
        raise ValueError(f"{name}: expected the shape {tuple(like.shape)}, got {tuple(array.shape)}")
    if not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{name}: expected only True and False (or 1 and 0), got other values")
    return array == 1


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
    """Raises ValueError unless `array` has a time axis of at least one step (shape [T, ...])."""
    if array.ndim == 0 or array.shape[0] == 0:
        raise ValueError(f"{name}: expected the shape [T, ...] with T >= 1, got {tuple(array.shape)}")


def in_range(name, value, low=-np.inf, high=np.inf, *, open_low=False):
    """`value` as a float. Raises ValueError unless it is one number in [low, high], or in (low, high] if `open_low`."""
    wanted = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]"
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ValueError(f"{name}: expected {wanted}, got {value!r}")
    if not low <= value <= high or (open_low and value == low):            # NaN fails the first comparison
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
    return float(value)


def whole(name, value, low=1):
    """`value` as an int. Raises ValueError unless it is a whole number >= low."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name}: expected a whole number >= {low}, got {value!r}")
    return int(value)


def choice(name, value, allowed):
    """`value` itself. Raises ValueError unless it is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value
