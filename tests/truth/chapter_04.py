"""Chapter 4: reward-to-go."""
import mutants
import numpy as np
import oracle

from . import row
from .common import finite_world, largest, loss_gradient, per_trajectory


def estimators(lib, world, policy, score):
    """Trajectories, the full-return estimates [N, ...] and the reward-to-go estimates [N, ...]."""
    every = lib.trajectories(world, policy)
    steps = every.scores(score)
    full = every.returns(world.gamma) * np.ones(every.rewards.shape)
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)
    return every, per_trajectory(full, steps), per_trajectory(togo, steps)


def variances(lib, world, policy, score):
    """Trace variances {"full", "rtg", "ratio"} of the two estimates."""
    every, full, togo = estimators(lib, world, policy, score)
    full, togo = (lib.moments(every.probabilities, e)[1] for e in (full, togo))
    return {"full": full, "rtg": togo, "ratio": togo / full}


@row("T4.1", wrong=[mutants.return_starts_one_step_late, mutants.sum_over_time_dropped, mutants.product_of_means,
                    mutants.score_not_centred, mutants.reward_of_the_next_step])
def reward_to_go_unbiased(lib, given):
    world, policy = finite_world(lib, given)
    every, _, togo = estimators(lib, world, policy, lib.softmax_score(given.theta))
    by_loss = loss_gradient(lib, every, given.theta, lib.discounted_returns(every.rewards, gamma=world.gamma))
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]
    mean = lib.moments(every.probabilities, togo)[0]
    return {"grad": mean, "max_abs_diff": largest(mean - true, by_loss - true)}


