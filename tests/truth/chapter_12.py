"""Chapter 12: trust regions."""
from itertools import product

import mutants
import numpy as np
import oracle
from mutants import Mutant

from . import AtMost, row
from .chapter_11 import look, natural, scaled
from .common import largest, logit


# --- the pieces that people get wrong; a wrong variant below replaces one of them -----------------------------------

def penalty(A_max, gamma):
    """C of the bound J(new) >= L(new) - C KL_max."""
    return 4 * A_max * gamma / (1 - gamma) ** 2


def surrogate_gain(old, policy):
    """L(policy) - L(old): the old policy's states and advantages, the new one's actions."""
    return old.visits @ (policy * old.A).sum(1)


def accepted(kl, gain, delta):
    """Whether the line search stops here."""
    return kl <= delta and gain > 0


def helper(lib, name):
    """The function of this file, or its wrong variant."""
    return getattr(lib, name, globals()[name])


def variant(name, replaces, build, mistake):
    return Mutant(name, replaces, lambda right: build, mistake)


one_horizon_in_the_penalty = variant("one_horizon_in_the_penalty", "penalty",
                                     lambda A_max, gamma: 4 * A_max * gamma / (1 - gamma),
                                     "1 - gamma without the square")
half_of_the_penalty = variant("half_of_the_penalty", "penalty",
                              lambda A_max, gamma: 2 * A_max * gamma / (1 - gamma) ** 2, "2 for 4")
old_actions = variant("old_actions", "surrogate_gain", lambda old, policy: old.visits @ (old.policy * old.A).sum(1),
                      "the ratio is left out: the advantages mean 0")
gain_of_the_mean = variant("gain_of_the_mean", "surrogate_gain", lambda old, policy: old.law @ (policy * old.A).sum(1),
                           "a mean over states where the sum over time belongs")
always_accepted = variant("always_accepted", "accepted", lambda kl, gain, delta: True, "no line search")
gain_not_looked_at = variant("gain_not_looked_at", "accepted", lambda kl, gain, delta: kl <= delta / 2,
                             "half the radius, and the gain not looked at")


def mean_kl(lib, old, theta):
    """KL(old || theta), a mean over the old policy's states."""
    return old.law @ lib.categorical_kl(old.theta, theta)


def surrogate_kept(lib, old, theta):
    """L(theta) of the logits theta."""
    return old.J + helper(lib, "surrogate_gain")(old, lib.softmax_policy(theta))


def line_search(lib, old, step, delta, shrink=0.8, tries=10):
    """(logits, j, KL, surrogate gain) of the first shrink^j step that is accepted, and the KL of the full one."""
    full = mean_kl(lib, old, old.theta + step)
    for j in range(tries):
        theta = old.theta + shrink ** j * step
        kl, gain = mean_kl(lib, old, theta), surrogate_kept(lib, old, theta) - old.J
        if helper(lib, "accepted")(kl, gain, delta):
            return theta, j, kl, gain, full
    return old.theta, tries, 0.0, 0.0, full


def trust_region(lib, old, delta):
    """`line_search` along the natural step of the radius delta."""
    step = scaled(natural(lib, old.F, old.g), old.F, delta)
    return line_search(lib, old, step.reshape(old.theta.shape), delta)


def guaranteed(lib, old):
    """(logits, multiple of the natural gradient) of the largest L - C KL_max on a grid along it."""
    grid = np.geomspace(1e-6, 10, 400)
    x = natural(lib, old.F, old.g).reshape(old.theta.shape) * (1 - old.world.gamma)      # F of the visits, not the law
    C = helper(lib, "penalty")(abs(old.A).max(), old.world.gamma)
    thetas = old.theta + grid[:, None, None] * x
    bound = [surrogate_kept(lib, old, theta) - C * lib.categorical_kl(old.theta, theta).max() for theta in thetas]
    return thetas[np.argmax(bound)], grid[np.argmax(bound)]


def improve(lib, given, step, iterations=30):
    """J before each of the iterations and after the last one."""
    old = look(lib, given)
    J = [old.J]
    with np.errstate(under="ignore"):                        # a policy that is all but sure
        for _ in range(iterations):
            old = look(lib, given, step(old)[0])
            J.append(old.J)
    return np.array(J)


def bounds(lib, old, theta):
    """What the theorem compares, of the pair: |L - J| is at most tv, kl and average."""
    new = look(lib, old.given, theta)
    tv, A_bar = abs(old.policy - new.policy).sum(1) / 2, (new.policy * old.A).sum(1)
    gamma, A_max, kl = old.world.gamma, abs(old.A).max(), lib.categorical_kl(old.theta, new.theta).max()
    C = helper(lib, "penalty")(A_max, gamma)
    L = surrogate_kept(lib, old, new.theta)
    return {"J": new.J, "L": L, "gap": L - new.J, "tv_bound": C * tv.max() ** 2, "kl_bound": C * kl,
            "cpo_bound": 2 * gamma * abs(A_bar).max() / (1 - gamma) ** 2 * (old.law @ tv), "eps": A_max,
            "tv_max": tv.max(), "kl_max": kl}, new, tv, A_bar, C


