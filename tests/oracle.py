"""Second opinions: every quantity of utils computed again from its definition, slowly and without utils.

Explicit sums over trajectories and steps, Python loops, and torch autograd through the backward induction.
"""
import math
import statistics
from itertools import product

import numpy as np
import torch


# --- finite worlds -------------------------------------------------------------------------------------------------

def walks(initial, transition, reward, horizon, policy, terminal=None):
    """Yield (probability, states, actions, rewards) of every trajectory of positive probability, one at a time."""
    states, actions = np.shape(reward)
    terminal = np.zeros(states, bool) if terminal is None else terminal

    def extend(probability, visited, taken, paid):
        s = visited[-1]
        if len(taken) == horizon or terminal[s]:
            yield probability, visited, taken, paid
            return
        for a, successor in product(range(actions), range(states)):
            step = policy[s][a] * transition[s][a][successor]
            if step > 0:
                yield from extend(probability * step, visited + [successor], taken + [a], paid + [reward[s][a]])

    for s in range(states):
        if initial[s] > 0:
            yield from extend(initial[s], [s], [], [])


def discounted(rewards, gamma):
    """r_1 + gamma r_2 + gamma^2 r_3 + ..."""
    return math.fsum(gamma ** t * r for t, r in enumerate(rewards))


def expectation(walk_list, quantity):
    """sum over tau of p(tau) quantity(states, actions, rewards)."""
    return sum(p * np.asarray(quantity(*rest), float) for p, *rest in walk_list)


def torch_objective(theta, initial, transition, reward, horizon, gamma, terminal=None):
    """J of the softmax policy of `theta` [S, A], a torch scalar: backward induction, differentiable in theta."""
    initial, transition, reward = (torch.as_tensor(x, dtype=torch.float64) for x in (initial, transition, reward))
    alive = torch.ones(len(initial)) if terminal is None else 1 - torch.as_tensor(terminal, dtype=torch.float64)
    policy = torch.softmax(theta, -1)
    value = torch.zeros(len(initial), dtype=torch.float64)
    for _ in range(horizon):
        value = alive * (policy * (reward + gamma * (transition @ value))).sum(-1)
    return initial @ value


def objective_gradient(theta, *world, **more):
    """(J, dJ / dtheta) by autograd through `torch_objective`."""
    theta = torch.tensor(np.asarray(theta), dtype=torch.float64, requires_grad=True)
    J = torch_objective(theta, *world, **more)
    return J.item(), torch.autograd.grad(J, theta)[0].numpy()


def differences(function, x, step=1e-6):
    """Gradient of a scalar function at the array x by central differences."""
    x, gradient = np.array(x, float), np.zeros(np.shape(x))
    for index in np.ndindex(x.shape):
        h = np.zeros(x.shape)
        h[index] = step
        gradient[index] = (function(x + h) - function(x - h)) / (2 * step)
    return gradient


# --- returns and advantages of one column, by their definitions ----------------------------------------------------

def return_to_go(t, rewards, gamma, terminated=None, truncated=None, next_values=None):
    """G_t as the explicit sum of discounted rewards, plus the discounted value where the column was cut."""
    total = 0.0
    for k in range(t, len(rewards)):
        total += gamma ** (k - t) * rewards[k]
        if terminated is not None and terminated[k]:
            return total
        if truncated is not None and truncated[k]:
            return total + gamma ** (k - t + 1) * next_values[k]
    return total


def steps_left(t, terminated, truncated):
    """Number of steps from t to the end of its episode, or to the last row."""
    for k in range(t, len(terminated)):
        if terminated[k] or truncated[k]:
            return k - t + 1
    return len(terminated) - t


def n_step_advantage(t, n, rewards, values, next_values, gamma, terminated, truncated):
    """n rewards (fewer at an end), the discounted value behind them unless the episode is over, minus values[t]."""
    n = min(n, steps_left(t, terminated, truncated))
    last = t + n - 1
    total = math.fsum(gamma ** l * rewards[t + l] for l in range(n)) - values[t]
    return total if terminated[last] else total + gamma ** n * next_values[last]


def gae_mixture(t, lam, *rollout):
    """GAE as the weighted mean of all n-step advantages; the weight of all longer ones lies on the longest."""
    left = steps_left(t, *rollout[-2:])
    weights = [(1 - lam) * lam ** (n - 1) for n in range(1, left)] + [lam ** (left - 1)]
    assert math.isclose(sum(weights), 1)
    return math.fsum(w * n_step_advantage(t, n, *rollout) for n, w in enumerate(weights, 1))


def discounted_errors(t, n, decay, rewards, values, next_values, gamma, terminated, truncated):
    """The sum of at most n TD errors from t on, each step discounted by `decay`, to the end of the episode."""
    n = min(n, steps_left(t, terminated, truncated))
    errors = [rewards[k] + (0 if terminated[k] else gamma * next_values[k]) - values[k] for k in range(t, t + n)]
    return discounted(errors, decay)


