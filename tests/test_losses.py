"""The losses: values and gradients against explicit sums, in NumPy and torch; constants stay so, padding is silent."""
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch
from cases import EXAMPLES, LOSS_BATCHES, batch, close
from hypothesis import given

from utils import losses

LIB = SimpleNamespace(**vars(losses))
REDUCTIONS = ["trajectory_mean", "step_mean"]
GARBAGE = (np.nan, np.inf, -np.inf, 1e30)


def spoiled(array, mask):
    """`array` with garbage where the mask hides it."""
    return np.where(mask, array, np.random.default_rng(0).choice(GARBAGE, array.shape))


def leaf(array):
    return torch.tensor(array, requires_grad=True)


# --- what the losses are, whatever the case (test_mutants.py runs these with wrong variants) -----------------------

def check_policy_gradient_loss(lib, b):
    """Value, and gradient -A / (number of trajectories or of real steps) at real entries, 0 elsewhere."""
    everywhere = np.ones(b.mask.shape, bool)
    for reduction in REDUCTIONS:
        for mask in (everywhere, b.mask):
            expected = oracle.policy_gradient_loss(b.log_probs, b.advantages, mask, reduction)
            trajectories = np.prod(mask.shape[1:])
            slope = -b.advantages * mask / (trajectories if reduction == "trajectory_mean" else mask.sum())
            log_probs, advantages = (x if mask is everywhere else spoiled(x, mask) for x in (b.log_probs, b.advantages))
            more = {"reduction": reduction} if mask is everywhere else {"reduction": reduction, "mask": mask}
            close(lib.policy_gradient_loss(log_probs, advantages, **more), expected)
            variable, weights = leaf(log_probs), leaf(advantages)
            loss = lib.policy_gradient_loss(variable, weights, **more)
            close(loss, expected)
            found, through_weights = torch.autograd.grad(loss, (variable, weights), allow_unused=True)
            close(found, slope)
            assert through_weights is None, "advantages must be constants"


def check_value_loss(lib, b):
    """Value and gradient, with and without clip and mask; nothing flows into targets and old values."""
    values, targets, everywhere = b.log_probs, b.advantages, np.ones(b.mask.shape, bool)
    for clip in (None, b.clip):
        for mask in (everywhere, b.mask):
            expected = oracle.value_loss(values, targets, mask, b.old, clip)
            slope = (values - targets) * mask / mask.sum()
            if clip is not None:
                limited = np.clip(values, b.old - clip, b.old + clip)
                outside = np.abs(values - b.old) > clip
                slope = np.where(outside & ((limited - targets) ** 2 > (values - targets) ** 2), 0, slope)
            arrays = [x if mask is everywhere else spoiled(x, mask) for x in (values, targets, b.old)]
            more = {} if mask is everywhere else {"mask": mask}

            def loss(v, t, o):
                return lib.value_loss(v, t, **more, **({} if clip is None else {"clip": clip, "old_values": o}))
            close(loss(*arrays), expected)
            tensors = [leaf(x) for x in arrays]
            close(loss(*tensors), expected)
            found, *constants = torch.autograd.grad(loss(*tensors), tensors, allow_unused=True)
            close(found, slope)
            assert constants == [None, None], "targets and old values must be constants"


def masked_or_not(b, *arrays):
    """(mask, arrays, keyword) without a mask, and with garbage behind one."""
    yield np.ones(b.mask.shape, bool), arrays, {}
    yield b.mask, [spoiled(x, b.mask) for x in arrays], {"mask": b.mask}


