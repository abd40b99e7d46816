"""Chapter 2: REINFORCE."""
from dataclasses import replace
from math import comb

import mutants
import numpy as np
import oracle
import torch

from . import row
from .common import finite_world, largest, logit, loss_gradient, per_trajectory


def world_of(given):
    """The arrays of the row's world, for the oracle."""
    return given.mu, given.P, given.r, given.T, given.gamma


def returns_and_scores(lib, given):
    """Probabilities [N], returns [N] and scores of whole trajectories [N, S, A]."""
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    return every.probabilities, every.returns(world.gamma), every.scores(lib.softmax_score(given.theta)).sum(0)


@row("T2.1", wrong=[mutants.sum_over_time_dropped, mutants.product_of_means, mutants.sign_forgotten,
                    mutants.gradient_of_the_product, mutants.step_mean_for_trajectory_mean,
                    mutants.reward_of_the_next_step, mutants.immediate_reward_only, mutants.actions_not_weighted,
                    mutants.law_of_the_first_step, mutants.score_not_centred, mutants.best_action_values,
                    mutants.gradient_of_p_instead_of_log_p])
def score_gradient_equals_truth(lib, given):
    world, policy = finite_world(lib, given)
    every, score = lib.trajectories(world, policy), lib.softmax_score(given.theta)
    returns = every.returns(world.gamma)
    by_score = lib.moments(every.probabilities, returns[:, None, None] * every.scores(score).sum(0))[0]
    by_loss = loss_gradient(lib, every, given.theta, np.tile(returns, (given.T, 1)))
    # The policy gradient theorem, written out and from utils.
    visits, Q = lib.visitation(world, policy), lib.values(world, policy).Q
    by_steps = np.einsum("ts,sa,tsa,sa...->...", visits, policy, Q, score)
    by_theorem = lib.policy_gradient(world, policy, score)
    by_autograd = oracle.objective_gradient(given.theta, *world_of(given))[1]
    return {"grad": by_score, "autograd": by_autograd, "J": lib.objective(world, policy),
            "max_abs_diff": largest(*(g - by_autograd for g in (by_score, by_loss, by_steps, by_theorem)))}


@row("T2.2", wrong=[mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p, mutants.equal_weights,
                    mutants.one_step_short, mutants.variance_of_the_sum])
def expected_score_zero(lib, given):
    probabilities, _, scores = returns_and_scores(lib, given)
    mean, trace = lib.moments(probabilities, scores)
    return {"mean_score": mean, "fisher_trace": trace}


def two_arms(lib, p, r1, r0):
    """Of a bandit with one logit: the policy gradient, the mean over samples of d(p R), 1/2 d(sum of p^2 R)."""
    theta = torch.tensor(logit(p), dtype=torch.float64, requires_grad=True)
    log_probs = torch.nn.functional.logsigmoid(torch.stack([-theta, theta]))
    probabilities = lib.sigmoid_policy(theta.item())[0]
    rewards = lib.bandit([r0, r1]).reward[0]
    # One trajectory for each arm; N p(arm) makes the loss's mean over N = 2 the expectation over the arms.
    loss = lib.policy_gradient_loss(log_probs[None], torch.tensor(2 * probabilities * rewards)[None])
    true = -torch.autograd.grad(loss, theta, retain_graph=True)[0].item()
    # The mean over samples a of d(p(a) r(a)) / d theta.
    gradients = [torch.autograd.grad(log_probs[a].exp() * rewards[a], theta, retain_graph=True)[0] for a in (0, 1)]
    naive = float(probabilities @ np.array(gradients))
    half = torch.autograd.grad((log_probs.exp() ** 2 * torch.tensor(rewards)).sum() / 2, theta)[0].item()
    return true, naive, half


@row("T2.3", wrong=[mutants.gradient_of_the_product, mutants.sign_forgotten, mutants.arms_swapped])
def naive_product_gradient(lib, given):
    true, naive, half = two_arms(lib, given.p, given.r1, given.r0)
    return {"true_grad": true, "naive_grad": naive, "half_grad_of_square": half, "opposite_signs": true * naive < 0}


@row("T2.4", wrong=[mutants.score_not_centred, mutants.logits_normalised_without_exp, mutants.actions_not_weighted,
                    mutants.gradient_of_p_instead_of_log_p, mutants.values_instead_of_Q])
def softmax_bandit_gradient(lib, given):
    world, theta = lib.bandit(given.r), np.array([given.theta])
    policy = lib.softmax_policy(theta)
    gradient = lib.policy_gradient(world, policy, lib.softmax_score(theta))[0]
    return {"pi": policy[0], "J": lib.objective(world, policy), "grad": gradient, "grad_sum": gradient.sum()}


@row("T2.5", wrong=[mutants.second_moment, mutants.variance_of_the_sum, mutants.equal_weights,
                    mutants.reward_of_the_next_step, mutants.score_not_centred])
