"""Chapter 8: discounting."""
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import mutants
import numpy as np
import oracle

from . import row
from .common import finite_world, largest, logit, per_trajectory


def cosine(a, b):
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


def powers(gamma, every):
    """gamma^(t-1) of each step, [T, 1]."""
    return gamma ** np.arange(len(every.rewards))[:, None]


def samples(lib, given):
    """World, policy, trajectories, rewards-to-go [T, N], a function: weights [T, N] -> (mean, variance)."""
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    steps = every.scores(lib.softmax_score(given.theta))
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)

    def estimate(weights):
        return lib.moments(every.probabilities, per_trajectory(weights, steps))

    return world, policy, every, togo, estimate


def usual_update(lib, world, policy, score):
    """Finite horizon: sum over t of the states as often as they are met, with discounted Q."""
    visits, Q = lib.visitation(world, policy), lib.values(world, policy).Q
    return np.einsum("ts,sa,tsa,sa...->...", visits, policy, Q, score)


def true_update(lib, world, policy, score):
    """The discounted policy gradient of a world without an end, from its tables."""
    visits, Q = lib.visitation(world, policy), lib.values(world, policy).Q
    return np.einsum("s,sa,sa,sa...->...", visits, policy, Q, score)


def long_run_law(lib, world, policy):
    """Share of the steps that the chain of pairs spends in each pair, [S, A]."""
    chain = lib.pair_chain(world, policy)
    ones = np.ones(chain.shape)
    return np.linalg.solve(np.eye(len(chain)) - chain.T + ones, ones[0]).reshape(policy.shape)


def usual_per_step(lib, world, theta):
    """Mean per step, in the long run, of the score times the discounted Q, [S, A]."""
    policy = lib.softmax_policy(theta)
    pairs, Q = long_run_law(lib, world, policy), lib.values(world, policy).Q
    return np.einsum("sa,sa,sa...->...", pairs, Q, lib.softmax_score(theta))


def jacobian(field, theta, step=1e-5):
    """[components, parameters] by central differences."""
    theta = np.array(theta)
    shifts = step * np.eye(theta.size).reshape(-1, *theta.shape)
    return np.stack([np.ravel(field(theta + h) - field(theta - h)) / (2 * step) for h in shifts], -1)


def asymmetry(J):
    return largest(J - J.T), largest(J - J.T) / largest(J)


def endless_world(lib, given):
    return lib.FiniteMDP(given.mu, given.P, given.r, gamma=given.gamma)


def endless_fields(lib, given):
    """(discounted gradient, usual update) as functions of theta, for a world without an end."""
    world = endless_world(lib, given)

    def true(theta):
        return true_update(lib, world, lib.softmax_policy(theta), lib.softmax_score(theta))

    return true, lambda theta: usual_per_step(lib, world, theta)


@row("T8.1", wrong=[mutants.gradient_without_discount, mutants.discount_forgotten, mutants.second_moment,
                    mutants.discount_counted_from_the_start, mutants.full_return_everywhere,
                    mutants.return_starts_one_step_late, mutants.score_not_centred, mutants.equal_weights,
                    mutants.reward_of_the_next_step])
def discounted_estimators(lib, given):
    world, policy, every, togo, estimate = samples(lib, given)
    true = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    by_autograd = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]
    full, full_variance = estimate(every.returns(world.gamma) * np.ones(togo.shape))
    rtg, rtg_variance = estimate(powers(world.gamma, every) * togo)
    dropped, dropped_variance = estimate(togo)
    return {"grad": true, "err_full": largest(full - by_autograd), "err_rtg": largest(rtg - by_autograd),
            "dropped": dropped, "err_dropped": largest(dropped - by_autograd), "var_full": full_variance,
            "var_rtg": rtg_variance, "var_dropped": dropped_variance, "cosine": cosine(dropped, true)}


