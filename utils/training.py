"""The training loops: each trains many seeds at once, and is short enough to print in a chapter."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from . import cartpole
from .losses import policy_gradient_loss
from .networks import log_probs, mlp, torch_generator
from .validate import floats, in_range, time_axis, whole


@dataclass(frozen=True, eq=False)
class TrainingLog:
    """A training run of S seeds and K iterations.

    steps [K]: environment steps that a seed has used so far, mean over the seeds (their episodes differ).
    returns [K, S]: mean undiscounted return of the iteration's episodes, which are played before its update.
    final_returns [S]: mean return of 100 new episodes of the trained policy, its actions sampled.
    seconds: CPU seconds of the run. policy: the trained network, [S, N, 4] -> [S, N, 2].
    """

    steps: np.ndarray
    returns: np.ndarray
    final_returns: np.ndarray
    seconds: float
    policy: torch.nn.Module


def total_return(rewards, *, gamma):
    """The whole trajectory's return at every one of its steps: rewards [T, ...] -> [T, ...], torch tensors.

    Each column is one complete episode, r_1 ... r_T, and has sum_t gamma^(t-1) r_t in every row.
    Raises ValueError as `utils.estimators.discounted_returns`, which gives the reward-to-go instead.
    """
    rewards, gamma = floats("rewards", rewards), in_range("gamma", gamma, 0, 1)
    time_axis("rewards", rewards)
    discounts = gamma ** torch.arange(len(rewards), dtype=rewards.dtype)
    return torch.tensordot(discounts, rewards, dims=1).expand(rewards.shape)


def action_log_probs(policy, batch):
    """log pi(a_t | s_t) of a Rollout's actions: [T, S, E] with gradient, and 0 where the mask is False.

    The network sees real steps only: those of one seed in one row, all rows padded to the longest, [S, N, 4].
    """
    real = batch.mask.transpose(0, 1)                                                    # [S, T, E]
    counts = real.sum((1, 2)).tolist()
    observations, actions = (
        pad_sequence(array.transpose(0, 1)[real].split(counts), batch_first=True)
        for array in (batch.observations, batch.actions))
    padded = log_probs(policy(observations), actions)                                    # [S, N]
    values = torch.cat([row[:count] for row, count in zip(padded, counts)])
    return values.new_zeros(real.shape).masked_scatter(real, values).transpose(0, 1)


def descend(optimizer, losses, iteration):
    """One optimiser step down the seeds' losses [S]. Their sum serves: no parameter belongs to two seeds.

    Raises FloatingPointError, with the iteration and the seeds, when a loss, a gradient or a new parameter is
    NaN or infinite; before the step in the first two cases.
    """
    def finite(what, values):
        bad = (~values.isfinite()).flatten(1).any(1)
        if bad.any():
            seeds = bad.nonzero().flatten().tolist()
            raise FloatingPointError(f"iteration {iteration}: {what} of seed(s) {seeds} is NaN or infinite")

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    finite("loss", losses[:, None])
    optimizer.zero_grad()
    losses.sum().backward()
    for parameter in parameters:
        finite("gradient", parameter.grad)
    optimizer.step()
    for parameter in parameters:
        finite("parameter", parameter)


def evaluate(policy, *, episodes=100, seed=0):
    """Mean undiscounted return of `episodes` complete episodes of each seed's policy, actions sampled: [S].

    policy: a network whose parameters carry the seed axis. Raises ValueError on a bad argument.
    """
    seeds = len(next(policy.parameters()))
    batch = cartpole.episodes(policy, seeds=seeds, envs=whole("episodes", episodes), seed=seed)
    return batch.mean_returns().numpy()


def reinforce(*, seeds=10, episodes=100, iterations=40, learning_rate=0.02, hidden=16, gamma=1.0,
              weights=total_return, reduction="trajectory_mean", seed=0):
    """REINFORCE on CartPole-v1: S policies at once, each learns from its own episodes. Returns a TrainingLog.

    episodes: complete episodes of each seed in a batch. hidden: units of the network's one hidden layer.
    weights: `total_return`, or `utils.estimators.discounted_returns` for the reward-to-go.
    reduction: as in `utils.losses.policy_gradient_loss`. learning_rate: Adam's.
    The same arguments give the same numbers on the same machine.
    Raises ValueError on a bad argument and FloatingPointError as `descend`. Source: Williams (1992).
    """
    start = time.process_time()
    for name, number in dict(seeds=seeds, episodes=episodes, iterations=iterations, hidden=hidden).items():
        whole(name, number)
    first, last, *streams = np.random.SeedSequence(whole("seed", seed, 0)).spawn(iterations + 2)
    policy = mlp(seeds, (4, hidden, 2), generator=torch_generator(first))
    learning_rate = in_range("learning_rate", learning_rate, 0, open_low=True)
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate, fused=True)
    steps, returns = [], []
    for iteration, stream in enumerate(streams):
        batch = cartpole.episodes(policy, seeds=seeds, envs=episodes, seed=stream)
        log_pi = action_log_probs(policy, batch)
        psi = weights(batch.rewards, gamma=gamma)
        descend(optimizer, torch.stack([
            policy_gradient_loss(log_pi[:, s], psi[:, s], mask=batch.mask[:, s], reduction=reduction)
            for s in range(seeds)]), iteration)
        steps.append(batch.mask.sum((0, 2)))
        returns.append(batch.mean_returns())
    return TrainingLog(
        steps=torch.stack(steps).cumsum(0).double().mean(1).numpy(), returns=torch.stack(returns).numpy(),
        final_returns=evaluate(policy, seed=last), seconds=time.process_time() - start, policy=policy)
