"""Bad input: every argument of every public function refuses it with an error that names the argument.

Each message reads "argument: expected ..., got ..."; nothing may raise anything else, and nothing bad may pass.
"""
import inspect

import numpy as np
import pytest
import torch
import truth

from utils import checks, estimators, losses, mdp, validate

MODULES = [mdp, estimators, losses, checks]
NOT_NUMBERS = {"None": None, "text": "abc", "a number in text": "1.5", "a list of texts": ["1", "2"], "complex": 1 + 2j,
               "complex array": np.array([1j, 2]), "complex tensor": torch.tensor([1j, 2]), "ragged": [1, [2, 3]],
               "an object": object(), "a dict": {}, "a date": np.datetime64("2020-01-01"),
               "a list with None": [1.0, None], "empty": [], "empty tensor": torch.zeros(0, 3),
               "tensors with a gradient": [torch.ones(1, requires_grad=True)]}
NOT_ONE_NUMBER = {"None": None, "text": "0.5", "NaN": float("nan"), "inf": float("inf"), "-inf": -np.inf,
                  "complex": 0.5j, "a list": [0.5], "an array": np.array([0.5]), "a tensor": torch.tensor([0.5, 0.5]),
                  "a flag": True,
                  "NaN tensor": torch.tensor(float("nan")), "an object": object()}


def broken(good, value):
    """A copy of the array with one entry replaced."""
    array = np.asarray(good, float).copy()
    array[(0,) * array.ndim] = value
    return array


def array(good, *wrong_shapes, optional=False):
    """Bad values for an array argument."""
    bad = NOT_NUMBERS | {"NaN": broken(good, np.nan), "inf": broken(good, np.inf), "-inf": broken(good, -np.inf)}
    bad |= {f"shape {np.shape(x)}": x for x in wrong_shapes}
    if optional:
        bad = {name: value for name, value in bad.items() if value is not None}
    return good, bad


def flag(good, *wrong_shapes, optional=False):
    good, bad = array(good, *wrong_shapes, optional=optional)
    return good, bad | {"2": broken(good, 2), "-1": broken(good, -1), "0.5": broken(good, 0.5)}


def number(good, *outside):
    return good, NOT_ONE_NUMBER | {str(x): x for x in outside}


def whole(good, *outside):
    return good, NOT_ONE_NUMBER | {str(x): x for x in (1.5, 2.0, *outside)}


def choice(good, *others):
    bad = {"NaN": np.nan, "inf": np.inf, "another": "mean", "a list": [good], "an array": np.array([0, 1]),
           "a tensor": torch.zeros(2), "an object": object()}
    return good, bad | {str(x): x for x in others}


def only(good, bad):
    """An argument that is no number at all."""
    return good, {type(x).__name__ if x is not None else "None": x for x in bad}


WORLD, THETA = mdp.two_state_mdp()
POLICY, SCORE = mdp.softmax_policy(THETA), mdp.softmax_score(THETA)
world = only(WORLD, [None, "abc", 3, np.ones(2)])
policy = array(POLICY, np.ones(2), np.ones((2, 3)) / 3, np.float64(1))
policy[1].update({"sums to 2": 2 * POLICY, "negative": np.array([[1.5, -0.5], [0.5, 0.5]])})
score = array(SCORE, np.ones(2), np.ones((3, 2, 4)), np.float64(1))
column = np.linspace(-1, 1, 6).reshape(3, 2)
zero = np.zeros((3, 2))
other = np.ones((3, 3)), np.ones(3), np.ones((3, 2, 1)), np.float64(1)
gamma, lam, discount = number(0.9, -0.1, 1.1), number(0.8, -1e-9, 1.000001), number(0.9, -0.1, 1.0)
eps, tolerance, loose = number(0.1, -1e-9), number(1e-6, -1e-9), number(0.3)
law = array([0.6, 0.4], np.ones(3) / 3, np.ones((1, 2)) / 2)
law[1].update({"sums to 2": [1.0, 1.0], "negative": [1.5, -0.5]})
chances = law[0], {what: value for what, value in law[1].items() if what != "shape (3,)"}
kernel = array(WORLD.transition, np.ones((2, 2)) / 2, np.ones((2, 2, 3)) / 3)
kernel[1].update({"sums to 2": 2 * WORLD.transition, "negative": WORLD.transition * 2 - 0.5})
rollout = {"rewards": array(column, np.float64(1)), "values": array(column, *other),
           "next_values": array(column, *other), "gamma": gamma,
           "terminated": flag(zero, *other), "truncated": flag(zero, *other)}
