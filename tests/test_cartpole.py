"""CartPole rollouts: Gymnasium's own dynamics, ends told apart, dummy rows masked, complete episodes."""
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from utils.cartpole import ENVIRONMENT, THRESHOLD, CartPole, episodes, rollout
from utils.networks import mlp, torch_generator


def uniform(observations):
    return torch.zeros(*observations.shape[:-1], 2)


def balance(observations):
    """A controller that holds the pole up for the whole episode: push towards where the pole leans."""
    push = 100 * (observations @ torch.tensor([0.1, 0.3, 3.0, 1.0]))
    return torch.stack([-push, push], -1)


def balance_in_odd_environments(observations):
    odd = torch.arange(observations.shape[1]) % 2 == 1
    return torch.where(odd[:, None], balance(observations), uniform(observations))


@pytest.fixture(scope="module")
def played():
    """Short and full-length episodes side by side, and the exact (float64) states from which they started."""
    start = CartPole(seeds=2, envs=6, seed=3).environment.unwrapped.state.copy()
    return episodes(balance_in_odd_environments, seeds=2, envs=6, seed=3), start


def test_threshold_is_the_environments_own():
    assert THRESHOLD == gymnasium.make(ENVIRONMENT).spec.reward_threshold == 475.0


def test_dynamics_are_those_of_the_scalar_environment(played):
    batch, starts = played
    compared = 0
    for column, start in enumerate(starts.T):
        index = (slice(None), *divmod(column, 6))
        scalar = gymnasium.make(ENVIRONMENT)
        scalar.reset()
        scalar.unwrapped.state = tuple(start)
        for t in range(int(batch.mask[index].sum())):
            observation, reward, terminated, truncated, _ = scalar.step(int(batch.actions[index][t]))
            assert np.array_equal(observation, batch.next_observations[index][t].numpy())
            assert (reward, terminated, truncated) == (batch.rewards[index][t], batch.terminated[index][t],
                                                       batch.truncated[index][t])
            compared += 1
        assert terminated or truncated
    assert compared > 3000


def test_shapes_and_types(played):
    batch, _ = played
    assert batch.observations.shape == batch.next_observations.shape == (500, 2, 6, 4)
    kinds = dict(observations=torch.float32, next_observations=torch.float32, actions=torch.int64,
                 rewards=torch.float32, returns=torch.float32, terminated=torch.bool, truncated=torch.bool,
                 mask=torch.bool)
    assert set(kinds) == set(vars(batch))
    for name, dtype in kinds.items():
        array = getattr(batch, name)
        assert array.dtype == dtype and array.shape[:3] == (500, 2, 6), name
    assert not batch.observations.requires_grad and not batch.observations.is_inference()


def test_one_complete_episode_an_environment(played):
    batch, _ = played
    ended = batch.terminated | batch.truncated
    lengths = batch.mask.sum(0)
    assert (ended.sum(0) == 1).all()
    assert torch.equal(ended.int().argmax(0), lengths - 1)                            # on its last real row
    assert torch.equal(batch.mask, torch.arange(500)[:, None, None] < lengths)        # real rows first
    assert not batch.rewards[~batch.mask].any() and not batch.returns[~batch.mask].any()
    assert not ended[~batch.mask].any()
    assert torch.equal(batch.rewards.sum(0), lengths.float())
    assert torch.equal((batch.returns * ended).sum(0), lengths.float())
    assert torch.equal(batch.returns[batch.mask], batch.rewards.cumsum(0)[batch.mask])
    torch.testing.assert_close(batch.mean_returns(), lengths.float().mean(1))


def test_truncation_comes_at_step_500_exactly(played):
    batch, _ = played
    odd = batch.truncated[:, :, 1::2]
    assert odd[499].all() and not odd[:499].any() and not batch.terminated[:, :, 1::2].any()
    assert batch.terminated[:, :, 0::2].any(0).all() and not batch.truncated[:, :, 0::2].any()
    assert len(episodes(uniform, seeds=1, envs=4, seed=0).mask) < 500                 # T: the longest episode


def test_next_observation_is_the_true_one_also_at_the_end(played):
    batch, _ = played
    ended = batch.terminated | batch.truncated
    inside = batch.mask[:-1] & ~ended[:-1]
    assert torch.equal(batch.next_observations[:-1][inside], batch.observations[1:][inside])
    final = batch.next_observations[batch.terminated]
    assert ((final[:, 0].abs() > 2.4) | (final[:, 2].abs() > np.radians(12))).all()
    assert (final.abs() > 0.05).any(1).all() and (batch.observations[0].abs() <= 0.05).all()


def test_episodes_repeat_from_their_arguments_alone(played):
    batch, _ = played
    rollout(CartPole(seeds=2, envs=6, seed=9), uniform, 10)
    again = episodes(balance_in_odd_environments, seeds=2, envs=6, seed=3)
    assert all(torch.equal(value, getattr(again, name)) for name, value in vars(batch).items())
    other = episodes(balance_in_odd_environments, seeds=2, envs=6, seed=4)
    assert not torch.equal(batch.observations[0], other.observations[0])
    first, second = np.random.SeedSequence(3).spawn(2)
    assert not torch.equal(episodes(uniform, seeds=1, envs=2, seed=first).observations[0],
                           episodes(uniform, seeds=1, envs=2, seed=second).observations[0])


