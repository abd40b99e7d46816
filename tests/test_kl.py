"""KL: estimators against exact sums, their gradients, Fisher by definition, conjugate gradient by algebra."""
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch
from cases import BATCHES, EXAMPLES, FEW, SEEDS, close
from hypothesis import given
from hypothesis import strategies as st
from test_networks import separate

from utils import kl
from utils.networks import mlp, torch_generator

LIB = SimpleNamespace(**vars(kl))


def laws(seed, shape=(4,)):
    """Logits of two policies, [..., A] each."""
    return np.random.default_rng(seed).normal(size=(2, *shape)) * 1.5


# --- what the functions are, whatever the case (test_mutants.py runs these with wrong variants) --------------------

def check_estimators(lib, seed):
    """Each number by its formula; exact means over all actions; mean gradients as losses on own samples."""
    logits, ref = laws(seed)
    p, q = oracle.softmax(logits), oracle.softmax(ref)
    log_p, log_q = np.log(p), np.log(q)
    forward, reverse = oracle.kl(p, q), oracle.kl(q, p)
    slopes = {name: oracle.differences(function, logits) for name, function in {
        "k1": lambda x: 0.0, "k2": lambda x: oracle.kl(oracle.softmax(x), q),
        "k3": lambda x: oracle.kl(q, oracle.softmax(x))}.items()}
    formulas = {"k1": lambda a, b: np.log(a / b), "k2": lambda a, b: np.log(a / b) ** 2 / 2,
                "k3": lambda a, b: b / a - 1 - np.log(b / a)}
    for name, formula in formulas.items():
        estimator = getattr(lib, name)
        samples = estimator(log_p, log_q)
        close(samples, [formula(a, b) for a, b in zip(p, q)])
        close(estimator(torch.tensor(log_p), torch.tensor(log_q)), samples)
        if name != "k2":
            close(np.dot(p, samples), forward)
        if name != "k1":
            assert (samples >= 0).all()
        theta = torch.tensor(logits, requires_grad=True)
        loss = (torch.tensor(p) * estimator(theta.log_softmax(-1), torch.tensor(log_q))).sum()
        close(torch.autograd.grad(loss, theta)[0], slopes[name], 1e-7)
    assert abs(forward - reverse) > 1e-3, "the two directions must differ in this case"


def check_categorical_kl(lib, case):
    """Explicit sums, whatever constant is added to the logits; its gradient by differences."""
    seed, shape = case
    p_logits, q_logits = laws(seed, (*shape, 4))
    expected = np.zeros(shape)
    for index in np.ndindex(shape):
        expected[index] = oracle.kl(oracle.softmax(p_logits[index]), oracle.softmax(q_logits[index]))
    close(lib.categorical_kl(p_logits, q_logits), expected)
    close(lib.categorical_kl(p_logits + 3, q_logits - 2), expected)
    close(lib.categorical_kl(torch.tensor(p_logits), torch.tensor(q_logits)), expected)


def small_policies(seed, seeds=2):
    """A network with S seeds in float64, neither uniform nor regular, and states [S, N, 3]."""
    policy = mlp(seeds, (3, 2, 3), gain=1.0, generator=torch_generator(seed)).double()
    for parameter in policy.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, generator=torch_generator(seed + 100)).double()
    return policy, torch.randn(seeds, 5, 3, generator=torch_generator(seed + 200)).double()


def explicit_fisher(policy, states, seed):
    """Mean over the states of sum_a pi(a | s) score score^T, D x D, of the plain network with one seed's weights."""
    network = separate(policy, seed)
    total = 0.0
    for state in states[seed]:
        laws, scores = network(state).softmax(-1), []
        for a in range(len(laws)):
            parts = torch.autograd.grad(network(state).log_softmax(-1)[a], list(network.parameters()))
            scores.append(np.concatenate([part.t().flatten().numpy() for part in parts]))     # SeedLinear: [in, out]
        total = total + oracle.fisher(scores, laws.tolist())
    return total / len(states[seed])


