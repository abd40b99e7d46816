"""Finite worlds against brute force: random ones, with and without terminal states, discount and horizon."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch
from cases import ENDLESS, EXAMPLES, FEW, LARGER, SEEDS, WORLDS, close, laws, world
from hypothesis import given
from hypothesis import strategies as st

from utils import mdp

LIB = SimpleNamespace(**vars(mdp))


def walks_of(w, policy, horizon=None, start=None):
    initial = w.initial if start is None else np.eye(len(w.initial))[start]
    horizon = w.horizon if horizon is None else horizon
    return list(oracle.walks(initial, w.transition, w.reward, horizon, policy, w.terminal))


def random_score(w, *parameters):
    return np.random.default_rng(0).normal(size=(*w.reward.shape, *parameters))


# --- what the functions are, whatever the world (test_mutants.py runs these with wrong variants) -------------------

def check_trajectories(lib, w):
    """The same trajectories, probabilities and rewards as nested loops find; zeros after the end."""
    policy = lib.softmax_policy(w.theta)
    every = lib.trajectories(w.build(lib), policy)
    T, found = w.horizon, {}
    assert every.states.shape == (T + 1, len(every.probabilities)) and every.actions.shape == every.mask.shape
    for i, length in enumerate(every.lengths):
        assert every.mask[:, i].tolist() == [True] * length + [False] * (T - length)
        assert not every.actions[length:, i].any() and not every.rewards[length:, i].any()
        assert (every.states[length:, i] == every.states[length, i]).all()
        key = tuple(every.states[:length + 1, i].tolist()), tuple(every.actions[:length, i].tolist())
        assert key not in found, "a trajectory is listed twice"
        found[key] = every.probabilities[i], every.rewards[:length, i]
    expected = {(tuple(states), tuple(actions)): (p, paid) for p, states, actions, paid in walks_of(w, policy)}
    assert found.keys() == expected.keys()
    for key, (p, paid) in expected.items():
        close(found[key][0], p, 1e-15)
        close(found[key][1], paid, 0)
    close(every.probabilities.sum(), 1, 1e-12)
    returns = every.returns(w.gamma)
    mean = oracle.expectation(walks_of(w, policy), lambda s, a, r: oracle.discounted(r, w.gamma))
    close(every.probabilities @ returns, mean)


def check_moments(lib, seed, shape=(3, 2)):
    rng = np.random.default_rng(seed)
    p, x = laws(rng, 6), rng.normal(size=(6, *shape)) + 1
    mean, variance = lib.moments(p, x)
    expected = sum(p[i] * x[i] for i in range(6))
    close(mean, expected)
    close(variance, sum(p[i] * ((x[i] - expected) ** 2).sum() for i in range(6)))
    assert isinstance(variance, float)


def check_values(lib, w):
    """V of every state and step from the trajectories that start there, Q by one step of Bellman, 0 after the end."""
    policy = lib.softmax_policy(w.theta)
    values = lib.values(w.build(lib), policy)
    close(values.V[-1], np.zeros(len(w.initial)), 0)
    for t, s in np.ndindex(w.horizon, len(w.initial)):
        rest = walks_of(w, policy, w.horizon - t, start=s)
        close(values.V[t, s], oracle.expectation(rest, lambda states, actions, r: oracle.discounted(r, w.gamma)))
    for t in range(w.horizon):
        for s, a in np.ndindex(w.reward.shape):
            after = sum(w.transition[s, a, x] * values.V[t + 1, x] for x in range(len(w.initial)))
            close(values.Q[t, s, a], 0 if w.terminal[s] else w.reward[s, a] + w.gamma * after)
    close(values.A, values.Q - values.V[:-1, :, None], 1e-12)


def check_endless(lib, w):
    """An endless discounted world is the limit of long finite ones: gamma^400 is nothing."""
    policy, horizon = lib.softmax_policy(w.theta), 400
    gamma = min(w.gamma, 0.9)
    endless, long = (replace(w, gamma=gamma, horizon=T).build(lib) for T in (None, horizon))
    found, expected = lib.values(endless, policy), lib.values(long, policy)
    close(found.V, expected.V[0])
    close(found.Q, expected.Q[0])
    close(found.A, expected.A[0])
    close(found.V, (policy * found.Q).sum(-1))
    close(found.Q, (w.reward + gamma * w.transition @ found.V) * ~w.terminal[:, None])
    discounts = gamma ** np.arange(horizon)
    met = lib.visitation(endless, policy)
    close(met, discounts @ lib.visitation(long, policy))
    if not w.terminal.any():
        close(met.sum(), 1 / (1 - gamma))
    close(lib.objective(endless, policy), w.initial @ found.V)
    close(lib.objective(endless, policy), (met[:, None] * policy * w.reward).sum())
    score = random_score(w, 2)
    close(lib.policy_gradient(endless, policy, score), lib.policy_gradient(long, policy, score), 1e-9)


def check_objective(lib, w):
    """Four ways: walks, values, visits times rewards, autograd's backward induction."""
    policy, built = lib.softmax_policy(w.theta), w.build(lib)
    J = oracle.expectation(walks_of(w, policy), lambda s, a, r: oracle.discounted(r, w.gamma))
    close(lib.objective(built, policy), J)
    close(w.initial @ lib.values(built, policy).V[0], J)
    visits = w.gamma ** np.arange(w.horizon) @ lib.visitation(built, policy)
    close((visits[:, None] * policy * w.reward).sum(), J)
    close(oracle.objective_gradient(w.theta, *arrays_of(w), terminal=w.terminal)[0], J)
    assert isinstance(lib.objective(built, policy), float)


