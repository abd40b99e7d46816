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


def togo_of(lib, given):
    """World, policy, trajectories, scores [T, N, K], reward-to-go [T, N], true gradient [K] by autograd."""
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    steps = every.scores(lib.softmax_score(given.theta)).reshape(*every.actions.shape, -1)
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1].ravel()
    return world, policy, every, steps, lib.discounted_returns(every.rewards, gamma=world.gamma), true


def with_table(lib, every, steps, togo, table):
    """Mean and total variance of the reward-to-go estimate with a baseline [T, S]."""
    baseline = np.take_along_axis(table, every.states[:-1], 1)
    return lib.moments(every.probabilities, np.einsum("tn,tnk->nk", togo - baseline, steps))


@row("T5.10", wrong=[mutants.score_not_centred, mutants.return_starts_one_step_late, mutants.full_return_everywhere])
def one_constant_for_reward_to_go(lib, given):
    world, policy, every, steps, togo, _ = togo_of(lib, given)
    p, whole, Z, J = every.probabilities, np.einsum("tn,tnk->nk", togo, steps), steps.sum(0), lib.objective(world, policy)
    best = p @ (whole * Z).sum(-1) / (p @ (Z ** 2).sum(-1))
    variances = [lib.moments(p, whole - b * Z)[1] for b in (0, J, best)]
    return {"b_star": best, "var": variances, "cross_scores": p @ (Z ** 2).sum(-1) - (p @ (steps ** 2).sum((0, 2)))}


@row("T5.11", wrong=[mutants.score_not_centred, mutants.return_starts_one_step_late, mutants.reward_forgotten_in_Q])
def joint_optimum_in_closed_form(lib, given):
    world, policy, every, steps, togo, _ = togo_of(lib, given)
    p, score = every.probabilities, lib.softmax_score(given.theta)
    norms = (score ** 2).sum((2, 3))
    per_term = (policy * norms * lib.values(world, policy).Q).sum(-1) / (policy * norms).sum(-1)
    met = every.states[:-1, :, None] == np.arange(len(given.mu))
    mean = np.einsum("n,tns,tn->ts", p, met, (steps ** 2).sum(-1))
    others = np.zeros_like(mean)
    for t, u in product(range(given.T), repeat=2):
        if t != u:
            others[t] += np.einsum("n,ns,n->s", p, met[t], (steps[t] * steps[u]).sum(-1) * togo[u])
    return {"joint": per_term + others / mean, "cross_terms": others / mean}


@row("T5.12", wrong=[mutants.score_not_centred, mutants.full_return_everywhere, mutants.values_without_time])
def errors_of_a_learned_baseline(lib, given):
    world, policy, every, steps, togo, true = togo_of(lib, given)
    V = lib.values(world, policy).V[:-1]
    results = [with_table(lib, every, steps, togo, V + np.array(e)) for e in given.errors]
    return {"var": [v for _, v in results], "mean_gap": largest(*(m - true for m, _ in results))}


def batches(lib, given, N, weights):
    """Mean and total variance of the batch gradient of a softmax bandit, all batches of N enumerated; true gradient."""
    theta, rewards = np.array([given.theta]), np.array(given.r)
    law, score = lib.softmax_policy(theta)[0], lib.softmax_score(theta)[0, :, 0]
    arms = np.array(list(product(range(len(law)), repeat=N)))
    mean, variance = lib.moments(law[arms].prod(1), (weights(rewards[arms])[..., None] * score[arms]).mean(1))
    return mean, variance, law * (rewards - law @ rewards)


@row("T5.13", wrong=[mutants.mean_of_the_batch, mutants.mean_of_the_others, mutants.second_moment])
def leave_one_out_variance(lib, given):
    result = {}
    for N in given.N:
        mean, variance, true = batches(lib, given, N, lambda r: lib.group_advantages(r, scale=None) * N / (N - 1))
        own_mean, own, _ = batches(lib, given, N, lambda r: lib.group_advantages(r, scale=None))
        result[N] = {"loo": variance, "loo_bias": largest(mean - true), "self_error": own + ((own_mean - true) ** 2).sum()}
    return result


@row("T5.14", wrong=[mutants.same_score_for_both_arms, mutants.second_moment])
def where_the_value_starts_to_hurt(lib, given):
    ratios = []
    for p in given.p:
        V, _, variance = two_arms(lib, p, 1, 0)
        ratios.append(variance(V) / variance(0))
    return {"ratio": ratios}


@row("T5.15", wrong=[mutants.score_not_centred, mutants.values_instead_of_Q, mutants.second_moment])
def value_baseline_along_training(lib, given):
    theta, world, ratios = np.zeros((1, 3)), lib.bandit(given.r), []
    for step in range(max(given.steps) + 1):
        law, score = lib.softmax_policy(theta), lib.softmax_score(theta)
        if step in given.steps:
            V, reward = lib.objective(world, law), world.reward[0]
            with_V, none = (lib.moments(law[0], (reward - b)[:, None] * score[0, :, 0])[1] for b in (V, 0))
            ratios.append(with_V / none)
        theta = theta + given.lr * lib.policy_gradient(world, law, score)
    return {"ratio": ratios}


