"""Chapter 9: generalised advantage estimation."""
from types import SimpleNamespace

import mutants
import numpy as np
import oracle

from . import row
from .chapter_07 import along, conditional, last_step
from .common import finite_world, largest, per_trajectory


def rollout(given, end):
    """Arguments of the estimators for one column: r [T], v [T + 1], and how it ends ("terminated" or "truncated")."""
    rewards = given.r if hasattr(given, "r") else given.rewards
    values = given.v if hasattr(given, "v") else given.values
    flags = {"terminated": np.zeros(len(rewards)), "truncated": np.zeros(len(rewards))}
    flags[end][-1] = 1
    return (np.array(rewards), np.array(values[:-1]), np.array(values[1:])), flags | {"gamma": given.gamma}


def advantages(lib, world, every, critic, lam):
    """GAE [T, N] of all trajectories with the critic [T + 1, S]."""
    flags = {"terminated": last_step(every), "truncated": np.zeros(every.rewards.shape)}
    critic = along(critic, every)
    return lib.gae(every.rewards, critic[:-1], critic[1:], gamma=world.gamma, lam=lam, **flags)


def deltas(lib, arrays, more):
    return lib.td_errors(*arrays, gamma=more["gamma"], terminated=more["terminated"])


@row("T9.1", wrong=[mutants.one_step_too_many, mutants.n_step_without_bootstrap, mutants.bootstrap_discounted_once,
                    mutants.td_without_discount, mutants.td_with_the_sign_reversed])
def telescoping(lib, given):
    arrays, more = rollout(given, "truncated")
    delta, steps = deltas(lib, arrays, more), range(1, len(given.r) + 1)
    return {"n_step": [lib.n_step_advantages(*arrays, n=n, **more)[0] for n in steps], "delta": delta,
            "telescoped": [oracle.discounted(delta[:n], given.gamma) for n in steps]}


@row("T9.2", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.truncation_as_termination,
                    mutants.weights_not_normalised, mutants.return_without_bootstrap, mutants.discount_forgotten])
def lambda_limits(lib, given):
    arrays, more = rollout(given, "truncated")
    returns = lib.discounted_returns(arrays[0], next_values=arrays[2], **more)
    return {"lam0": lib.gae(*arrays, lam=0, **more), "lam1": lib.gae(*arrays, lam=1, **more),
            "delta": deltas(lib, arrays, more), "mc_minus_v": returns - arrays[1]}


@row("T9.3", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.one_step_too_many,
                    mutants.truncation_as_termination, mutants.decay_without_gamma])
def finite_mixture_weights(lib, given):
    arrays, more = rollout(given, "truncated")
    T, lam = len(given.r), given.lam
    n_step = [lib.n_step_advantages(*arrays, n=n, **more)[0] for n in range(1, T + 1)]
    truncated = [(1 - lam) * lam ** n for n in range(T)]
    weights = truncated[:-1] + [lam ** (T - 1)]
    return {"recursion": lib.gae(*arrays, lam=lam, **more)[0], "finite_mixture": np.dot(weights, n_step),
            "naive_truncated": np.dot(truncated, n_step), "weights": weights}


@row("T9.4", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.one_step_too_many])
def zero_extension_exact(lib, given):
    arrays, more = rollout(given, "terminated")
    mixture = sum((1 - given.lam) * given.lam ** (n - 1) * lib.n_step_advantages(*arrays, n=n, **more)[0]
                  for n in range(1, 300))                                          # the rest weighs 0.8^299
    return {"infinite_mixture": mixture, "recursion": lib.gae(*arrays, lam=given.lam, **more)[0]}


@row("T9.5", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.td_without_discount,
                    mutants.weights_not_normalised])
def worked_example(lib, given):
    arrays, more = rollout(given, "terminated")
    advantage = lib.gae(*arrays, lam=given.lam, **more)
    return {"delta": deltas(lib, arrays, more), "adv": advantage, "returns": advantage + arrays[1]}


@row("T9.6", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.weights_not_normalised])
def worked_example_sweep(lib, given):
    arrays, more = rollout(given, "terminated")
    return {name: lib.gae(*arrays, lam=float(name), **more)[0] for name in ("0", "0.25", "0.5", "0.8", "0.95", "1.0")}


@row("T9.7", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.values_without_time,
                    mutants.decay_without_gamma])