def arrays_of(w):
    return w.initial, w.transition, w.reward, w.horizon, w.gamma


def check_visitation(lib, w):
    policy = lib.softmax_policy(w.theta)
    S = len(w.initial)

    def met(states, actions, rewards):
        table = np.zeros((w.horizon, S))
        for t, s in enumerate(states[:len(actions)]):
            table[t, s] = 1
        return table
    found = lib.visitation(w.build(lib), policy)
    close(found, oracle.expectation(walks_of(w, policy), met))
    if not w.terminal.any():
        close(found.sum(1), np.ones(w.horizon))


def check_policy_gradient(lib, w):
    """Autograd through the model, finite differences, REINFORCE and, for any score table at all, reward-to-go."""
    policy, score, built = lib.softmax_policy(w.theta), lib.softmax_score(w.theta), w.build(lib)
    found = lib.policy_gradient(built, policy, score)
    close(found, oracle.objective_gradient(w.theta, *arrays_of(w), terminal=w.terminal)[1])
    close(found, oracle.differences(lambda theta: lib.objective(built, lib.softmax_policy(theta)), w.theta), 1e-8)
    every = lib.trajectories(built, policy)
    reinforce = every.returns(w.gamma)[:, None, None] * every.scores(score).sum(0)
    close(lib.moments(every.probabilities, reinforce)[0], found)
    togo = oracle.columns(lambda t, r: w.gamma ** t * oracle.return_to_go(t, r, w.gamma), every.rewards)
    for parameters in ((), (4,), (2, 3)):
        table = random_score(w, *parameters)
        estimate = np.einsum("tn,tn...->n...", togo, every.scores(table))
        close(lib.policy_gradient(built, policy, table), lib.moments(every.probabilities, estimate)[0])


def check_pair_chain(lib, w):
    w = replace(w, terminal=np.zeros(len(w.initial), bool), horizon=3)
    policy, built = lib.softmax_policy(w.theta), w.build(lib)
    kernel = lib.pair_chain(built, policy)
    close(kernel.sum(1), np.ones(policy.size))
    A, every = policy.shape[1], lib.trajectories(built, policy)
    law = [np.bincount(every.states[t] * A + every.actions[t], every.probabilities, policy.size) for t in range(3)]
    close(law[0], (w.initial[:, None] * policy).ravel())
    close(law[0] @ kernel, law[1])
    close(law[1] @ kernel, law[2])


def check_softmax(lib, w):
    policy = lib.softmax_policy(w.theta)
    close(policy, np.exp(w.theta) / np.exp(w.theta).sum(-1, keepdims=True))
    score = lib.softmax_score(w.theta)
    close((policy[:, :, None, None] * score).sum(1), np.zeros((len(policy), *policy.shape)))
    for s, a in np.ndindex(policy.shape):
        slope = oracle.differences(lambda theta: np.log(lib.softmax_policy(theta)[s, a]), w.theta)
        close(score[s, a], slope, 1e-8)


