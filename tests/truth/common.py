"""What several rows need: the row's world from its inputs, and exact expectations over its trajectories."""
import numpy as np
import torch


def finite_world(lib, given):
    """(world, policy) of a row whose inputs hold mu, P, r, theta, T, gamma."""
    world = lib.FiniteMDP(given.mu, given.P, given.r, horizon=given.T, gamma=given.gamma)
    return world, lib.softmax_policy(given.theta)


def logit(p):
    return float(np.log(p / (1 - p)))


def loss_gradient(lib, every, theta, weights, **more):
    """Minus the exact expected gradient of policy_gradient_loss at the logits theta [S, A]; weights [T, N] of steps.

    The loss means over N equally likely trajectories, so each is weighted by N times its probability.
    """
    theta = torch.tensor(np.asarray(theta), dtype=torch.float64, requires_grad=True)
    log_probs = torch.log_softmax(theta, -1)[every.states[:-1], every.actions]
    weights = weights * every.probabilities * len(every.probabilities)
    loss = lib.policy_gradient_loss(log_probs, torch.as_tensor(weights), mask=torch.as_tensor(every.mask), **more)
    return -torch.autograd.grad(loss, theta)[0].numpy()


def per_trajectory(weights, steps):
    """sum over t of weights [T, N] times scores [T, N, ...]: the estimate of each trajectory, [N, ...]."""
    return np.einsum("tn,tn...->n...", weights, steps)


def largest(*arrays):
    """Largest absolute entry."""
    return max(float(np.abs(array).max()) for array in arrays)