def exact_critic_is_unbiased(lib, given):
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    first = every.states[0], every.actions[0]
    start = world.initial[:, None] * policy
    bias, spread = {}, {}
    for lam in map(float, given.lam):
        advantage = advantages(lib, world, every, values.V, lam)[0]
        mean = conditional(lib, every, advantage, *first)
        square = conditional(lib, every, (advantage - mean[first]) ** 2, *first)
        name = "0" if lam == 0 else str(lam)
        bias[name], spread[name] = largest(mean - values.A[0]), (start * square).sum()
    return {"A": values.A[0], "max_bias": bias, "mean_cond_var": spread}


def critic_error(lib, given, lams):
    """lam -> (bias of the gradient of the discounted J, trace variance, largest bias of A_1) with a wrong critic."""
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    steps, p = every.scores(lib.softmax_score(given.theta)), every.probabilities
    steps = steps * given.gamma ** np.arange(given.T)[:, None, None, None]
    true = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    result = {}
    for lam in lams:
        advantage = advantages(lib, world, every, values.V + np.array(given.err), lam)
        mean, variance = lib.moments(p, per_trajectory(advantage, steps))
        first = conditional(lib, every, advantage[0], every.states[0], every.actions[0])
        result["0" if lam == 0 else str(lam)] = np.linalg.norm(mean - true), variance, largest(first - values.A[0])
    return result


@row("T9.8", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.decay_without_gamma,
                    mutants.values_without_time, mutants.score_not_centred])
def wrong_critic_bias(lib, given):
    return {lam: {"grad_bias": bias, "trace_var": variance, "adv_bias": first} for lam, (bias, variance, first)
            in critic_error(lib, given, (0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)).items()}


@row("T9.9", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.second_moment])
def variance_not_monotone(lib, given):
    return {lam: variance for lam, (_, variance, _)
            in critic_error(lib, given, (0, 0.25, 0.5, 0.75, 0.9, 1.0)).items()}


@row("T9.10", wrong=[mutants.weights_not_normalised, mutants.lam_as_decay, mutants.one_step_too_many])
def missing_normalisation(lib, given):
    arrays, more = rollout(given, "terminated")
    result = {}
    for lam in (0.0, 0.5, 0.8, 0.95, 0.99):
        advantage = lib.gae(*arrays, lam=lam, **more)[0]
        n_step = [lib.n_step_advantages(*arrays, n=n, **more)[0] for n in (1, 2, 3)]
        note = n_step[0] + lam * n_step[1] + lam ** 2 / (1 - lam) * n_step[2]      # from n = 3 on nothing changes
        result[str(lam)] = {"factor": note / advantage, "note_value": note, "gae": advantage}
    return result


@row("T9.11", wrong=[mutants.weights_not_normalised, mutants.lam_as_decay])
def normalisation_and_the_critics_target(lib, given):
    arrays, more = rollout(given, "terminated")
    advantage = lib.gae(*arrays, lam=given.lam, **more)
    return {"correct_returns": advantage + arrays[1], "wrong_returns": advantage / (1 - given.lam) + arrays[1]}


@row("T9.12", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.truncation_as_termination])
def lambda_return(lib, given):
    arrays, more = rollout(given, "truncated")
    returns, after = [], arrays[2][-1]
    for reward, value in zip(reversed(arrays[0]), reversed(arrays[2])):
        after = reward + given.gamma * ((1 - given.lam) * value + given.lam * after)
        returns.insert(0, after)
    return {"adv_plus_v": lib.gae(*arrays, lam=given.lam, **more) + arrays[1], "lambda_return": returns}


@row("T9.13", wrong=[mutants.discount_forgotten, mutants.lam_as_decay, mutants.undiscounted_objective])
def monte_carlo_decayed_by_lambda(lib, given):
    rewards, T = np.array(given.rewards), len(given.rewards)
    line = (np.eye(T, k=1) + np.eye(T)[-1] * np.eye(T)[:, -1:])[:, None]
    world = lib.FiniteMDP(np.eye(T)[0], line, rewards[:, None], horizon=T, gamma=given.gamma)
    zero, end = np.zeros(T), np.eye(T)[-1]
    gae = lib.gae(rewards, zero, zero, gamma=given.gamma, lam=1, terminated=end, truncated=zero)
    return {"gamma_return": lib.discounted_returns(rewards, gamma=given.gamma)[0],
            "lambda_return": lib.discounted_returns(rewards, gamma=given.lam)[0],
            "V_gamma": lib.objective(world, np.ones((T, 1))), "gae_lambda1_with_v0": gae[0]}


