"""PPO and TRPO: loops that reuse a rollout, and keep the new policy near the one that has played it.

Here a rollout becomes rows, [S, N, ...] with N = T * E, and `real` [S, N] is False at dummy rows. As in
`utils.updates` no operation mixes the seeds.
"""
import time

import numpy as np
import torch

from . import cartpole
from .kl import categorical_kl, conjugate_gradient, fisher_vector_product, flatten
from .networks import log_probs, mlp, torch_generator
from .updates import adam, advantages_and_targets, all_finite, descend, training_log, whiten_seeds
from .validate import in_range, whole


def rows(array):
    """All steps of each seed side by side: [T, S, E, ...] -> [S, T * E, ...]."""
    return array.transpose(0, 1).flatten(1, 2)


def row_means(values, real):
    """Mean over each seed's real rows: [S, N] -> [S]."""
    return (values * real).sum(1) / real.sum(1)


def deal(real, hands, generator):
    """Each seed's rows, shuffled and dealt out like cards, its real rows first: `hands` index tensors [S, ~ N / hands].

    Every hand holds as many real rows as any other, but for one. real [S, N]: which rows are real.
    """
    order = (torch.rand(real.shape, generator=generator) + ~real).argsort(1)
    return [order[:, hand::hands] for hand in range(hands)]


def ppo(*, seeds=10, envs=16, horizon=32, iterations=75, epochs=6, minibatches=2, epsilon=0.2, learning_rate=0.005,
        value_learning_rate=0.02, hidden=32, gamma=0.98, lam=0.9, whitened=True, max_grad_norm=0.5, anneal=False,
        value_clip=None, entropy_coefficient=0.0, orthogonal=True, bootstrap=("time limit", "rollout end"), seed=0):
    """PPO with the clipped ratio on CartPole-v1. Returns a TrainingLog.

    Each iteration plays a rollout and goes through it `epochs` times, in `minibatches` parts of a seed's own random
    order, an update a part. epsilon > 0: half-width of the band of ratios. max_grad_norm: as in `descend`, or None.
    anneal: learning rates fall linearly to 0. value_clip: `clip` of `utils.losses.value_loss`, or None.
    entropy_coefficient >= 0: weight of the policy's entropy, which is made larger. orthogonal: as in `mlp`.
    Diagnostics, after an iteration's last update: "clipped", the share of ratios outside the band, and
    "largest_ratio". The other arguments, the log's returns and the errors are those of `actor_critic`.
    Source: Schulman et al. (2017); Engstrom et al. (2020) and Huang et al. (2022) for the details beside the clip.
    """
    start = time.process_time()
    for name, number in dict(horizon=horizon, iterations=iterations, epochs=epochs, hidden=hidden).items():
        whole(name, number)
    if whole("minibatches", minibatches) > whole("envs", envs) * horizon:
        raise ValueError(f"minibatches: expected at most envs * horizon = {envs * horizon}, got {minibatches}")
    epsilon = in_range("epsilon", epsilon, 0, open_low=True)
    entropy_coefficient = in_range("entropy_coefficient", entropy_coefficient, 0)
    for name, number in dict(max_grad_norm=max_grad_norm, value_clip=value_clip).items():
        in_range(name, 1 if number is None else number, 0, open_low=True)
    first, second, third, fourth, last = np.random.SeedSequence(whole("seed", seed, 0)).spawn(5)
    policy = mlp(seeds, (4, hidden, 2), orthogonal=orthogonal, generator=torch_generator(first))
    critic = mlp(seeds, (4, hidden, 1), gain=1, orthogonal=orthogonal, generator=torch_generator(second))
    rates = dict(learning_rate=(policy, learning_rate), value_learning_rate=(critic, value_learning_rate))
    optimizer = adam(**rates)
    env, generator = cartpole.CartPole(seeds=seeds, envs=envs, seed=third), torch_generator(fourth)
    steps, returns, latest = [], [], torch.full((seeds, envs), torch.nan)
    clipped, largest_ratio, each = [], [], torch.arange(seeds)[:, None]
    for iteration in range(iterations):
        if anneal:
            groups = zip(optimizer.param_groups, rates.values())
            for group, (_, rate) in groups:
                group["lr"] = rate * (1 - iteration / iterations)
        batch = cartpole.rollout(env, policy, horizon)
        with torch.no_grad():
            old_values, advantages, targets = advantages_and_targets(
                critic, batch, gamma=gamma, lam=lam, bootstrap=bootstrap)
            if whitened:
                advantages = whiten_seeds(advantages, batch.mask)
            real, states, actions = map(
                rows, (batch.mask, batch.observations, batch.actions))
            old_log_pi = log_probs(policy(states), actions)
        data = [real, states, actions, old_log_pi,
                rows(advantages), rows(targets), rows(old_values)]
        for _ in range(epochs):
            for hand in deal(real, minibatches, generator):
                m, s, a, old, A, R, V = (x[each, hand] for x in data)
                values = critic(s).squeeze(-1)
                log_laws = policy(s).log_softmax(-1)
                log_pi = log_laws.gather(-1, a[..., None]).squeeze(-1)
                ratio = (log_pi - old).exp()
                gains = torch.minimum(
                    ratio * A, ratio.clamp(1 - epsilon, 1 + epsilon) * A)
                errors = (values - R) ** 2
                if value_clip is not None:
                    near = V + (values - V).clamp(-value_clip, value_clip)
                    errors = torch.maximum(errors, (near - R) ** 2)
                losses = errors / 2 - gains
                if entropy_coefficient:
                    entropy = -(log_laws.exp() * log_laws).sum(-1)
                    losses = losses - entropy_coefficient * entropy
                descend(optimizer, row_means(losses, m), iteration,
                        max_grad_norm=max_grad_norm)
        with torch.no_grad():
            ratio = (log_probs(policy(states), actions) - old_log_pi).exp()
        clipped.append(row_means((ratio - 1).abs() > epsilon, real))
        largest_ratio.append((ratio * real).amax(1))
        steps.append(real.sum(1))
        latest = batch.latest_returns(latest)
        returns.append(latest.nanmean(1))
    return training_log(policy, steps, returns, seed=last, start=start, clipped=clipped, largest_ratio=largest_ratio)


