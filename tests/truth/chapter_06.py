"""Chapter 6: importance sampling and off-policy gradients."""
from dataclasses import replace
from itertools import product

import mutants
import numpy as np
import oracle
import torch
from mutants import Mutant

from . import row
from .common import per_trajectory


# --- the pieces that people get wrong; a wrong variant below replaces one of them -----------------------------------

def importance_ratios(p, q):
    """Wanted over drawn, entry by entry."""
    return np.asarray(p) / np.asarray(q)


def sampling_law(p, q):
    """The law under which the data was drawn."""
    return q


def prefix_weights(ratios):
    """W_t, the product of the ratios up to and with step t: [T, N] -> [T, N]."""
    return ratios.cumprod(0)


def ratio_objective(rho, log_probs, advantages):
    """What is differentiated on samples of the old policy, one entry for each action."""
    return rho * advantages


def lost_mean(p, f):
    """The mean that stands squared in the variance of p / q * f under q; q has drawn, p is meant."""
    return p @ f


def helper(lib, name):
    """The function of this file, or its wrong variant."""
    return getattr(lib, name, globals()[name])


def variant(name, replaces, build, mistake):
    return Mutant(name, replaces, lambda right: build, mistake)


ratio_inverted = variant("ratio_inverted", "importance_ratios", lambda p, q: np.asarray(q) / np.asarray(p),
                         "the old probability over the new one")
mean_under_the_target = variant("mean_under_the_target", "sampling_law", lambda p, q: p,
                                "the expectation of weighted samples is taken under p")
one_ratio_too_few = variant("one_ratio_too_few", "prefix_weights",
                            lambda r: np.vstack([np.ones_like(r[:1]), r.cumprod(0)[:-1]]),
                            "the ratio of the step itself is left out")
one_ratio_too_many = variant("one_ratio_too_many", "prefix_weights",
                             lambda r: np.vstack([r.cumprod(0)[1:], r.prod(0)[None]]),
                             "the ratio of the next step is kept (right mean, more variance)")
only_its_own_ratio = variant("only_its_own_ratio", "prefix_weights", lambda r: r,
                             "the ratios of the earlier steps are dropped")
logarithm_weighted = variant("logarithm_weighted", "ratio_objective", lambda rho, log_probs, A: rho * log_probs * A,
                             "the ratio in front of log pi")
ratio_forgotten = variant("ratio_forgotten", "ratio_objective", lambda rho, log_probs, A: A + 0 * rho,
                          "no ratio, so nothing to differentiate")
misprinted_square = variant("misprinted_square", "lost_mean", lambda p, f: np.array([0.8, 0.2]) @ f,
                            "the mean of f under q is squared")


def with_initial_law(right):
    def trajectories(mdp, policy):
        every = right.trajectories(mdp, policy)
        twice = every.probabilities * mdp.initial[every.states[0]]
        return replace(every, probabilities=twice / twice.sum())
    return trajectories


state_law_left_in = Mutant("state_law_left_in", "trajectories", with_initial_law,
                           "the law of the first state does not cancel: it stays in the weight of the trajectory")
BOTH = [ratio_inverted, mean_under_the_target]


def direction(given):
    """D scaled to length 1."""
    D = np.array(given.D)
    return D / np.linalg.norm(D)


def off_policy(lib, given, target, horizon=None):
    """World, policies, trajectories of the old policy, their ratios [T, N], and scores of the target's logits."""
    world = lib.FiniteMDP(given.mu, given.P, given.r, horizon=horizon or given.T, gamma=given.gamma)
    old, new = lib.softmax_policy(given.theta), lib.softmax_policy(target)
    every = lib.trajectories(world, helper(lib, "sampling_law")(new, old))
    ratios = helper(lib, "importance_ratios")(new, old)[every.states[:-1], every.actions]
    return world, old, new, every, ratios, every.scores(lib.softmax_score(target))


def value_estimates(lib, every, ratios):
    """Of each trajectory: with trajectory weights, per decision, with single-step ratios."""
    W = helper(lib, "prefix_weights")(ratios)
    return ratios.prod(0) * every.returns(), (W * every.rewards).sum(0), (ratios * every.rewards).sum(0)