def check_fisher(lib, seed):
    """(F + damping I) v with the explicit Fisher matrix of each seed; the layout of `flatten`."""
    policy, states = small_policies(seed)
    parameters = list(policy.parameters())
    rows = lib.flatten(parameters)
    for s in range(2):
        close(rows[s], np.concatenate([p[s].detach().numpy().ravel() for p in parameters]), 0)
    vector = torch.randn(rows.shape, generator=torch_generator(seed + 300)).double()
    logits = policy(states)
    mean_kl = lib.categorical_kl(logits.detach(), logits).mean(1)
    for more, damping in (({}, 0.0), ({"damping": 0.1}, 0.1), ({"damping": 2.0}, 2.0)):
        found = lib.fisher_vector_product(mean_kl, parameters, vector, **more)
        for s in range(2):
            F = explicit_fisher(policy, states, s) + damping * np.eye(rows.shape[1])
            close(found[s], F @ vector[s].numpy(), 1e-10)


def systems(seed, count=3, size=5):
    """Positive definite matrices [count, size, size] and right sides [count, size]."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(count, size, size))
    return roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(size), rng.normal(size=(count, size))


def check_conjugate_gradient(lib, seed):
    """The solution after D products; after fewer the best point of the Krylov space; rest at the tolerance."""
    H, b = systems(seed)
    close(lib.conjugate_gradient(lambda x: (H @ x[..., None])[..., 0], b, iterations=5),
          np.linalg.solve(H, b[..., None])[..., 0], 1e-6)
    for k in (1, 2, 3, 4):
        found = lib.conjugate_gradient(lambda x: (H @ x[..., None])[..., 0], b, iterations=k)
        close(found, np.stack([oracle.krylov_minimiser(*system, k) for system in zip(H, b)]), 1e-7)
    for one, side in zip(H, b):
        residuals = [np.linalg.norm(side - one @ oracle.krylov_minimiser(one, side, k)) for k in (1, 2, 3, 4)]
        between = sorted(residuals)[0] * 1.01
        found = lib.conjugate_gradient(lambda x: one @ x, side, iterations=5, tolerance=between)
        close(found, oracle.krylov_minimiser(one, side, next(k + 1 for k in range(4) if residuals[k] <= between)), 1e-7)


@EXAMPLES
@given(SEEDS)
def test_estimators(seed):
    logits, ref = laws(seed)
    if abs(oracle.kl(oracle.softmax(logits), oracle.softmax(ref))
           - oracle.kl(oracle.softmax(ref), oracle.softmax(logits))) > 1e-2:
        check_estimators(LIB, seed)


@EXAMPLES
@given(st.tuples(SEEDS, BATCHES))
def test_categorical_kl(case):
    check_categorical_kl(LIB, case)


@pytest.mark.parametrize("seed", range(3))
def test_fisher(seed):
    check_fisher(LIB, seed)


@FEW
@given(st.integers(0, 50))
def test_conjugate_gradient(seed):
    check_conjugate_gradient(LIB, seed)


# --- second opinions, and facts that chapters rely on --------------------------------------------------------------

@EXAMPLES
@given(SEEDS)
def test_categorical_kl_is_that_of_torch_distributions(seed):
    p, q = torch.tensor(laws(seed, (2, 3, 4)))
    first, second = (torch.distributions.Categorical(logits=x) for x in (p, q))
    close(kl.categorical_kl(p, q), torch.distributions.kl_divergence(first, second).numpy())


def test_value_and_slope_of_the_kl_vanish_at_the_policy_itself():
    logits = torch.tensor(laws(0)[0], requires_grad=True)
    value = kl.categorical_kl(logits.detach(), logits)
    assert value.item() == 0
    assert torch.autograd.grad(value, logits)[0].abs().max() < 1e-15


def test_large_logits_and_sure_actions_stay_finite():
    for convert in (np.array, torch.tensor):
        near, far = convert([1000.0, 0.0, -1000.0]), convert([0.0, 1000.0, -1000.0])
        close(kl.categorical_kl(near, near), 0.0)
        close(kl.categorical_kl(near, far), 1000.0)


def test_estimators_near_zero_keep_their_digits():
    """k3 of a log-ratio of 1e-6 is 5e-13: exp(-x) - 1 + x would leave three digits of it."""
    for dtype, tolerance in ((np.float64, 1e-5), (np.float32, 0.2)):
        found = kl.k3(np.array([1e-3, 1e-6][dtype is np.float64], dtype), np.zeros((), dtype))
        exact = [5e-7, 5e-13][dtype is np.float64]
        assert abs(found / exact - 1) < max(tolerance, 1e-3)


@EXAMPLES
@given(SEEDS)
def test_k3_is_k1_plus_a_control_variate_of_mean_zero(seed):
    logits, ref = laws(seed)
    log_p, log_q = np.log(oracle.softmax(logits)), np.log(oracle.softmax(ref))
    difference = kl.k3(log_p, log_q) - kl.k1(log_p, log_q)
    close(difference, np.exp(log_q - log_p) - 1)
    assert abs(np.exp(log_p) @ difference) < 1e-12


def test_the_fisher_vector_product_is_the_second_difference_of_the_kl():
    """2 KL(old || old + eps v) / eps^2 -> v.Fv."""
    policy, states = small_policies(3)
    parameters, old = list(policy.parameters()), policy(states).detach()
    vector = torch.randn(kl.flatten(parameters).shape, generator=torch_generator(0)).double()
    logits = policy(states)
    product = kl.fisher_vector_product(kl.categorical_kl(old, logits).mean(1), parameters, vector)
    with torch.no_grad():
        sizes = [p[0].numel() for p in parameters]
        for p, part in zip(parameters, vector.split(sizes, 1)):
            p += 1e-4 * part.view_as(p)
        moved = kl.categorical_kl(old, policy(states)).mean(1)
    close(2 * moved / 1e-8, (product * vector).sum(1).numpy(), 2e-3)


def test_one_seeds_states_do_not_reach_the_others_product():
    products = []
    for shift in (0.0, 1.0):
        policy, states = small_policies(0, seeds=3)
        states[1] += shift
        logits, parameters = policy(states), list(policy.parameters())
        mean_kl = kl.categorical_kl(logits.detach(), logits).mean(1)
        products.append(kl.fisher_vector_product(mean_kl, parameters, kl.flatten(parameters).detach(), damping=0.1))
    assert torch.equal(products[0][[0, 2]], products[1][[0, 2]]) and not torch.equal(products[0][1], products[1][1])


def test_conjugate_gradient_keeps_kind_and_precision():
    H, b = systems(1)
    exact = np.linalg.solve(H, b[..., None])[..., 0]
    for dtype, tolerance in ((np.float64, 1e-8), (np.float32, 1e-2)):
        A, side = H.astype(dtype), b.astype(dtype)
        found = kl.conjugate_gradient(lambda x: (A @ x[..., None])[..., 0], side, iterations=20)
        assert isinstance(found, np.ndarray) and found.dtype == dtype
        close(found, exact, tolerance)
        A, side = torch.tensor(A), torch.tensor(side)
        found = kl.conjugate_gradient(lambda x: (A @ x[..., None])[..., 0], side, iterations=20)
        assert isinstance(found, torch.Tensor) and found.dtype == side.dtype
        close(found, exact, tolerance)


def test_conjugate_gradient_of_nothing_and_of_one_number():
    assert kl.conjugate_gradient(lambda x: x, np.zeros((2, 3)), iterations=5).tolist() == [[0, 0, 0]] * 2
    close(kl.conjugate_gradient(lambda x: 4 * x, np.array([2.0]), iterations=1), [0.5], 0)
    rests = kl.conjugate_gradient(lambda x: 4 * x, np.array([[2.0], [0.0]]), iterations=9)
    close(rests, [[0.5], [0.0]], 0)


def test_a_solved_system_rests_while_the_others_go_on():
    """The first needs one product, the second three: the first is the same to the last bit."""
    D = np.array([[2.0, 2.0, 2.0], [1.0, 3.0, 9.0]])
    b, calls = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 2.0]]), []

    def product(x):
        calls.append(x)
        return D * x
    found = kl.conjugate_gradient(product, b, iterations=10)
    close(found, b / D, 1e-12)
    assert len(calls) == 3
    one = kl.conjugate_gradient(lambda x: 2 * x, b[0], iterations=10)
    assert np.array_equal(found[0], one)


def test_a_singular_matrix_is_solved_in_its_range():
    """Softmax logits: F 1 = 0. From a gradient, conjugate gradient finds the solution of least norm."""
    pi = np.array(oracle.softmax([0.2, -0.3, 0.5]))
    F, g = np.diag(pi) - np.outer(pi, pi), pi * (np.array([1.0, 0.0, 2.0]) - pi @ [1.0, 0.0, 2.0])
    for iterations in (2, 3, 10):
        close(kl.conjugate_gradient(lambda x: F @ x, g, iterations=iterations), np.linalg.pinv(F) @ g, 1e-12)


# --- kinds of arrays, and what is refused --------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["k1", "k2", "k3", "categorical_kl"])
def test_kind_and_precision_are_kept(name):
    function, (first, second) = getattr(kl, name), laws(2, (3, 4))
    exact = function(first, second)
    assert isinstance(exact, np.ndarray) and exact.dtype == np.float64
    assert function(first.astype(np.float32), second.astype(np.float32)).dtype == np.float32
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        found = function(torch.tensor(first, dtype=dtype), torch.tensor(second, dtype=dtype))
        assert isinstance(found, torch.Tensor) and found.dtype == dtype
        close(found, exact, tolerance)
    close(function(first.tolist(), second.tolist()), exact)


@pytest.mark.parametrize("name, arguments", [
    ("k1", ("log_probs", "ref_log_probs")), ("k2", ("log_probs", "ref_log_probs")),
    ("k3", ("log_probs", "ref_log_probs")), ("categorical_kl", ("p_logits", "q_logits"))])
def test_bad_arrays_are_refused_by_name(name, arguments):
    function, good = getattr(kl, name), np.zeros(3)
    for bad, wanted in ((np.array([0, np.nan, 0]), "finite"), (np.array([0, -np.inf, 0]), "finite"),
                        (np.array(["a"] * 3), "real numbers")):
        for position, argument in enumerate(arguments):
            arrays = [good, good]
            arrays[position] = bad
            with pytest.raises(ValueError, match=f"^{argument}: expected .*{wanted}"):
                function(*arrays)
    with pytest.raises(ValueError, match=rf"^{arguments[1]}: expected the shape of {arguments[0]}, \(3,\), got \(2,\)"):
        function(good, np.zeros(2))
    with pytest.raises(ValueError, match=f"^{arguments[1]}: expected the same library"):
        function(good, torch.zeros(3))


def test_what_categorical_kl_and_the_product_refuse():
    with pytest.raises(ValueError, match="^p_logits: expected the shape"):
        kl.categorical_kl(np.array(1.0), np.array(1.0))
    theta = torch.zeros(2, 3, requires_grad=True)
    mean_kl, vector = kl.categorical_kl(theta.detach(), theta), torch.ones(2, 3)
    for change, name in ((dict(vector=torch.ones(2, 4)), "vector"), (dict(vector=vector * torch.nan), "vector"),
                         (dict(mean_kl=mean_kl.sum()), "mean_kl"), (dict(parameters=[]), "parameters"),
                         (dict(damping=-1.0), "damping"), (dict(damping=None), "damping")):
        arguments = dict(mean_kl=mean_kl, parameters=[theta], vector=vector) | change
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            kl.fisher_vector_product(**arguments)


@pytest.mark.parametrize("change, name", [
    (dict(b=np.array(1.0)), "b"), (dict(b=np.array([np.nan])), "b"), (dict(iterations=0), "iterations"),
    (dict(tolerance=-1.0), "tolerance"), (dict(apply_matrix=lambda x: -x), "apply_matrix"),
    (dict(apply_matrix=lambda x: 0 * x), "apply_matrix"), (dict(apply_matrix=lambda x: x * np.nan), "apply_matrix"),
    (dict(apply_matrix=lambda x: x[:1]), "apply_matrix")])
def test_what_conjugate_gradient_refuses(change, name):
    arguments = dict(apply_matrix=lambda x: x, b=np.ones(2), iterations=3) | change
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        kl.conjugate_gradient(arguments.pop("apply_matrix"), arguments.pop("b"), **arguments)
