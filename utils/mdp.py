"""Small worlds in which every trajectory can be listed and every expectation is a finite sum. NumPy, float64.

A world is a `FiniteMDP`; a policy is a table `policy[s, a]` of probabilities; its score is a table
`score[s, a, ...]`, the gradient of log policy[s, a] with respect to the parameters "...". `trajectories` lists all that
can happen, with probabilities; an exact expectation is then `moments(probabilities, estimates)`.
The test-beds of the book stand at the end.
"""
from dataclasses import dataclass

import numpy as np

from .estimators import discounted_returns
from .validate import flags, float64, in_range, whole

MAX_TRAJECTORIES = 2_000_000


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """S states, A actions, everything known.

    initial [S]: law of s_1.  transition [S, A, S]: transition[s, a, s'] = P(s' | s, a).  reward [S, A]: r(s, a).
    horizon: number of steps T, or None for a discounted world that goes on for ever (then gamma < 1).
    gamma in [0, 1]: discount factor.  terminal [S] bool or None: states in which the episode is over (no action, no
    reward, value 0). Raises ValueError when a law does not sum to 1 or a shape does not fit.
    """
    initial: np.ndarray
    transition: np.ndarray
    reward: np.ndarray
    horizon: int | None = None
    gamma: float = 1.0
    terminal: np.ndarray | None = None

    def __post_init__(self):
        transition = float64("transition", self.transition)
        if transition.ndim != 3 or transition.shape[0] != transition.shape[2]:
            raise ValueError(f"transition: expected the shape [S, A, S], got {transition.shape}")
        states, actions, _ = transition.shape
        initial = _table("initial", self.initial, (states,))
        reward = _table("reward", self.reward, (states, actions))
        terminal = flags("terminal", np.zeros(states) if self.terminal is None else self.terminal, initial)
        gamma = in_range("gamma", self.gamma, 0, 1)
        horizon = None if self.horizon is None else whole("horizon", self.horizon)
        if horizon is None and gamma == 1:
            raise ValueError("gamma: expected a number < 1 when horizon is None, got 1")
        _law("initial", initial)
        _law("transition", transition)
        for name, value in (("initial", initial), ("transition", transition), ("reward", reward),
                            ("horizon", horizon), ("gamma", gamma), ("terminal", terminal)):
            object.__setattr__(self, name, value)


def _table(name, value, shape):
    table = float64(name, value)
    if table.shape != shape:
        raise ValueError(f"{name}: expected the shape {shape}, got {table.shape}")
    return table


def _law(name, table):
    sums = table.sum(-1)
    if (table < 0).any() or (abs(sums - 1) > 1e-6).any():               # a policy in float32 passes
        raise ValueError(f"{name}: expected probabilities >= 0 that sum to 1 over the last axis, "
                         f"got sums {sums} and the smallest entry {table.min():g}")


def _policy(mdp, policy):
    if not isinstance(mdp, FiniteMDP):
        raise ValueError(f"mdp: expected a FiniteMDP, got {mdp!r}")
    policy = _table("policy", policy, mdp.reward.shape)
    _law("policy", policy)
    return policy


def _score(score, states, actions):
    score = float64("score", score)
    if score.shape[:2] != (states, actions):
        raise ValueError(f"score: expected the shape [S, A, ...] with S, A = {states, actions}, got {score.shape}")
    return score


def _finite_horizon(mdp, what):
    if mdp.horizon is None:
        raise ValueError(f"mdp: expected a finite horizon for {what}, got horizon None")


# --- policies ------------------------------------------------------------------------------------------------------

