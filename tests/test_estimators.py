"""Returns and advantages against their definitions, in NumPy and torch, with ends, cuts and masks in every mixture."""
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch
from cases import BATCHES, COMPLETE, EXAMPLES, FEW, ROLLOUTS, SEEDS, close, rollout
from hypothesis import given
from hypothesis import strategies as st

from utils import estimators

LIB = SimpleNamespace(**vars(estimators))


# --- what the functions are, whatever the case (test_mutants.py runs these with wrong variants) --------------------

def check_td_errors(lib, r):
    def definition(t, reward, value, after, over):
        return reward[t] + (0 if over[t] else r.gamma * after[t]) - value[t]
    expected = oracle.columns(definition, *r.arrays(), r.terminated)
    for case in (r, r.to_torch()):
        close(lib.td_errors(*case.arrays(), gamma=r.gamma, terminated=case.terminated), expected)


def check_returns(lib, r):
    def definition(t, reward, over, cut, after):
        return oracle.return_to_go(t, reward, r.gamma, over, cut, after)
    expected = oracle.columns(definition, r.rewards, r.terminated, r.truncated, r.next_values)
    plain = oracle.columns(lambda t, reward: oracle.return_to_go(t, reward, r.gamma), r.rewards)
    over = oracle.columns(lambda t, reward, over: oracle.return_to_go(t, reward, r.gamma, over),
                          r.rewards, r.terminated)
    for case in (r, r.to_torch()):
        cut = lib.discounted_returns(case.rewards, gamma=r.gamma, **case.ends(), next_values=case.next_values)
        close(cut, expected)
        close(lib.discounted_returns(case.rewards, gamma=r.gamma), plain)
        close(lib.discounted_returns(case.rewards, gamma=r.gamma, terminated=case.terminated), over)


def check_n_step(lib, r):
    """Rewards, then the critic; and, whatever next_values holds, a sum of TD errors."""
    for n in (1, 2, 3, len(r.rewards) + 2):
        def definition(t, reward, value, after, over, cut):
            return oracle.n_step_advantage(t, n, reward, value, after, r.gamma, over, cut)

        def telescoped(t, reward, value, after, over, cut):
            return oracle.discounted_errors(t, n, r.gamma, reward, value, after, r.gamma, over, cut)

        for rule, known in ((definition, r), (telescoped, r.detached())):
            expected = oracle.columns(rule, *known.arrays(), r.terminated, r.truncated)
            for case in (known, known.to_torch()):
                close(lib.n_step_advantages(*case.arrays(), n=n, gamma=r.gamma, **case.ends()), expected)


def check_gae(lib, r):
    """The mixture of n-step advantages; and, whatever next_values holds, a sum of TD errors. The mask hides garbage."""
    def definition(t, reward, value, after, over, cut):
        return oracle.gae_mixture(t, r.lam, reward, value, after, r.gamma, over, cut)

    def telescoped(t, reward, value, after, over, cut):
        return oracle.discounted_errors(t, 99, r.gamma * r.lam, reward, value, after, r.gamma, over, cut)

    for rule, known in ((definition, r), (telescoped, r.detached())):
        expected = oracle.masked_columns(rule, r.mask, *known.arrays(), r.terminated, r.truncated)
        for case, dirty in ((known, known.spoiled()), (known.to_torch(), known.spoiled().to_torch())):
            more = {"gamma": r.gamma, "lam": r.lam, **case.ends()}
            close(lib.gae(*case.arrays(), **more, mask=case.mask), expected)
            close(lib.gae(*dirty.arrays(), **more, mask=case.mask), expected)
            if r.mask.all():
                close(lib.gae(*case.arrays(), **more), expected)


def check_groups(lib, seed, shape=(4, 3)):
    """Also groups of equal rewards whose mean is not exact (0.1 three times), which must give exactly 0."""
    rng = np.random.default_rng(seed)
    rewards = rng.choice([0.0, 1.0, 0.1, rng.normal()], shape)
    rewards[(0,) * (len(shape) - 1)] = 0.1
    for scale, ddof, eps in (("std", 0, 0.0), ("std", 1, 0.0), ("std", 0, 1e-4), (None, 0, 0.0)):
        groups = rewards.reshape(-1, shape[-1])
        expected = np.array([oracle.group_advantage(group, scale, ddof, eps) for group in groups])
        for given_rewards in (rewards, torch.tensor(rewards)):
            found = lib.group_advantages(given_rewards, scale=scale, ddof=ddof, eps=eps)
            close(found, expected.reshape(shape))
            assert (np.asarray(found)[(0,) * (len(shape) - 1)] == 0).all()