leaf = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)

# function -> argument -> (good value, {what is bad: value}); an argument without bad values takes anything
TABLE = {
    mdp.FiniteMDP: {"initial": law, "transition": kernel, "reward": array(WORLD.reward, np.ones(2), np.ones((2, 3))),
                    "horizon": (3, {k: v for k, v in whole(3, 0, -1)[1].items() if k != "None"}), "gamma": gamma,
                    "terminal": flag([0.0, 0.0], np.zeros(3), np.float64(0), optional=True)},
    mdp.softmax_policy: {"theta": array(THETA, np.ones(2), np.ones((1, 2, 2)), np.float64(1))},
    mdp.softmax_score: {"theta": array(THETA, np.ones(2), np.ones((1, 2, 2)), np.float64(1))},
    mdp.sigmoid_policy: {"theta": number(0.3), "states": whole(2, 0, -1)},
    mdp.sigmoid_score: {"theta": number(0.3), "states": whole(2, 0, -1)},
    mdp.trajectories: {"mdp": world, "policy": policy},
    mdp.sample_trajectories: {"mdp": world, "policy": policy, "n": whole(3, 0, -1),
                              "rng": only(np.random.default_rng(0), [None, 0, "abc", np.random.RandomState(0)])},
    mdp.moments: {"probabilities": chances,
                  "estimates": array(np.ones((2, 3)), np.ones(3), np.float64(1), np.ones((3, 2)))},
    mdp.values: {"mdp": world, "policy": policy},
    mdp.objective: {"mdp": world, "policy": policy},
    mdp.visitation: {"mdp": world, "policy": policy},
    mdp.policy_gradient: {"mdp": world, "policy": policy, "score": score},
    mdp.pair_chain: {"mdp": world, "policy": policy},
    mdp.bandit: {"rewards": array([1.0, 2.0], np.ones((1, 2)), np.float64(1))},
    mdp.two_state_mdp: {"gamma": gamma},
    mdp.three_state_mdp: {"gamma": discount},
    mdp.three_armed_bandit: {}, mdp.two_token_language_model: {}, mdp.short_or_long: {},
    estimators.discounted_returns: {
        "rewards": rollout["rewards"], "gamma": gamma, "terminated": flag(zero, *other, optional=True),
        "truncated": flag(zero + np.eye(3)[:1].T, *other, optional=True), "next_values": array(column[::-1], *other)},
    estimators.td_errors: {name: rollout[name] for name in ("rewards", "values", "next_values", "gamma", "terminated")},
    estimators.n_step_advantages: rollout | {"n": whole(2, 0, -1)},
    estimators.gae: rollout | {"lam": lam, "mask": flag(zero + 1, *other, optional=True)},
    estimators.group_advantages: {"rewards": array(column, np.float64(1)), "scale": choice("std", "mad", 0, True),
                                  "ddof": choice(0, None, 2, -1, 0.5, "0"), "eps": eps},
    estimators.whiten: {"values": array(column), "mask": flag(zero + 1, *other, optional=True),
                        "shift_mean": (True, {}), "ddof": choice(0, None, 2, -1, 0.5, "0"), "eps": eps},
    losses.policy_gradient_loss: {
        "log_probs": array(column, np.float64(1)), "advantages": array(column, *other),
        "mask": flag(zero + 1, *other, optional=True), "reduction": choice("step_mean", None, "sum", 0)},
    losses.value_loss: {"values": array(column), "targets": array(column, *other), "old_values": array(column, *other),
                        "clip": number(0.2, 0, -0.1), "mask": flag(zero + 1, *other, optional=True)},
    losses.ppo_clip_loss: {
        "log_probs": array(column), "old_log_probs": array(column, *other), "advantages": array(column, *other),
        "epsilon": number(0.2, 0, -0.1, 1.1),
        "epsilon_high": (0.3, {what: x for what, x in number(0.3, 0, -0.1)[1].items() if x is not None}),
        "mask": flag(zero + 1, *other, optional=True)},
    losses.ppo_penalty_loss: {
        "log_probs": array(column), "old_log_probs": array(column, *other), "advantages": array(column, *other),
        "kl": array(np.abs(column), *other), "beta": number(0.5, -1e-9), "mask": flag(zero + 1, *other, optional=True)},
    checks.claim: {"name": ("T1.1", {}), "value": array(column), "expected": array(column), "tolerance": tolerance,
                   "text": ("", {})},
    checks.gradient_check: {
        "loss": only(lambda: -leaf.sum(), [None, 1.0, "abc", leaf, lambda: 1.0, lambda: leaf, lambda: None]),
        "parameters": only(leaf, [None, "abc", np.ones(2), torch.ones(2), [leaf]]),
        "gradient": array([1.0, 1.0], np.ones(3), np.float64(1), np.ones((1, 2))), "tolerance": tolerance},
    checks.check_exercise: {"attempt": (np.sqrt, {}), "cases": only([((4.0,), 2.0)], [None, "abc", [], {}, 3]),
                            "hint": ("", {}), "tolerance": tolerance},
}
ARGUMENTS = [pytest.param(function, argument, id=f"{function.__name__}-{argument}")
             for function, arguments in TABLE.items() for argument, (_, bad) in arguments.items() if bad]