def surrogate(lib, given, target):
    """(gain, L) of the target, L as a sum over the trajectories of the old policy."""
    world, old, new, every, ratios, _ = off_policy(lib, given, target)
    A = lib.values(world, old).A[np.arange(given.T)[:, None], every.states[:-1], every.actions]
    L = lib.moments(every.probabilities, (ratios * A).sum(0))[0]
    return oracle.objective_gradient(target, *arrays(given))[0] - lib.objective(world, old), L


def arrays(given):
    return given.mu, given.P, given.r, given.T, given.gamma


def weights_under_q(lib, given):
    """(law of the samples, weights)."""
    p, q = np.array(given.p), np.array(given.q)
    return helper(lib, "sampling_law")(p, q), helper(lib, "importance_ratios")(p, q)


# --- weights --------------------------------------------------------------------------------------------------------

@row("T6.1", wrong=[*BOTH, mutants.second_moment, mutants.equal_weights])
def weight_moments(lib, given):
    law, w = weights_under_q(lib, given)
    mean, variance = lib.moments(law, w)
    return {"mean": mean, "var": variance, "chi2": sum(a * a / b for a, b in zip(given.p, given.q)) - 1}


@row("T6.2", wrong=[*BOTH, mutants.second_moment, mutants.equal_weights])
def product_weights(lib, given):
    law, w = weights_under_q(lib, given)
    one = 1 + lib.moments(law, w)[1]
    result = {T: {"var": one ** T - 1, "ess_fraction": one ** -float(T)} for T in given.T}
    every = np.array(list(product(range(len(w)), repeat=5)))                   # five steps, all 243 outcomes
    result[5]["var"] = lib.moments(law[every].prod(1), w[every].prod(1))[1]
    return result


@row("T6.8", wrong=[*BOTH, misprinted_square, mutants.second_moment])
def variance_formula(lib, given):
    law, w = weights_under_q(lib, given)
    p, q, f = (np.array(x) for x in (given.p, given.q, given.f))
    second = p @ (w * f ** 2)
    return {"true_var": lib.moments(law, w * f)[1], "formula": second - helper(lib, "lost_mean")(p, f) ** 2,
            "note_formula": second - (q @ f) ** 2, "var_p": lib.moments(p, f)[1]}


@row("T6.9", wrong=[ratio_inverted, mutants.second_moment])
def best_law(lib, given):
    p, f = np.array(given.p), np.array(given.f)
    best = p * abs(f) / (p @ abs(f))
    law, w = helper(lib, "sampling_law")(p, best), helper(lib, "importance_ratios")(p, best)
    return {"q_star": best, "var_under_qstar": lib.moments(law, w * f)[1], "var_under_p": lib.moments(p, f)[1]}


@row("T6.10", wrong=[*BOTH, mutants.equal_weights])
def support_violation(lib, given):
    p, q, f = np.array(given.p), np.array(given.q), np.array(given.f)
    seen = q > 0
    law, w = helper(lib, "sampling_law")(p, q)[seen], helper(lib, "importance_ratios")(p[seen], q[seen])
    law = np.append(law, 1 - law.sum())                        # with q nothing is left over, with p it is
    found = lib.moments(law, np.append(w * f[seen], 0))[0]
    return {"truth": p @ f, "is_mean": found, "bias": found - p @ f}


@row("T6.11", wrong=[*BOTH, mutants.second_moment])
def kl_against_chi2(lib, given):
    law, w = weights_under_q(lib, given)
    kl = lib.moments(np.array(given.p), np.log(w))[0]
    return {"chi2": lib.moments(law, w)[1], "kl": kl, "exp_kl_minus_1": np.exp(kl) - 1}


@row("T6.12", wrong=[ratio_inverted])
def infinite_variance(lib, given):
    result = {}
    for b in given.base:
        k = np.arange(1, max(given.terms) + 1)
        p, q = 0.5 ** k, (b - 1) * float(b) ** -k
        w = helper(lib, "importance_ratios")(p, q)
        kl, chi2 = np.cumsum(p * np.log(w)), np.cumsum(p * w - p)
        result[b] = {K: {"kl": kl[K - 1], "chi2": chi2[K - 1]} for K in given.terms}
    return result