def first_chain(lib, given):
    """Decision 1 pays 1 for action 1; N more cost c each; one logit for all. (world, policy, score)"""
    steps = given.N + 1
    transition = np.zeros((steps, 2, steps))
    transition[range(given.N), :, range(1, steps)] = transition[given.N, :, given.N] = 1
    reward = np.zeros((steps, 2))
    reward[:, 1] = [1] + given.N * [-given.c]
    world = lib.FiniteMDP(np.eye(steps)[0], transition, reward, horizon=steps, gamma=given.gamma)
    return world, lib.sigmoid_policy(logit(given.p), steps), lib.sigmoid_score(logit(given.p), steps)


@row("T8.2", wrong=[mutants.gradient_without_discount, mutants.law_of_the_first_step,
                    mutants.reward_forgotten_in_Q, mutants.score_by_probability,
                    mutants.same_score_for_both_arms])
def sign_flips(lib, given):
    chain = first_chain(lib, given)
    true, dropped = lib.policy_gradient(*chain)[0], usual_update(lib, *chain)[0]
    return {"true": true, "dropped": dropped, "opposite": bool(true * dropped < 0)}


@row("T8.3", wrong=[mutants.law_of_the_first_step, mutants.best_action_values, mutants.reward_forgotten_in_Q,
                    mutants.policy_not_conditioned, mutants.logits_normalised_without_exp])
def no_potential(lib, given):
    true, usual = (jacobian(field, given.theta) for field in endless_fields(lib, given))
    gap, relative = asymmetry(usual)
    return {"asym_true": asymmetry(true)[0], "asym_dropped": gap, "rel_asym_dropped": relative}


@row("T8.4", wrong=[mutants.discount_forgotten, mutants.return_starts_one_step_late])
def effective_horizon(lib, given):
    def share(gamma):
        return (1 - gamma) * lib.discounted_returns(np.ones(round(1 / (1 - gamma))), gamma=gamma)[0]
    return {gamma: {"horizon": 1 / (1 - gamma), "share": share(gamma)} for gamma in given.gamma}


@row("T8.5", wrong=[mutants.discount_forgotten, mutants.discount_counted_from_the_start,
                    mutants.full_return_everywhere])
def terminal_reward(lib, given):
    rewards = np.eye(given.steps + 2)[-1]                # seen from the second step, `steps` before the last
    return {gamma: lib.discounted_returns(rewards, gamma=gamma)[1] for gamma in given.gamma}


@row("T8.6", wrong=[mutants.law_of_the_first_step, mutants.gradient_without_discount,
                    mutants.undiscounted_objective, mutants.mean_of_all_states, mutants.values_instead_of_Q,
                    mutants.score_not_centred, mutants.immediate_reward_only])
def visitation_and_gradient(lib, given):
    world, policy = endless_world(lib, given), lib.softmax_policy(given.theta)
    visits = lib.visitation(world, policy)
    gradient = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))

    def objective(theta):
        return lib.objective(world, lib.softmax_policy(theta))

    by_differences = oracle.differences(objective, given.theta)
    return {"d": visits, "sum": visits.sum(), "grad": gradient.ravel(), "fd": by_differences.ravel()}


def second_chain(lib, given):
    """All M = 2^(N + 1) courses: decisions [N + 1, M], their rows, rewards [T, M], probabilities [M]."""
    decisions = np.array(list(product((0, 1), repeat=given.N + 1))).T
    rows = np.r_[0, given.first_delay + np.arange(given.N)]
    rewards = np.zeros((given.first_delay + given.N + given.delay, decisions.shape[1]))
    rewards[0] = decisions[0]
    for t, decision in zip(rows[1:], decisions[1:]):
        rewards[t] -= given.cost * decision
        rewards[t + given.delay] += given.delayed_reward * decision
    policy = lib.sigmoid_policy(logit(given.p))[0]
    return decisions, rows, rewards, policy[decisions].prod(0)


def chain_update(lib, given, gamma, with_factor):
    decisions, rows, rewards, probabilities = second_chain(lib, given)
    weights = lib.discounted_returns(rewards, gamma=gamma)[rows]
    weights = weights * gamma ** rows[:, None] if with_factor else weights
    scores = lib.sigmoid_score(logit(given.p))[0, decisions]
    return lib.moments(probabilities, per_trajectory(weights, scores))[0][0]