def softmax_policy(theta):
    """theta [S, A] of logits -> policy [S, A] with policy[s, a] = exp(theta[s, a]) / sum_b exp(theta[s, b])."""
    theta = float64("theta", theta)
    if theta.ndim != 2:
        raise ValueError(f"theta: expected the shape [S, A], got {theta.shape}")
    weights = np.exp(theta - theta.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def softmax_score(theta):
    """theta [S, A] -> score [S, A, S, A]: d log policy[s, a] / d theta[s', b] = 1{s = s'} (1{a = b} - policy[s, b])."""
    policy = softmax_policy(theta)
    states, actions = policy.shape
    score = np.zeros((states, actions, states, actions))
    for s in range(states):
        score[s, :, s, :] = np.eye(actions) - policy[s]
    return score


def sigmoid_policy(theta, states=1):
    """One logit shared by all states -> policy [states, 2]: action 1 has the probability 1 / (1 + exp(-theta))."""
    return np.tile(softmax_policy([[0, in_range("theta", theta)]]), (whole("states", states), 1))


def sigmoid_score(theta, states=1):
    """Score [states, 2, 1] of `sigmoid_policy`: -p for action 0, 1 - p for action 1."""
    (q, p), states = sigmoid_policy(theta)[0], whole("states", states)
    return np.tile(np.array([[-p], [q]]), (states, 1, 1))


# --- everything that can happen ------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Trajectories:
    """N trajectories, time first. After an episode's end (mask False) actions and rewards are 0, the state stays.

    states [T + 1, N], actions [T, N], rewards [T, N], mask [T, N] (True where a step was taken), probabilities [N].
    """
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    mask: np.ndarray
    probabilities: np.ndarray

    @property
    def lengths(self):
        """Number of steps of each trajectory, [N]."""
        return self.mask.sum(0)

    def returns(self, gamma=1.0):
        """Discounted return of each trajectory, [N]."""
        return discounted_returns(self.rewards, gamma=gamma)[0]

    def scores(self, score):
        """score [S, A, ...] -> score of each step, [T, N, ...]; 0 after the end."""
        score, least = float64("score", score), (int(self.states.max()) + 1, int(self.actions.max()) + 1)
        if score.ndim < 2 or score.shape[0] < least[0] or score.shape[1] < least[1]:
            raise ValueError(f"score: expected the shape [S, A, ...] with S, A >= {least}, got {score.shape}")
        steps = score[self.states[:-1], self.actions]
        return steps * self.mask.reshape(self.mask.shape + (1,) * (score.ndim - 2))


def trajectories(mdp, policy):
    """All trajectories of positive probability: p(tau) = initial(s_1) prod_t policy(a_t | s_t) P(s_{t+1} | s_t, a_t).

    policy [S, A]. Returns `Trajectories`. Raises ValueError for an infinite horizon or too many trajectories.
    """
    policy = _policy(mdp, policy)
    _finite_horizon(mdp, "an enumeration")
    law = policy[:, :, None] * mdp.transition                  # [S, A, S'] what may come after a state
    law[mdp.terminal] = 0
    law[mdp.terminal, 0, mdp.terminal] = 1                     # the end: action 0, and the state stays
    branches = np.count_nonzero(law, axis=(1, 2))
    first = np.flatnonzero(mdp.initial)
    states, probabilities = first[None], mdp.initial[first]
    actions, mask = np.zeros((0, len(first)), int), np.zeros((0, len(first)), bool)
    for _ in range(mdp.horizon):
        count = branches[states[-1]].sum()
        if count > MAX_TRAJECTORIES:
            raise ValueError(f"mdp: expected at most {MAX_TRAJECTORIES} trajectories, got {count} or more")
        branch, running = law[states[-1]], ~mdp.terminal[states[-1]]
        parent, action, successor = np.nonzero(branch)
        states = np.vstack([states[:, parent], successor])
        actions, mask = np.vstack([actions[:, parent], action]), np.vstack([mask[:, parent], running[parent]])
        probabilities = probabilities[parent] * branch[parent, action, successor]
    return Trajectories(states, actions, mdp.reward[states[:-1], actions] * mask, mask, probabilities)


def sample_trajectories(mdp, policy, n, rng):
    """n independent trajectories drawn step by step from the policy and the world, with probabilities 1/n each.

    policy [S, A]; rng: a numpy Generator. Returns `Trajectories`.
    """
    policy, n = _policy(mdp, policy), whole("n", n)
    _finite_horizon(mdp, "a rollout")
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng: expected a numpy.random.Generator, got {rng!r}")
    states = np.zeros((mdp.horizon + 1, n), int)
    actions, mask = np.zeros((mdp.horizon, n), int), np.zeros((mdp.horizon, n), bool)
    states[0] = _draw(np.tile(mdp.initial, (n, 1)), rng)
    for t in range(mdp.horizon):
        mask[t] = ~mdp.terminal[states[t]]
        actions[t] = _draw(policy[states[t]], rng) * mask[t]
        states[t + 1] = np.where(mask[t], _draw(mdp.transition[states[t], actions[t]], rng), states[t])
    rewards = mdp.reward[states[:-1], actions] * mask
    return Trajectories(states, actions, rewards, mask, np.full(n, 1 / n))


def _draw(laws, rng):
    """One index from each row of `laws` [n, K]; never one of probability 0."""
    cumulative = laws.cumsum(-1)
    return (rng.random((len(laws), 1)) * cumulative[:, -1:] >= cumulative).sum(-1)


def moments(probabilities, estimates):
    """Exact mean and total variance of an estimator that gives estimates[i] with probability probabilities[i].

    probabilities [N], estimates [N, ...]. Returns (mean [...], trace of the covariance matrix).
    """
    probabilities, estimates = float64("probabilities", probabilities), float64("estimates", estimates)
    if probabilities.ndim != 1:
        raise ValueError(f"probabilities: expected the shape [N], got {probabilities.shape}")
    if estimates.shape[:1] != probabilities.shape:
        raise ValueError(f"estimates: expected the shape [N, ...] with N = {probabilities.size}, got {estimates.shape}")
    _law("probabilities", probabilities)
    mean = np.tensordot(probabilities, estimates, 1)
    squares = ((estimates - mean) ** 2).reshape(len(estimates), -1).sum(-1)
    return mean, float(probabilities @ squares)


# --- values, objective, gradient -----------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Values:
    """V, Q and A = Q - V of one policy. Finite horizon: V [T + 1, S], Q and A [T, S, A]; else V [S], Q and A [S, A]."""
    V: np.ndarray
    Q: np.ndarray
    A: np.ndarray


def values(mdp, policy):
    """Expected discounted reward still to come. Finite horizon: backwards in time from V_{T+1} = 0; the values depend
    on t. Infinite horizon: the linear equations of Bellman are solved.

    policy [S, A]. Returns `Values`. Source: Sutton & Barto (2018), section 3.5.
    """
    policy, alive = _policy(mdp, policy), ~mdp.terminal
    if mdp.horizon is None:
        step = np.einsum("sa,sax->sx", policy * alive[:, None], mdp.transition)
        V = np.linalg.solve(np.eye(len(step)) - mdp.gamma * step, (policy * mdp.reward).sum(-1) * alive)
        Q = (mdp.reward + mdp.gamma * mdp.transition @ V) * alive[:, None]
        return Values(V, Q, Q - V[:, None])
    V = np.zeros((mdp.horizon + 1, len(mdp.initial)))
    Q = np.zeros((mdp.horizon, *mdp.reward.shape))
    for t in reversed(range(mdp.horizon)):
        Q[t] = (mdp.reward + mdp.gamma * mdp.transition @ V[t + 1]) * alive[:, None]
        V[t] = (policy * Q[t]).sum(-1)
    return Values(V, Q, Q - V[:-1, :, None])


def objective(mdp, policy):
    """J: the expected discounted return from the initial distribution, a float."""
    V = values(mdp, policy).V
    return float(mdp.initial @ (V if mdp.horizon is None else V[0]))


def visitation(mdp, policy):
    """How often each state is met while the episode runs.

    Finite horizon: [T, S], the probability that s_t = s and the episode is not over. Infinite horizon: [S], the
    discounted sum over t of gamma^(t-1) Pr(s_t = s), total mass 1/(1 - gamma) without terminal states.
    """
    policy, alive = _policy(mdp, policy), ~mdp.terminal
    step = np.einsum("sa,sax->sx", policy * alive[:, None], mdp.transition)
    if mdp.horizon is None:
        return np.linalg.solve(np.eye(len(step)) - mdp.gamma * step.T, mdp.initial) * alive
    law = np.zeros((mdp.horizon, len(mdp.initial)))
    law[0] = mdp.initial
    for t in range(1, mdp.horizon):
        law[t] = law[t - 1] @ step
    return law * alive


def policy_gradient(mdp, policy, score):
    """Exact gradient of J by the policy gradient theorem: a sum over states and actions, no trajectory is listed.

    score [S, A, ...]. Returns the shape "...". Source: Sutton et al. (2000), theorem 1.
    """
    policy = _policy(mdp, policy)
    score = _score(score, *policy.shape)
    Q, law = values(mdp, policy).Q, visitation(mdp, policy)
    if mdp.horizon is not None:
        law = law * mdp.gamma ** np.arange(mdp.horizon)[:, None]
        return np.einsum("ts,sa,tsa,sa...->...", law, policy, Q, score)
    return np.einsum("s,sa,sa,sa...->...", law, policy, Q, score)


def pair_chain(mdp, policy):
    """Kernel of the Markov chain of pairs (s, a): [S A, S A] with entry P(s' | s, a) policy(a' | s'), a varying fastest."""
    policy = _policy(mdp, policy)
    pairs = policy.size
    return (mdp.transition[:, :, :, None] * policy).reshape(pairs, pairs)


# --- test-beds -----------------------------------------------------------------------------------------------------

def bandit(rewards):
    """One state, one step, arm a pays rewards[a]. rewards [A]. Returns a `FiniteMDP` (TB-A with two arms)."""
    rewards = float64("rewards", rewards)
    if rewards.ndim != 1:
        raise ValueError(f"rewards: expected the shape [A], got {rewards.shape}")
    return FiniteMDP([1.0], np.ones((1, len(rewards), 1)), rewards[None], horizon=1)


def three_armed_bandit():
    """TB-B: rewards (1, 0, 2). Returns (mdp, theta [1, 3]) for `softmax_policy`."""
    return bandit([1.0, 0.0, 2.0]), np.array([[0.2, -0.3, 0.5]])


def two_state_mdp(gamma=1.0):
    """TB-C: 2 states, 2 actions, 3 steps, 128 trajectories. Returns (mdp, theta [2, 2]) for `softmax_policy`."""
    transition = [[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.1, 0.9]]]
    mdp = FiniteMDP([0.6, 0.4], transition, [[1.0, 0.0], [0.0, 2.0]], horizon=3, gamma=gamma)
    return mdp, np.array([[0.3, -0.2], [0.1, 0.4]])