@row("T4.2", wrong=[mutants.score_not_centred, mutants.reward_of_the_next_step, mutants.equal_weights])
def past_rewards_vanish(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    steps = every.scores(lib.softmax_score(given.theta))
    return {"max_abs_by_t_tprime": [[largest(lib.moments(every.probabilities, steps[t] * paid[:, None, None])[0])
                                     for paid in every.rewards] for t in range(given.T)]}


@row("T4.3", wrong=[mutants.full_return_everywhere, mutants.return_starts_one_step_late, mutants.second_moment])
def reward_to_go_variance(lib, given):
    found = variances(lib, *finite_world(lib, given), lib.softmax_score(given.theta))
    return {"full": found["full"], "reward_to_go": found["rtg"], "ratio": found["ratio"]}


@row("T4.4", wrong=[mutants.full_return_everywhere, mutants.reward_of_the_next_step, mutants.one_step_short])
def reward_to_go_can_raise_variance(lib, given):
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1
    reward = [[0, given.c], [0, 0], [-given.c, -given.c]]
    world, theta = lib.FiniteMDP([1, 0, 0], transition, reward, horizon=2), np.zeros((3, 2))
    every, full, togo = estimators(lib, world, lib.softmax_policy(theta), lib.softmax_score(theta))
    (grad_full, var_full), (grad_togo, var_togo) = (lib.moments(every.probabilities, e) for e in (full, togo))
    return {"grad_full": grad_full, "grad_rtg": grad_togo, "var_full": var_full, "var_rtg": var_togo}


@row("T4.5", wrong=[mutants.full_return_everywhere, mutants.score_by_probability, mutants.second_moment])
def variance_of_independent_steps(lib, given):
    """Up to T = 10 all 2^T trajectories are listed; beyond, the steps' terms are added (they are uncorrelated)."""
    theta = np.log(given.p / (1 - given.p))
    bandit = lib.bandit(given.r[::-1])                        # action 1 is paid r[0]
    z, reward = lib.sigmoid_score(theta)[0, :, 0], bandit.reward[0]
    p = lib.sigmoid_policy(theta)[0]

    def listed(T):
        transition = np.eye(T, k=1) + np.eye(T)[-1] * np.eye(T)[:, -1:]
        world = lib.FiniteMDP(np.eye(T)[0], transition[:, None].repeat(2, 1), reward * np.ones((T, 1)), horizon=T)
        score = np.eye(T)[:, None] * lib.sigmoid_score(theta, T)
        return variances(lib, world, lib.sigmoid_policy(theta, T), score)

    def added(T):
        def of_step(others):
            """Variance of z_t (r_t + sum of the rewards of `others` independent steps)."""
            m, v = p @ reward, p @ (reward - p @ reward) ** 2
            square = p @ (z ** 2 * (reward ** 2 + 2 * reward * others * m + others * v + (others * m) ** 2))
            return square - lib.moments(p, z * reward)[0] ** 2
        full, togo = T * of_step(T - 1), sum(of_step(others) for others in range(T))
        return {"full": full, "rtg": togo, "ratio": togo / full}

    return {T: listed(T) if T <= 10 else added(T) for T in given.T}


@row("T4.6", wrong=[mutants.full_return_everywhere, mutants.reward_of_the_next_step, mutants.second_moment])
def reward_to_go_of_nonnegative_rewards(lib, given):
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1
    world = lib.FiniteMDP([1, 0, 0], transition, [given.r1_by_a1, *given.r2_by_a1_a2], horizon=2)
    theta = np.log(given.p / (1 - given.p))
    every, full, togo = estimators(lib, world, lib.sigmoid_policy(theta, 3), lib.sigmoid_score(theta, 3))
    (mean_full, var_full), (mean_togo, var_togo) = (lib.moments(every.probabilities, e) for e in (full, togo))
    return {"mean_full": mean_full[0], "mean_rtg": mean_togo[0], "var_full": var_full, "var_rtg": var_togo,
            "ratio": var_togo / var_full}


@row("T4.7", wrong=[mutants.full_return_everywhere, mutants.second_moment, mutants.score_not_centred,
                    mutants.reward_of_the_next_step])
def variance_ratio_by_horizon(lib, given):
    score = lib.softmax_score(given.theta)
    worlds = [lib.FiniteMDP(given.mu, given.P, given.r, horizon=T, gamma=given.gamma) for T in given.horizons]
    return {"ratio": [variances(lib, world, lib.softmax_policy(given.theta), score)["ratio"] for world in worlds]}


@row("T4.8", wrong=[mutants.full_return_everywhere, mutants.second_moment, mutants.score_by_probability,
                    mutants.same_score_for_both_arms])
def coupled_steps(lib, given):
    """Two steps; each case is [payment of the second step, p, c, shared]. States 1 and 2 remember a_1 for the reward."""
    def found(second, p, c, shared):
        pays = [[c * a1 + a2 if second == "sum" else c * a1 * (1 - a2) for a2 in (0, 1)] for a1 in (0, 1)]
        transition = np.zeros((3, 2, 3))
        transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1
        world = lib.FiniteMDP([1, 0, 0], transition, [[0, 1], *pays], horizon=2)
        theta = np.log(p / (1 - p))
        score = lib.sigmoid_score(theta, 3)
        if not shared:                                        # a logit for the first step, one for the second
            score = score * np.array([[1, 0], [0, 1], [0, 1]])[:, None]
        every, full, togo = estimators(lib, world, lib.sigmoid_policy(theta, 3), score)
        return [lib.moments(every.probabilities, e)[1] for e in (full, togo)]

    full, togo = zip(*(found(*case) for case in given.cases))
    return {"full": full, "rtg": togo}


@row("T4.9", wrong=[mutants.return_not_cut, mutants.full_return_everywhere, mutants.score_by_probability])
def sum_across_an_end(lib, given):
    choices = (np.arange(2 ** given.rows) >> np.arange(given.rows)[:, None]) & 1
    theta = np.log(given.p / (1 - given.p))
    law, score = lib.sigmoid_policy(theta)[0], lib.sigmoid_score(theta)[0]
    probabilities, ones = law[choices].prod(0), np.ones(choices.shape)
    weights = {"restarted": lib.discounted_returns(ones, gamma=1.0, terminated=choices == 0),
               "crossed": lib.discounted_returns(ones, gamma=1.0)}
    return {name: lib.moments(probabilities, per_trajectory(w, score[choices, 0]))[0] for name, w in weights.items()}


@row("T4.10", wrong=[mutants.score_not_centred, mutants.full_return_everywhere, mutants.equal_weights])
def one_step_too_late(lib, given):
    world, policy = finite_world(lib, given)
    every, _, togo = estimators(lib, world, policy, lib.softmax_score(given.theta))
    steps = every.scores(lib.softmax_score(given.theta))
    weights = lib.discounted_returns(every.rewards, gamma=world.gamma)
    late = np.vstack([weights[1:], 0 * weights[:1]])
    late, right = (lib.moments(every.probabilities, e)[0] for e in (per_trajectory(late, steps), togo))
    lengths = np.linalg.norm(late), np.linalg.norm(right)
    return {"share": lengths[0] / lengths[1], "cosine": (late * right).sum() / lengths[0] / lengths[1]}


@row("T4.11", wrong=[mutants.full_return_everywhere, mutants.same_score_for_both_arms, mutants.second_moment])
def independent_steps_one_logit(lib, given):
    world = lib.FiniteMDP([1.0], np.ones((1, 2, 1)), [given.r[::-1]], horizon=given.T)
    theta = np.log(given.p / (1 - given.p))
    return {"ratio": variances(lib, world, lib.sigmoid_policy(theta), lib.sigmoid_score(theta))["ratio"]}
