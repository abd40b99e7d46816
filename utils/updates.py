"""What the training loops are made of: rows of real steps, an optimiser's step that stops at NaN, the log, the evaluation.

No operation here mixes the seeds.
"""
import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from . import cartpole
from .estimators import gae
from .kl import flatten
from .networks import log_probs
from .validate import choice, in_range, whole


@dataclass(frozen=True, eq=False)
class TrainingLog:
    """A training run of S seeds and K iterations.

    steps [K]: environment steps that a seed has used so far, mean over the seeds (their episodes differ).
    returns [K, S]: mean undiscounted return of the iteration's episodes, which are played before its update.
    final_returns [S]: mean return of 100 new episodes of the trained policy, its actions sampled.
    seconds: CPU seconds of the run. policy: the trained network, [S, N, 4] -> [S, N, 2].
    diagnostics: what else a loop has measured, name -> [K, S].
    """

    steps: np.ndarray
    returns: np.ndarray
    final_returns: np.ndarray
    seconds: float
    policy: torch.nn.Module
    diagnostics: dict = field(default_factory=dict)


def packed(mask, array):
    """The real steps of each seed in one row, all rows padded with 0 to the longest: [T, S, E, ...] -> [S, N, ...].

    mask [T, S, E] is True where the step is real. Networks then see real steps only.
    """
    real = mask.transpose(0, 1)                                                          # [S, T, E]
    return pad_sequence(array.transpose(0, 1)[real].split(real.sum((1, 2)).tolist()), batch_first=True)


def unpacked(mask, rows):
    """`packed` undone for one number a step: [S, N] -> [T, S, E], and 0 where the mask is False."""
    real = mask.transpose(0, 1)
    values = torch.cat([row[:count] for row, count in zip(rows, real.sum((1, 2)).tolist())])
    return values.new_zeros(real.shape).masked_scatter(real, values).transpose(0, 1)


def action_log_probs(policy, batch):
    """log pi(a_t | s_t) of a Rollout's actions: [T, S, E] with gradient, and 0 where the mask is False."""
    observations, actions = packed(batch.mask, batch.observations), packed(batch.mask, batch.actions)
    return unpacked(batch.mask, log_probs(policy(observations), actions))


def state_values(critic, observations, mask):
    """V(s) of observations [T, S, E, 4]: [T, S, E] with gradient, and 0 where the mask is False."""
    return unpacked(mask, critic(packed(mask, observations)).squeeze(-1))


def seed_means(values, mask):
    """Mean over the real steps of each seed: [T, S, E] -> [S]. mask [T, S, E] is True where the step is real."""
    return (values * mask).sum((0, 2)) / mask.sum((0, 2))


def whiten_seeds(values, mask):
    """`utils.estimators.whiten` of each seed's [T, E] for itself, in one go: [T, S, E] -> [T, S, E]."""
    centred = (values - seed_means(values, mask)[:, None]) * mask
    variances = (centred ** 2).sum((0, 2)) / (mask.sum((0, 2)) - 1)
    return centred / (variances + 1e-8).sqrt()[:, None]


def all_finite(what, values, iteration):
    """Raises FloatingPointError, with the iteration and the seeds, when a row of values [S, ...] is not finite."""
    if math.isfinite(values.detach().sum().item()):                      # quick, and no NaN or infinity cancels
        return
    bad = (~values.isfinite()).flatten(1).any(1)
    if bad.any():
        seeds = bad.nonzero().flatten().tolist()
        raise FloatingPointError(f"iteration {iteration}: {what} of seed(s) {seeds} is NaN or infinite")


def descend(optimizer, losses, iteration, *, max_grad_norm=None):
    """One optimiser step down the seeds' losses [S]. Their sum serves: no parameter belongs to two seeds.

    max_grad_norm > 0: a network's gradient that is longer than this, for one seed, is shortened to it.
    Raises FloatingPointError as `all_finite` when a loss, a gradient or a new parameter is NaN or infinite; before
    the step in the first two cases.
    """
    networks = [group["params"] for group in optimizer.param_groups]
    parameters = sum(networks, [])
    all_finite("loss", losses[:, None], iteration)
    optimizer.zero_grad()
    losses.sum().backward()
    all_finite("gradient", flatten([parameter.grad for parameter in parameters]), iteration)
    if max_grad_norm is not None:
        for network in networks:
            norms = flatten([parameter.grad for parameter in network]).norm(dim=1)
            for parameter in network:
                parameter.grad.mul_((max_grad_norm / norms).clamp(max=1)[:, None, None])
    optimizer.step()
    all_finite("parameter", flatten([parameter.detach() for parameter in parameters]), iteration)


def adam(**networks):
    """One Adam for several networks, each with a rate of its own: adam(learning_rate=(policy, 0.01), ...).

    Raises ValueError unless each rate is > 0; the error names the keyword.
    """
    return torch.optim.Adam([
        {"params": list(network.parameters()), "lr": in_range(name, rate, 0, open_low=True)}
        for name, (network, rate) in networks.items()], fused=True)


def training_log(policy, steps, returns, *, seed, start, **diagnostics):
    """The TrainingLog of a finished run: lists of the iterations' steps [S] and mean returns [S], and when it began.

    diagnostics: further lists of [S].
    """
    return TrainingLog(
        steps=torch.stack(steps).cumsum(0).double().mean(1).numpy(), returns=torch.stack(returns).numpy(),
        final_returns=evaluate(policy, seed=seed), seconds=time.process_time() - start, policy=policy,
        diagnostics={name: torch.stack(rows).numpy() for name, rows in diagnostics.items()})


def evaluate(policy, *, episodes=100, seed=0):
    """Mean undiscounted return of `episodes` complete episodes of each seed's policy, actions sampled: [S].

    policy: a network whose parameters carry the seed axis. Raises ValueError on a bad argument.
    """
    seeds = len(next(policy.parameters()))
    batch = cartpole.episodes(policy, seeds=seeds, envs=whole("episodes", episodes), seed=seed)
    return batch.mean_returns().numpy()


def advantages_and_targets(critic, batch, *, gamma, lam, bootstrap):
    """(values, advantages, targets) of a Rollout, [T, S, E] each; the values alone have a gradient.

    Advantages are those of `utils.estimators.gae`, in the units of the rewards; targets are advantages + values.
    bootstrap: after which cuts, of "time limit" and "rollout end", the critic is asked for the rest of the episode; a
    cut that is left out counts as the episode's end, a common mistake (Chapter 10). Raises ValueError as `gae`.
    """
    for name in bootstrap:
        choice("bootstrap", name, ("time limit", "rollout end"))
    mask = batch.mask
    values = state_values(critic, batch.observations, mask)
    with torch.no_grad():
        next_values = state_values(critic, batch.next_observations, mask)
    rollout_end = torch.arange(len(mask)).view(-1, 1, 1) == len(mask) - 1
    terminated, cut = batch.terminated, batch.truncated | rollout_end
    if "time limit" not in bootstrap:                     # two mistakes,
        terminated = terminated | batch.truncated         # on request
    if "rollout end" not in bootstrap:
        terminated = terminated | rollout_end
    advantages = gae(
        batch.rewards, values.detach(), next_values, gamma=gamma, lam=lam,
        terminated=terminated, truncated=cut, mask=mask)
    return values, advantages, advantages + values.detach()