def check_whiten(lib, r):
    """Without a mask, with one, with NaN behind it."""
    everywhere = np.ones(r.mask.shape, bool)
    for mask in (everywhere, r.mask):
        if mask.sum() < 2:
            continue
        for shift_mean, ddof, eps in ((True, 1, 1e-8), (True, 0, 0.0), (False, 1, 1e-8), (True, 1, 0.5)):
            expected = np.zeros(mask.shape)
            expected[mask] = oracle.whitened(r.rewards[mask], shift_mean, ddof, eps)
            more = {"shift_mean": shift_mean, "ddof": ddof, "eps": eps}
            more = {} if (shift_mean, ddof, eps) == (True, 1, 1e-8) else more                  # these are the defaults
            for case in (r.spoiled(), r.spoiled().to_torch()):
                if mask is everywhere:
                    case = r if isinstance(case.rewards, np.ndarray) else r.to_torch()
                    close(lib.whiten(case.rewards, **more), expected, 1e-9)
                close(lib.whiten(case.rewards, mask=mask, **more), expected, 1e-9)


@EXAMPLES
@given(ROLLOUTS)
def test_td_errors(r):
    check_td_errors(LIB, r)


@EXAMPLES
@given(ROLLOUTS)
def test_discounted_returns(r):
    check_returns(LIB, r)


@EXAMPLES
@given(COMPLETE)
def test_n_step_advantages(r):
    check_n_step(LIB, r)


@EXAMPLES
@given(ROLLOUTS)
def test_gae(r):
    check_gae(LIB, r)


@EXAMPLES
@given(SEEDS, st.sampled_from([(2,), (5,), (3, 4), (2, 3, 3)]))
def test_group_advantages(seed, shape):
    check_groups(LIB, seed, shape)


@EXAMPLES
@given(ROLLOUTS)
def test_whiten(r):
    check_whiten(LIB, r)


# --- identities between them ---------------------------------------------------------------------------------------

@EXAMPLES
@given(COMPLETE)
def test_gae_at_the_ends_of_lambda(r):
    more = {"gamma": r.gamma, **r.ends()}
    close(estimators.gae(*r.arrays(), lam=0, **more),
          estimators.td_errors(*r.arrays(), gamma=r.gamma, terminated=r.terminated))
    close(estimators.gae(*r.arrays(), lam=1, **more), estimators.n_step_advantages(*r.arrays(), n=99, **more))
    cut_at_the_end = r.truncated.copy()
    cut_at_the_end[-1] = True
    more["truncated"] = cut_at_the_end
    returns = estimators.discounted_returns(r.rewards, next_values=r.next_values, **more)
    close(estimators.gae(*r.arrays(), lam=1, **more), returns - r.values)


@FEW
@given(ROLLOUTS)
def test_a_true_mask_changes_nothing(r):
    more = {"gamma": r.gamma, "lam": r.lam, **r.ends()}
    close(estimators.gae(*r.arrays(), **more, mask=np.ones(r.mask.shape)), estimators.gae(*r.arrays(), **more), 0)


@FEW
@given(SEEDS, st.integers(1, 5))
def test_episodes_one_after_another_do_not_touch(seed, steps):
    """Two episodes in one column give what each gives alone."""
    first, second = rollout(seed, steps, (2,)), rollout(seed + 1, steps, (2,))
    close_at = np.zeros((steps, 2), bool)
    close_at[-1] = True
    more = {"gamma": first.gamma, "lam": first.lam}
    alone = [estimators.gae(*r.arrays(), **more, terminated=close_at, truncated=0 * close_at) for r in (first, second)]
    joined = [np.concatenate(pair) for pair in zip(first.arrays(), second.arrays())]
    ends = np.concatenate([close_at, close_at])
    close(estimators.gae(*joined, **more, terminated=ends, truncated=0 * ends), np.concatenate(alone), 0)