def test_what_one_seed_does_leaves_the_other_seeds_episodes_unchanged():
    policy = mlp(3, generator=torch_generator(0))
    before = episodes(policy, seeds=3, envs=5, seed=0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter[0] += torch.randn(parameter[0].shape, generator=torch_generator(1))
    after = episodes(policy, seeds=3, envs=5, seed=0)
    rows = min(len(before.mask), len(after.mask))
    assert torch.equal(before.mask[:rows, 1:], after.mask[:rows, 1:])
    real = before.mask[:rows, 1:]
    assert torch.equal(before.observations[:rows, 1:][real], after.observations[:rows, 1:][real])
    assert not torch.equal(before.mask[:rows, 0], after.mask[:rows, 0])


def test_gymnasium_resets_on_the_next_step_and_ignores_that_action():
    first, second = (CartPole(seeds=1, envs=8, seed=0).environment for _ in range(2))
    assert first.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    for env in (first, second):
        env.reset(seed=0)
    ended, dummies = np.zeros(8, bool), 0
    for step in range(40):
        action = np.full(8, step % 2)
        a = first.step(action)
        b = second.step(np.where(ended, 1 - action, action))
        assert all(np.array_equal(x, y) for x, y in zip(a[:4], b[:4]))
        assert not a[1][ended].any() and not (a[2] | a[3])[ended].any() and (abs(a[0][ended]) <= 0.05).all()
        dummies += ended.sum()
        ended = a[2] | a[3]
    assert dummies > 0


def test_rollout_goes_on_over_the_ends_with_dummy_rows_masked():
    batch = rollout(CartPole(seeds=2, envs=6, seed=0), uniform, 120)
    ended = batch.terminated | batch.truncated
    assert batch.mask.shape == (120, 2, 6) and (ended.sum(0) >= 2).all()
    assert batch.mask[0].all() and torch.equal(batch.mask[1:], ~ended[:-1])     # a dummy exactly after an end
    assert torch.equal(batch.rewards, batch.mask.float()) and not ended[~batch.mask].any()
    assert (batch.next_observations[~batch.mask].abs() <= 0.05).all()
    assert torch.equal(batch.next_observations[:-1], batch.observations[1:])
    assert (batch.next_observations[batch.terminated].abs() > 0.05).any(1).all()

    running = torch.zeros(2, 6)
    finished = [[] for _ in range(2)]
    for t in range(120):
        running = torch.where(batch.mask[t], running + batch.rewards[t], torch.zeros(2, 6))
        assert torch.equal(batch.returns[t], running)
        for s in range(2):
            finished[s] += running[s][ended[t, s]].tolist()
    np.testing.assert_allclose(batch.mean_returns(), [np.mean(returns) for returns in finished], rtol=1e-6)


def test_counting_the_dummy_rows_would_be_noticed():
    batch = rollout(CartPole(seeds=1, envs=4, seed=0), uniform, 100)
    ends = (batch.terminated | batch.truncated)[:-1].sum()
    assert ends > 0 and (~batch.mask).sum() == ends and batch.rewards.sum() == batch.mask.sum() == 400 - ends


def test_rollouts_continue_where_the_last_one_stopped():
    env = CartPole(seeds=2, envs=3, seed=5)
    parts = [rollout(env, uniform, steps) for steps in (1, 30, 29)]
    whole = rollout(CartPole(seeds=2, envs=3, seed=5), uniform, 60)
    for name, array in vars(whole).items():
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), array), name


def test_mean_return_is_nan_where_no_episode_ended():
    batch = rollout(CartPole(seeds=2, envs=3, seed=0), balance, 5)
    assert batch.mean_returns().isnan().all()


def test_both_flags_may_come_together():
    env = CartPole(seeds=1, envs=2, seed=0)
    inner = env.environment.unwrapped
    inner.steps[:] = 499
    inner.state[:, 0] = 2.399, 5.0, 0.0, 0.0                      # leaves the track in this very step
    env.observations = inner.state.T.astype(np.float32)
    batch = rollout(env, balance, 2)
    assert batch.truncated[0].all() and batch.terminated[0].tolist() == [[True, False]]
    assert batch.next_observations[0, 0, 0, 0] > 2.4
    assert not batch.mask[1].any() and not (batch.terminated | batch.truncated)[1].any()


def test_random_actions_last_about_22_steps():
    """As long as in the scalar environment, played one by one: short episodes are not preferred."""
    lengths = episodes(uniform, seeds=1, envs=4000, seed=0).mask.sum(0).double()
    assert abs(lengths.mean() - scalar_mean_length()) < 5 * lengths.std() * (1 / 4000 + 1 / 1000) ** 0.5


def scalar_mean_length(episodes=1000):
    env, rng = gymnasium.make(ENVIRONMENT), np.random.default_rng(0)
    env.reset(seed=0)
    steps = 0
    for _ in range(episodes):
        env.reset()
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(int(rng.integers(2)))
            done, steps = terminated or truncated, steps + 1
    return steps / episodes


@pytest.mark.parametrize("call, name", [
    (lambda: CartPole(seeds=0, envs=1, seed=0), "seeds"), (lambda: CartPole(seeds=1, envs=0, seed=0), "envs"),
    (lambda: CartPole(seeds=1, envs=1, seed=-1), "seed"),
    (lambda: episodes(uniform, seeds=1, envs=2.5, seed=0), "envs"),
    (lambda: rollout(CartPole(seeds=1, envs=1, seed=0), uniform, 0), "steps")])
def test_bad_arguments_are_refused(call, name):
    with pytest.raises(ValueError, match=name):
        call()