@pytest.mark.parametrize("function", TABLE, ids=lambda function: function.__name__)
def test_good_arguments_pass(function):
    """Otherwise the refusals below would prove nothing."""
    function(**{name: good for name, (good, _) in TABLE[function].items()})


def complaint(function, argument, value):
    """What is wrong with the way in which `function` refuses the value; None when it does so properly."""
    arguments = {name: good for name, (good, _) in TABLE[function].items()} | {argument: value}
    try:
        return f"passes: {function(**arguments)!r}"
    except ValueError as error:
        message = str(error)
        proper = message.startswith(f"{argument}: expected ") and ", got" in message and len(message) < 400
        return None if proper else message
    except Exception as error:
        return f"raises {error!r}"


@pytest.mark.parametrize("function, argument", ARGUMENTS)
def test_bad_argument_is_named(function, argument):
    bad = TABLE[function][argument][1]
    assert len(bad) >= 4
    found = {what: complaint(function, argument, value) for what, value in bad.items()}
    assert {what: text for what, text in found.items() if text} == {}


def test_table_is_complete():
    """Every public function, every argument."""
    public = {thing for module in MODULES for thing in truth.public_functions(module).values()}
    results = {mdp.Trajectories, mdp.Values}                             # made by functions, not by callers
    assert public - results == set(TABLE)
    for function, arguments in TABLE.items():
        assert set(inspect.signature(function).parameters) == set(arguments), function.__name__


@pytest.mark.parametrize("name", ["rewards", "values", "next_values"])
@pytest.mark.parametrize("function", [estimators.td_errors, estimators.n_step_advantages, estimators.gae],
                         ids=lambda function: function.__name__)
def test_numpy_and_torch_are_not_mixed(function, name):
    arguments = {key: good for key, (good, _) in TABLE[function].items()}
    arguments[name] = torch.tensor(np.asarray(arguments[name]))
    with pytest.raises(ValueError, match="expected the same library as rewards .*, got"):
        function(**arguments)


@pytest.mark.parametrize("name", ["rewards", "values", "next_values"])
def test_nan_in_tensors(name):
    arguments = {key: good for key, (good, _) in TABLE[estimators.gae].items()}
    arguments |= {key: torch.tensor(arguments[key]) for key in ("rewards", "values", "next_values")}
    arguments[name] = torch.tensor(broken(arguments[name], np.nan))
    with pytest.raises(ValueError, match=f"^{name}: expected finite numbers, got 1 NaN"):
        estimators.gae(**arguments)