@row("T6.13", wrong=[*BOTH, mutants.second_moment, mutants.equal_weights])
def self_normalised(lib, given):
    law, w = weights_under_q(lib, given)
    f, result = np.array(given.f), {}
    for n in given.n:
        batches = np.array(list(product(range(len(w)), repeat=n)))
        for shift in given.shift:
            plain = lib.moments(law[batches].prod(1), (w * (f + shift))[batches].mean(1))
            own = lib.moments(law[batches].prod(1), (w * (f + shift))[batches].sum(1) / w[batches].sum(1))
            result[f"n={n}, shift={shift}"] = {"plain": list(plain), "self_normalised": list(own)}
    return result


@row("T6.22", wrong=[mutants.second_moment])
def long_horizons(lib, given):
    result = {}
    for chi2 in given.chi2:
        s = np.sqrt(chi2)                                       # weights 1 - s and 1 + s, each half of the time
        one = 1 + lib.moments(np.array([0.5, 0.5]), np.array([1 - s, 1 + s]))[1]
        result[str(chi2)] = {T: one ** -T for T in given.T}
    return result


# --- trajectories ---------------------------------------------------------------------------------------------------

@row("T6.3", wrong=[*BOTH, state_law_left_in, one_ratio_too_few, one_ratio_too_many, only_its_own_ratio,
                    mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p, mutants.second_moment,
                    mutants.reward_of_the_next_step, mutants.full_return_everywhere])
def off_policy_gradient(lib, given):
    _, _, _, every, ratios, scores = off_policy(lib, given, given.theta_target)
    to_go = lambda rewards: lib.discounted_returns(rewards, gamma=1.0)
    true = oracle.objective_gradient(given.theta_target, *arrays(given))[1]
    coefficients = {"traj": np.broadcast_to(ratios.prod(0) * every.returns(), ratios.shape),
                    "per_decision": to_go(helper(lib, "prefix_weights")(ratios) * every.rewards),
                    "per_step": ratios * to_go(every.rewards)}
    found = {name: lib.moments(every.probabilities, per_trajectory(c, scores)) for name, c in coefficients.items()}
    error = {f"err_{name}": np.abs(mean - true).max() for name, (mean, _) in found.items()}
    return {"grad_target": true, "per_step_mean": found["per_step"][0], **error,
            **{f"var_{name}": variance for name, (_, variance) in found.items()}}


@row("T6.4", wrong=[*BOTH, state_law_left_in, one_ratio_too_few, one_ratio_too_many, only_its_own_ratio,
                    mutants.second_moment, mutants.equal_weights, mutants.initial_law_scaled])
def off_policy_value(lib, given):
    _, _, _, every, ratios, _ = off_policy(lib, given, given.theta_target)
    found = [lib.moments(every.probabilities, e) for e in value_estimates(lib, every, ratios)]
    return {"J_target": oracle.objective_gradient(given.theta_target, *arrays(given))[0], "traj": found[0][0],
            "per_decision": found[1][0], "per_step": found[2][0], "var_traj": found[0][1],
            "var_per_decision": found[1][1]}


@row("T6.5", wrong=[*BOTH, state_law_left_in, mutants.values_without_time, mutants.reward_forgotten_in_Q,
                    mutants.best_action_values])
def surrogate_first_order(lib, given):
    rows = []
    for eps in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16):
        gain, L = surrogate(lib, given, np.array(given.theta) + eps * np.array(given.D))
        rows.append({"eps": eps, "dJ": gain, "L": L, "err": abs(gain - L)})
    return {"rows": rows, "log2_ratio": np.log2(rows[-2]["err"] / rows[-1]["err"])}


@row("T6.14", wrong=[*BOTH, mutants.law_of_the_first_step, mutants.values_without_time,
                     mutants.reward_forgotten_in_Q])