def single_sample_variance(lib, given):
    probabilities, returns, scores = returns_and_scores(lib, given)
    estimates = returns[:, None, None] * scores
    variance = lib.moments(probabilities, estimates)[1]
    pairs = (estimates[:, None] + estimates).reshape(-1, *estimates.shape[1:]) / 2
    of_two = lib.moments(np.outer(probabilities, probabilities).ravel(), pairs)[1]
    return {"trace_var_N1": variance, "trace_var_N2": of_two, "trace_var_N100": variance / 100}


@row("T2.6", wrong=[mutants.score_not_centred, mutants.second_moment, mutants.initial_law_scaled])
def return_shift(lib, given):
    probabilities, returns, scores = returns_and_scores(lib, given)
    true = oracle.objective_gradient(given.theta, *world_of(given))[1]
    shifted = {float(c): lib.moments(probabilities, (returns + c)[:, None, None] * scores) for c in given.c}
    return {c: {"maxdiff": largest(mean - true), "trace_var": variance} for c, (mean, variance) in shifted.items()}


@row("T2.7", wrong=[mutants.score_by_probability, mutants.values_instead_of_Q, mutants.arms_swapped])
def vanishing_gradient(lib, given):
    world = lib.bandit([0.0, 1.0])
    gradient = [lib.policy_gradient(world, lib.sigmoid_policy(logit(p)), lib.sigmoid_score(logit(p)))[0]
                for p in given.p]
    return {"grad": gradient, "ratio": gradient[0] / gradient[1]}


def decision_gradients(lib, given, long_return=2.0):
    """The world of one decision, its policy and score, and expected(N, reduction): the decision's mean gradient [2]."""
    world, zeros = lib.short_or_long()
    world = replace(world, reward=np.where(world.reward == 2.0, long_return, world.reward))
    logits = zeros + given.logits
    policy, score = lib.softmax_policy(logits), lib.softmax_score(logits)
    every = lib.trajectories(world, policy)
    # One trajectory of each kind is enough: the later actions of a long one move only the gradient of later logits.
    short, long = (np.flatnonzero(every.actions[0] == a)[0] for a in (0, 1))

    def gradient(batch, reduction):
        theta = torch.tensor(logits, requires_grad=True)
        log_probs = torch.log_softmax(theta, -1)[every.states[:-1, batch], every.actions[:, batch]]
        returns = torch.tensor(every.returns()[batch]).expand(log_probs.shape)
        loss = lib.policy_gradient_loss(log_probs, returns, mask=every.mask[:, batch], reduction=reduction)
        return -torch.autograd.grad(loss, theta)[0][0].numpy()

    def expected(N, reduction):
        return sum(comb(N, k) * policy[0, 1] ** k * policy[0, 0] ** (N - k)
                   * gradient([short] * (N - k) + [long] * k, reduction) for k in range(N + 1))

    return world, policy, score, expected


@row("T2.8", wrong=[mutants.trajectory_mean_for_step_mean, mutants.step_mean_for_trajectory_mean,
                    mutants.padding_counted, mutants.mean_of_each_trajectorys_mean, mutants.mask_ignored_by_the_loss,
                    mutants.sum_over_time_dropped, mutants.sign_forgotten, mutants.plays_on_after_the_end])
def step_mean_random_factor(lib, given):
    world, policy, score, expected = decision_gradients(lib, given)
    every = lib.trajectories(world, policy)
    mean_length = every.probabilities @ every.lengths
    limit = every.probabilities @ (every.returns()[:, None] * every.scores(score).sum(0)[:, 0]) / mean_length
    return {"true_gradient": lib.policy_gradient(world, policy, score)[0], "mean_length": mean_length,
            "trajectory_mean": {N: expected(N, "trajectory_mean") for N in given.N},
            "step_mean": {N: expected(N, "step_mean") for N in given.N} | {"infinity": limit}}


@row("T2.9", wrong=[mutants.score_not_centred, mutants.initial_law_scaled, mutants.reward_of_the_next_step,
                    mutants.sign_forgotten, mutants.product_of_means, mutants.gradient_of_the_product])
