"""The checks that a reader sees: they pass what is right, refuse what is wrong, and say why."""
import numpy as np
import pytest
import torch

from utils import checks, mdp


def claimed(*arguments, **more):
    """None when the claim holds, else the message."""
    try:
        assert checks.claim("T1.1", *arguments, **more) is None
    except AssertionError as error:
        return str(error)


@pytest.mark.parametrize("value, expected, tolerance, holds", [
    (1.0, 1.0, 0, True), (1.0 + 0.9e-9, 1.0, 1e-9, True), (1.0 + 1.1e-9, 1.0, 1e-9, False),
    (1000 + 0.9e-6, 1000.0, 1e-9, True), (1000 + 1.1e-6, 1000.0, 1e-9, False), (-1000.1, -1000.0, 1e-3, True),
    (1e-10, 0.0, 1e-9, True), (1e-8, 0.0, 1e-9, False), (0.1 + 0.2, 0.3, 0, False),
    ([1, 2, 3.1], [1, 2, 3], 1e-9, False), ([[1, 2]], [[1, 2]], 1e-9, True),
    (True, True, 1e-9, True), (False, True, 1e-9, False), ([True, False], [1, 0], 0, True),
    (torch.tensor([1.0, 2.0], requires_grad=True), np.array([1.0, 2.0]), 1e-9, True), (np.float32(0.5), 0.5, 0, True),
    (128, 128, 1e-9, True), (127, 128, 1e-9, False), ([1.0], 1.0, 1e-9, False), ([1.0, 1.0], [1.0], 1e-9, False)])
def test_claim(value, expected, tolerance, holds):
    message = claimed(value, expected, tolerance=tolerance, text="a number")
    assert (message is None) == holds
    if not holds:
        assert message.startswith("✗ T1.1  a number") and "expected" in message


def test_claim_prints_one_line(capsys):
    checks.claim("T1.1", 2.5908435, 2.59084350592, tolerance=1e-6, text="J")
    assert capsys.readouterr().out == "✓ T1.1  J: 2.59084  (within 1e-06)\n"
    checks.claim("T1.3", np.arange(9.0), np.arange(9.0))
    assert capsys.readouterr().out == "✓ T1.3  [0, 1, 2, 3, ...]  (within 1e-09)\n"
    claimed(1.0, 2.0)
    assert capsys.readouterr().out == "", "a claim that fails prints nothing, it raises"


def test_claim_tells_both_numbers():
    assert claimed(0.1, -0.2, text="slope") == "✗ T1.1  slope: 0.1, but -0.2 was expected (difference 0.3 > 1e-09)"
    assert claimed([1.0], [1.0, 2.0]) == "✗ T1.1  : expected the shape (2,), got (1,)"


@pytest.mark.parametrize("value, expected", [(np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan), (np.inf, np.inf), ([], []),
                                             (None, 1)])
def test_claim_refuses_what_cannot_be_compared(value, expected):
    with pytest.raises(ValueError, match="^(value|expected): expected .*, got"):
        checks.claim("T1.1", value, expected)


def printed(capsys, passed):
    """The verdict just printed, as one line; on the page it is broken at 80 characters."""
    text = capsys.readouterr().out
    assert text.startswith("✓ " if passed else "✗ ") and text.endswith("\n")
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


# --- a reader's loss -----------------------------------------------------------------------------------------------

WORLD, THETA = mdp.two_state_mdp()
EVERY = mdp.trajectories(WORLD, mdp.softmax_policy(THETA))
EXACT = mdp.policy_gradient(WORLD, mdp.softmax_policy(THETA), mdp.softmax_score(THETA))
WEIGHT = torch.tensor(EVERY.probabilities * EVERY.returns())


def verdict(capsys, change, gradient=EXACT, dtype=torch.float64, **more):
    """(passed, text) of gradient_check for minus the sum of `change(log_probs [T, N])`."""
    theta = torch.tensor(THETA, dtype=dtype, requires_grad=True)

    def loss():
        return -change(theta.log_softmax(-1)[EVERY.states[:-1], EVERY.actions]).sum()
    capsys.readouterr()
    passed = checks.gradient_check(loss, theta, gradient, **more)
    return passed, printed(capsys, passed)


def test_gradient_check_passes_the_right_loss(capsys):
    passed, text = verdict(capsys, lambda log_probs: WEIGHT * log_probs)
    assert passed and "0.270178" in text
    assert verdict(capsys, lambda log_probs: WEIGHT.float() * log_probs, dtype=torch.float32, tolerance=1e-5)[0]


@pytest.mark.parametrize("change, hint", [
    (lambda log_probs: -WEIGHT * log_probs, "the sign is wrong"),
    (lambda log_probs: 3 * WEIGHT * log_probs, "the scale is 3 times"),
    (lambda log_probs: WEIGHT * log_probs / 3, "the scale is 0.333333 times"),
    (lambda log_probs: -2 * WEIGHT * log_probs, "the scale is -2 times"),
    (lambda log_probs: WEIGHT * log_probs[:1], "another vector"),
    (lambda log_probs: WEIGHT * log_probs.exp(), "another vector"),
    (lambda log_probs: WEIGHT * log_probs.detach(), "does not depend on the parameters"),
    (lambda log_probs: 0 * log_probs, "the gradient is zero"),
    (lambda log_probs: log_probs * np.nan, "NaN or infinite"),
    (lambda log_probs: log_probs * np.inf, "NaN or infinite"),
    (lambda log_probs: (1 + 1e-5) * WEIGHT * log_probs, "the scale is 1.00001 times")])
