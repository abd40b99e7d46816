"""Chapter 5: baselines."""
from itertools import product

import mutants
import numpy as np
import oracle

from . import row
from .common import finite_world, largest, logit


def whole_trajectories(lib, given):
    """Probabilities [N], returns [N], scores [N, K] flattened, true gradient [K] by autograd."""
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    scores = every.scores(lib.softmax_score(given.theta)).sum(0).reshape(len(every.probabilities), -1)
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1].ravel()
    return every.probabilities, every.returns(world.gamma), scores, true


def best_constant(p, weights, returns):
    """E[w R] / E[w], the minimiser of E[w (R - b)^2]."""
    return (p @ (weights * returns)) / (p @ weights)


def two_arms(lib, p, r1, r0):
    """Value, optimal baseline and the variance of the one-sample gradient with a baseline, of a one-logit bandit."""
    world, policy = lib.bandit([r0, r1]), lib.sigmoid_policy(logit(p))
    law, reward, score = policy[0], world.reward[0], lib.sigmoid_score(logit(p))[0]
    return (lib.objective(world, policy), best_constant(law, (score ** 2).sum(-1), reward),
            lambda b: lib.moments(law, (reward - b)[:, None] * score)[1])


@row("T5.1", wrong=[mutants.score_not_centred, mutants.second_moment, mutants.equal_weights,
                    mutants.variance_of_the_sum])
def constant_baseline_optimum(lib, given):
    p, returns, scores, true = whole_trajectories(lib, given)
    J = lib.objective(*finite_world(lib, given))
    best = best_constant(p, (scores ** 2).sum(-1), returns)
    grid = np.arange(0, 5, 0.005)
    mean, variance = zip(*(lib.moments(p, (returns - b)[:, None] * scores) for b in (0, J, best)))
    on_grid = [lib.moments(p, (returns - b)[:, None] * scores)[1] for b in grid]
    return {"b_star": best, "grid_argmin": grid[np.argmin(on_grid)], "J": J, "var_b0": variance[0],
            "var_bJ": variance[1], "var_bstar": variance[2], "mean_shift": largest(*(m - true for m in mean))}


@row("T5.2", wrong=[mutants.same_score_for_both_arms, mutants.score_by_probability, mutants.arms_swapped])
def two_arm_optimal_baseline(lib, given):
    rows = []
    for p, r1, r0 in given.cases:
        V, best, variance = two_arms(lib, p, r1, r0)
        rows.append({"p": p, "r1": r1, "r0": r0, "V": V, "b_star": best, "var_0": variance(0), "var_V": variance(V),
                     "var_bstar": variance(best)})
    return {"rows": rows}


@row("T5.3", wrong=[mutants.same_score_for_both_arms, mutants.score_by_probability, mutants.second_moment])
def value_baseline_can_hurt(lib, given):
    V, best, variance = two_arms(lib, given.p, *given.r)
    return {"var_b0": variance(0), "var_bV": variance(V), "var_bstar": variance(best),
            "ratio": variance(V) / variance(0)}


def squared_norms(lib, theta, rewards):
    """Policy, value, squared score norms, optimal baseline, covariance of norm and reward, of a softmax bandit."""
    world, theta = lib.bandit(rewards), np.array([theta], float)
    law, norms = lib.softmax_policy(theta)[0], (lib.softmax_score(theta)[0, :, 0] ** 2).sum(-1)
    V = lib.objective(world, law[None])
    covariance = lib.moments(law, norms * world.reward[0])[0] - lib.moments(law, norms)[0] * V
    return law, V, norms, best_constant(law, norms, world.reward[0]), covariance


@row("T5.4", wrong=[mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p, mutants.equal_weights])
def optimal_baseline_minus_value(lib, given):
    result = {}
    for name in ("trained", "bad", "uniform"):
        law, V, norms, best, covariance = squared_norms(lib, getattr(given, f"theta_{name}"), given.r)
        S = (law ** 2).sum()
        result[name] = {"pi": law, "V": V, "b_star": best, "cov": covariance, "En2": law @ norms,
                        "b_star_closed": (law * (1 - 2 * law + S)) @ given.r / (1 - S),
                        "V_plus_cov": V + covariance / (law @ norms)}
    return result


@row("T5.5", wrong=[mutants.values_without_time, mutants.full_return_everywhere, mutants.score_not_centred,
                    mutants.return_starts_one_step_late, mutants.reward_forgotten_in_Q])