def test_numbers_by_hand():
    flags = {"terminated": [0, 0, 1], "truncated": [0, 0, 0]}
    worked = estimators.gae([0, 0, 1], [0.4, 0.5, 0.6], [0.5, 0.6, 9.0], gamma=0.9, lam=0.8, **flags)
    close(worked, [0.28616, 0.328, 0.4], 1e-15)
    close(estimators.discounted_returns([1, 1, 1], gamma=0.5), [1.75, 1.5, 1], 0)
    cut = estimators.discounted_returns([1, 1], gamma=0.5, truncated=[0, 1], next_values=[np.nan, 8])
    close(cut, [3.5, 5], 0)
    close(estimators.group_advantages([1, 0, 0, 1]), [1, -1, -1, 1], 0)
    close(estimators.group_advantages([0.1, 0.1, 0.1]), [0, 0, 0], 0)
    close(estimators.whiten([1, 2, 3], ddof=0, eps=0), np.array([-1, 0, 1]) * 1.5 ** 0.5, 1e-15)
    # An observation in the middle of a response: the token before it sees the one behind it.
    skipped = estimators.gae([0, -7, 1], [0.4, 1e9, 0.6], [0.6, 1e9, 1e9], gamma=1, lam=0.95, terminated=[0, 0, 1],
                             truncated=[0, 0, 0], mask=[1, 0, 1])
    close(skipped, [0.2 + 0.95 * 0.4, 0, 0.4], 1e-15)


# --- kinds of arrays -----------------------------------------------------------------------------------------------

def calls(r, mask=None):
    """name -> call, each of the functions on one rollout."""
    ends = r.ends()
    return {
        "discounted_returns":
            lambda: estimators.discounted_returns(r.rewards, gamma=0.9, **ends, next_values=r.next_values),
        "td_errors": lambda: estimators.td_errors(*r.arrays(), gamma=0.9, terminated=r.terminated),
        "n_step_advantages": lambda: estimators.n_step_advantages(*r.arrays(), n=2, gamma=0.9, **ends),
        "gae": lambda: estimators.gae(*r.arrays(), gamma=0.9, lam=0.8, **ends, mask=mask),
        "group_advantages": lambda: estimators.group_advantages(r.rewards),
        "whiten": lambda: estimators.whiten(r.rewards, mask=mask)}


NAMES = list(calls(rollout(0)))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_kind_and_precision_are_kept(name, batch):
    r = rollout(5, 6, batch)
    exact = calls(r)[name]()
    assert isinstance(exact, np.ndarray) and exact.dtype == np.float64 and exact.shape == r.rewards.shape
    single = type(r)(*(x.astype(np.float32) for x in r.arrays()), r.terminated, r.truncated, r.mask, r.gamma, r.lam)
    found = calls(single)[name]()
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    close(found, exact, 1e-5)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = calls(r.to_torch(dtype))[name]()
        assert isinstance(found, torch.Tensor) and found.dtype == dtype
        close(found, exact, tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_stay_as_they_are(name):
    for r in (rollout(6, 5, (2,)), rollout(6, 5, (2,)).to_torch()):
        given_arrays = [*r.arrays(), r.terminated, r.truncated, r.mask]
        before = [x.copy() if isinstance(x, np.ndarray) else x.clone() for x in given_arrays]
        found = calls(r, r.mask)[name]()
        found[:] = 99                                                    # nor does the result share their memory
        for x, y in zip(given_arrays, before):
            assert bool((x == y).all())


@pytest.mark.parametrize("name", NAMES)
def test_lists_whole_numbers_and_views(name):
    r = rollout(7, 6, (2,))
    whole = type(r)(*((10 * x).astype(int) for x in r.arrays()), r.terminated, r.truncated, r.mask, r.gamma, r.lam)
    exact = calls(type(r)(*(x.astype(float) for x in whole.arrays()), r.terminated, r.truncated, r.mask, 1, 1))[name]()
    as_lists = type(r)(*(x.tolist() for x in (*whole.arrays(), r.terminated, r.truncated, r.mask)), r.gamma, r.lam)
    as_tensors = type(r)(*(torch.tensor(x) for x in whole.arrays()), r.terminated.tolist(), r.truncated, r.mask, 1, 1)
    flipped = type(r)(*(x[::-1].copy()[::-1] for x in (*whole.arrays(), r.terminated, r.truncated, r.mask)), 1, 1)
    turned = type(r)(*(x.T.copy().T for x in (*whole.arrays(), r.terminated, r.truncated, r.mask)), 1, 1)
    for other in (whole, as_lists, flipped, turned):
        found = calls(other)[name]()
        assert isinstance(found, np.ndarray) and found.dtype == np.float64
        close(found, exact, 1e-12)
    found = calls(as_tensors)[name]()
    assert isinstance(found, torch.Tensor) and found.dtype == torch.get_default_dtype()
    close(found, exact, 1e-5)


@pytest.mark.parametrize("flags", [np.array([0, 1, 0, 0]), [False, True, False, False], torch.tensor([0, 1, 0, 0]),
                                   torch.tensor([False, True, False, False]), np.array([0.0, 1.0, 0.0, 0.0]),
                                   np.array([0, 0, 1, 0])[::-1]], ids=lambda x: f"{type(x).__name__}")
@pytest.mark.parametrize("rewards", [np.ones(4), torch.ones(4)], ids=["numpy", "torch"])
def test_flags_of_any_kind(rewards, flags):
    close(estimators.discounted_returns(rewards, gamma=1, terminated=flags), [2, 1, 2, 1])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES[:4])