def random_ratios(lib, given, seed, pairs):
    """|L - J| over the three bounds, the largest of random pairs of logits."""
    found = []
    for one, other in np.random.default_rng(seed).normal(size=(pairs, 2, *np.shape(given.theta))):
        old = look(lib, given, one)
        old.given = given
        pair = bounds(lib, old, other)[0]
        found.append([abs(pair["gap"]) / pair[name] for name in ("tv_bound", "kl_bound", "cpo_bound")])
    return np.max(found, 0)


def example(lib, given):
    old = look(lib, given)
    old.given = given
    return old, *bounds(lib, old, given.theta_new)


@row("T12.1", wrong=[mutants.undiscounted_objective, mutants.law_of_the_first_step, mutants.reward_forgotten_in_Q,
                     mutants.mean_of_all_states])
def performance_difference(lib, given):
    old, new = look(lib, given), look(lib, given, given.theta_new)
    A_bar = (new.policy * old.A).sum(1)
    return {"J_old": old.J, "J_new": new.J, "diff": new.J - old.J, "lemma": new.visits @ A_bar,
            "surrogate_old_states": old.visits @ A_bar}


@row("T12.2", wrong=[mutants.law_of_the_first_step, mutants.gradient_without_discount, mutants.score_not_centred,
                     old_actions, gain_of_the_mean])
def surrogate_to_first_order(lib, given):
    old = look(lib, given)
    slope = oracle.differences(lambda theta: surrogate_kept(lib, old, theta), old.theta)
    g = old.g.reshape(slope.shape)
    return {"J": old.J, "L": surrogate_kept(lib, old, old.theta), "grad_J": g, "grad_L": slope,
            "gap": largest(g - slope)}


@row("T12.3", wrong=[mutants.kl_swapped, one_horizon_in_the_penalty, half_of_the_penalty, gain_of_the_mean,
                     mutants.law_of_the_first_step])
def bound_holds(lib, given):
    pair, *_, C = example(lib, given)[1:]
    ratios = random_ratios(lib, given, 0, 200)
    return {"example": pair, "C": C} | {f"max_gap_over_{name}_bound": AtMost(ratio, 1)
                                        for name, ratio in zip(("tv", "kl", "cpo"), ratios)}


@row("T12.4", wrong=[one_horizon_in_the_penalty, half_of_the_penalty])
def penalty_coefficient(lib, given):
    return {str(gamma): helper(lib, "penalty")(given.eps, gamma) for gamma in given.gamma}


@row("T12.5", wrong=[half_of_the_penalty, mutants.kl_swapped, mutants.without_conjugation, gain_of_the_mean])
def minorise_maximise(lib, given):
    J = improve(lib, given, lambda old: guaranteed(lib, old))
    return {"J_first": J[0], "J_last": J[-1], "all_increasing": bool((np.diff(J) > 0).all()),
            "first_step": guaranteed(lib, look(lib, given))[1]}


@row("T12.6", wrong=[mutants.kl_swapped, mutants.without_conjugation, mutants.score_not_centred, gain_of_the_mean,
                     mutants.law_of_the_first_step, old_actions])
def line_search_on_three_states(lib, given):
    old, result = look(lib, given), {}
    for delta in (0.01, 0.1, 0.5):
        theta, j, kl, gain, full = trust_region(lib, old, delta)
        result[str(delta)] = {"j": j, "kl": kl, "kl_full_step": full, "surrogate_gain": gain,
                              "true_gain": look(lib, given, theta).J - old.J}
    return result


def rare_arm(lib, p, delta, shrink=0.8, good=True, kl=None):
    """(full step, probabilities [10] and KLs [10] of the steps that are tried, j) for an arm of probability p."""
    kl = kl or lib.categorical_kl
    policy, score = lib.sigmoid_policy(logit(p)), lib.sigmoid_score(logit(p))[0, :, 0]
    full = np.sqrt(2 * delta / (policy[0] @ score ** 2)) * (1 if good else -1)
    logits = [np.array([0, x]) for x in (logit(p) + shrink ** np.arange(10) * full)]
    tried = np.array([lib.sigmoid_policy(x[1])[0, 1] for x in logits])
    spent = np.array([kl(np.array([0, logit(p)]), x) for x in logits])
    stops = [helper(lib, "accepted")(spent[j], (tried[j] - p) * (1 if good else -1), delta) for j in range(10)]
    return full, tried, spent, int(np.argmax(stops))


@row("T12.7", wrong=[mutants.kl_swapped, mutants.arms_swapped, mutants.score_by_probability, always_accepted,
                     gain_not_looked_at])
def line_search_backtracks(lib, given):
    result = {}
    for delta in given.delta:
        full, tried, spent, j = rare_arm(lib, given.p, delta, given.alpha)
        result[str(delta)] = {"full_step": full, "p_full": tried[0], "kl_full": spent[0], "j": j,
                              "p_accepted": tried[j], "kl_accepted": spent[j]}
    return result