def check_ppo_clip_loss(lib, b):
    """Value, and the gradient by the four cases of sign and side; old log-probs and advantages are constants."""
    arrays = b.log_probs, b.old, b.advantages
    for high in (None, b.clip, 2 * b.clip):
        for mask, inputs, more in masked_or_not(b, *arrays):
            more = {**more, "epsilon": b.clip} if high is None else {**more, "epsilon": b.clip, "epsilon_high": high}
            value, slope = oracle.ppo_clip_loss(*arrays, mask, b.clip, high or b.clip)
            close(lib.ppo_clip_loss(*inputs, **more), value)
            variables = [leaf(x) for x in inputs]
            loss = lib.ppo_clip_loss(*variables, **more)
            close(loss, value)
            found, *constants = torch.autograd.grad(loss, variables, allow_unused=True)
            close(found, slope)
            assert constants == [None, None], "old log-probabilities and advantages must be constants"


def check_ppo_penalty_loss(lib, b):
    """Value and gradients: -rho A / count in the log-probability, beta / count in the KL."""
    kl = np.abs(b.old + b.log_probs)
    for beta in (0.0, b.clip, 3.0):
        for mask, inputs, more in masked_or_not(b, b.log_probs, b.old, b.advantages, kl):
            gain = np.exp(b.log_probs - b.old) * b.advantages
            value, count = -(gain - beta * kl)[mask].sum() / mask.sum(), mask.sum()
            close(lib.ppo_penalty_loss(*inputs, beta=beta, **more), value)
            variables = [leaf(x) for x in inputs]
            loss = lib.ppo_penalty_loss(*variables, beta=beta, **more)
            close(loss, value)
            found, *constants, through_kl = torch.autograd.grad(loss, variables, allow_unused=True)
            assert constants == [None, None], "old log-probabilities and advantages must be constants"
            assert through_kl is not None, "the KL is part of the gradient"
            close(found, -gain * mask / count)
            close(through_kl, beta * mask / count)


@EXAMPLES
@given(LOSS_BATCHES)
def test_ppo_clip_loss(b):
    check_ppo_clip_loss(LIB, b)


@EXAMPLES
@given(LOSS_BATCHES)
def test_ppo_penalty_loss(b):
    check_ppo_penalty_loss(LIB, b)


@EXAMPLES
@given(LOSS_BATCHES)
def test_policy_gradient_loss(b):
    check_policy_gradient_loss(LIB, b)


@EXAMPLES
@given(LOSS_BATCHES)
def test_value_loss(b):
    check_value_loss(LIB, b)


# --- numbers by hand -----------------------------------------------------------------------------------------------

def test_reductions_by_hand():
    """Two trajectories of 1 and 3 steps: the sum of log pi * A is 2 * 1 + (3 + 4 + 5) * 10 = 122."""
    log_probs = np.array([[2.0, 3.0], [np.nan, 4.0], [np.nan, 5.0]])
    advantages = np.array([[1.0, 10.0], [np.nan, 10.0], [np.nan, 10.0]])
    mask = [[1, 1], [0, 1], [0, 1]]
    close(losses.policy_gradient_loss(log_probs, advantages, mask=mask), -122 / 2)
    close(losses.policy_gradient_loss(log_probs, advantages, mask=mask, reduction="step_mean"), -122 / 4)


@EXAMPLES
@given(LOSS_BATCHES)
def test_factor_between_the_reductions(b):
    """step_mean is trajectory_mean divided by the batch's mean length, a random number."""
    one, other = (losses.policy_gradient_loss(b.log_probs, b.advantages, mask=b.mask, reduction=r) for r in REDUCTIONS)
    close(other * b.mask.sum(0).mean(), one)


def test_value_clip_by_hand():
    """old 0, clip 0.2; targets above: moving up is limited, moving down costs in full."""
    more = {"old_values": np.zeros(3), "clip": 0.2}
    close(losses.value_loss(np.array([0.5, -0.5, 0.1]), np.ones(3), **more), (0.8 ** 2 + 1.5 ** 2 + 0.9 ** 2) / 6)
    values = leaf(np.array([0.5, -0.5, 0.1]))
    one = torch.ones(3, dtype=torch.float64)
    loss = losses.value_loss(values, one, old_values=0 * one, clip=0.2)
    close(torch.autograd.grad(loss, values)[0], [0, -0.5, -0.3])


