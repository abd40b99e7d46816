"""Chapter 10: GAE in practice."""
from itertools import product
from math import comb

import mutants
import numpy as np

from . import row
from .common import logit


def padded(given, name):
    """An array [1, L] of the inputs with time first, [L, 1]."""
    return np.array(getattr(given, name)).T


def listing(lib, rewards, values, *, gamma, lam):
    """The early verl listing: the recursion over all tokens, padding included; nothing follows the last column."""
    none, last = np.zeros(rewards.shape), np.zeros(rewards.shape)
    last[-1] = 1
    following = np.vstack([values[1:], 0 * values[:1]])
    return lib.gae(rewards, values, following, gamma=gamma, lam=lam, terminated=last, truncated=none)


def masked(lib, rewards, values, mask, *, gamma, lam):
    """GAE of the real tokens only, the response ended at its last real token."""
    end = mask * (1 - np.vstack([mask[1:], 0 * mask[:1]]))
    following = np.vstack([values[1:], 0 * values[:1]])                  # behind the end stands what the padding holds
    return lib.gae(rewards, values, following, gamma=gamma, lam=lam, terminated=end, truncated=0 * end, mask=mask)


@row("T10.1", wrong=[mutants.truncation_as_termination, mutants.bootstrap_at_termination, mutants.decay_without_gamma])
def truncation_against_termination(lib, given):
    result = {}
    for steps in (1, 20, 100, 500):
        ones, zero, last = np.ones(steps), np.zeros(steps), np.eye(steps)[-1]

        def first(lam, **ends):
            return lib.gae(ones, given.V * ones, given.V * ones, gamma=given.gamma, lam=lam, **ends)[0]

        result[steps] = {"truncated_bootstrap": first(1, terminated=zero, truncated=last),
                         "treated_as_terminal_lam1": first(1, terminated=last, truncated=zero),
                         "treated_as_terminal_lam095": first(0.95, terminated=last, truncated=zero),
                         "predicted": -given.gamma ** steps * given.V}
    return result


@row("T10.2", wrong=[mutants.lam_as_decay, mutants.bootstrap_at_termination, mutants.weights_not_normalised])
def padding_values_leak(lib, given):
    rewards, values, mask = (padded(given, name) for name in ("token_rewards", "values", "mask"))
    setting = {"gamma": 1, "lam": 0.95}
    real = mask[:, 0] == 1
    return {"listing_unmasked": listing(lib, rewards, values, **setting)[real, 0],
            "listing_masked_values": listing(lib, rewards, values * mask, **setting)[real, 0],
            "correct": masked(lib, rewards, values, mask, **setting)[real, 0]}


@row("T10.3", wrong=[mutants.mask_ignored_by_gae, mutants.mask_zeroes_the_carry, mutants.lam_as_decay])
def masked_recursion(lib, given):
    """Also with an observation token in the middle, whose neighbours must not notice it."""
    rewards, values, mask = (padded(given, name) for name in ("token_rewards", "values", "mask"))
    setting = {"gamma": 1, "lam": 0.95}
    garbage = np.where(mask == 1, values, 1e9)
    with_hole = [np.insert(array, 1, hole, 0) for array, hole in ((rewards, -7), (values, 1e9), (mask, 0))]
    following = np.array([[0.5], [1e9], [0.6], [0], [1e9], [1e9]])
    end = np.eye(6)[3][:, None]
    middle = lib.gae(with_hole[0], with_hole[1], following, **setting, terminated=end, truncated=0 * end,
                     mask=with_hole[2])
    real = with_hole[2][:, 0] == 1
    return {"masked": middle[real, 0], "correct": masked(lib, rewards, garbage, mask, **setting)[mask[:, 0] == 1, 0]}


@row("T10.4", wrong=[mutants.whiten_ignores_the_mask, mutants.whiten_with_the_biased_variance,
                     mutants.mean_always_shifted])
def masked_whitening(lib, given):
    values, mask = np.array(given.adv), np.array(given.mask)
    whitened = lib.whiten(values, mask=mask)
    kept = lib.whiten(values, mask=mask, shift_mean=False)[mask == 1]
    real = values[mask == 1]
    return {"mean": kept.mean(), "var": real.var(ddof=1), "whitened": whitened,
            "check_mean": whitened[mask == 1].mean(), "check_var": whitened[mask == 1].var(ddof=1)}