@row("T12.8", wrong=[half_of_the_penalty, gain_not_looked_at, gain_of_the_mean, mutants.kl_swapped])
def trust_region_against_penalty(lib, given):
    fast = improve(lib, given, lambda old: trust_region(lib, old, given.delta), given.iters)
    best = max(lib.objective(look(lib, given).world, np.eye(2)[list(choice)]) for choice in product(range(2), repeat=3))
    return {"J_penalty": improve(lib, given, lambda old: guaranteed(lib, old), given.iters)[-1],
            "J_trust_after_5": fast[5], "J_trust_after_10": fast[10], "J_trust": fast[-1], "J_star": best,
            "trust_monotone": bool((np.diff(fast) > -1e-12).all())}


@row("T12.9", wrong=[mutants.law_of_the_first_step, mutants.reward_forgotten_in_Q, mutants.best_action_values,
                     mutants.softmax_over_states])
def lines_of_the_proof(lib, given):
    old, _, new, tv, A_bar, _ = example(lib, given)
    alpha, A_max, gamma = tv.max(), abs(old.A).max(), given.gamma
    laws = [np.linalg.matrix_power(np.einsum("sa,sax->sx", which.policy, old.world.transition).T, given.t - 1)
            @ old.world.initial for which in (old, new)]
    return {"A_bar": abs(A_bar).max(), "two_alpha_A_max": 2 * alpha * A_max,
            "error_of_step": abs((laws[1] - laws[0]) @ A_bar),
            "bound_of_step": 4 * alpha * A_max * (1 - (1 - alpha) ** (given.t - 1)),
            "sum_before_rounding": 4 * alpha ** 2 * gamma * A_max / ((1 - gamma) * (1 - gamma * (1 - alpha))),
            "visits_moved": abs(new.visits - old.visits).sum(),
            "visits_bound": 2 * gamma / (1 - gamma) ** 2 * (old.law @ tv)}


@row("T12.10", wrong=[half_of_the_penalty, one_horizon_in_the_penalty, mutants.without_conjugation,
                      mutants.score_not_centred])
def radius_of_the_penalty(lib, given):
    old = look(lib, given)
    C = helper(lib, "penalty")(abs(old.A).max(), given.gamma)
    radius = old.g @ natural(lib, old.F, old.g) / (2 * C ** 2)
    return {"radius": radius, "ratio": given.delta / radius}


@row("T12.11", wrong=[mutants.kl_swapped, mutants.arms_swapped, always_accepted, gain_not_looked_at,
                      mutants.score_by_probability])
def directions_in_the_line_search(lib, given):
    one, other = (rare_arm(lib, given.p, given.delta, given.alpha, kl=kl)
                  for kl in (None, lambda old, new: lib.categorical_kl(new, old)))
    worst = rare_arm(lib, *given.cases[-1], given.alpha)
    down = rare_arm(lib, given.p, given.delta, given.alpha, good=False)
    return {"steps_back": [rare_arm(lib, p, delta, given.alpha)[3] for p, delta in given.cases],
            "full_over_radius": worst[2][0] / given.cases[-1][1], "full_two_ways": [one[2][0], other[2][0]],
            "j_two_ways": [one[3], other[3]], "p_two_ways": [one[1][one[3]], other[1][other[3]]],
            "down": [down[1][0], down[2][0]]}


@row("T12.12", wrong=[mutants.same_score_for_both_arms, mutants.law_of_the_first_step, mutants.kl_as_a_mean,
                      gain_not_looked_at, mutants.arms_swapped])
def exact_steps_can_lower_J(lib, given):
    world, theta, J, gains = lib.FiniteMDP(given.mu, given.P, given.r, gamma=given.gamma), given.logit, [], []
    for _ in range(given.updates):
        policy, score = lib.sigmoid_policy(theta, 2), lib.sigmoid_score(theta, 2)
        visits, A = lib.visitation(world, policy), lib.values(world, policy).A
        J.append(lib.objective(world, policy))
        g, F = lib.policy_gradient(world, policy, score)[0], policy[0] @ score[0, :, 0] ** 2
        step, old, gain = np.sign(g) * np.sqrt(2 * given.delta / F), theta, 0.0
        for j in range(10):
            new = old + given.alpha ** j * step
            kl = lib.categorical_kl(np.array([0, old]), np.array([0, new]))
            better = visits @ (lib.sigmoid_policy(new, 2) * A).sum(1)
            if helper(lib, "accepted")(kl, better, given.delta):
                theta, gain = new, better
                break
        gains.append(gain)
    return {"J": J[2:4], "falls": int((np.diff(J) < 0).sum()), "L_always_up": min(gains) > 0}


@row("T12.13", wrong=[mutants.kl_swapped, half_of_the_penalty])
def bounds_on_random_pairs(lib, given):
    return {"error_over_bound": random_ratios(lib, given, given.seed, given.pairs)}


@row("T12.14", wrong=[mutants.without_conjugation, mutants.one_product_short, mutants.score_not_centred])
def damping_shortens_the_step(lib, given):
    old, found = look(lib, given), []
    for xi in given.xi:
        H = old.F + xi * np.eye(len(old.F))
        step = scaled(natural(lib, H, old.g), H, given.delta)
        found.append(step @ old.F @ step / 2)
    return {"quadratic_kl": found}