def state_baselines(lib, given):
    world, policy = finite_world(lib, given)
    every, values, score = lib.trajectories(world, policy), lib.values(world, policy), lib.softmax_score(given.theta)
    p, steps = every.probabilities, every.scores(score).reshape(*every.actions.shape, -1)
    norms = (score ** 2).sum((2, 3))
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)
    per_term = (policy * norms * values.Q).sum(-1) / (policy * norms).sum(-1)
    # Joint optimum: normal equations of the linear regression of the estimate on one score feature for each (t, s).
    met = every.states[:-1, :, None] == np.arange(len(given.mu))
    features = np.einsum("tns,tnk->ntsk", met, steps).reshape(len(p), -1, steps.shape[-1])
    plain = np.einsum("tn,tnk->nk", togo, steps)
    normal = np.einsum("n,nik,njk->ij", p, features, features)
    joint = np.linalg.solve(normal, np.einsum("n,nik,nk->i", p, features, plain)).reshape(given.T, -1)
    tables = {"none": 0 * joint, "V_t(s)": values.V[:-1], "per-term b*_t(s)": per_term, "joint b_t(s)": joint}
    result = {name: lib.moments(p, plain - np.einsum("i,nik->nk", table.ravel(), features))
              for name, table in tables.items()}
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1].ravel()
    return {"var": {name: variance for name, (_, variance) in result.items()}, "per_term": per_term, "joint": joint,
            "V": values.V[:-1], "mean_gap": largest(*(mean - true for mean, _ in result.values()))}


@row("T5.6", wrong=[mutants.score_not_centred, mutants.values_instead_of_Q, mutants.reward_forgotten_in_Q])
def action_dependent_baseline(lib, given):
    world, theta = lib.bandit(given.r), np.array([given.theta])
    policy, score = lib.softmax_policy(theta), lib.softmax_score(theta)
    bias = lib.moments(policy[0], lib.values(world, policy).Q[0, 0][:, None] * score[0, :, 0])[0]
    return {"bias": bias, "grad": lib.policy_gradient(world, policy, score)[0]}


@row("T5.7", wrong=[mutants.mean_of_the_batch, mutants.mean_of_the_others, mutants.score_not_centred])
def batch_mean_baseline(lib, given):
    theta = np.array([given.theta])
    law, score = lib.softmax_policy(theta)[0], lib.softmax_score(theta)[0, :, 0]
    true = lib.policy_gradient(lib.bandit(given.r), law[None], score[None, :, None])[0]

    def expected(N):
        batches = np.array(list(product(range(len(law)), repeat=N)))
        centred = lib.group_advantages(np.array(given.r)[batches], scale=None)
        return lib.moments(law[batches].prod(1), (centred[..., None] * score[batches]).mean(1))[0]

    return {"mean_with_self": expected(given.N), "grad": true, "ratio": expected(given.N)[0] / true[0],
            "factor_by_N": {N: expected(N)[0] / true[0] for N in (2, 4, 8)}}


@row("T5.8", wrong=[mutants.variance_of_the_sum, mutants.equal_weights, mutants.gradient_of_p_instead_of_log_p])
def per_component_baseline(lib, given):
    p, returns, scores, _ = whole_trajectories(lib, given)
    each = np.array([best_constant(p, column ** 2, returns) for column in scores.T])
    one = best_constant(p, (scores ** 2).sum(-1), returns)
    return {"b": each, "var_component": lib.moments(p, (returns[:, None] - each) * scores)[1],
            "var_scalar": lib.moments(p, (returns - one)[:, None] * scores)[1]}


@row("T5.9", wrong=[mutants.score_not_centred, mutants.values_instead_of_Q, mutants.actions_not_weighted])
def covariance_during_training(lib, given):
    theta, rows, world = np.zeros((1, 3)), [], lib.bandit(given.r)
    for step in range(201):
        if step in (0, 1, 2, 5, 10, 20, 50, 200):
            law, V, _, best, covariance = squared_norms(lib, theta[0], given.r)
            rows.append({"step": step, "p_best": law[2], "V": V, "b_star": best, "cov": covariance})
        gradient = lib.policy_gradient(world, lib.softmax_policy(theta), lib.softmax_score(theta))
        theta = theta + given.lr * gradient
    return {"rows": rows}