@row("T10.5", wrong=[mutants.recursion_not_cut, mutants.lam_as_decay, mutants.bootstrap_at_termination])
def resets_are_not_crossed(lib, given):
    rewards, values = np.array(given.r), np.array(given.v)
    following, last, resets = np.append(values[1:], 0), np.eye(4)[3], np.array([0, 1, 0, 1])

    def advantages(terminated):
        return lib.gae(rewards, values, following, gamma=given.gamma, lam=given.lam, terminated=terminated,
                       truncated=0 * last)

    return {"leaky": advantages(last), "correct": advantages(resets)}


@row("T10.6", wrong=[mutants.unbiased_group_deviation, mutants.group_mean_only, mutants.mean_of_the_batch])
def whitening_rescales_the_gradient(lib, given):
    law, score = lib.sigmoid_policy(logit(given.p))[0], lib.sigmoid_score(logit(given.p))[0, :, 0]
    batches = np.array(list(product((0, 1), repeat=given.N)))
    probabilities = law[batches].prod(1)

    def expected(**more):
        weights = lib.group_advantages(batches.astype(float), **more)
        return lib.moments(probabilities, (weights * score[batches]).mean(1))[0]

    return {"true": lib.policy_gradient(lib.bandit([0.0, 1.0]), law[None], score[None, :, None])[0],
            "mean_subtracted": expected(scale=None), "whitened": expected(scale="std", ddof=0)}


@row("T10.7", wrong=[mutants.bootstrap_at_termination, mutants.lam_as_decay, mutants.decay_without_gamma])
def lambda_one_hides_the_leak(lib, given):
    rewards, values = padded(given, "token_rewards"), padded(given, "values")
    mask = np.array([[1, 1, 1, 0, 0]]).T
    result = {}
    for gamma, lam in product(given.gamma, given.lam):
        setting = {"gamma": gamma, "lam": lam}
        result[f"gamma={float(gamma)},lam={float(lam)}"] = {
            "unmasked": listing(lib, rewards, values, **setting)[:3, 0],
            "correct": masked(lib, rewards, values, mask, **setting)[:3, 0]}
    return result


def whitened(lib, p, N, ddof=0):
    """Mean over all batches of N pulls of the whitened gradient in the logit; rewards 1 and 0."""
    law, score = lib.sigmoid_policy(logit(p))[0], lib.sigmoid_score(logit(p))[0, :, 0]
    counts = np.arange(N + 1)                                # batches with the same number of ones are alike
    batches = (np.arange(N) < counts[:, None]).astype(int)
    weights = lib.group_advantages(batches.astype(float), scale="std", ddof=ddof)
    probabilities = [comb(N, k) * law[1] ** k * law[0] ** (N - k) for k in counts]
    return np.dot(probabilities, (weights * score[batches]).mean(1))


@row("T10.8", wrong=[mutants.unbiased_group_deviation, mutants.group_mean_only, mutants.score_by_probability])
def whitened_gradient_is_the_mean_deviation(lib, given):
    true = lib.policy_gradient(lib.bandit([0.0, 1.0]), lib.sigmoid_policy(logit(given.p)),
                               lib.sigmoid_score(logit(given.p)))[0]
    return {"whitened": [whitened(lib, given.p, N) for N in given.N], "true": true}


@row("T10.9", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.bootstrap_at_termination])
def leak_of_the_padding(lib, given):
    rewards, values = (np.array(array)[:, None] for array in (given.token_rewards, given.values))
    mask = (np.arange(len(rewards)) < given.end)[:, None].astype(float)
    last, leaks = given.end - 1, []
    for lam in given.lam:
        setting = {"gamma": given.gamma, "lam": lam}
        leaks.append((listing(lib, rewards, values, **setting) - masked(lib, rewards, values, mask, **setting))[last, 0])
    return {"leak": leaks}


@row("T10.10", wrong=[mutants.group_mean_only, mutants.score_not_centred, mutants.mean_of_the_batch])
def whitening_turns_the_gradient(lib, given):
    bandit, theta = lib.three_armed_bandit()
    policy, scores = lib.softmax_policy(theta), lib.softmax_score(theta)
    true = lib.policy_gradient(bandit, policy, scores).ravel()

    def cosine(N):
        arms = np.array(list(product(range(3), repeat=N)))
        weights = lib.group_advantages(bandit.reward[0][arms])
        estimates = (weights[..., None] * scores[0].reshape(3, -1)[arms]).mean(1)
        mean = lib.moments(policy[0][arms].prod(1), estimates)[0]
        return mean @ true / np.linalg.norm(mean) / np.linalg.norm(true)

    return {"cosine": [cosine(N) for N in given.N]}