def surrogate_error_identity(lib, given):
    target = np.array(given.theta) + np.array(given.D)
    gain, L = surrogate(lib, given, target)
    world, old, new, *_ = off_policy(lib, given, target)
    moved = lib.visitation(world, new) - lib.visitation(world, old)
    by_laws = (moved * (new * lib.values(world, old).A).sum(-1)).sum()
    return {"gain_minus_L": gain - L, "product_of_changes": by_laws}


@row("T6.15", wrong=[*BOTH, mutants.score_not_centred, mutants.reward_of_the_next_step, mutants.reward_forgotten_in_Q])
def one_surrogate_gradient(lib, given):
    world, old, _, every, ratios, scores = off_policy(lib, given, np.array(given.theta) + np.array(given.D))
    weights = {"R": np.tile(every.returns(), (given.T, 1)), "G": lib.discounted_returns(every.rewards, gamma=1.0),
               "A": lib.values(world, old).A[np.arange(given.T)[:, None], every.states[:-1], every.actions]}
    return {name: lib.moments(every.probabilities, per_trajectory(ratios * psi, scores))[0]
            for name, psi in weights.items()}


@row("T6.16", wrong=[*BOTH, state_law_left_in, mutants.initial_law_scaled, mutants.wrong_successor_law])
def effective_shares(lib, given):
    """At small T from the enumeration, else from the backward recursion; both where both are possible."""
    result = {}
    for distance in given.distance:
        target = np.array(given.theta) + distance * direction(given)
        for T in given.T:
            world, old, new, *_ = off_policy(lib, given, target, horizon=1)
            squared = helper(lib, "importance_ratios")(new, old) ** 2 * helper(lib, "sampling_law")(new, old)
            m = np.ones(len(old))
            for _ in range(T):
                m = (squared * (world.transition @ m)).sum(-1)
            if T <= 6:
                every, ratios = off_policy(lib, given, target, horizon=T)[3:5]
                m = lib.moments(every.probabilities, ratios.prod(0) ** 2)[0]
            result[f"{distance}, {T}"] = 1 / (m if T <= 6 else world.initial @ m)
    return result


@row("T6.17", wrong=[*BOTH, one_ratio_too_few, one_ratio_too_many, only_its_own_ratio, mutants.second_moment])
def clip_and_samples(lib, given):
    target = np.array(given.theta) + given.distance * direction(given)
    world, _, new, every, ratios, _ = off_policy(lib, given, target)
    J = oracle.objective_gradient(target, *arrays(given))[0]
    (_, v_traj), (_, v_pd), (m_one, v_one) = (lib.moments(every.probabilities, e)
                                              for e in value_estimates(lib, every, ratios))
    clipped, v_clipped = lib.moments(every.probabilities, np.minimum(ratios.prod(0), given.clip) * every.returns())
    rms = lambda bias, variance, n: np.sqrt(bias ** 2 + variance / n)
    return {"bias_single_step": m_one - J, "crossing_N": (v_pd - v_one) / (m_one - J) ** 2,
            "rms_N10": rms(0, v_traj, 10), "rms_N10_clipped": rms(clipped - J, v_clipped, 10),
            "rms_N10000_clipped": rms(clipped - J, v_clipped, 10_000)}


@row("T6.18", wrong=[*BOTH, mutants.values_without_time, mutants.reward_forgotten_in_Q])
def surrogate_reach(lib, given):
    theta, U, ray = np.array(given.theta), direction(given), np.array(given.state_1_only)
    near = [np.subtract(*surrogate(lib, given, theta + d * U)) for d in (0.1, 0.2)]
    return {"growth": near[1] / near[0], "worse_at_3": list(surrogate(lib, given, theta - 3 * U)),
            "state_1_only_at_3": list(surrogate(lib, given, theta + 3 * ray / np.linalg.norm(ray)))}


@row("T6.19", wrong=[*BOTH, state_law_left_in, mutants.start_is_uniform, mutants.wrong_successor_law])
def uncorrelated_ratios(lib, given):
    _, _, _, every, ratios, _ = off_policy(lib, given, np.array(given.theta) + np.array(given.D))
    mean = lambda x: lib.moments(every.probabilities, x)[0]
    a, b = ratios[:2]
    return {"covariance": mean(a * b) - mean(a) * mean(b), "mean_of_squared_product": mean((a * b) ** 2),
            "product_of_mean_squares": mean(a ** 2) * mean(b ** 2)}


