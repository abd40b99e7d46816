"""Chapter 9: generalised advantage estimation."""
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
