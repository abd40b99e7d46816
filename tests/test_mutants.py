"""Tests that can fail: each wrong variant of tests/mutants.py is caught by the check of the function it replaces.

The checks are those that test_mdp.py, test_estimators.py, test_losses.py and test_kl.py run on random cases; here they
run on a fixed dozen of cases, once with the right functions and once with each wrong one.
"""
from collections import Counter

import mutants
import numpy as np
import pytest
import test_estimators
import test_kl
import test_losses
import test_mdp
import truth
from cases import batch, rollout, world

from utils import estimators, kl, losses, mdp

WORLDS = [world(seed, 3, 2, 3) for seed in range(6)] + [world(seed, 2, 3, 2, ends=False) for seed in range(6)]
ENDLESS = [world(seed, 3, 2, None) for seed in range(6)]
SHAPES = list(enumerate([(), (3,), (2, 3)] * 2))
COMPLETE = [rollout(seed, 6, shape, masked=False) for seed, shape in SHAPES]
ROLLOUTS = COMPLETE + [rollout(seed, 6, shape) for seed, shape in SHAPES]
BATCHES = [batch(seed, 5, shape) for seed, shape in SHAPES]


def over(check, cases):
    """The check on all cases."""
    def run(lib):
        for case in cases:
            check(lib, case)
    return run


def both(check_finite, check_endless):
    def run(lib):
        over(check_finite, WORLDS)(lib)
        over(check_endless, ENDLESS)(lib)
    return run


CHECKS = {
    "softmax_policy": over(test_mdp.check_softmax, WORLDS),
    "softmax_score": over(test_mdp.check_softmax, WORLDS),
    "sigmoid_policy": over(test_mdp.check_sigmoid, [-1.0, 0.3]),
    "sigmoid_score": over(test_mdp.check_sigmoid, [-1.0, 0.3]),
    "trajectories": over(test_mdp.check_trajectories, WORLDS),
    "sample_trajectories": over(test_mdp.check_sampling, WORLDS[:2]),
    "moments": over(test_mdp.check_moments, range(3)),
    "values": both(test_mdp.check_values, test_mdp.check_endless),
    "objective": both(test_mdp.check_objective, test_mdp.check_endless),
    "visitation": both(test_mdp.check_visitation, test_mdp.check_endless),
    "policy_gradient": both(test_mdp.check_policy_gradient, test_mdp.check_endless),
    "pair_chain": over(test_mdp.check_pair_chain, WORLDS),
    "discounted_returns": over(test_estimators.check_returns, ROLLOUTS),
    "td_errors": over(test_estimators.check_td_errors, ROLLOUTS),
    "n_step_advantages": over(test_estimators.check_n_step, COMPLETE),
    "gae": over(test_estimators.check_gae, ROLLOUTS),
    "group_advantages": over(test_estimators.check_groups, range(4)),
    "whiten": over(test_estimators.check_whiten, ROLLOUTS),
    "policy_gradient_loss": over(test_losses.check_policy_gradient_loss, BATCHES),
    "value_loss": over(test_losses.check_value_loss, BATCHES),
    "ppo_clip_loss": over(test_losses.check_ppo_clip_loss, BATCHES),
    "ppo_penalty_loss": over(test_losses.check_ppo_penalty_loss, BATCHES),
    "k1": over(test_kl.check_estimators, range(4)),
    "k2": over(test_kl.check_estimators, range(4)),
    "k3": over(test_kl.check_estimators, range(4)),
    "categorical_kl": over(test_kl.check_categorical_kl, SHAPES),
    "flatten": over(test_kl.check_fisher, range(2)),
    "fisher_vector_product": over(test_kl.check_fisher, range(2)),
    "conjugate_gradient": over(test_kl.check_conjugate_gradient, range(4)),
}
TEST_BEDS = {"bandit", "three_armed_bandit", "two_state_mdp", "three_state_mdp", "two_token_language_model",
             "short_or_long"}


@pytest.mark.parametrize("name", CHECKS)
def test_right_function_passes_its_check(name):
    CHECKS[name](truth.library())


@pytest.mark.parametrize("mutant", mutants.MUTANTS.values(), ids=lambda mutant: f"{mutant.replaces}-{mutant.name}")
def test_wrong_variant_is_caught(mutant):
    with np.errstate(all="ignore"), pytest.raises(AssertionError):
        CHECKS[mutant.replaces](truth.library(mutant))


def test_every_function_has_a_check_and_wrong_variants():
    functions = {name for module in (mdp, estimators, losses, kl)
                 for name, thing in truth.public_functions(module).items()
                 if not isinstance(thing, type)} - TEST_BEDS
    assert functions == set(CHECKS)
    wrong = Counter(mutant.replaces for mutant in mutants.MUTANTS.values())
    assert set(wrong) == functions
    assert all(wrong[name] >= 4 for module in (estimators, losses) for name in truth.public_functions(module))
    assert all(wrong[name] >= 2 for name in truth.public_functions(kl))