@row("T8.7", wrong=[mutants.discount_forgotten, mutants.discount_counted_from_the_start,
                    mutants.return_starts_one_step_late, mutants.full_return_everywhere,
                    mutants.same_score_for_both_arms, mutants.score_by_probability])
def opposes_both(lib, given):
    return {"grad_discounted": chain_update(lib, given, given.gamma, True),
            "grad_undiscounted": chain_update(lib, given, 1.0, True),
            "dropped": chain_update(lib, given, given.gamma, False)}


@row("T8.8", wrong=[mutants.second_moment, mutants.equal_weights, mutants.discount_forgotten,
                    mutants.full_return_everywhere, mutants.variance_of_the_sum])
def noise_for_signal(lib, given):
    _, _, every, togo, estimate = samples(lib, given)
    with_factor, dropped = estimate(powers(given.gamma, every) * togo), estimate(togo)
    return {name: variance / (mean ** 2).sum()
            for name, (mean, variance) in {"with_factor": with_factor, "dropped": dropped}.items()}


@row("T8.9", wrong=[mutants.plays_on_after_the_end, mutants.undiscounted_objective,
                    mutants.gradient_without_discount, mutants.second_moment, mutants.initial_law_scaled])
def geometric_termination(lib, given):
    world, policy = finite_world(lib, given)
    states = len(given.mu)
    transition = np.zeros((states + 1, policy.shape[1], states + 1))
    transition[:states, :, :states] = given.gamma * world.transition
    transition[:, :, states] = 1 - transition.sum(-1)
    theta = np.vstack([given.theta, np.zeros(policy.shape[1])])
    reward = np.vstack([world.reward, np.zeros(policy.shape[1])])
    coins = lib.FiniteMDP([*given.mu, 0], transition, reward, horizon=given.T,
                          terminal=np.eye(states + 1)[states])
    every = lib.trajectories(coins, lib.softmax_policy(theta))
    togo = lib.discounted_returns(every.rewards, gamma=1.0)
    scores = every.scores(lib.softmax_score(theta))
    mean, variance = lib.moments(every.probabilities, per_trajectory(togo, scores))
    gradient = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    return {"J_with_coins": lib.moments(every.probabilities, every.returns())[0],
            "J_gamma": lib.objective(world, policy), "gradient_gap": largest(mean[:states] - gradient),
            "mean_length": every.probabilities @ every.lengths, "variance": variance}


@row("T8.10", wrong=[mutants.gradient_without_discount, mutants.law_of_the_first_step,
                     mutants.best_action_values, mutants.values_without_time, mutants.immediate_reward_only])
def frozen_restarts(lib, given):
    world, policy, _, togo, estimate = samples(lib, given)
    score, law, restarts = lib.softmax_score(given.theta), lib.visitation(world, policy), 0
    for t, s in product(range(1, given.T), range(len(given.mu))):
        rest = replace(world, horizon=given.T - t, initial=np.eye(len(given.mu))[s])
        restarts = restarts + law[t, s] * lib.policy_gradient(rest, policy, score)
    usual = usual_update(lib, world, policy, score)
    true = lib.policy_gradient(world, policy, score)
    return {"tables_and_samples": largest(usual - estimate(togo)[0]), "restarts": restarts,
            "gap": largest(true + (1 - given.gamma) * restarts - usual)}


@row("T8.11", wrong=[mutants.law_of_the_first_step, mutants.best_action_values, mutants.reward_forgotten_in_Q,
                     mutants.policy_not_conditioned])