def test_ppo_clip_by_hand():
    """epsilon 0.2: gain stops at 1.2 A for A > 0 and at 0.8 A for A < 0, a loss never stops."""
    ratios, advantages = np.array([0.5, 1.5, 0.5, 1.5]), np.array([1.0, 1.0, -1.0, -1.0])
    for ratio, A, expected in zip(ratios, advantages, [0.5, 1.2, -0.8, -1.5]):
        close(losses.ppo_clip_loss(np.log([ratio]), np.zeros(1), np.array([A]), epsilon=0.2), -expected)
    close(losses.ppo_clip_loss(np.log(ratios), np.zeros(4), advantages, epsilon=0.2), 0.6 / 4)
    more = {"epsilon": 0.2, "epsilon_high": 0.28}
    close(losses.ppo_clip_loss(np.log([1.5, 1.5]), np.zeros(2), np.array([1.0, -1.0]), **more), (1.5 - 1.28) / 2)


@EXAMPLES
@given(LOSS_BATCHES)
def test_the_first_step_of_ppo_is_the_policy_gradients(b):
    """Where old = new, the gradients of clipped and penalised loss are those of the mean over steps."""
    found = []
    for loss in (lambda x: losses.ppo_clip_loss(x, x, b_advantages, epsilon=b.clip, mask=b.mask),
                 lambda x: losses.ppo_penalty_loss(x, x, b_advantages, 0 * x, beta=1.0, mask=b.mask),
                 lambda x: losses.policy_gradient_loss(x, b_advantages, mask=b.mask, reduction="step_mean")):
        variable, b_advantages = leaf(b.log_probs), torch.tensor(b.advantages)
        found.append(torch.autograd.grad(loss(variable), variable)[0].numpy())
    close(found[0], found[2])
    close(found[1], found[2])