def test_gradients_of_the_estimators(name, masked):
    """Torch differentiates them (a critic may be trained through its targets): against finite differences."""
    r = rollout(8, 5, (2,)).to_torch()
    arrays = [x.clone().requires_grad_() for x in r.arrays()]

    def function(*arrays):
        moved = type(r)(*arrays, r.terminated, r.truncated, r.mask, r.gamma, r.lam)
        return calls(moved, r.mask if masked else None)[name]()
    assert torch.autograd.gradcheck(function, arrays)


def test_no_gradient_reaches_masked_steps():
    r = rollout(9, 6, (2,)).spoiled().to_torch()
    arrays = [x.clone().requires_grad_() for x in r.arrays()]
    found = estimators.gae(*arrays, gamma=0.9, lam=0.8, **r.ends(), mask=r.mask)
    for gradient in torch.autograd.grad(found.square().sum(), arrays):
        assert bool(gradient.isfinite().all()) and bool((gradient[~r.mask] == 0).all())
        assert bool((gradient[r.mask] != 0).any())


@FEW
@given(SEEDS, BATCHES)
def test_unread_next_values_may_be_anything(seed, batch):
    """discounted_returns reads next_values only at truncated steps that did not terminate."""
    r = rollout(seed, 5, batch)
    read = r.truncated & ~r.terminated
    dirty = np.where(read, r.next_values, np.nan)
    more = {"gamma": r.gamma, **r.ends()}
    close(estimators.discounted_returns(r.rewards, **more, next_values=dirty),
          estimators.discounted_returns(r.rewards, **more, next_values=r.next_values), 0)
    if read.any():
        with pytest.raises(ValueError, match="^next_values: expected.*got"):
            estimators.discounted_returns(r.rewards, **more, next_values=np.where(read, np.nan, r.next_values))
        with pytest.raises(ValueError, match="^next_values: expected.*got None"):
            estimators.discounted_returns(r.rewards, **more)


def test_whiten_refuses_what_has_no_spread():
    for values, more in (([0.1, 0.1, 0.1], {}), ([5, 5], {"ddof": 0}), ([0.1, 0.1, 7], {"mask": [1, 1, 0]})):
        with pytest.raises(ValueError, match="^eps: expected.*got 0"):
            estimators.whiten(values, eps=0, **more)
        real = estimators.whiten(values, **more)[:2]
        assert np.abs(real).max() < 1e-6
    for values, more in (([1.0], {}), ([1.0, 2.0], {"mask": [1, 0]}), ([1.0, 2.0], {"mask": [0, 0], "ddof": 0})):
        with pytest.raises(ValueError, match="^values: expected at least"):
            estimators.whiten(values, **more)


def test_one_step_is_enough():
    one = {"gamma": 0.5, "terminated": [0], "truncated": [0]}
    close(estimators.gae([1.0], [2.0], [4.0], lam=0.9, **one), [1.0], 0)
    close(estimators.n_step_advantages([1.0], [2.0], [4.0], n=10 ** 9, **one), [1.0], 0)
    close(estimators.group_advantages([3.0]), [0.0], 0)
    with pytest.raises(ValueError, match=r"^rewards: expected the shape \[..., G\] with G >= 2"):
        estimators.group_advantages([3.0], ddof=1)