@row("T6.20", wrong=[*BOTH, one_ratio_too_many, only_its_own_ratio])
def per_decision_can_be_worse(lib, given):
    """Two states, one for each step, so that the rewards +1 and -1 come whatever is done."""
    transition = np.zeros((2, 2, 2))
    transition[:, :, 1] = 1
    world = lib.FiniteMDP([1.0, 0.0], transition, np.array([[1.0, 1.0], [-1.0, -1.0]]), horizon=2)
    old, new = np.array([given.old] * 2), np.array([given.new] * 2)
    every = lib.trajectories(world, helper(lib, "sampling_law")(new, old))
    ratios = helper(lib, "importance_ratios")(new, old)[every.states[:-1], every.actions]
    whole, decision, _ = (lib.moments(every.probabilities, e)[1] for e in value_estimates(lib, every, ratios))
    return {"var_traj": whole, "var_per_decision": decision}


@row("T6.21", wrong=[*BOTH, mutants.score_not_centred])
def constant_weight(lib, given):
    _, _, _, every, ratios, scores = off_policy(lib, given, np.array(given.theta) + np.array(given.D))
    mean = lambda c: lib.moments(every.probabilities, per_trajectory(c, scores))[0]
    return {"bare": mean(np.ones_like(ratios)), "with_ratios": mean(ratios)}


@row("T6.23", wrong=[*BOTH, mutants.best_action_values, mutants.reward_forgotten_in_Q])
def advantage_of_the_new_policy(lib, given):
    world, _, new, every, ratios, _ = off_policy(lib, given, np.array(given.theta) + np.array(given.D))
    A = lib.values(world, new).A[np.arange(given.T)[:, None], every.states[:-1], every.actions]
    return {"value": lib.moments(every.probabilities, (ratios * A).sum(0))[0]}


# --- the objective to differentiate -----------------------------------------------------------------------------------

def gradient_of_objective(lib, given, objective):
    """(value, gradient in the logits) of E_old[objective(rho, log pi, A)] at pi = pi_old, by autograd."""
    old, A = torch.tensor(given.pi, dtype=torch.float64), torch.tensor(given.A, dtype=torch.float64)
    logits = old.log().requires_grad_()
    log_probs = logits.log_softmax(0)
    value = (old * objective((log_probs - old.log()).exp(), log_probs, A)).sum()
    return value.item(), torch.autograd.grad(value, logits)[0].numpy()


@row("T6.6", wrong=[mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p, mutants.equal_weights])
def weighted_logarithm(lib, given):
    theta = np.log([given.pi])
    pi, score, A = lib.softmax_policy(theta)[0], lib.softmax_score(theta)[0, :, 0], np.array(given.A)
    factor = 1 + np.log(pi)
    right = lib.moments(pi, A[:, None] * score)[0]
    wrong = lib.moments(pi, (factor * A)[:, None] * score)[0]
    by_autograd = gradient_of_objective(lib, given, lambda rho, log_probs, A: rho * log_probs * A)[1]
    return {"policy_gradient": right, "gradient_of_log_objective": wrong, "autograd": by_autograd,
            "factor_1_plus_log_pi": factor, "threshold": np.exp(-1),
            "cosine": right @ wrong / np.linalg.norm(right) / np.linalg.norm(wrong)}


@row("T6.7", wrong=[logarithm_weighted, ratio_forgotten])
def ratio_surrogate_gradient(lib, given):
    value, gradient = gradient_of_objective(lib, given, helper(lib, "ratio_objective"))
    theta = np.log([given.pi])
    score = lib.softmax_score(theta)[0, :, 0]
    by_score = lib.moments(np.array(given.pi), np.array(given.A)[:, None] * score)[0]
    return {"grad": gradient, "matches_policy_gradient": np.abs(gradient - by_score).max(), "value": value}