def check_sigmoid(lib, theta, states=2):
    policy, score = lib.sigmoid_policy(theta, states), lib.sigmoid_score(theta, states)
    assert policy.shape == (states, 2) and score.shape == (states, 2, 1)
    close(policy, [[1 - 1 / (1 + np.exp(-theta)), 1 / (1 + np.exp(-theta))]] * states)
    for s, a in np.ndindex(states, 2):
        slope = oracle.differences(lambda x: np.log(lib.sigmoid_policy(float(x), states)[s, a]), theta)
        close(score[s, a, 0], slope, 1e-8)


def check_sampling(lib, w, n=40_000):
    """Every sampled trajectory is a possible one, and no frequency is off by more than five standard errors.

    One frequency misses by five standard errors once in 1.7 million draws; the seed is fixed besides.
    """
    policy, built = lib.softmax_policy(w.theta), w.build(lib)
    drawn = lib.sample_trajectories(built, policy, n, np.random.default_rng(0))
    every = lib.trajectories(built, policy)

    def rows(t):
        return [tuple(column) for column in np.vstack([t.states, t.actions]).T.tolist()]
    number = {row: i for i, row in enumerate(rows(every))}
    index = np.array([number[row] for row in rows(drawn)])               # KeyError: an impossible trajectory
    close(drawn.rewards, every.rewards[:, index], 0)
    assert (drawn.mask == every.mask[:, index]).all() and (drawn.probabilities == 1 / n).all()
    p, frequency = every.probabilities, np.bincount(index, minlength=len(number)) / n
    likely = n * p * (1 - p) > 25                                        # where a normal law is near enough
    assert (np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / n))[likely].all()
    mean, variance = lib.moments(p, every.returns(w.gamma))
    assert abs(drawn.returns(w.gamma).mean() - mean) <= 5 * np.sqrt(variance / n) + 1e-12


@EXAMPLES
@given(WORLDS)
def test_trajectories(w):
    check_trajectories(LIB, w)


@EXAMPLES
@given(SEEDS, st.sampled_from([(), (1,), (3, 2), (2, 2, 2)]))
def test_moments(seed, shape):
    check_moments(LIB, seed, shape)


@FEW
@given(WORLDS)
def test_values(w):
    check_values(LIB, w)


@EXAMPLES
@given(ENDLESS)
def test_endless_worlds(w):
    check_endless(LIB, w)


@EXAMPLES
@given(WORLDS)
def test_objective(w):
    check_objective(LIB, w)


@EXAMPLES
@given(WORLDS)
def test_visitation(w):
    check_visitation(LIB, w)


@FEW
@given(WORLDS)
def test_policy_gradient(w):
    check_policy_gradient(LIB, w)


@EXAMPLES
@given(LARGER)
def test_policy_gradient_of_larger_worlds(w):
    """Too many trajectories to list, but not for autograd."""
    built, score = w.build(mdp), mdp.softmax_score(w.theta)
    J, gradient = oracle.objective_gradient(w.theta, *arrays_of(w), terminal=w.terminal)
    close(mdp.objective(built, mdp.softmax_policy(w.theta)), J)
    close(mdp.policy_gradient(built, mdp.softmax_policy(w.theta), score), gradient)


@EXAMPLES
@given(WORLDS)
def test_pair_chain(w):
    check_pair_chain(LIB, w)


@FEW
@given(WORLDS)
def test_softmax(w):
    check_softmax(LIB, w)


@FEW
@given(st.floats(-5, 5), st.integers(1, 3))
def test_sigmoid(theta, states):
    check_sigmoid(LIB, theta, states)


@pytest.mark.parametrize("seed", range(4))
def test_sampling(seed):
    check_sampling(LIB, world(seed, 3, 2, 3))


# --- details -------------------------------------------------------------------------------------------------------