def log_likelihood_view(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    scores = every.scores(lib.softmax_score(given.theta)).sum(0)
    success = every.returns() >= given.success
    p = every.probabilities @ success
    given_success = np.tensordot(every.probabilities * success / p, scores, 1)
    ones = np.ones(every.rewards.shape)
    return {"mean_score": loss_gradient(lib, every, given.theta, ones), "p_success": p,
            "mean_score_given_success": given_success,
            "grad_p_success": loss_gradient(lib, every, given.theta, ones * success), "product": p * given_success}


@row("T2.10", wrong=[mutants.second_moment, mutants.score_by_probability, mutants.arms_swapped,
                     mutants.same_score_for_both_arms])
def spread_of_the_batch_gradient(lib, given):
    theta, rewards = logit(given.p), lib.bandit([given.r0, given.r1]).reward[0]
    law, score = lib.sigmoid_policy(theta)[0], lib.sigmoid_score(theta)[0]
    found = [lib.moments(law, (rewards + c)[:, None] * score) for _, c in given.cases]
    return {"mean": [mean[0] for mean, _ in found],
            "standard_deviation": [(variance / N) ** 0.5 for (N, _), (_, variance) in zip(given.cases, found)]}


@row("T2.11", wrong=[mutants.gradient_of_the_product, mutants.sign_forgotten, mutants.arms_swapped])
def naive_product_sign_change(lib, given):
    turn = [r0 / (r0 + r1) for r1, r0 in given.cases]

    def gradients(shift):
        return [two_arms(lib, p + shift, r1, r0)[:2] for p, (r1, r0) in zip(turn, given.cases)]

    true, naive = zip(*gradients(0))
    return {"p": turn, "naive_grad": naive, "true_grad": true,
            "naive_below_is_negative": [n < 0 for _, n in gradients(-given.step)],
            "naive_above_is_positive": [n > 0 for _, n in gradients(given.step)]}


@row("T2.12", wrong=[mutants.score_not_centred, mutants.reward_of_the_next_step, mutants.sign_forgotten])
def finished_episodes_only(lib, given):
    world, zeros = lib.short_or_long()
    logits = zeros + given.logits
    every = lib.trajectories(world, lib.softmax_policy(logits))
    finished = every.lengths <= given.longest
    p = every.probabilities[finished] / every.probabilities[finished].sum()
    scores = every.scores(lib.softmax_score(logits)).sum(0)[finished, 0]
    weights = every.returns() * np.ones(every.rewards.shape)
    return {"all_episodes": loss_gradient(lib, every, logits, weights)[0],
            "finished_only": lib.moments(p, every.returns()[finished, None] * scores)[0]}


@row("T2.13", wrong=[mutants.score_not_centred, mutants.reward_of_the_next_step, mutants.product_of_means,
                     mutants.sum_over_time_dropped, mutants.immediate_reward_only])
def immediate_reward_weights(lib, given):
    world, policy = finite_world(lib, given)
    every, score = lib.trajectories(world, policy), lib.softmax_score(given.theta)
    mean = lib.moments(every.probabilities, per_trajectory(every.rewards, every.scores(score)))[0]
    by_loss = loss_gradient(lib, every, given.theta, every.rewards)
    true = lib.policy_gradient(world, policy, score)
    return {"mean": by_loss, "over_gradient": (mean / true)[:, 0]}


@row("T2.14", wrong=[mutants.sign_forgotten, mutants.gradient_of_the_product])
def support_depends_on_the_parameter(lib, given):
    shares = (np.arange(given.points) + 0.5) / given.points
    u = torch.tensor(given.u, dtype=torch.float64, requires_grad=True)
    log_density = (-torch.log(u)).expand(1, given.points)
    loss = lib.policy_gradient_loss(log_density, torch.tensor(shares * given.u)[None])
    equal = np.full(given.points, 1 / given.points)
    above, below = (lib.moments(equal, shares * (given.u + h))[0] for h in (given.step, -given.step))
    return {"true_slope": (above - below) / (2 * given.step), "score_estimate": -torch.autograd.grad(loss, u)[0].item()}


@row("T2.15", wrong=[mutants.gradient_of_the_product, mutants.sign_forgotten, mutants.arms_swapped])
def naive_product_with_negative_rewards(lib, given):
    true, naive, _ = zip(*(two_arms(lib, p, given.r1, given.r0) for p in given.p))
    return {"naive_grad": naive, "true_grad": true}


@row("T2.16", wrong=[mutants.arms_swapped, mutants.same_score_for_both_arms])
def wrong_sign_of_a_batch_gradient(lib, given):
    theta, rewards = logit(given.p), lib.bandit([given.r0, given.r1]).reward[0]
    law, score = lib.sigmoid_policy(theta)[0], lib.sigmoid_score(theta)[0]
    pull = rewards * score[:, 0]                             # the gradient that one pull of each arm gives
    return {"wrong_sign": [sum(comb(N, k) * law[1] ** k * law[0] ** (N - k) for k in range(N + 1)
                               if k * pull[1] + (N - k) * pull[0] < 0) for N in given.N]}


@row("T2.17", wrong=[mutants.trajectory_mean_for_step_mean, mutants.mean_of_each_trajectorys_mean,
                     mutants.sign_forgotten, mutants.padding_counted])
def when_the_step_mean_turns_right(lib, given):
    right = [decision_gradients(lib, given, r)[-1](N, "step_mean")[1] > 0 for N, r in given.cases]
    world, policy, score, expected = decision_gradients(lib, given, given.large)
    every = lib.trajectories(world, policy)
    true = lib.policy_gradient(world, policy, score)[0, 1]
    return {"sign_is_right": right,
            "share_at_N_1": every.probabilities @ every.lengths * expected(1, "step_mean")[1] / true}
