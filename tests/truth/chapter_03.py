"""Chapter 3: the loss that is not a loss."""
import mutants
import numpy as np
import torch

from . import row
from .common import finite_world, largest, logit, loss_gradient


def two_arms(lib, p, r):
    """(logit [] with gradient, log-probabilities [2], rewards [2]) of arms 0 and 1; arm 1 is paid r[0]."""
    theta = torch.tensor(logit(p), dtype=torch.float64, requires_grad=True)
    return theta, torch.nn.functional.logsigmoid(torch.stack([-theta, theta])), lib.bandit(r[::-1]).reward[0]


@row("T3.1", wrong=[mutants.gradient_of_the_product, mutants.sign_forgotten, mutants.advantages_not_detached,
                    mutants.arms_swapped, mutants.score_by_probability])
def surrogate_is_not_J(lib, given):
    theta, log_probs, rewards = two_arms(lib, given.p, given.r)
    probabilities = lib.sigmoid_policy(theta.item())
    bandit = lib.bandit(rewards)
    advantages = torch.tensor(rewards) - log_probs.exp() @ torch.tensor(rewards)

    def slope(value):
        return torch.autograd.grad(value, theta, retain_graph=True)[0].item()

    # One trajectory for each arm; 2 p(arm) makes the loss's mean over N = 2 the expectation over the arms.
    weights = 2 * torch.tensor(probabilities[0].copy()) * advantages
    law = log_probs.exp()
    value = lib.moments(probabilities[0], log_probs.detach().numpy() * advantages.detach().numpy())[0]
    return {"J": lib.objective(bandit, probabilities), "surrogate_value": value,
            "grad_J": lib.policy_gradient(bandit, probabilities, lib.sigmoid_score(theta.item()))[0],
            "grad_frozen": -slope(lib.policy_gradient_loss(log_probs[None], weights[None])),
            "grad_through_sampling_A_frozen": slope((law * log_probs * advantages.detach()).sum()),
            "grad_through_everything": slope((law * log_probs * advantages).sum())}


@row("T3.2", wrong=[mutants.score_not_centred, mutants.logits_normalised_without_exp,
                    mutants.gradient_of_p_instead_of_log_p])
def fixed_batch_collapse(lib, given):
    theta, action = np.log([given.pi0]), given.sampled_action
    rewards = lib.bandit(given.r).reward[0]
    weight, history = rewards[action] - given.baseline, []
    for step in range(4001):
        policy = lib.softmax_policy(theta)[0]
        if step in (0, 10, 50, 200, 1000, 4000):
            history.append({"step": step, "loss": -weight * np.log(policy[action]), "J": policy @ rewards})
        theta = theta + given.lr * weight * lib.softmax_score(theta)[0, action]
    return {"history": history, "J_limit": history[-1]["J"]}


@row("T3.3", wrong=[mutants.same_score_for_both_arms, mutants.score_by_probability, mutants.arms_swapped])
def constant_in_the_return(lib, given):
    theta, _, rewards = two_arms(lib, given.p, given.r)
    law, score = lib.sigmoid_policy(theta.item())[0], lib.sigmoid_score(theta.item())[0, :, 0]
    samples = {c: (rewards + c) * score for c in (0, given.c)}
    means = [lib.moments(law, samples[c])[0] for c in samples]
    return {"sample_grads_c0": samples[0][::-1], "sample_grads_c5": samples[given.c][::-1],
            "mean_c0": means[0], "mean_c5": means[1]}


@row("T3.4", wrong=[mutants.score_not_centred, mutants.logits_normalised_without_exp,
                    mutants.gradient_of_p_instead_of_log_p, mutants.softmax_over_states])
