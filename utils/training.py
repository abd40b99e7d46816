"""The training loops: each trains many seeds at once, and is short enough to print in a chapter."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from . import cartpole
from .estimators import discounted_returns, gae
from .losses import policy_gradient_loss, value_loss
from .networks import log_probs, mlp, torch_generator
from .validate import choice, floats, in_range, time_axis, whole


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


def adam(**networks):
    """One Adam for several networks, each with a rate of its own: adam(learning_rate=(policy, 0.01), ...).

    Raises ValueError unless each rate is > 0; the error names the keyword.
    """
    return torch.optim.Adam([
        {"params": list(network.parameters()), "lr": in_range(name, rate, 0, open_low=True)}
        for name, (network, rate) in networks.items()], fused=True)


def training_log(policy, steps, returns, *, seed, start):
    """The TrainingLog of a finished run: lists of the iterations' steps [S] and mean returns [S], and when it began."""
    return TrainingLog(
        steps=torch.stack(steps).cumsum(0).double().mean(1).numpy(), returns=torch.stack(returns).numpy(),
        final_returns=evaluate(policy, seed=seed), seconds=time.process_time() - start, policy=policy)


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
    batch are shifted and scaled to mean 0 and variance 1. bootstrap: after which cuts the critic is asked for the
    rest of the episode; a cut that is left out counts as the episode's end, a common mistake (Chapter 10).
    The log's returns are means over the latest episode of each environment that has ended one, NaN before the
    first; the other arguments and errors are those of `reinforce`.
    Source: Mnih et al. (2016), without the parallel workers; Schulman et al. (2016) for the advantages.
    """
    start = time.process_time()
    for name in bootstrap:
        choice("bootstrap", name, ("time limit", "rollout end"))
    first, second, third, last = np.random.SeedSequence(whole("seed", seed, 0)).spawn(4)
    policy = mlp(seeds, (4, whole("hidden", hidden), 2), generator=torch_generator(first))
    critic = mlp(seeds, (4, hidden, 1), gain=1, generator=torch_generator(second))
    optimizer = adam(learning_rate=(policy, learning_rate),
                     value_learning_rate=(critic, value_learning_rate))
    env = cartpole.CartPole(seeds=seeds, envs=envs, seed=third)
    rollout_end = torch.arange(whole("horizon", horizon)).view(-1, 1, 1) == horizon - 1
    steps, returns, latest = [], [], torch.full((seeds, envs), torch.nan)
    for iteration in range(whole("iterations", iterations)):
        batch = cartpole.rollout(env, policy, horizon)
        mask = batch.mask
        log_pi = action_log_probs(policy, batch)
        values = state_values(critic, batch.observations, mask)
        with torch.no_grad():
            next_values = state_values(critic, batch.next_observations, mask)

        terminated, cut = batch.terminated, batch.truncated | rollout_end
        if "time limit" not in bootstrap:                     # two mistakes,
            terminated = terminated | batch.truncated         # on request
        if "rollout end" not in bootstrap:
            terminated = terminated | rollout_end
        advantages = gae(
            batch.rewards, values.detach(), next_values, gamma=gamma, lam=lam,
            terminated=terminated, truncated=cut, mask=mask)
        targets = advantages + values.detach()     # in the units of the rewards
        if whitened:
            advantages = whiten_seeds(advantages, mask)

        policy_losses = seed_means(-log_pi * advantages, mask)   # all seeds [S]
        value_losses = seed_means((values - targets) ** 2 / 2, mask)
        descend(optimizer, policy_losses + value_losses, iteration)
        steps.append(mask.sum((0, 2)))
        latest = batch.latest_returns(latest)
        returns.append(latest.nanmean(1))
    return training_log(policy, steps, returns, seed=last, start=start)