def three_state_mdp(gamma=0.9):
    """TB-D: 3 states, 2 actions, discounted, without an end. Returns (mdp, theta [3, 2]) for `softmax_policy`."""
    transition = [[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [[0.3, 0.4, 0.3], [0.2, 0.2, 0.6]],
                  [[0.5, 0.25, 0.25], [0.05, 0.15, 0.8]]]
    mdp = FiniteMDP([0.5, 0.3, 0.2], transition, [[0.0, 0.2], [1.0, 0.0], [0.3, 0.6]], gamma=gamma)
    return mdp, np.array([[0.1, -0.1], [0.2, 0.0], [-0.3, 0.3]])


def two_token_language_model():
    """TB-LM: two tokens from a vocabulary of 3, nine responses, the reward comes with the second token.

    State 0 is the empty prefix, states 1 to 3 the prefix of one token, state 4 the finished response.
    Returns (mdp, theta [5, 3], reference theta [5, 3]) for `softmax_policy`.
    """
    transition = np.zeros((5, 3, 5))
    transition[0, [0, 1, 2], [1, 2, 3]] = 1
    transition[1:, :, 4] = 1
    reward = np.zeros((5, 3))
    reward[1:4] = [[1.0, 0.0, 0.5], [-1.0, 2.0, 0.0], [0.3, -0.2, 1.5]]
    theta = [[0.0, 0.3, -0.27], [-0.89, -0.45, -0.99], [0.06, 1.34, -0.49], [-0.62, 0.49, 0.36], [0.0, 0.0, 0.0]]
    reference = [[0.11, -0.93, -0.03], [0.7, -1.34, -0.46], [-1.9, -1.29, -1.84], [-0.24, -1.27, 0.27], [0.0, 0.0, 0.0]]
    mdp = FiniteMDP(np.eye(5)[0], transition, reward, horizon=2, terminal=np.eye(5)[4])
    return mdp, np.array(theta), np.array(reference)


def short_or_long():
    """One decision fixes how long the episode lasts: action 0 pays 1 at once and ends it, action 1 plays on for a
    total of ten steps (the action no longer matters) and is paid 2 at the tenth.

    State 0 is the decision, states 1 to 9 the steps after it, state 10 the end. Returns (mdp, theta [11, 2]).
    """
    transition = np.zeros((11, 2, 11))
    transition[0, 0, 10] = transition[0, 1, 1] = transition[10, :, 10] = 1
    for s in range(1, 10):
        transition[s, :, s + 1] = 1
    reward = np.zeros((11, 2))
    reward[0, 0], reward[9] = 1, 2
    mdp = FiniteMDP(np.eye(11)[0], transition, reward, horizon=10, terminal=np.eye(11)[10])
    return mdp, np.zeros((11, 2))