def test_logits_of_any_size():
    with np.errstate(all="raise", under="ignore"):
        close(mdp.softmax_policy([[1e4, 0.0, -1e4], [800, 800, 800]]), [[1, 0, 0], [1 / 3] * 3], 1e-15)
        close(mdp.sigmoid_policy(1e4), [[0, 1]], 0)
        close(mdp.sigmoid_policy(-1e4), [[1, 0]], 0)
        assert mdp.sigmoid_policy(40.0)[0, 0] > 0                        # 1 - p alone would round to 0
        score = mdp.sigmoid_score(40.0)
        assert score.shape == (1, 2, 1)
        close(score[0, 1, 0], np.exp(-40.0), 1e-30)


def test_sampling_never_draws_the_impossible():
    """rng.random() may return exactly 0: the outcome of probability 0 that stands first must not be drawn."""
    class Zero(np.random.Generator):
        def random(self, *args, **more):
            return np.zeros(*args, **more)
    built = mdp.FiniteMDP([0, 1], np.tile([0.0, 1.0], (2, 2, 1)), np.ones((2, 2)), horizon=2)
    drawn = mdp.sample_trajectories(built, [[0, 1], [0, 1]], 3, Zero(np.random.PCG64(0)))
    assert (drawn.states == 1).all() and (drawn.actions == 1).all()


def test_sampling_is_reproducible():
    built, theta = mdp.two_state_mdp()
    first, again, other = (mdp.sample_trajectories(built, mdp.softmax_policy(theta), 50, np.random.default_rng(seed))
                           for seed in (1, 1, 2))
    assert np.array_equal(first.states, again.states) and np.array_equal(first.actions, again.actions)
    assert not np.array_equal(first.states, other.states)


def test_an_episode_may_be_over_before_it_starts():
    built = mdp.FiniteMDP([1, 0], np.ones((2, 1, 2)) / 2, np.ones((2, 1)), horizon=3, terminal=[1, 0])
    policy = np.ones((2, 1))
    sampled = mdp.sample_trajectories(built, policy, 4, np.random.default_rng(0))
    for t in (mdp.trajectories(built, policy), sampled):
        assert (t.lengths == 0).all() and (t.returns() == 0).all() and (t.states == 0).all()
    assert mdp.objective(built, np.ones((2, 1))) == 0
    close(mdp.visitation(built, np.ones((2, 1))), np.zeros((3, 2)), 0)


def test_one_state_one_action_one_step():
    built = mdp.bandit([2.0])
    assert mdp.objective(built, [[1.0]]) == 2
    assert mdp.trajectories(built, [[1.0]]).returns().tolist() == [2.0]
    close(mdp.policy_gradient(built, [[1.0]], mdp.softmax_score([[7.0]])), [[0.0]], 0)


def test_too_many_trajectories_are_refused_before_they_are_made():
    built, theta = mdp.two_state_mdp()
    with pytest.raises(ValueError, match="^mdp: expected at most 2000000 trajectories, got .* or more"):
        mdp.trajectories(replace(built, horizon=60), mdp.softmax_policy(theta))
    wide = mdp.FiniteMDP(np.ones(200) / 200, np.full((200, 50, 200), 1 / 200), np.zeros((200, 50)), horizon=3)
    with pytest.raises(ValueError, match="^mdp: expected at most 2000000 trajectories, got 80000000"):
        mdp.trajectories(replace(wide, initial=np.eye(200)[:8].mean(0), horizon=2), np.full((200, 50), 1 / 50))


def test_arguments_are_copied():
    initial, transition, reward = np.array([1.0]), np.ones((1, 1, 1)), np.ones((1, 1))
    built = mdp.FiniteMDP(initial, transition, reward, horizon=1)
    reward[:] = initial[:] = 9
    assert built.reward[0, 0] == 1 and built.initial[0] == 1
    theta = np.zeros((2, 2))
    mdp.softmax_policy(theta)[:] = 5
    assert not theta.any()