@pytest.mark.parametrize("more, name", [
    ({"epsilon": 0.0}, "epsilon"), ({"epsilon": 1.5}, "epsilon"), ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": 0.2, "epsilon_high": 0.0}, "epsilon_high"), ({"beta": -0.1}, "beta"), ({"beta": None}, "beta")])
def test_ppo_losses_refuse_bad_numbers(more, name):
    ones = [np.ones(3)] * 3
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        losses.ppo_penalty_loss(*ones, ones[0], **more) if "beta" in more else losses.ppo_clip_loss(*ones, **more)


def test_ppo_losses_refuse_bad_arrays():
    for position, name in enumerate(("log_probs", "old_log_probs", "advantages", "kl")):
        for bad in (np.ones(2), np.array([1, np.nan, 1])):
            arrays = [np.ones(3)] * 4
            arrays[position] = bad
            other = "old_log_probs" if position == 0 and bad.shape == (2,) else name
            with pytest.raises(ValueError, match=f"^{other}: expected"):
                losses.ppo_penalty_loss(*arrays, beta=1.0)
            if position < 3:
                with pytest.raises(ValueError, match=f"^{other}: expected"):
                    losses.ppo_clip_loss(*arrays[:3], epsilon=0.2)


def test_a_bandit_follows_the_true_gradient():
    """All arms in exact proportion: minus the gradient of the loss is pi (r - J)."""
    logits, rewards = leaf(np.array([0.2, -0.3, 0.5])), torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    pi = logits.detach().softmax(-1)
    loss = losses.policy_gradient_loss(logits.log_softmax(-1)[None], (3 * pi * rewards)[None])
    close(-torch.autograd.grad(loss, logits)[0], (pi * (rewards - pi @ rewards)).numpy(), 1e-15)


# --- kinds of arrays -----------------------------------------------------------------------------------------------

def calls(arrays, mask=None):
    first, second, third = arrays
    return {"trajectory_mean": lambda: losses.policy_gradient_loss(first, second, mask=mask),
            "step_mean": lambda: losses.policy_gradient_loss(first, second, mask=mask, reduction="step_mean"),
            "value_loss": lambda: losses.value_loss(first, second, mask=mask),
            "clipped": lambda: losses.value_loss(first, second, old_values=third, clip=0.3, mask=mask),
            "ppo_clip": lambda: losses.ppo_clip_loss(first, third, second, epsilon=0.2, mask=mask),
            "ppo_penalty": lambda: losses.ppo_penalty_loss(first, third, second, second, beta=0.5, mask=mask)}


NAMES = list(calls([0] * 3))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_kind_and_precision_are_kept(name, shape):
    b = batch(3, 4, shape)
    arrays = [b.log_probs, b.advantages, b.old]
    exact = calls(arrays, b.mask)[name]()
    assert exact.dtype == np.float64 and np.ndim(exact) == 0
    found = calls([x.astype(np.float32) for x in arrays], b.mask)[name]()
    assert found.dtype == np.float32
    close(found, exact, 1e-5)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = calls([torch.tensor(x, dtype=dtype) for x in arrays], b.mask)[name]()
        assert isinstance(found, torch.Tensor) and found.dtype == dtype and found.ndim == 0
        close(found, exact, tolerance)
    close(calls([x.tolist() for x in arrays], b.mask.tolist())[name](), exact)
    close(calls([x.T.copy().T for x in arrays], b.mask.T.copy().T)[name](), exact)
    close(calls([torch.tensor(x.T.copy()).movedim(0, -1) if x.ndim == 2 else torch.tensor(x) for x in arrays],
                torch.tensor(b.mask))[name](), exact)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_stay_as_they_are(name):
    b = batch(4)
    for convert in (np.array, torch.tensor):
        arrays, mask = [convert(spoiled(x, b.mask)) for x in (b.log_probs, b.advantages, b.old)], convert(b.mask)
        before = [np.asarray(x).copy() for x in arrays]
        calls(arrays, mask)[name]()
        for x, y in zip(arrays, before):
            assert np.array_equal(np.asarray(x), y, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_one_number_of_padding_changes_nothing(name):
    """Whatever stands behind the mask, value and gradient stay the same to the last bit."""
    b = batch(5)
    results = []
    for filler in (0.0, 7.0, np.nan, np.inf, -1e300):
        arrays = [leaf(np.where(b.mask, x, filler)) for x in (b.log_probs, b.advantages, b.old)]
        loss = calls(arrays, b.mask)[name]()
        results.append((loss.item(), torch.autograd.grad(loss, arrays[0])[0].numpy().tobytes()))
    assert len(set(results)) == 1


def test_one_step_and_one_trajectory():
    for shape in ((1,), (1, 1), (1, 1, 1)):
        one = np.full(shape, 2.0)
        for reduction in REDUCTIONS:
            close(losses.policy_gradient_loss(one, 3 * one, reduction=reduction), -12.0, 0)
        close(losses.value_loss(one, 0 * one), 2.0, 0)


def test_nothing_real_is_refused():
    ones = np.ones((2, 2))
    def clip(x, y, mask):
        return losses.ppo_clip_loss(x, x, y, epsilon=0.2, mask=mask)

    def penalty(x, y, mask):
        return losses.ppo_penalty_loss(x, x, y, x, beta=1, mask=mask)
    for call in (losses.policy_gradient_loss, losses.value_loss, clip, penalty):
        with pytest.raises(ValueError, match="^mask: expected at least one True, got none"):
            call(ones, ones, mask=np.zeros((2, 2)))


def test_clip_and_old_values_come_together():
    ones = np.ones(2)
    for more, missing in (({"clip": 0.2}, "old_values"), ({"old_values": ones}, "clip")):
        with pytest.raises(ValueError, match=f"^{missing}: expected clip and old_values together, got None"):
            losses.value_loss(ones, ones, **more)