def columns(function, *arrays):
    """Apply `function(t, *columns)` to every step of every column of arrays [T, ...]."""
    arrays = [np.asarray(array, float) for array in arrays]
    result = np.zeros(arrays[0].shape)
    for column in np.ndindex(result.shape[1:]):
        cut = [array[(slice(None), *column)] for array in arrays]
        for t in range(len(result)):
            result[(t, *column)] = function(t, *cut)
    return result


def masked_columns(function, mask, *arrays):
    """As `columns`, with the rows of each column where mask is False taken out before and 0 after."""
    arrays, mask = [np.asarray(array, float) for array in arrays], np.asarray(mask) == 1
    result = np.zeros(mask.shape)
    for column in np.ndindex(mask.shape[1:]):
        real = np.flatnonzero(mask[(slice(None), *column)])
        cut = [array[(slice(None), *column)][real] for array in arrays]
        for row, t in enumerate(real):
            result[(t, *column)] = function(row, *cut)
    return result


# --- normalisation and losses --------------------------------------------------------------------------------------

def group_advantage(rewards, scale, ddof, eps):
    """The rewards of one group, centred and divided by their standard deviation (statistics, exact arithmetic)."""
    rewards = [float(r) for r in rewards]
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    deviation = {None: lambda x: 1.0, 0: statistics.pstdev, 1: statistics.stdev}[None if scale is None else ddof]
    spread = deviation(rewards) + (0 if scale is None else eps)
    return [(r - mean) / spread for r in rewards]


def whitened(values, shift_mean, ddof, eps):
    """A flat list, shifted to mean 0 and scaled to variance 1."""
    values = [float(v) for v in values]
    mean = statistics.fmean(values)
    variance = (statistics.variance if ddof else statistics.pvariance)(values)
    return [(v - mean) / math.sqrt(variance + eps) + (0 if shift_mean else mean) for v in values]


def policy_gradient_loss(log_probs, advantages, mask, reduction):
    """-log pi * A, summed step by step, divided by the number of trajectories or of steps."""
    total, steps = 0.0, 0
    for index in np.ndindex(np.shape(log_probs)):
        if mask[index]:
            total, steps = total - float(log_probs[index]) * float(advantages[index]), steps + 1
    return total / (math.prod(np.shape(log_probs)[1:]) if reduction == "trajectory_mean" else steps)


def value_loss(values, targets, mask, old_values=None, clip=None):
    """Half the mean of the squared errors; with `clip` of the larger of two squared errors."""
    squares = []
    for index in np.ndindex(np.shape(values)):
        if not mask[index]:
            continue
        v, target = float(values[index]), float(targets[index])
        square = (v - target) ** 2
        if clip is not None:
            old = float(old_values[index])
            square = max(square, (min(max(v, old - clip), old + clip) - target) ** 2)
        squares.append(square)
    return math.fsum(squares) / len(squares) / 2


def ppo_clip_loss(log_probs, old_log_probs, advantages, mask, low, high):
    """(value, gradient in log_probs) of PPO's clipped loss, entry by entry: the four cases of the sign and the side."""
    count, total, slope = int(np.sum(mask)), 0.0, np.zeros(np.shape(log_probs))
    for index in np.ndindex(slope.shape):
        if not mask[index]:
            continue
        ratio, A = math.exp(log_probs[index] - old_log_probs[index]), float(advantages[index])
        stopped = ratio > 1 + high if A > 0 else ratio < 1 - low
        bound = 1 + high if A > 0 else 1 - low
        total -= A * (bound if stopped else ratio) / count
        slope[index] = 0 if stopped else -A * ratio / count
    return total, slope


# --- distances between policies ------------------------------------------------------------------------------------

def softmax(logits):
    """Probabilities of one list of logits."""
    weights = [math.exp(x - max(logits)) for x in logits]
    return [w / math.fsum(weights) for w in weights]


def kl(p, q):
    """sum over a of p_a log(p_a / q_a)."""
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q) if a > 0)


def fisher(scores, probabilities):
    """E[score score^T]: the sum over outcomes of probability times the outer product of the score."""
    return sum(p * np.outer(z, z) for p, z in zip(probabilities, scores))


def krylov_minimiser(H, b, k):
    """The x of span(b, Hb, ..., H^(k-1) b) with the smallest x.Hx / 2 - b.x, by dense algebra."""
    basis, _ = np.linalg.qr(np.stack([np.linalg.matrix_power(H, j) @ b for j in range(k)], 1))
    return basis @ np.linalg.solve(basis.T @ H @ basis, basis.T @ b)