def test_gradient_check_names_the_mistake(capsys, change, hint):
    passed, text = verdict(capsys, change)
    assert not passed and hint in text


def test_gradient_check_knows_a_zero_gradient(capsys):
    """At the sampling policy the mean log-likelihood has the gradient 0: that is right when 0 is expected."""
    p = torch.tensor(EVERY.probabilities)
    assert verdict(capsys, lambda log_probs: p * log_probs, np.zeros((2, 2)))[0]
    assert not verdict(capsys, lambda log_probs: WEIGHT * log_probs, np.zeros((2, 2)))[0]


@pytest.mark.parametrize("found, exact, words", [
    ([0.25, -0.25], [0.25, -0.25], "is the gradient of J"), ([0.5, -0.5], [0.25, -0.25], "the scale is 2 times"),
    ([-1e-3, 0.0], [1e-3, 0.0], "the sign is wrong"), ([0.0, 1e-9], [1.0, 0.0], "another vector"),
    ([1.0, 1.0], [1.0, -1.0], "another vector"), ([1e6, 0.0], [1.0, 0.0], "the scale is 1e+06 times")])
def test_gradient_check_by_hand(capsys, found, exact, words):
    """Numbers that floating point holds exactly, so that no tolerance is needed."""
    parameters = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    direction = torch.tensor(found, dtype=torch.float64)
    passed = checks.gradient_check(lambda: -(direction * parameters).sum(), parameters, exact, tolerance=0)
    assert passed == (found == exact) and words in printed(capsys, passed)


def test_gradient_check_measures_against_the_size_of_the_gradient(capsys):
    """A wrong vector of tiny numbers is wrong, and rounding in a large one is not."""
    parameters = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for exact, found, passed in (([1e-8, 2e-8], [1e-8, 3e-8], False), ([1e-8, 2e-8], [1e-8, 2e-8 + 1e-15], True),
                                 ([1e8, 1.0], [1e8, 1.0 + 1e-3], True), ([0.0, 0.0], [0.0, 1e-3], False)):
        direction = torch.tensor(found, dtype=torch.float64)
        loss = lambda: -(direction * parameters).sum()                           # noqa: E731
        assert checks.gradient_check(loss, parameters, exact) is passed, (exact, found)


def test_gradient_check_of_unused_parameters(capsys):
    used, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert not checks.gradient_check(lambda: used.sum(), unused, [1.0, 1.0])
    assert "the gradient is zero" in capsys.readouterr().out


# --- a reader's function -------------------------------------------------------------------------------------------

CASES = [((2.0,), 4.0), ((np.array([1.0, 3.0]),), [1.0, 9.0])]


def square(x):
    return x * x


def tried(capsys, attempt, cases=CASES, **more):
    """(passed, text) of check_exercise."""
    passed = checks.check_exercise(attempt, cases, **more)
    return passed, printed(capsys, passed)


def test_check_exercise_passes_the_right_function(capsys):
    assert tried(capsys, square) == (True, "✓ square is right on 2 examples")
    assert tried(capsys, square, CASES[:1]) == (True, "✓ square is right on 1 example")
    assert tried(capsys, lambda x: torch.tensor(x) ** 2)[0]
    assert tried(capsys, square, tolerance=0)[0]
    assert tried(capsys, lambda x: np.square(x) + 1e-7)[0] and not tried(capsys, lambda x: np.square(x) + 1e-5)[0]


def fails(x):
    raise KeyError("state")


@pytest.mark.parametrize("attempt, words", [
    (lambda x: None, "is not written yet. Think of x twice."), (fails, "fails(2) raised KeyError: 'state'. Think"),
    (lambda x: 2 * x, "<lambda>([1, 3]) = [2, 6], expected [1, 9]. Think"), (lambda x: x, "(2) = 2, expected 4. Think"),
    (lambda x: [x * x], "has the shape (1,), expected (). Think"), (lambda x: x * np.nan, "finite numbers"),
    (lambda x: "4", "expected an array of real numbers, got '4'"), (lambda: 4, "raised TypeError"),
    (None, "expected a function, got None"), (3, "expected a function, got 3"),
    (lambda x: 1 / 0, "raised ZeroDivisionError")])
def test_check_exercise_says_why(capsys, attempt, words):
    passed, text = tried(capsys, attempt, hint="Think of x twice.")
    assert not passed and words in text, text


@pytest.mark.parametrize("argument", [None, "text", {"a": 1}, [1, [2]], np.array([True]), np.arange(100), object(),
                                      torch.ones(1, requires_grad=True), mdp.bandit([1.0])],
                         ids=lambda x: type(x).__name__)
def test_check_exercise_shows_any_argument(capsys, argument):
    assert tried(capsys, lambda x: 1.0, [((argument,), 1.0)])[0]
    passed, text = tried(capsys, lambda x: 0.0, [((argument,), 1.0)])
    assert not passed and len(text) < 200


def test_check_exercise_takes_any_callable(capsys):
    class Squarer:
        def __call__(self, x):
            return x * x
    assert tried(capsys, Squarer()) == (True, "✓ your function is right on 2 examples")