def test_tensors_and_single_precision_are_accepted():
    built, theta = mdp.two_state_mdp()
    J = mdp.objective(built, mdp.softmax_policy(theta))
    logits = torch.tensor(theta, requires_grad=True)
    close(mdp.objective(built, torch.softmax(logits, -1)), J, 1e-12)
    close(mdp.objective(built, torch.softmax(logits.float(), -1)), J, 1e-6)
    close(mdp.softmax_policy(logits), mdp.softmax_policy(theta), 0)
    whole = mdp.FiniteMDP(torch.tensor([1]), [[[1]]], [[3]], np.int64(2), gamma=np.float32(0.5), terminal=[False])
    assert mdp.objective(whole, [[1]]) == 4.5 and isinstance(whole.gamma, float) and isinstance(whole.horizon, int)


def test_worlds_are_compared_by_identity():
    one, other = mdp.bandit([1.0, 2.0]), mdp.bandit([1.0, 2.0])
    assert one == one and one != other and len({one, other}) == 2


def test_an_endless_world_with_an_end():
    """Two states: stay with probability 1/2, reward 1 a step, else the end; V = 1 / (1 - gamma / 2)."""
    built = mdp.FiniteMDP([1, 0], [[[0.5, 0.5]], [[0, 1]]], [[1.0], [5.0]], gamma=0.8, terminal=[0, 1])
    values = mdp.values(built, [[1.0], [1.0]])
    close(values.V, [1 / 0.6, 0], 1e-15)
    close(values.Q, [[1 / 0.6], [0]], 1e-15)
    close(mdp.visitation(built, [[1.0], [1.0]]), [1 / 0.6, 0], 1e-15)
    with pytest.raises(ValueError, match="^mdp: expected a finite horizon for an enumeration, got horizon None"):
        mdp.trajectories(built, [[1.0], [1.0]])


# --- test-beds -----------------------------------------------------------------------------------------------------

def test_test_beds():
    arms, theta = mdp.three_armed_bandit()
    assert arms.reward.tolist() == [[1, 0, 2]] and theta.shape == (1, 3) and arms.horizon == 1
    built, theta = mdp.two_state_mdp()
    assert (built.horizon, built.gamma, built.reward.tolist(), theta.tolist()) == (
        3, 1, [[1, 0], [0, 2]], [[0.3, -0.2], [0.1, 0.4]])
    assert len(mdp.trajectories(built, mdp.softmax_policy(theta)).probabilities) == 128
    assert mdp.two_state_mdp(gamma=0.9)[0].gamma == 0.9
    built, theta = mdp.three_state_mdp()
    assert built.horizon is None and built.gamma == 0.9 and theta.shape == (3, 2)
    close(mdp.visitation(built, mdp.softmax_policy(theta)).sum(), 10)
    assert mdp.three_state_mdp(gamma=0.5)[0].gamma == 0.5
    model, theta, reference = mdp.two_token_language_model()
    every = mdp.trajectories(model, mdp.softmax_policy(theta))
    assert len(every.probabilities) == 9 and (every.lengths == 2).all() and reference.shape == theta.shape
    assert every.returns().tolist() == [1.0, 0.0, 0.5, -1.0, 2.0, 0.0, 0.3, -0.2, 1.5]
    choice, theta = mdp.short_or_long()
    every = mdp.trajectories(choice, mdp.softmax_policy(theta))
    assert {(int(l), float(r)) for l, r in zip(every.lengths, every.returns())} == {(1, 1.0), (10, 2.0)}
    assert len(every.probabilities) == 513 and np.isclose(every.probabilities[every.lengths == 1].sum(), 0.5)


def test_step_mean_by_brute_force():
    """Row T2.8 takes one long episode for all of them; here all 513 trajectories, and all their pairs, are listed."""
    choice, theta = mdp.short_or_long()
    every = mdp.trajectories(choice, mdp.softmax_policy(theta))
    p, lengths = every.probabilities, every.lengths
    weighted = every.returns()[:, None, None] * every.scores(mdp.softmax_score(theta)).sum(0)
    one = np.tensordot(p, weighted / lengths[:, None, None], 1)
    two = sum(p[i] * np.tensordot(p, (weighted[i] + weighted) / (lengths[i] + lengths)[:, None, None], 1)
              for i in range(len(p)))
    close(one[0], [0.2, -0.2])
    close(two[0], [17 / 220, -17 / 220])
    close(np.stack([one, two])[:, 1:], np.zeros((2, 10, 2)))
