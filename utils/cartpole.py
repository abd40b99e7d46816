"""Batched CartPole-v1: S seeds times E environments step together in one Gymnasium vector environment.

Rollout arrays are time first, [T, S, E]. Gymnasium's vector environment resets in the mode NEXT_STEP: the
observation that comes with an end is the true last one, and the step after an end does nothing but reset.
That step ignores its action and belongs to no episode. Such a dummy row has mask False, and must stay out of
every loss and every count.

CartPole pays 1 a step. An episode is `terminated` when the pole falls or the cart leaves the track, and
`truncated` at step 500; both flags may come together.
"""
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch

from .networks import sample_actions, torch_generator
from .validate import whole

ENVIRONMENT = "CartPole-v1"
THRESHOLD = gymnasium.spec(ENVIRONMENT).reward_threshold            # the mean return that counts as solved


@dataclass(frozen=True, eq=False)
class Rollout:
    """What happened, as torch tensors, time first. Where the mask is False, rewards, returns and flags are 0.

    observations, next_observations [T, S, E, 4] float32: the state before and after the action. "After" is
    before any reset: at an episode's end it is the true last state.
    actions [T, S, E] int64; rewards [T, S, E] float32; terminated, truncated, mask [T, S, E] bool.
    returns [T, S, E] float32: the episode's rewards up to this step, summed; at an episode's end, its return.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    mask: torch.Tensor
    next_observations: torch.Tensor
    returns: torch.Tensor

    def mean_returns(self):
        """Mean return of the episodes that end in this rollout, for each seed: [S]; NaN where none does."""
        ended = self.terminated | self.truncated
        return (self.returns * ended).sum((0, 2)) / ended.sum((0, 2))

    def latest_returns(self, before):
        """Return of the last episode that each environment has ended: [S, E]; `before` [S, E] where none ends here."""
        latest = before
        for returns, terminated, truncated in zip(self.returns, self.terminated, self.truncated):
            latest = torch.where(terminated | truncated, returns, latest)
        return latest


class CartPole:
    """S times E CartPole environments and their random numbers, which `seed` fixes (see `torch_generator`).

    Here and below a policy is a function from observations [S, E, 4] to action logits [S, E, 2], and actions
    are sampled from it. Raises ValueError unless seeds and envs are whole numbers >= 1.
    """

    def __init__(self, *, seeds, envs, seed):
        self.shape = whole("seeds", seeds), whole("envs", envs)
        self.generator = torch_generator(seed)
        self.environment = gymnasium.make_vec(
            ENVIRONMENT, num_envs=seeds * envs, vectorization_mode="vector_entry_point")
        start = int(torch.randint(2 ** 31, (), generator=self.generator))
        self.observations, _ = self.environment.reset(seed=start)
        self.ended = np.zeros(seeds * envs, bool)
        self.returns = np.zeros(seeds * envs, np.float32)

    def step(self, policy):
        """One step of every environment from where it stands: a dict of NumPy arrays [S * E, ...]."""
        observations, dummy = self.observations, self.ended
        with torch.inference_mode():
            logits = policy(torch.from_numpy(observations).view(*self.shape, -1))
            actions = sample_actions(logits, self.generator).flatten().numpy()
        self.observations, rewards, terminated, truncated, _ = self.environment.step(actions)
        self.ended = terminated | truncated
        self.returns = (self.returns + rewards) * ~dummy
        return dict(observations=observations, actions=actions, rewards=rewards, terminated=terminated,
                    truncated=truncated, mask=~dummy, returns=self.returns)

    def stack(self, rows):
        """The dicts of consecutive steps, up to the latest, as one Rollout."""
        arrays = {name: [row[name] for row in rows] for name in rows[0]}
        arrays["observations"].append(self.observations)
        tensors = {name: torch.from_numpy(np.stack(array)).unflatten(1, self.shape)
                   for name, array in arrays.items()}
        observations = tensors.pop("observations")
        return Rollout(observations=observations[:-1], next_observations=observations[1:], **tensors)


def rollout(env, policy, steps):
    """`steps` rows of every environment of `env`, a CartPole: a Rollout, T = steps, on over episodes' ends.

    The row after an end is a dummy. The next call goes on in mid-episode where this one stops.
    Raises ValueError unless steps is a whole number >= 1.
    """
    return env.stack([env.step(policy) for _ in range(whole("steps", steps))])


def episodes(policy, *, seeds, envs, seed):
    """One complete episode in each of S times E fresh environments: a Rollout, T = the longest episode.

    Every episode is played to its end: stopping after a fixed number of steps and keeping what has finished
    would prefer short episodes. The mask is True from an episode's first step to its last.
    The same policy, seeds, envs and seed give the same episodes. Raises ValueError as CartPole does.
    """
    env = CartPole(seeds=seeds, envs=envs, seed=seed)
    rows, running = [], np.ones(seeds * envs, bool)
    while running.any():
        rows.append({**env.step(policy), "mask": running})
        running = running & ~env.ended
    batch = env.stack(rows)
    return replace(batch, rewards=batch.rewards * batch.mask, returns=batch.returns * batch.mask,
                   terminated=batch.terminated & batch.mask, truncated=batch.truncated & batch.mask)