@row("T9.14", wrong=[mutants.lam_as_decay, mutants.truncation_as_termination, mutants.weights_not_normalised])
def reward_shaping(lib, given):
    arrays, more = rollout(given, "truncated")
    phi = np.array(given.Phi)
    shaped = arrays[0] + given.gamma * phi[1:] - phi[:-1], arrays[1] - phi[:-1], arrays[2] - phi[1:]
    return {"original": lib.gae(*arrays, lam=given.lam, **more), "shaped": lib.gae(*shaped, lam=given.lam, **more)}


@row("T9.15", wrong=[mutants.one_step_too_many, mutants.n_step_without_bootstrap, mutants.values_without_time])
def n_step_bias_not_monotone(lib, given):
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    critic = values.V + np.outer(np.arange(given.T + 1) == 2, given.err_t3)
    critic = along(critic, every)
    flags = {"terminated": last_step(every), "truncated": np.zeros(every.rewards.shape)}
    bias = {}
    for n in (1, 2, 3):
        advantage = lib.n_step_advantages(every.rewards, critic[:-1], critic[1:], n=n, gamma=world.gamma, **flags)
        bias[n] = largest(conditional(lib, every, advantage[0], every.states[0], every.actions[0]) - values.A[0])
    return {"bias_of_A1_by_n": bias}


@row("T9.16", wrong=[mutants.n_step_without_bootstrap, mutants.one_step_too_many, mutants.bootstrap_discounted_once])
def td_at_infinity(lib, given):
    zero, constant = np.zeros(200), np.full(200, given.c)
    flags = {"terminated": zero, "truncated": np.eye(200)[-1]}
    first = {gamma: {n: lib.n_step_advantages(zero, constant, constant, n=n, gamma=gamma, **flags)[0]
                     for n in (1, 10, 100)} for gamma in (1.0, 0.9)}
    return {"gamma1": list(first[1.0].values()), "gamma09": first[0.9],
            "mc_minus_v": lib.discounted_returns(zero, gamma=1.0)[0] - given.c}


@row("T9.17", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.weights_not_normalised])
def mean_wait(lib, given):
    def first(rewards, lam, gamma=1.0):
        zero, cut = np.zeros(len(rewards)), np.eye(len(rewards))[-1]
        return lib.gae(np.array(rewards), zero, zero, gamma=gamma, lam=lam, terminated=zero, truncated=cut)[0]
    N = given.N[0]
    return {"wait": [first(np.ones(n), given.lam) for n in given.N], "longest": first(np.eye(N)[-1], given.lam),
            "last_delta": first(np.eye(N)[-1], given.lam, given.gamma),
            "others": [first(np.ones(n), lam) for lam, n in given.others], "longest_32": first(np.eye(32)[-1], 0.8)}


def noise(lib, world, policy, lam):
    """Mean over (s_1, a_1) of the variance of A_1 with the exact critic."""
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    first, advantage = (every.states[0], every.actions[0]), advantages(lib, world, every, values.V, lam)[0]
    mean = conditional(lib, every, advantage, *first)
    return every.probabilities @ (advantage - mean[first]) ** 2


@row("T9.18", wrong=[mutants.lam_as_decay, mutants.values_without_time, mutants.decay_without_gamma])
def exact_critic_variance_polynomial(lib, given):
    world, policy = finite_world(lib, given)
    squares = np.array([0, 0.25, 1])
    found = np.linalg.solve(squares[:, None] ** np.arange(3), [noise(lib, world, policy, x) for x in squares ** 0.5])
    return {"coefficients": found, "predicted": found @ 0.81 ** np.arange(3), "direct": noise(lib, world, policy, 0.9)}


def discounted_steps(lib, given, every):
    """gamma^(t-1) z_t of every step of every trajectory."""
    return every.scores(lib.softmax_score(given.theta)) * given.gamma ** np.arange(given.T)[:, None, None, None]


@row("T9.19", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.values_without_time,
                     mutants.score_not_centred])