@row("T5.16", wrong=[mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p])
def no_covariance_without_independence(lib, given):
    _, V, norms, best, covariance = squared_norms(lib, np.log(given.pi), given.r)
    return {"norms": norms, "V": V, "b_star": best, "cov": covariance}


@row("T5.17", wrong=[mutants.score_by_probability])
def relative_and_absolute_sensitivity(lib, given):
    scores = [float(lib.sigmoid_score(logit(p))[0, 1, 0]) for p in given.p]
    return {"relative": scores, "absolute": [p * s for p, s in zip(given.p, scores)]}


@row("T5.18", wrong=[mutants.score_not_centred, mutants.values_instead_of_Q])
def shift_of_every_reward(lib, given):
    world, theta = lib.short_or_long()
    policy, score = lib.softmax_policy(theta), lib.softmax_score(theta)
    shifted = lib.FiniteMDP(world.initial, world.transition, world.reward - given.b, world.horizon, world.gamma,
                            world.terminal)
    every = lib.trajectories(world, policy)
    from_return = (every.returns() - given.b)[:, None, None] * every.scores(score).sum(0)
    return {"plain": lib.policy_gradient(world, policy, score)[0, 1],
            "every_reward": lib.policy_gradient(shifted, policy, score)[0, 1],
            "return_only": lib.moments(every.probabilities, from_return)[0][0, 1]}


@row("T5.19", wrong=[mutants.unbiased_group_deviation, mutants.group_mean_only, mutants.mean_of_the_others])
def normalised_advantages(lib, given):
    result = {}
    for N in given.N:
        mean, _, true = batches(lib, given, N, lib.group_advantages)
        result[N] = {"ratio": mean / true, "cosine": mean @ true / np.linalg.norm(mean) / np.linalg.norm(true)}
    return result


@row("T5.20", wrong=[mutants.score_not_centred, mutants.return_starts_one_step_late])
def history_and_next_state(lib, given):
    world, policy, every, steps, togo, true = togo_of(lib, given)
    rng, table, by_history = np.random.default_rng(given.seed), {}, np.zeros(togo.shape)
    for t, n in np.ndindex(togo.shape):
        key = (*every.states[:t + 1, n], *every.actions[:t, n])
        by_history[t, n] = table.setdefault(key, rng.normal())
    following = np.take_along_axis(lib.values(world, policy).V[1:], every.states[1:], 1)
    mean = [lib.moments(every.probabilities, np.einsum("tn,tnk->nk", togo - b, steps))[0] for b in (by_history, following)]
    return {"history_gap": largest(mean[0] - true), "next_state_ratio": mean[1] / true}


@row("T5.21", wrong=[mutants.values_without_time, mutants.score_not_centred, mutants.full_return_everywhere])
def value_with_and_without_time(lib, given):
    world, policy, every, steps, togo, _ = togo_of(lib, given)
    V, law = lib.values(world, policy).V[:-1], lib.visitation(world, policy)
    state, time = (law * V).sum(0) / law.sum(0), (law * V).sum(1, keepdims=True) / law.sum(1, keepdims=True)
    tables = {"V(s)": state + 0 * V, "V(t)": time + 0 * V, "V_t(s)": V}
    return {"var": {name: with_table(lib, every, steps, togo, table)[1] for name, table in tables.items()}}


@row("T5.22", wrong=[mutants.gradient_of_p_instead_of_log_p, mutants.equal_weights])
def optimum_from_the_same_batch(lib, given):
    theta, rewards, result = np.array([given.theta]), np.array(given.r), {}
    law, score = lib.softmax_policy(theta)[0], lib.softmax_score(theta)[0, :, 0]
    for N in given.N:
        arms = np.array(list(product(range(len(law)), repeat=N)))
        squares, returns = score[arms] ** 2, rewards[arms][..., None]
        best = (squares * returns).sum(1, keepdims=True) / squares.sum(1, keepdims=True)
        result[N] = lib.moments(law[arms].prod(1), (score[arms] * (returns - best)).mean(1))[0] \
            / (law * (rewards - law @ rewards))
    return result


@row("T5.23", wrong=[mutants.score_not_centred, mutants.full_return_everywhere, mutants.return_starts_one_step_late])
def own_episode_as_baseline(lib, given):
    _, _, every, steps, togo, true = togo_of(lib, given)
    centred = togo - togo.mean(0)
    spread = centred.std(0, ddof=1)
    mean, scaled = (lib.moments(every.probabilities, np.einsum("tn,tnk->nk", w, steps))[0]
                    for w in (centred, centred / np.where(spread > 0, spread, 1)))
    return {"ratio": (mean / true)[[0, 2]],
            "cosine_scaled": scaled @ true / np.linalg.norm(scaled) / np.linalg.norm(true)}
