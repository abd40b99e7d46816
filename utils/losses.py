"""Losses: pure functions that return one number to minimise. Each has the gradient that a chapter derives.

Arrays are [T, ...]: T time steps, then any batch of trajectories, the same shape for all arguments.
"""
import math

import torch

from .validate import blank, choice, flags, floats, in_range, namespace, same_shape, time_axis


def _detached(array):
    return array.detach() if isinstance(array, torch.Tensor) else array


def _real(mask, like):
    """`mask` as a boolean array of the shape of `like`: True where the entry is real, everywhere when it is None."""
    if mask is None:
        return namespace(like).zeros_like(like) == 0
    mask = flags("mask", mask, like)
    if not mask.any():
        raise ValueError("mask: expected at least one True, got none")
    return mask


def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
    """-(mean over trajectories of the sum over t of) log pi(a_t | s_t) * A_t: its gradient is minus the policy gradient.

    log_probs [T, ...] of the actions taken; advantages [T, ...], constants here whatever the caller did; mask [T, ...]
    is True where the step is real. reduction "trajectory_mean" sums over time and means over the trajectories;
    "step_mean" means over all real steps, which divides the same sum by a random number (Chapter 2).
    Returns a scalar. Raises ValueError on a wrong shape, an unknown reduction or a non-finite number.
    Source: Williams (1992), equation 11; the loss form is in Achiam (2018), part 3.
    """
    choice("reduction", reduction, ("trajectory_mean", "step_mean"))
    log_probs, advantages = floats("log_probs", log_probs, mask=False), floats("advantages", advantages, mask=False)
    time_axis("log_probs", log_probs)
    same_shape(log_probs=log_probs, advantages=advantages)
    real = _real(mask, log_probs)
    weighted = blank("log_probs", log_probs, real) * blank("advantages", _detached(advantages), real)
    trajectories = math.prod(weighted.shape[1:])
    return -weighted.sum() / (trajectories if reduction == "trajectory_mean" else int(real.sum()))


def value_loss(values, targets, *, old_values=None, clip=None, mask=None):
    """Half the mean square of values - targets over the real entries; with `clip`, PPO's pessimistic variant.

    values, targets [T, ...]; targets are constants here; mask [T, ...] True where real. With `clip` > 0 and
    old_values [T, ...], each entry is the larger of the squared errors of values and of old_values +
    clamp(values - old_values, -clip, clip). Returns a scalar.
    Raises ValueError on a wrong shape, clip <= 0, only one of clip and old_values, or a non-finite number.
    Source: Sutton & Barto (2018), section 9.3; the clipped form is in Schulman et al. (2017)'s code.
    """
    values, targets = floats("values", values, mask=False), floats("targets", targets, mask=False)
    same_shape(values=values, targets=targets)
    real = _real(mask, values)
    values, targets = blank("values", values, real), blank("targets", _detached(targets), real)
    errors = (values - targets) ** 2
    if (clip is None) != (old_values is None):
        missing = "clip" if clip is None else "old_values"
        raise ValueError(f"{missing}: expected clip and old_values together, got None")
    if clip is not None:
        clip = in_range("clip", clip, 0, open_low=True)
        old_values = floats("old_values", old_values, mask=False)
        same_shape(values=values, old_values=old_values)
        old_values = blank("old_values", _detached(old_values), real)
        xp = namespace(values)
        clipped = old_values + xp.clip(values - old_values, -clip, clip)
        errors = xp.maximum(errors, (clipped - targets) ** 2)
    return errors.sum() / int(real.sum()) / 2


def _ratio(log_probs, old_log_probs, advantages, mask):
    """(rho, advantages, real): the ratio of the probabilities, with gradient, and constants; 1, 0, False at padding."""
    given = {"log_probs": log_probs, "old_log_probs": old_log_probs, "advantages": advantages}
    given = {name: floats(name, array, mask=False) for name, array in given.items()}
    same_shape(**given)
    real = _real(mask, given["log_probs"])
    log_probs, old_log_probs, advantages = (blank(name, array, real) for name, array in given.items())
    ratio = namespace(log_probs).exp(log_probs - _detached(old_log_probs))
    return ratio, _detached(advantages), real


def ppo_clip_loss(log_probs, old_log_probs, advantages, *, epsilon, epsilon_high=None, mask=None):
    """-(mean of min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A)), rho = exp(log_probs - old_log_probs).

    log_probs, old_log_probs, advantages: one shape; the last two are constants here. epsilon in (0, 1] is the lower
    half-width of the band, epsilon_high > 0 the upper one, equal to it by default; mask, the same shape, is True where
    the entry is real. Returns a scalar. Raises ValueError on a wrong shape, range or non-finite number.
    Source: Schulman et al. (2017), equation 7; two half-widths: Yu et al. (2025).
    """
    epsilon = in_range("epsilon", epsilon, 0, 1, open_low=True)
    epsilon_high = epsilon if epsilon_high is None else in_range("epsilon_high", epsilon_high, 0, open_low=True)
    ratio, advantages, real = _ratio(log_probs, old_log_probs, advantages, mask)
    xp = namespace(ratio)
    clipped = xp.clip(ratio, 1 - epsilon, 1 + epsilon_high)
    return -xp.minimum(ratio * advantages, clipped * advantages).sum() / int(real.sum())


def ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, *, beta, mask=None):
    """-(mean of rho A - beta KL), rho = exp(log_probs - old_log_probs).

    kl: KL(old || new) in the state of each entry, with gradient, in the shape of log_probs; beta >= 0. Everything else
    as in `ppo_clip_loss`. Source: Schulman et al. (2017), equation 8.
    """
    beta = in_range("beta", beta, 0)
    ratio, advantages, real = _ratio(log_probs, old_log_probs, advantages, mask)
    kl = floats("kl", kl, mask=False)
    same_shape(log_probs=ratio, kl=kl)
    return -(ratio * advantages - beta * blank("kl", kl, real)).sum() / int(real.sum())