def which_error_biases(lib, given):
    world, policy = finite_world(lib, given)
    every, exact = lib.trajectories(world, policy), lib.values(world, policy).V
    steps, true = discounted_steps(lib, given, every), lib.policy_gradient(world, policy, lib.softmax_score(given.theta))

    def bias(bootstrap, baseline, lam):
        target = advantages(lib, world, every, bootstrap, lam) + along(bootstrap, every)[:-1]
        estimates = per_trajectory(target - along(baseline, every)[:-1], steps)
        return np.linalg.norm(lib.moments(every.probabilities, estimates)[0] - true)

    wrong, lams = exact + np.array(given.err), (0, 0.5, 1)
    return {"baseline": {str(lam): bias(exact, wrong, lam) for lam in lams},
            "bootstrap": {str(lam): bias(wrong, exact, lam) for lam in lams}}


@row("T9.20", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.values_without_time])
def gamma_is_not_lambda(lib, given):
    score, result = lib.softmax_score(given.theta), {"bias": [], "variance": []}
    policy = lib.softmax_policy(given.theta)
    worlds = {g: lib.FiniteMDP(given.mu, given.P, given.r, horizon=given.T, gamma=g) for g in (1.0, 0.9)}
    true = lib.policy_gradient(worlds[1.0], policy, score)
    for gamma, lam in ((1.0, 0.9), (0.9, 1.0)):
        world, every = worlds[gamma], lib.trajectories(worlds[gamma], policy)
        advantage = advantages(lib, world, every, lib.values(world, policy).V, lam)
        mean, variance = lib.moments(every.probabilities, per_trajectory(advantage, every.scores(score)))
        result["bias"].append(np.linalg.norm(mean - true))
        result["variance"].append(variance)
    return result


@row("T9.21", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.decay_without_gamma])
def critic_fixed_point(lib, given):
    world, policy = finite_world(lib, given)
    every, exact = lib.trajectories(world, policy), lib.values(world, policy).V
    sweeps = {}
    for lam in (0, 0.5, 0.95, 1):
        critic, sizes = exact + np.array(given.err), []
        for _ in range(3):
            target = advantages(lib, world, every, critic, lam) + along(critic, every)[:-1]
            new = np.zeros_like(critic)
            for t in range(given.T):
                here = every.probabilities * (every.states[t] == np.arange(len(given.mu))[:, None])
                new[t] = here @ target[t] / here.sum(1)
            critic = new
            sizes.append(largest(critic - exact))
        sweeps[str(lam)] = sizes
    n = np.arange(1, 4000)
    bound = [((1 - lam) * lam ** (n - 1.0) * given.bound_gamma ** n).sum() for lam in (0, 0.95, 1)]
    return {"sweeps": sweeps, "bound": bound}


@row("T9.22", wrong=[mutants.lam_as_decay, mutants.discount_forgotten, mutants.return_starts_one_step_late])
def value_targets(lib, given):
    arrays, more = rollout(given, "terminated")
    return {str(lam): lib.gae(*arrays, lam=lam, **more) + arrays[1] for lam in (0, 0.8, 1)} | {
        "reward_to_go": lib.discounted_returns(arrays[0], gamma=given.gamma)}


@row("T9.23", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.second_moment])
def best_lambda(lib, given):
    world, policy = finite_world(lib, given)
    every, exact = lib.trajectories(world, policy), lib.values(world, policy).V
    steps, true = discounted_steps(lib, given, every), lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    grid, found = np.linspace(0, 1, 11), {}
    for scale in (0, 0.25, 0.5, 4):
        parts = [lib.moments(every.probabilities, per_trajectory(
            advantages(lib, world, every, exact + scale * np.array(given.err), lam), steps)) for lam in grid]
        found[scale] = np.array([((mean - true) ** 2).sum() for mean, _ in parts]), np.array([v for _, v in parts])

    def best(scale, size):
        bias, variance = found[scale]
        return grid[(bias + variance / size).argmin()]

    return {"variance": {str(scale): found[scale][1][[0, -1]] for scale in (0, 4)},
            "best_at_100": {str(scale): best(scale, 100) for scale in found},
            "best_at_quarter": {str(size): best(0.25, size) for size in (1, 10, 100, 1000)}}


@row("T9.24", wrong=[mutants.lam_as_decay, mutants.decay_without_gamma, mutants.weights_not_normalised])
def worked_example_other_gamma(lib, given):
    def first(gamma, lam):
        arrays, more = rollout(SimpleNamespace(**vars(given), gamma=gamma), "terminated")
        return lib.gae(*arrays, lam=lam, **more)[0]
    return {"half": [first(0.5, lam) for lam in (0, 0.5, 1)], "none": [first(0, lam) for lam in (0, 1)]}