def asymmetry_formula(lib, given):
    given.endless = SimpleNamespace(**given.endless)
    endless = endless_world(lib, given.endless)

    def law(theta):
        return long_run_law(lib, endless, lib.softmax_policy(theta)).sum(-1)

    def value(theta):
        return lib.values(endless, lib.softmax_policy(theta)).V

    def finite(theta):
        return usual_update(lib, world, lib.softmax_policy(theta), lib.softmax_score(theta))

    theta = given.endless.theta
    J = jacobian(lambda theta: usual_per_step(lib, endless, theta), theta)
    part = (1 - endless.gamma) * jacobian(value, theta).T @ jacobian(law, theta)
    world, _ = finite_world(lib, given)
    gap, relative = asymmetry(jacobian(finite, given.theta))
    return {"formula_gap": largest((J - J.T) - (part - part.T)), "finite": gap, "finite_relative": relative}


@row("T8.12", wrong=[mutants.law_of_the_first_step, mutants.best_action_values, mutants.reward_forgotten_in_Q,
                     mutants.policy_not_conditioned])
def round_trip(lib, given):
    half, (i, j) = given.side / 2, given.logits
    corners = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
    nodes, weights = np.polynomial.legendre.leggauss(given.points)

    def trip(field):
        total = 0.0
        for start, end in zip(corners[:-1], corners[1:]):
            for x, weight in zip(nodes, weights):
                point = np.ravel(given.theta).copy()
                point[[i, j]] += (start + end) / 2 + x * (end - start) / 2
                slopes = np.ravel(field(point.reshape(np.shape(given.theta))))[[i, j]]
                total += weight / 2 * slopes @ (end - start)
        return total

    true, usual = endless_fields(lib, given)
    return {"true": trip(true), "usual": trip(usual)}


@row("T8.13", wrong=[mutants.law_of_the_first_step, mutants.policy_not_conditioned,
                     mutants.best_action_values, mutants.gradient_without_discount])
def table_goes_uphill(lib, given):
    world, policy = endless_world(lib, given), lib.softmax_policy(given.theta)
    usual = usual_per_step(lib, world, np.array(given.theta))
    true = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    weights = long_run_law(lib, world, policy).sum(-1) / lib.visitation(world, policy)
    gap = largest(usual / true - weights[:, None])
    return {"weights": weights, "gap": gap, "inner": (usual * true).sum()}


@row("T8.14", wrong=[mutants.best_action_values, mutants.policy_not_conditioned,
                     mutants.immediate_reward_only, mutants.reward_forgotten_in_Q])
def average_reward(lib, given):
    theta, score = np.array(given.theta), lib.softmax_score(given.theta)
    policy = lib.softmax_policy(theta)
    found = {"u_avg": [], "u_gamma": [], "gamma_avg": [], "gap": []}
    for gamma in given.gammas:
        world = lib.FiniteMDP(given.mu, given.P, given.r, gamma=gamma)

        def mean_reward(theta, world=world):
            return (long_run_law(lib, world, lib.softmax_policy(theta)) * world.reward).sum()

        def law(theta, world=world):
            return long_run_law(lib, world, lib.softmax_policy(theta)).sum(-1)

        usual, average = usual_per_step(lib, world, theta).ravel(), jacobian(mean_reward, theta)[0]
        discounted = lib.policy_gradient(world, policy, score).ravel()
        remainder = (1 - gamma) * lib.values(world, policy).V @ jacobian(law, theta)
        found["u_avg"].append(cosine(usual, average))
        found["u_gamma"].append(cosine(usual, discounted))
        found["gamma_avg"].append(cosine(discounted, average))
        found["gap"].append(largest(usual - average + remainder))
    return found


@row("T8.15", wrong=[mutants.discount_forgotten, mutants.undiscounted_objective,
                     mutants.reward_forgotten_in_Q, mutants.same_score_for_both_arms])
def chains_by_value(lib, given):
    chain, policy, score = first_chain(lib, given)
    always, never = np.tile([0.0, 1.0], (given.N + 1, 1)), np.tile([1.0, 0.0], (given.N + 1, 1))
    plain = replace(chain, gamma=1.0)
    _, _, rewards, _ = second_chain(lib, SimpleNamespace(**given.second))
    found = {"slope_undiscounted": lib.policy_gradient(plain, policy, score)[0],
             "slope_usual": usual_update(lib, chain, policy, score)[0]}
    for name, world in (("discounted", chain), ("undiscounted", plain)):
        found[f"first_{name}"] = [lib.objective(world, p) for p in (always, never)]
        found[f"second_{name}"] = lib.discounted_returns(rewards, gamma=world.gamma)[0, [-1, 0]]
    return found