def stored_and_fresh_batches(lib, given):
    """The rows of theta are separate bandits, one for each baseline, that learn side by side."""
    rewards = lib.bandit(given.r).reward[0]

    def descend(law_of, baselines):
        weights = rewards - np.array(baselines)[:, None]
        theta, rows = np.tile(np.log(given.pi0), (len(baselines), 1)), np.arange(len(baselines))
        for _ in range(given.steps):
            law = law_of(lib.softmax_policy(theta))
            own = lib.softmax_score(theta)[rows, :, rows, :]
            theta = theta + given.lr * np.einsum("ba,ba,bac->bc", law, weights, own)
        policy = lib.softmax_policy(theta)
        return -(law_of(policy) * weights * np.log(policy)).sum(-1), policy @ rewards

    pulled = np.eye(3)[given.sampled_action]
    stored = descend(lambda policy: pulled + 0 * policy, [given.stored_baseline])
    fresh = descend(lambda policy: policy, given.fresh_baselines)
    return {"stored": [stored[0][0], stored[1][0]], "fresh_loss": fresh[0], "fresh_J": fresh[1]}


@row("T3.5", wrong=[mutants.sign_forgotten, mutants.gradient_of_the_product, mutants.advantages_not_detached])
def three_gradients(lib, given):
    found = surrogate_is_not_J(lib, given)
    return {name: found[name] for name in ("grad_frozen", "grad_through_sampling_A_frozen", "grad_through_everything")}


@row("T3.6", wrong=[mutants.score_not_centred, mutants.equal_weights, mutants.gradient_of_p_instead_of_log_p,
                    mutants.gradient_of_the_product, mutants.product_of_means, mutants.immediate_reward_only])
def stale_gradient(lib, given):
    world, old = finite_world(lib, given)
    every, J = lib.trajectories(world, old), lib.objective(world, old)
    returns, theta = every.returns(), np.array(given.theta)
    step = lib.policy_gradient(world, old, lib.softmax_score(theta))

    def cosines(length):
        at = theta + length * step
        new, score = lib.softmax_policy(at), lib.softmax_score(at)
        true = lib.policy_gradient(world, new, score)
        rho = (new / old)[every.states[:-1], every.actions]
        estimates = [loss_gradient(lib, every, at, np.tile(returns - b, (given.T, 1))) for b in (0, J)]
        steps = np.einsum("tn,tnsa->nsa", rho * returns, every.scores(score))
        estimates.append(lib.moments(every.probabilities, steps)[0])
        return [(g * true).sum() / np.linalg.norm(g) / np.linalg.norm(true) for g in estimates]

    return {str(length): cosines(length) for length in given.lengths}


@row("T3.7", wrong=[mutants.equal_weights, mutants.logits_normalised_without_exp, mutants.one_step_short,
                    mutants.sum_over_time_dropped, mutants.product_of_means])
def loss_is_no_score(lib, given):
    J, loss = [], []
    for factor in given.factors:
        given_there = finite_world(lib, type(given)(**{**vars(given), "theta": factor * np.array(given.theta)}))
        every = lib.trajectories(*given_there)
        log_probs = np.log(given_there[1])[every.states[:-1], every.actions]
        weights = every.returns() * every.probabilities * len(every.probabilities)
        loss.append(lib.policy_gradient_loss(log_probs, np.tile(weights, (len(every.rewards), 1)), mask=every.mask))
        J.append(lib.moments(every.probabilities, every.returns())[0])
    return {"J": J, "loss": loss}


@row("T3.8", wrong=[mutants.score_by_probability, mutants.arms_swapped, mutants.same_score_for_both_arms])
def log_form_and_ratio_form(lib, given):
    q, rewards = lib.sigmoid_policy(logit(given.q))[0], lib.bandit(given.r[::-1]).reward[0]

    def slopes(p, b):
        policy, score = lib.sigmoid_policy(logit(p))[0], lib.sigmoid_score(logit(p))[0, :, 0]
        return [lib.moments(q, (rewards - b) * factor * score)[0] for factor in (1, policy / q)]

    found = {str(b): [slopes(p, b) for p in given.p] for b in given.b}
    gaps = [slope[1] - p * (1 - p) for rows in found.values() for p, slope in zip(given.p, rows)]
    return {"log_form": {b: [slope[0] for slope in rows] for b, rows in found.items()},
            "ratio_form_minus_slope_of_J": largest(*gaps)}