@row("T10.11", wrong=[mutants.whiten_ignores_the_mask, mutants.whiten_with_the_biased_variance])
def whitening_with_the_padding(lib, given):
    advantages = np.array(given.adv)
    return {"all_entries": lib.whiten(advantages), "real_entries": lib.whiten(advantages, mask=np.array(given.mask))}


@row("T10.12", wrong=[mutants.lam_as_decay, mutants.weights_not_normalised, mutants.bootstrap_at_termination])
def padding_of_eight_tokens(lib, given):
    real = (np.arange(8) < given.end)[:, None]
    values = np.where(real, np.array(given.values)[:, None], given.padding)
    rewards, last = np.eye(8)[given.end - 1][:, None], given.end - 1
    settings = [{"gamma": 1.0, "lam": lam} for lam in given.lam]
    return {"right": [masked(lib, rewards, values, 1.0 * real, **setting)[last, 0] for setting in settings],
            "unmasked": [listing(lib, rewards, values, **setting)[last, 0] for setting in settings]}


@row("T10.13", wrong=[mutants.group_mean_only, mutants.unbiased_group_deviation])
def a_sure_policy_still_moves(lib, given):
    return {"ratio": whitened(lib, given.p, given.N) / (given.p * (1 - given.p))}


@row("T10.14", wrong=[mutants.mask_ignored_by_gae, mutants.mask_zeroes_the_carry, mutants.lam_as_decay])
def a_hole_must_be_skipped(lib, given):
    rewards, values, mask = (np.array(array)[:, None] for array in (given.token_rewards, given.values, given.mask))
    real, setting = mask[:, 0] == 1, {"gamma": 1.0, "lam": given.lam}
    following = np.zeros_like(values)                        # of each real token, the value of the next real one
    following[np.flatnonzero(real)[:-1], 0] = values[real, 0][1:]
    end = np.eye(len(mask))[np.flatnonzero(real)[-1]][:, None]
    right = lib.gae(rewards, np.where(mask == 1, values, 1e9), following, **setting, terminated=end,
                    truncated=0 * end, mask=mask)
    return {"zeroed": listing(lib, rewards, values * mask, **setting)[real, 0], "right": right[real, 0]}


@row("T10.15", wrong=[mutants.whiten_with_the_biased_variance])
def targets_before_whitening(lib, given):
    advantages, values = np.array(given.adv), np.array(given.values)
    return {"right": advantages + values, "wrong": lib.whiten(advantages) + values}


@row("T10.16", wrong=[mutants.group_mean_only, mutants.score_by_probability])
def whitening_with_the_unbiased_deviation(lib, given):
    return {"whitened": [whitened(lib, given.p, N, ddof=1) for N in given.N]}


@row("T10.17", wrong=[mutants.bootstrap_at_termination, mutants.lam_as_decay, mutants.decay_without_gamma])
def small_value_loss_wrong_value(lib, given):
    ones, edge = np.ones(given.N), np.eye(given.N)[-1]

    def targets(x, lam):
        return x + lib.gae(ones, x * ones, x * ones, gamma=given.gamma, lam=lam, terminated=edge, truncated=0 * edge)

    result = {"value": [], "loss": []}
    for lam in given.lam:                                    # the targets are linear in the critic's one number
        base = targets(0.0, lam).mean()
        x = base / (1 + base - targets(1.0, lam).mean())
        result["value"].append(x)
        result["loss"].append(((targets(x, lam) - x) ** 2).mean() / 2)
    return result


@row("T10.18", wrong=[mutants.lam_as_decay, mutants.bootstrap_at_termination])
def one_value_past_the_end(lib, given):
    values, setting = np.array(given.values)[:, None], {"gamma": 1.0, "lam": given.lam}
    last, after, real = (np.array(flags)[:, None] for flags in ([0.0, 0, 1, 0], [0.0, 0, 0, 1], [1.0, 1, 1, 0]))
    return {"verl": listing(lib, given.score * last, values, **setting)[:3, 0],
            "trl": listing(lib, given.score * after, values, **setting)[:3, 0],
            "right": masked(lib, given.score * last, values, real, **setting)[:3, 0]}