def natural_step(policy, states, real, gradient, *, delta, damping=0.1, iterations=10):
    """The longest step along the natural gradient whose KL, by the quadratic model, is delta: [S, D].

    With H = F + damping I and H x = gradient, solved by `iterations` of conjugate gradient, it is
    sqrt(2 delta / x.Hx) x; zeros for a seed whose gradient is 0. F: the policy's Fisher matrix, its mean over states.
    policy: a network with a seed axis; states [S, N, ...] and real [S, N]; gradient [S, D], see `utils.kl.flatten`.
    Raises ValueError on a bad argument. Source: Kakade (2001); Schulman et al. (2015), section 6 and appendix C.
    """
    delta = in_range("delta", delta, 0, open_low=True)
    parameters, logits = list(policy.parameters()), policy(states)
    mean_kl = row_means(categorical_kl(logits.detach(), logits), real)

    def fisher(vector):
        return fisher_vector_product(mean_kl, parameters, vector, damping=damping)

    x = conjugate_gradient(fisher, gradient, iterations=iterations)
    length = (x * fisher(x)).sum(1, keepdim=True)
    return torch.where(length > 0, (2 * delta / length).sqrt() * x, torch.zeros_like(x))


@torch.no_grad()
def line_search(policy, step, accept, *, backtracking=0.8, tries=10):
    """Moves each seed's parameters by backtracking^j step, with the smallest j = 0 ... tries - 1 that is accepted.

    step [S, D]. accept(): for the policy as it is then, which seeds [S] are content. A seed that never is stays.
    Returns what each seed's step was multiplied with, [S]: 1 is the full step, 0 none. Raises ValueError on a bad
    argument. Source: Schulman et al. (2015), appendix C.
    """
    backtracking, parameters = in_range("backtracking", backtracking, 0, 1, open_low=True), list(policy.parameters())
    old, sizes = flatten(parameters), [parameter[0].numel() for parameter in parameters]

    def move(scale):
        for parameter, part in zip(parameters, (old + scale[:, None] * step).split(sizes, 1)):
            parameter.copy_(part.view_as(parameter))

    scale = torch.ones(len(step))
    for _ in range(whole("tries", tries)):
        move(scale)
        content = accept()
        if content.all():
            return scale
        last, scale = scale, torch.where(content, scale, backtracking * scale)
    scale = torch.where(content, last, 0)
    move(scale)
    return scale


