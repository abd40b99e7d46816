"""Random worlds, rollouts and batches, each made from a seed; hypothesis chooses seeds and shapes."""
from dataclasses import dataclass, fields, replace

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import settings

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, database=None)
FEW = settings(EXAMPLES, max_examples=25)
SEEDS = st.integers(0, 2 ** 32 - 1)
BATCHES = st.sampled_from([(), (3,), (2, 3)])


@dataclass(frozen=True)
class World:
    """Arguments of FiniteMDP, and logits [S, A]."""
    initial: np.ndarray
    transition: np.ndarray
    reward: np.ndarray
    horizon: int | None
    gamma: float
    terminal: np.ndarray
    theta: np.ndarray

    def build(self, lib):
        return lib.FiniteMDP(self.initial, self.transition, self.reward, self.horizon, self.gamma, self.terminal)


def laws(rng, *shape, zeros=0.3):
    """Probabilities over the last axis; some are 0."""
    table = rng.random(shape) * (rng.random(shape) > zeros)
    table[..., rng.integers(shape[-1])] += 0.1
    return table / table.sum(-1, keepdims=True)


def world(seed, states=3, actions=2, horizon=3, ends=True):
    """A random world; `ends` allows terminal states (never all of them)."""
    rng = np.random.default_rng(seed)
    terminal = np.zeros(states, bool)
    if ends and states > 1 and rng.random() < 0.7:
        terminal[rng.integers(states)] = True
    gamma = float(rng.choice([0.0, 0.5, 0.9, rng.random()] + ([1.0] if horizon else [])))
    return World(laws(rng, states), laws(rng, states, actions, states), rng.normal(size=(states, actions)), horizon,
                 gamma, terminal, rng.normal(size=(states, actions)))


WORLDS = st.builds(world, SEEDS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
LARGER = st.builds(world, SEEDS, st.integers(1, 5), st.integers(1, 4), st.integers(1, 8))
ENDLESS = st.builds(world, SEEDS, st.integers(1, 5), st.integers(1, 4), st.none())


@dataclass(frozen=True)
class Rollout:
    """Arguments of the estimators; where `mask` is False the arrays hold garbage, NaN included."""
    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    mask: np.ndarray
    gamma: float
    lam: float

    def arrays(self):
        return self.rewards, self.values, self.next_values

    def ends(self):
        return {"terminated": self.terminated, "truncated": self.truncated}

    def to_torch(self, dtype=torch.float64):
        """The same rollout in tensors."""
        def convert(x):
            return torch.tensor(x, dtype=None if x.dtype == bool else dtype) if isinstance(x, np.ndarray) else x
        return Rollout(*(convert(getattr(self, field.name)) for field in fields(self)))

    def detached(self):
        """The same rollout with next_values that have nothing to do with values."""
        return replace(self, next_values=np.random.default_rng(1).normal(size=self.values.shape))

    def spoiled(self, garbage=(np.nan, np.inf, -np.inf, 1e30)):
        """The same rollout with garbage in all numbers that the mask hides."""
        rng = np.random.default_rng(0)
        dirty = [np.where(self.mask, x, rng.choice(garbage, x.shape)) for x in self.arrays()]
        return Rollout(*dirty, self.terminated, self.truncated, self.mask, self.gamma, self.lam)


def rollout(seed, steps=6, batch=(3,), masked=True):
    """Ends of both kinds in the middle, both flags at one step now and then; the last row with or without a flag.

    next_values is the value of the next real step, and a number of its own where the episode ends or the rows do.
    """
    rng, shape = np.random.default_rng(seed), (steps, *batch)
    rewards, values, next_values = rng.normal(size=(3, *shape))
    terminated, truncated = rng.random((2, *shape)) < 0.2
    mask = rng.random(shape) < (0.7 if masked else 1)
    gamma, lam = rng.choice([0.0, 0.5, 0.9, 1.0, rng.random()], 2)
    for column in np.ndindex(batch):
        real = np.flatnonzero(mask[(slice(None), *column)])
        for t, following in zip(real, real[1:]):
            if not terminated[(t, *column)] and not truncated[(t, *column)]:
                next_values[(t, *column)] = values[(following, *column)]
    next_values[terminated & (rng.random(shape) < 0.5)] = 0             # as many critics have it
    return Rollout(rewards, values, next_values, terminated, truncated, mask, float(gamma), float(lam))


ROLLOUTS = st.builds(rollout, SEEDS, st.integers(1, 8), BATCHES, st.booleans())
COMPLETE = st.builds(rollout, SEEDS, st.integers(1, 8), BATCHES, st.just(False))


@dataclass(frozen=True)
class Batch:
    """Arguments of the losses; at least one entry is real."""
    log_probs: np.ndarray
    advantages: np.ndarray
    old: np.ndarray
    mask: np.ndarray
    clip: float


def batch(seed, steps=5, shape=(3,)):
    rng, shape = np.random.default_rng(seed), (steps, *shape)
    mask = rng.random(shape) < 0.6
    mask[(0,) * mask.ndim] = True
    log_probs, advantages, old = -rng.exponential(size=shape), rng.normal(size=shape), rng.normal(size=shape)
    return Batch(log_probs, advantages, old, mask, clip=float(rng.uniform(0.05, 1)))


LOSS_BATCHES = st.builds(batch, SEEDS, st.integers(1, 6), BATCHES)


def close(found, expected, tolerance=1e-10):
    """Same shape, and equal within the tolerance: absolute up to 1, relative above."""
    found = found.detach().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    expected = np.asarray(expected)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    gap = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    assert (gap <= tolerance).all(), f"largest difference {gap.max()}\n{found}\n{expected}"
