"""The training loops: each trains many seeds at once, and is short enough to print in a chapter.

Here are REINFORCE and the actor-critic; PPO and TRPO come from `trust_region`, and what all share from `updates`.
"""
import time

import numpy as np
import torch

from . import cartpole
from .estimators import discounted_returns
from .losses import policy_gradient_loss, value_loss
from .networks import mlp, torch_generator
from .trust_region import ppo, trpo                                                               # noqa: F401
from .updates import (TrainingLog, action_log_probs, adam, advantages_and_targets, all_finite,    # noqa: F401
                      descend, evaluate, packed, seed_means, state_values, training_log, unpacked, whiten_seeds)
from .validate import floats, in_range, time_axis, whole


def total_return(rewards, *, gamma):
    """The whole trajectory's return at every one of its steps: rewards [T, ...] -> [T, ...], torch tensors.

    Each column is one complete episode, r_1 ... r_T, and has sum_t gamma^(t-1) r_t in every row.
    Raises ValueError as `utils.estimators.discounted_returns`, which gives the reward-to-go instead.
    """
    rewards, gamma = floats("rewards", rewards), in_range("gamma", gamma, 0, 1)
    time_axis("rewards", rewards)
    discounts = gamma ** torch.arange(len(rewards), dtype=rewards.dtype)
    return torch.tensordot(discounts, rewards, dims=1).expand(rewards.shape)


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
    optimizer = adam(learning_rate=(policy, learning_rate))
    steps, returns = [], []
    for iteration, stream in enumerate(streams):
        batch = cartpole.episodes(
            policy, seeds=seeds, envs=episodes, seed=stream)
        mask = batch.mask
        log_pi = action_log_probs(policy, batch)
        psi = weights(batch.rewards, gamma=gamma)
        descend(optimizer, torch.stack([
            policy_gradient_loss(log_pi[:, s], psi[:, s], mask=mask[:, s],
                                 reduction=reduction)
            for s in range(seeds)]), iteration)
        steps.append(mask.sum((0, 2)))
        returns.append(batch.mean_returns())
    return training_log(policy, steps, returns, seed=last, start=start)


def reinforce_with_baseline(*, seeds=10, episodes=16, iterations=60, learning_rate=0.03,
                            value_learning_rate=0.05, hidden=16, gamma=1.0, seed=0):
    """REINFORCE with reward-to-go and a learned baseline V(s) on CartPole-v1. Returns a TrainingLog.

    A second network is fitted to the rewards-to-go by least squares, and what it predicted before the update is
    subtracted from them: the lines marked "new". value_learning_rate: Adam's for that network.
    The other arguments and errors are those of `reinforce`.
    Source: Williams (1992); Sutton & Barto (2018), section 13.4.
    """
    start = time.process_time()
    for name, number in dict(seeds=seeds, episodes=episodes, iterations=iterations, hidden=hidden).items():
        whole(name, number)
    first, second, last, *streams = np.random.SeedSequence(whole("seed", seed, 0)).spawn(iterations + 3)
    policy = mlp(seeds, (4, hidden, 2), generator=torch_generator(first))
    baseline = mlp(seeds, (4, hidden, 1), gain=1, generator=torch_generator(second))           # new
    optimizer = adam(learning_rate=(policy, learning_rate),
                     value_learning_rate=(baseline, value_learning_rate))
    steps, returns = [], []
    for iteration, stream in enumerate(streams):
        batch = cartpole.episodes(
            policy, seeds=seeds, envs=episodes, seed=stream)
        mask = batch.mask
        log_pi = action_log_probs(policy, batch)
        togo = discounted_returns(batch.rewards, gamma=gamma)
        values = state_values(baseline, batch.observations, mask)           # new
        psi = togo - values                                                 # new
        descend(optimizer, torch.stack([
            policy_gradient_loss(log_pi[:, s], psi[:, s], mask=mask[:, s])
            + value_loss(values[:, s], togo[:, s], mask=mask[:, s])         # new
            for s in range(seeds)]), iteration)
        steps.append(mask.sum((0, 2)))
        returns.append(batch.mean_returns())
    return training_log(policy, steps, returns, seed=last, start=start)


def actor_critic(*, seeds=10, envs=32, horizon=16, iterations=300, learning_rate=0.003,
                 value_learning_rate=0.03, hidden=32, gamma=0.98, lam=0.95, whitened=True,
                 bootstrap=("time limit", "rollout end"), seed=0):
    """Advantage actor-critic on CartPole-v1, its advantages from GAE. Returns a TrainingLog.

    Each iteration plays `horizon` steps of a seed's `envs` environments, on from where they stand, and makes one
    update. lam = 0 gives one-step TD errors, lam = 1 returns minus values. whitened: the advantages of a seed's
    batch are shifted and scaled to mean 0 and variance 1. bootstrap: as in `advantages_and_targets`.
    The log's returns are means over the latest episode of each environment that has ended one, NaN before the
    first; the other arguments and errors are those of `reinforce`.
    Source: Mnih et al. (2016), without the parallel workers; Schulman et al. (2016) for the advantages.
    """
    start = time.process_time()
    whole("horizon", horizon)
    first, second, third, last = np.random.SeedSequence(whole("seed", seed, 0)).spawn(4)
    policy = mlp(seeds, (4, whole("hidden", hidden), 2), generator=torch_generator(first))
    critic = mlp(seeds, (4, hidden, 1), gain=1, generator=torch_generator(second))
    optimizer = adam(learning_rate=(policy, learning_rate),
                     value_learning_rate=(critic, value_learning_rate))
    env = cartpole.CartPole(seeds=seeds, envs=envs, seed=third)
    steps, returns, latest = [], [], torch.full((seeds, envs), torch.nan)
    for iteration in range(whole("iterations", iterations)):
        batch = cartpole.rollout(env, policy, horizon)
        mask = batch.mask
        log_pi = action_log_probs(policy, batch)
        values, advantages, targets = advantages_and_targets(
            critic, batch, gamma=gamma, lam=lam, bootstrap=bootstrap)
        if whitened:
            advantages = whiten_seeds(advantages, mask)

        policy_losses = seed_means(-log_pi * advantages, mask)   # all seeds [S]
        value_losses = seed_means((values - targets) ** 2 / 2, mask)
        descend(optimizer, policy_losses + value_losses, iteration)
        steps.append(mask.sum((0, 2)))
        latest = batch.latest_returns(latest)
        returns.append(latest.nanmean(1))
    return training_log(policy, steps, returns, seed=last, start=start)