def test_methods_of_trajectories():
    every = mdp.trajectories(WORLD, POLICY)
    for what, value in (NOT_ONE_NUMBER | {"2": 2}).items():
        with pytest.raises(ValueError, match="^gamma: expected .*, got"):
            every.returns(value)
    for value in (np.ones((1, 2)), np.ones((2, 1, 3)), np.ones(2), None, "abc", SCORE * np.nan):
        with pytest.raises(ValueError, match="^score: expected .*, got"):
            every.scores(value)


def test_an_endless_world_needs_a_discount():
    with pytest.raises(ValueError, match="^gamma: expected a number < 1 when horizon is None, got 1"):
        mdp.FiniteMDP([1.0], [[[1.0]]], [[1.0]])
    for function in (mdp.trajectories, lambda *w: mdp.sample_trajectories(*w, 3, np.random.default_rng(0))):
        endless, theta = mdp.three_state_mdp()
        with pytest.raises(ValueError, match="^mdp: expected a finite horizon for .*, got horizon None"):
            function(endless, mdp.softmax_policy(theta))


# --- the helpers themselves ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("value, kind", [
    (1, np.float64), ([1, 2], np.float64), ((1.5, 2), np.float64), (np.float32(1), np.float32), (True, np.float64),
    (np.ones(2, np.float32), np.float32), (np.ones(2, np.int8), np.float64), (np.ones(2, np.uint64), np.float64),
    (torch.ones(2), torch.float32), (torch.ones(2, dtype=torch.float64), torch.float64),
    (torch.tensor([1, 2]), torch.float32), (torch.tensor([True]), torch.float32),
    ([torch.tensor(1.0), 2.0], np.float64)], ids=repr)
def test_floats_keeps_floating_point(value, kind):
    array = validate.floats("x", value)
    assert array.dtype == kind and isinstance(array, torch.Tensor if isinstance(value, torch.Tensor) else np.ndarray)


def test_floats_checks_only_what_the_mask_shows():
    values = np.array([1.0, np.nan])
    validate.floats("x", values, mask=np.array([True, False]))
    validate.floats("x", values, mask=False)
    with pytest.raises(ValueError, match="^x: expected finite numbers, got 1 NaN or infinite value"):
        validate.floats("x", values, mask=np.array([False, True]))


def test_float64_copies():
    source = np.ones(2)
    validate.float64("x", source)[:] = 5
    tensor = torch.ones(2, dtype=torch.float64, requires_grad=True)
    validate.float64("x", tensor)[:] = 5
    assert source.tolist() == [1, 1] and tensor.tolist() == [1, 1]
    assert validate.float64("x", torch.ones(1, dtype=torch.bfloat16)).dtype == np.float64


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5),
                                   torch.tensor(0.5, requires_grad=True)], ids=repr)
def test_in_range_takes_scalars_of_every_library(value):
    found = validate.in_range("x", value, 0, 1)
    assert found == 0.5 and type(found) is float


def test_in_range_borders():
    assert validate.in_range("x", 0, 0, 1) == 0 and validate.in_range("x", 1, 0, 1) == 1
    with pytest.raises(ValueError, match=r"^x: expected a number in \(0, 1\], got 0"):
        validate.in_range("x", 0, 0, 1, open_low=True)
    with pytest.raises(ValueError, match=r"^x: expected a finite number in \[0, inf\], got inf"):
        validate.in_range("x", np.inf, 0)


def test_whole_and_choice():
    assert validate.whole("x", np.int64(3)) == 3 and type(validate.whole("x", np.int64(3))) is int
    assert validate.whole("x", 0, 0) == 0
    assert validate.choice("x", "a", ("a", None)) == "a" and validate.choice("x", None, ("a", None)) is None


def test_a_long_argument_is_shortened_in_the_message():
    with pytest.raises(ValueError) as caught:
        validate.floats("x", ["a" * 50] * 1000)
    assert len(str(caught.value)) < 400
