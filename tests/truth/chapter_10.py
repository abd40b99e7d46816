"""Chapter 10: GAE in practice."""
from itertools import product

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