def trpo(*, seeds=10, envs=16, horizon=64, iterations=50, delta=0.01, damping=0.1, cg_iterations=10, fisher_every=4,
         backtracking=0.8, tries=10, value_steps=10, value_learning_rate=0.02, hidden=32, gamma=0.98, lam=0.95,
         whitened=True, orthogonal=True, bootstrap=("time limit", "rollout end"), seed=0):
    """TRPO on CartPole-v1. Returns a TrainingLog.

    Each iteration plays a rollout, moves the policy once, by `natural_step` and `line_search`, and the critic by
    `value_steps` of Adam. delta > 0: the most that the mean of KL(old || new) over the rollout may become.
    fisher_every: the Fisher matrix is the mean over every so many rows of the rollout. cg_iterations: those of
    conjugate gradient. Diagnostics: "kl", the divergence reached, and "scale", what `line_search` returned.
    The other arguments, the log's returns and the errors are those of `actor_critic`.
    Source: Schulman et al. (2015); Achiam (2018) for backtracking, damping and the critic's steps.
    """
    start = time.process_time()
    for name, number in dict(horizon=horizon, iterations=iterations, cg_iterations=cg_iterations, tries=tries,
                             fisher_every=fisher_every, value_steps=value_steps, hidden=hidden).items():
        whole(name, number)
    in_range("delta", delta, 0, open_low=True)
    in_range("damping", damping, 0)
    in_range("backtracking", backtracking, 0, 1, open_low=True)
    first, second, third, last = np.random.SeedSequence(whole("seed", seed, 0)).spawn(4)
    policy = mlp(seeds, (4, hidden, 2), orthogonal=orthogonal, generator=torch_generator(first))
    critic = mlp(seeds, (4, hidden, 1), gain=1, orthogonal=orthogonal, generator=torch_generator(second))
    optimizer = adam(value_learning_rate=(critic, value_learning_rate))
    env = cartpole.CartPole(seeds=seeds, envs=envs, seed=third)
    steps, returns, latest = [], [], torch.full((seeds, envs), torch.nan)
    divergences, scales = [], []
    for iteration in range(iterations):
        batch = cartpole.rollout(env, policy, horizon)
        with torch.no_grad():
            _, A, targets = advantages_and_targets(
                critic, batch, gamma=gamma, lam=lam, bootstrap=bootstrap)
            if whitened:
                A = whiten_seeds(A, batch.mask)
        real, states, actions, A, targets = map(
            rows, (batch.mask, batch.observations, batch.actions, A, targets))
        logits = policy(states)
        old_logits = logits.detach()
        old_log_pi = log_probs(old_logits, actions)

        def surrogate(logits):
            ratio = (log_probs(logits, actions) - old_log_pi).exp()
            return row_means(ratio * A, real)

        before = surrogate(logits)
        gradient = flatten(torch.autograd.grad(
            before.sum(), list(policy.parameters())))
        all_finite("gradient", gradient, iteration)
        step = natural_step(
            policy, states[:, ::fisher_every], real[:, ::fisher_every],
            gradient, delta=delta, damping=damping, iterations=cg_iterations)

        def divergence(logits):
            return row_means(categorical_kl(old_logits, logits), real)

        def accept():
            logits = policy(states)
            better = surrogate(logits) > before
            return better & (divergence(logits) <= delta)

        scales.append(line_search(
            policy, step, accept, backtracking=backtracking, tries=tries))
        for _ in range(value_steps):
            errors = (critic(states).squeeze(-1) - targets) ** 2
            descend(optimizer, row_means(errors, real) / 2, iteration)
        with torch.no_grad():
            divergences.append(divergence(policy(states)))
        steps.append(real.sum(1))
        latest = batch.latest_returns(latest)
        returns.append(latest.nanmean(1))
    return training_log(policy, steps, returns, seed=last, start=start, kl=divergences, scale=scales)