@row("T8.16", wrong=[mutants.discount_forgotten, mutants.return_starts_one_step_late])
def what_an_episode_counts(lib, given):
    def total(n, gamma):
        return lib.discounted_returns(np.ones(n), gamma=gamma)[0]
    last = lib.discounted_returns(np.eye(given.T)[-1], gamma=given.gamma)[0]
    return {"sum": total(given.T, given.gamma), "last": last,
            "returns": [total(n, given.gamma) for n in given.lengths],
            "worth": total(given.T, given.gamma) ** 2 / total(given.T, given.gamma ** 2)}


def slopes(lib, gamma, cost, delayed_reward, delay, N, first_delay):
    """Slopes at p = 1/2 of J_gamma and of J_1, and the usual update, from the worth of one late decision."""
    one = np.zeros(delay + 1)
    one[0] -= cost
    one[delay] += delayed_reward
    late, later = (lib.discounted_returns(one, gamma=g)[0] for g in (gamma, 1.0))
    seen = sum(gamma ** (first_delay + n) for n in range(N))
    return np.array([1 + late * seen, 1 + later * N, 1 + late * N]) / 4


@row("T8.17", wrong=[mutants.discount_forgotten, mutants.return_starts_one_step_late])
def slider_positions(lib, given):
    def at(gamma, cost, delay=given.delay, N=given.N):
        return slopes(lib, gamma, cost, given.delayed_reward, delay, N, given.first_delay)

    def border(which, delay, N):
        zero, one = (at(given.gamma, cost, delay, N)[which] for cost in (0, 1))
        return zero / (zero - one)

    intervals = [[border(2, k, N), min(border(0, k, N), border(1, k, N))] for k, N in given.pairs]
    two = 0.5 * lib.discounted_returns(np.ones(2), gamma=0.5)[0]
    far = [lib.discounted_returns(np.eye(1001)[-1], gamma=g)[0] for g in (0.99, 0.999)]
    return {"intervals": intervals, "signs": [np.sign(at(given.gamma, cost)) for cost in given.costs],
            "gamma_one": at(1.0, 1.0), "share": two, "ratio": far[1] / far[0]}


@row("T8.18", wrong=[mutants.second_moment, mutants.equal_weights, mutants.discount_forgotten,
                     mutants.one_step_short, mutants.variance_of_the_sum])
def bias_and_variance(lib, given):
    world, policy, every, _, estimate = samples(lib, given)
    target = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    found = [estimate(lib.discounted_returns(every.rewards, gamma=g)) for g in given.gammas]
    bias, variance = np.array([[((mean - target) ** 2).sum(), spread] for mean, spread in found]).T
    return {"bias": bias, "variance": variance, "squared_gradient": (target ** 2).sum(),
            "best": [given.gammas[(bias + variance / N).argmin()] for N in given.N]}


@row("T8.19", wrong=[mutants.discount_forgotten, mutants.full_return_everywhere,
                     mutants.return_starts_one_step_late, mutants.score_not_centred])
def slips(lib, given):
    world, policy, every, togo, estimate = samples(lib, given)
    true = lib.policy_gradient(world, policy, lib.softmax_score(given.theta))
    factor = powers(world.gamma, every)
    age = np.tile(np.arange(given.length), given.episodes)
    right, wrong = given.gamma ** age, given.gamma ** np.arange(len(age))
    last = -given.length
    return {"once_gap": largest(estimate(factor * togo)[0] - true),
            "twice": (estimate(factor ** 2 * togo)[0] / true)[:, 0],
            "own_reward": (estimate(factor * every.rewards)[0] / true)[:, 0],
            "clock": wrong[last], "shares": [w[last:].sum() / w.sum() for w in (right, wrong)]}
