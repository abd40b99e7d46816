"""The training loops: the textbook's update for each seed, seeds apart, runs that repeat, no NaN."""
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_networks import separate

from utils import cartpole, training
from utils.estimators import discounted_returns, whiten
from utils.losses import policy_gradient_loss, value_loss
from utils.networks import log_probs, mlp, torch_generator
from utils.training import (action_log_probs, actor_critic, descend, evaluate, packed, reinforce,
                            reinforce_with_baseline, seed_means, state_values, total_return, unpacked,
                            whiten_seeds)

SMALL = dict(seeds=2, episodes=5, iterations=3, hidden=8)
SMALL_CRITIC = dict(seeds=2, envs=3, horizon=6, iterations=3, hidden=8)


def textbook_loss(network, batch, seed, gamma=1.0, reduction="trajectory_mean"):
    """REINFORCE's loss word for word: each trajectory's return times its summed log-probabilities."""
    loss, trajectories = 0.0, batch.mask.shape[2]
    count = trajectories if reduction == "trajectory_mean" else int(batch.mask[:, seed].sum())
    for e in range(trajectories):
        steps = int(batch.mask[:, seed, e].sum())
        laws = network(batch.observations[:steps, seed, e]).log_softmax(-1)
        sum_of_log_probs = laws[torch.arange(steps), batch.actions[:steps, seed, e]].sum()
        total = sum(gamma ** t * float(batch.rewards[t, seed, e]) for t in range(steps))
        loss = loss - total * sum_of_log_probs / count
    return loss


def losses_of(policy, batch, weights, **options):
    """The losses of all seeds [S], as `reinforce` computes them."""
    log_pi = action_log_probs(policy, batch)
    return torch.stack([policy_gradient_loss(log_pi[:, s], weights[:, s], mask=batch.mask[:, s], **options)
                        for s in range(log_pi.shape[1])])


def gradients(policy, losses):
    return torch.autograd.grad(losses.sum(), list(policy.parameters()))


@pytest.fixture(scope="module")
def played():
    """A policy of three seeds that is neither uniform nor good, and a batch of its episodes in float64."""
    policy = mlp(3, (4, 6, 2), gain=2.0, generator=torch_generator(0))
    for parameter in policy.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch_generator(1))
    batch = cartpole.episodes(policy, seeds=3, envs=4, seed=0)
    return policy.double(), replace(
        batch, observations=batch.observations.double(), rewards=batch.rewards.double())


def differ(first, second):
    return any(not torch.allclose(a, b, rtol=1e-4) for a, b in zip(first, second))


# --- one seed of the batched code is the textbook's one-seed code -------------------------------------------

@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_gradient_of_each_seed_is_the_textbooks(played, gamma):
    policy, batch = played
    found = gradients(policy, losses_of(policy, batch, total_return(batch.rewards, gamma=gamma)))
    for seed in range(3):
        network = separate(policy, seed)
        expected = torch.autograd.grad(textbook_loss(network, batch, seed, gamma), list(network.parameters()))
        for batched, one in zip(found, expected):
            one = one.T if one.ndim == 2 else one[None]
            torch.testing.assert_close(batched[seed], one, rtol=1e-10, atol=1e-10)


def test_a_run_of_one_seed_is_the_textbooks_run():
    """Three iterations of the plain algorithm, with a plain network and Adam, on the same episodes."""
    log = reinforce(seeds=1, episodes=4, iterations=3, hidden=8, learning_rate=0.01, seed=5)
    first, _, *streams = np.random.SeedSequence(5).spawn(5)
    network = separate(mlp(1, (4, 8, 2), generator=torch_generator(first)), 0)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for k, stream in enumerate(streams):
        batch = cartpole.episodes(network, seeds=1, envs=4, seed=stream)
        assert batch.mean_returns().item() == log.returns[k, 0]
        optimizer.zero_grad()
        textbook_loss(network, batch, 0).backward()
        optimizer.step()
    for trained, one in zip(log.policy.parameters(), network.parameters()):
        torch.testing.assert_close(trained[0], one.T if one.ndim == 2 else one[None], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduction", ["trajectory_mean", "step_mean"])
def test_the_losses_of_a_run_are_the_textbooks(monkeypatch, reduction):
    seen = []
    monkeypatch.setattr(training, "descend", lambda _, losses, iteration: seen.append(losses.detach()))
    reinforce(**{**SMALL, "iterations": 1}, gamma=0.9, reduction=reduction, seed=5)
    first, _, stream = np.random.SeedSequence(5).spawn(3)
    policy = mlp(2, (4, 8, 2), generator=torch_generator(first))
    batch = cartpole.episodes(policy, seeds=2, envs=5, seed=stream)
    assert not batch.mask.all()
    expected = [textbook_loss(separate(policy, s), batch, s, 0.9, reduction) for s in range(2)]
    torch.testing.assert_close(seen[0], torch.stack(expected).detach(), rtol=1e-5, atol=1e-5)


def test_wrong_variants_have_another_gradient(played):
    policy, batch = played
    weights = total_return(batch.rewards, gamma=1.0)
    right = gradients(policy, losses_of(policy, batch, weights))
    all_rows = replace(batch, mask=torch.ones_like(batch.mask))
    log_pi = action_log_probs(policy, batch)
    first_steps = replace(batch, mask=batch.mask & (torch.arange(len(batch.mask)) == 0)[:, None, None])
    wrong = {
        "dummy rows left in": losses_of(policy, all_rows, weights),
        "sum over t dropped": losses_of(policy, first_steps, weights),
        "mean over steps": losses_of(policy, batch, weights, reduction="step_mean"),
        "reward for return": losses_of(policy, batch, batch.rewards),
        "reward-to-go for return": losses_of(policy, batch, discounted_returns(batch.rewards, gamma=1.0)),
        "mean of log-probs times return": -(log_pi.sum(0) / batch.mask.sum(0) * weights[0]).mean(1),
        "sign": -losses_of(policy, batch, weights)}
    for name, losses in wrong.items():
        assert differ(right, gradients(policy, losses)), name


def test_step_mean_divides_by_the_steps_for_each_trajectory(played):
    """The two reductions differ by the mean length of a trajectory, seed by seed: a random factor."""
    policy, batch = played
    weights = total_return(batch.rewards, gamma=1.0)
    by_trajectory = gradients(policy, losses_of(policy, batch, weights))
    by_step = gradients(policy, losses_of(policy, batch, weights, reduction="step_mean"))
    lengths = batch.mask.sum((0, 2)) / 4
    assert len(set(lengths.tolist())) == 3
    for trajectory, step in zip(by_trajectory, by_step):
        torch.testing.assert_close(trajectory, step * lengths[:, None, None], rtol=1e-10, atol=1e-10)


def test_action_log_probs_are_the_networks_and_zero_on_dummy_rows(played):
    policy, batch = played
    found = action_log_probs(policy, batch)
    for s in range(3):
        expected = log_probs(separate(policy, s)(batch.observations[:, s]), batch.actions[:, s])
        torch.testing.assert_close(found[:, s], expected * batch.mask[:, s], rtol=1e-12, atol=1e-12)
    assert found.requires_grad and not batch.mask.all()
    poisoned = torch.where(batch.mask[..., None], batch.observations, float("nan"))
    assert torch.equal(action_log_probs(policy, replace(batch, observations=poisoned)), found)


def test_action_log_probs_of_a_rollout_over_ends():
    policy = mlp(2, (4, 6, 2), gain=2.0, generator=torch_generator(0))
    batch = cartpole.rollout(cartpole.CartPole(seeds=2, envs=3, seed=0), policy, 80)
    found = action_log_probs(policy, batch)
    assert (~batch.mask).any() and not found[~batch.mask].any()
    for s in range(2):
        expected = log_probs(separate(policy, s)(batch.observations[:, s]), batch.actions[:, s])
        torch.testing.assert_close(found[:, s], expected * batch.mask[:, s], rtol=1e-4, atol=1e-5)


# --- seeds stay apart, runs repeat --------------------------------------------------------------------------

def updated(policy, batch, weights, mix=lambda losses: losses):
    """The parameters after one step from `policy`, which stays as it is."""
    copy = mlp(3, (4, 6, 2), generator=torch_generator(0)).double()
    copy.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(copy.parameters(), lr=0.01, fused=True)
    for _ in range(2):                         # the second step would show a coupling through Adam's memory
        descend(optimizer, mix(losses_of(copy, batch, weights)), 0)
    return list(copy.parameters())


def one_seeds_data_changed(batch):
    rewards, actions, observations = batch.rewards.clone(), batch.actions.clone(), batch.observations.clone()
    rewards[:, 0] *= 3
    actions[:, 0] = 1 - actions[:, 0]
    observations[:, 0] *= -1.5
    return replace(batch, rewards=rewards, actions=actions, observations=observations)


def test_one_seeds_data_leaves_the_others_update_bitwise_unchanged(played):
    policy, batch = played
    changed = one_seeds_data_changed(batch)
    before = updated(policy, batch, total_return(batch.rewards, gamma=1.0))
    after = updated(policy, changed, total_return(changed.rewards, gamma=1.0))
    for a, b in zip(before, after):
        assert torch.equal(a[1:], b[1:]) and not torch.equal(a[0], b[0])


def test_a_coupling_between_the_seeds_would_be_noticed(played):
    """The same comparison with the losses divided by their common mean, as one norm over all seeds would."""
    policy, batch = played
    changed = one_seeds_data_changed(batch)
    def mix(losses):
        return losses / losses.detach().mean()
    # Adam forgets a constant scale, so the coupling must show up in the gradient itself.
    before = gradients(policy, mix(losses_of(policy, batch, total_return(batch.rewards, gamma=1.0))))
    after = gradients(policy, mix(losses_of(policy, changed, total_return(changed.rewards, gamma=1.0))))
    assert not torch.equal(before[0][1:], after[0][1:])


def test_runs_repeat_bitwise_and_a_longer_run_begins_with_the_shorter():
    first, again = reinforce(**SMALL, seed=1), reinforce(**SMALL, seed=1)
    longer, other = reinforce(**{**SMALL, "iterations": 4}, seed=1), reinforce(**SMALL, seed=2)
    for name in ("steps", "returns", "final_returns"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert all(torch.equal(a, b) for a, b in zip(first.policy.parameters(), again.policy.parameters()))
    assert np.array_equal(first.returns, longer.returns[:3]) and np.array_equal(first.steps, longer.steps[:3])
    assert not np.array_equal(first.returns, other.returns)
    assert not np.array_equal(first.returns[:, 0], first.returns[:, 1])


# --- what a run reports -------------------------------------------------------------------------------------

def test_the_log():
    log = reinforce(**SMALL)
    assert log.steps.shape == (3,) and log.returns.shape == (3, 2) and log.final_returns.shape == (2,)
    np.testing.assert_allclose(log.steps, np.cumsum(5 * log.returns.mean(1)))         # CartPole pays 1 a step
    assert 0 < log.seconds < 60
    assert log.policy(torch.zeros(2, 3, 4)).shape == (2, 3, 2)
    last = np.random.SeedSequence(0).spawn(2)[1]
    np.testing.assert_array_equal(log.final_returns, evaluate(log.policy, seed=last))


def test_evaluate_is_the_mean_return_of_sampled_episodes():
    policy = mlp(2, gain=0.0, generator=torch_generator(0))                   # uniform, whatever the state
    found = evaluate(policy, episodes=50, seed=3)
    batch = cartpole.episodes(lambda x: torch.zeros(2, 50, 2), seeds=2, envs=50, seed=3)
    np.testing.assert_allclose(found, batch.rewards.sum(0).mean(1), rtol=1e-6)
    assert found.shape == (2,) and found.dtype == np.float32


def test_it_learns_and_the_wrong_sign_does_not():
    options = dict(seeds=3, episodes=30, iterations=15, learning_rate=0.03)
    right = reinforce(**options).returns
    assert right[-3:].mean() > 2 * right[0].mean()
    wrong = reinforce(**options, weights=lambda rewards, gamma: -total_return(rewards, gamma=gamma)).returns
    assert wrong[-3:].mean() < 0.8 * wrong[0].mean()


def test_the_arguments_reach_the_update():
    def last_layer(**change):
        return reinforce(**{**SMALL, **change}).policy[2].weights
    base = last_layer()
    for change in (dict(learning_rate=0.05), dict(gamma=0.9), dict(weights=discounted_returns),
                   dict(reduction="step_mean"), dict(episodes=6), dict(iterations=4), dict(seed=1)):
        assert not torch.equal(base, last_layer(**change)), change
    assert last_layer(hidden=9).shape == (2, 9, 2)


def test_an_iterations_return_is_measured_before_its_update():
    first, second = (reinforce(**SMALL, learning_rate=rate) for rate in (0.5, 1e-3))
    assert np.array_equal(first.returns[0], second.returns[0])
    assert not np.array_equal(first.returns, second.returns)


# --- what is refused ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("argument, value", [
    ("seeds", 0), ("episodes", 0), ("iterations", 0), ("iterations", 2.5), ("hidden", 0),
    ("learning_rate", 0.0), ("learning_rate", float("nan")), ("gamma", 1.5),
    ("reduction", "mean"), ("seed", -1), ("seed", None)])
def test_bad_arguments_are_refused_by_name(argument, value):
    with pytest.raises(ValueError, match=f"^{argument}: expected"):
        reinforce(**{**SMALL, argument: value})


def test_a_run_that_blows_up_stops_and_says_where():
    with pytest.raises(FloatingPointError, match=r"iteration 0: parameter of seed\(s\) \[0, 1\]"):
        reinforce(**SMALL, learning_rate=1e39)


@pytest.mark.parametrize("spoil, what", [
    (lambda x: x * float("nan"), "loss"), (lambda x: x + float("inf"), "loss"),
    (lambda x: (x - x).sqrt(), "gradient")])
def test_nan_never_trains_on(spoil, what):
    policy = mlp(3, (4, 2), gain=1.0, generator=torch_generator(0))
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    losses = policy(torch.ones(3, 5, 4)).square().mean((1, 2))
    losses = torch.where(torch.arange(3) == 1, spoil(losses), losses)
    with pytest.raises(FloatingPointError, match=rf"iteration 7: {what} of seed\(s\) \[.*1.*\]"):
        descend(torch.optim.Adam(policy.parameters()), losses, 7)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters()))


def test_a_gradient_that_is_too_long_is_shortened_for_each_seed_and_network():
    """Plain gradient descent with rate 1: the change is the gradient, of length 0.5 at most, and else as it was."""
    changes = []
    for limit in (None, 0.5, 1e9):
        networks = [mlp(3, (4, 2), gain=1.0, generator=torch_generator(k)) for k in (0, 1)]
        before = [[p.detach().clone() for p in network.parameters()] for network in networks]
        optimizer = torch.optim.SGD([{"params": list(network.parameters()), "lr": 1.0} for network in networks])
        x, scale = torch.ones(3, 5, 4), torch.tensor([10.0, 1e-3, 0.0])[:, None, None]
        losses = sum((scale * k * network(x)).mean((1, 2)) for k, network in enumerate(networks, 1))
        descend(optimizer, losses, 0, max_grad_norm=limit)
        changes.append([torch.cat([(a - b).flatten(1) for a, b in zip(old, network.parameters())], 1)
                        for old, network in zip(before, networks)])
    for plain, short, same in zip(*changes):
        torch.testing.assert_close(plain, same, rtol=0, atol=0)
        torch.testing.assert_close(short[0], plain[0] / plain[0].norm() * 0.5, rtol=1e-4, atol=1e-6)
        assert plain[0].norm() > 1 and torch.equal(short[1:], plain[1:]) and not plain[2].any()


def test_finite_numbers_whose_sum_is_not_are_let_through():
    training.all_finite("loss", torch.full((3, 2), 3e38), 0)
    for bad in (float("nan"), float("inf"), -float("inf")):
        values = torch.zeros(3, 2)
        values[0], values[2, 1] = 3e38, bad
        with pytest.raises(FloatingPointError, match=r"iteration 4: loss of seed\(s\) \[2\]"):
            training.all_finite("loss", values, 4)
    with pytest.raises(FloatingPointError, match=r"seed\(s\) \[0, 1\]"):
        training.all_finite("loss", torch.tensor([float("inf"), -float("inf")])[:, None], 0)


# --- the weights --------------------------------------------------------------------------------------------

def test_total_return_is_the_discounted_sum_at_every_step():
    rewards = torch.tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]], dtype=torch.float64)
    assert total_return(rewards, gamma=1.0).tolist() == [[9.0, 6.0]] * 3
    assert total_return(rewards, gamma=0.5).tolist() == [[1 + 1.5 + 1.25, 2 + 1.0]] * 3
    assert total_return(rewards, gamma=0.0).tolist() == [[1.0, 2.0]] * 3
    first = discounted_returns(rewards, gamma=0.7)[0]
    torch.testing.assert_close(total_return(rewards, gamma=0.7), first.expand(3, 2), rtol=1e-12, atol=1e-12)


def test_total_return_refuses():
    for arguments, name in ((dict(rewards=torch.ones(3), gamma=1.1), "gamma"),
                            (dict(rewards=torch.tensor(float("nan")).expand(3), gamma=1), "rewards"),
                            (dict(rewards=torch.tensor(1.0), gamma=1), "rewards")):
        with pytest.raises(ValueError, match=name):
            total_return(**arguments)


# --- loops with a second network ----------------------------------------------------------------------------

def test_packed_rows_hold_the_real_steps_in_order(played):
    policy, batch = played
    rows = packed(batch.mask, batch.observations)
    for s in range(3):
        real = batch.observations[:, s][batch.mask[:, s]]                        # time first, then environment
        assert torch.equal(rows[s, :len(real)], real) and not rows[s, len(real):].any()
    numbers = torch.randn(batch.mask.shape, generator=torch_generator(2), dtype=torch.float64)
    assert torch.equal(unpacked(batch.mask, packed(batch.mask, numbers)), numbers * batch.mask)
    critic = mlp(3, (4, 5, 1), gain=1, generator=torch_generator(3)).double()
    found = state_values(critic, batch.observations, batch.mask)
    for s in range(3):
        expected = separate(critic, s)(batch.observations[:, s]).squeeze(-1) * batch.mask[:, s]
        torch.testing.assert_close(found[:, s], expected, rtol=1e-12, atol=1e-12)


def test_means_and_whitening_of_each_seed_are_those_of_one_seed(played):
    _, batch = played
    values = 3 + torch.randn(batch.mask.shape, generator=torch_generator(4), dtype=torch.float64)
    white = whiten_seeds(values, batch.mask)
    for s in range(3):
        assert seed_means(values, batch.mask)[s].item() == pytest.approx(values[:, s][batch.mask[:, s]].mean().item())
        torch.testing.assert_close(white[:, s], whiten(values[:, s], mask=batch.mask[:, s]), rtol=1e-12, atol=1e-12)


def losses_of_the_first_update(monkeypatch, loop, **options):
    """The losses [S] that the loop hands to its first `descend`."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(training, "descend", lambda optimizer, losses, iteration: seen.append(losses.detach()))
        loop(**options)
    return seen[0]


def test_the_first_update_with_a_baseline_is_the_textbooks(monkeypatch):
    first, second, _, stream, *_ = np.random.SeedSequence(3).spawn(6)
    policy = mlp(2, (4, 8, 2), generator=torch_generator(first))
    baseline = mlp(2, (4, 8, 1), gain=1, generator=torch_generator(second))
    batch = cartpole.episodes(policy, seeds=2, envs=5, seed=stream)
    found = losses_of_the_first_update(monkeypatch, reinforce_with_baseline, **SMALL, gamma=0.9, seed=3)
    for s in range(2):
        actor, critic, steps = 0.0, 0.0, 0
        for e in range(5):
            T = int(batch.mask[:, s, e].sum())
            for t in range(T):
                togo = sum(0.9 ** k for k in range(T - t))                       # CartPole pays 1 a step
                value = separate(baseline, s)(batch.observations[t, s, e]).item()
                log_prob = separate(policy, s)(batch.observations[t, s, e]).log_softmax(-1)[batch.actions[t, s, e]]
                actor -= log_prob.item() * (togo - value) / 5
                critic, steps = critic + (value - togo) ** 2 / 2, steps + 1
        assert found[s].item() == pytest.approx(actor + critic / steps, rel=1e-4)


@pytest.mark.parametrize("bootstrap", [("time limit", "rollout end"), ("rollout end",), ("time limit",), ()])
@pytest.mark.parametrize("lam, whitened", [(0.0, False), (0.9, False), (0.9, True)])
def test_the_first_update_of_actor_critic_is_the_textbooks(monkeypatch, bootstrap, lam, whitened):
    """Advantages by the definition, environment by environment, with a time limit in row 2 and a dummy after it."""
    first, second, third, _ = np.random.SeedSequence(0).spawn(4)
    policy = mlp(2, (4, 8, 2), generator=torch_generator(first))
    critic = mlp(2, (4, 8, 1), gain=1, generator=torch_generator(second))
    batch = cartpole.rollout(cartpole.CartPole(seeds=2, envs=3, seed=third), policy, 6)
    limit, mask, over = torch.zeros_like(batch.mask), torch.ones_like(batch.mask), torch.zeros_like(batch.mask)
    limit[2, :, 0], mask[3, :, 0], over[4, 1, 2], mask[5, 1, 2] = True, False, True, False
    batch = replace(batch, truncated=limit, terminated=over, mask=mask, rewards=mask.float())
    monkeypatch.setattr(cartpole, "rollout", lambda *_: batch)
    found = losses_of_the_first_update(monkeypatch, actor_critic, **SMALL_CRITIC, gamma=0.9, lam=lam,
                                       whitened=whitened, bootstrap=bootstrap)
    for s in range(2):
        def value(observation):
            return separate(critic, s)(observation).item()
        advantages, values = torch.zeros(6, 3), torch.zeros(6, 3)
        for e in range(3):
            carry = 0.0
            for t in reversed(range(6)):
                if not mask[t, s, e]:
                    continue
                last, lost = t == 5, bool(over[t, s, e])
                lost |= bool(limit[t, s, e]) and "time limit" not in bootstrap
                lost |= last and "rollout end" not in bootstrap
                values[t, e] = value(batch.observations[t, s, e])
                delta = 1 - values[t, e] + (0 if lost else 0.9 * value(batch.next_observations[t, s, e]))
                if last or lost or limit[t, s, e]:
                    carry = 0.0
                advantages[t, e] = carry = delta + 0.9 * lam * carry
        targets = values + advantages
        if whitened:
            advantages = whiten(advantages, mask=mask[:, s])
        log_pi = separate(policy, s)(batch.observations[:, s]).log_softmax(-1)
        log_pi = log_pi.gather(-1, batch.actions[:, s, :, None]).squeeze(-1)
        expected = (policy_gradient_loss(log_pi, advantages, mask=mask[:, s], reduction="step_mean")
                    + value_loss(values, targets, mask=mask[:, s]))
        assert found[s].item() == pytest.approx(expected.item(), rel=1e-4)


def test_actor_critics_returns_are_those_of_the_latest_episodes(monkeypatch):
    """Of each environment the last episode that ended, whenever that was; two envs, three rollouts of two rows."""
    ends = torch.tensor([[[3., 0.], [0., 0.]], [[0., 0.], [0., 7.]], [[5., 0.], [9., 0.]]])           # [rollout, T, E]
    played = iter(ends)
    right = cartpole.rollout

    def rollout(*arguments):
        batch, returns = right(*arguments), next(played)[:, None]
        return replace(batch, returns=returns, terminated=returns > 0, truncated=returns < 0)

    monkeypatch.setattr(cartpole, "rollout", rollout)
    log = actor_critic(seeds=1, envs=2, horizon=2, iterations=3, hidden=4)
    assert log.returns[:, 0].tolist() == [3, 5, 8]


@pytest.mark.parametrize("loop, small", [(reinforce_with_baseline, SMALL), (actor_critic, SMALL_CRITIC)])
def test_loops_with_a_critic_repeat_and_their_arguments_reach_the_update(loop, small):
    base, again = loop(**small), loop(**small)
    assert np.array_equal(base.final_returns, again.final_returns) and base.returns.shape == (3, 2)
    assert torch.equal(base.policy[2].weights, again.policy[2].weights)
    changes = [dict(learning_rate=0.05), dict(gamma=0.5), dict(iterations=4), dict(seed=1), dict(value_learning_rate=0.3)]
    if loop is actor_critic:
        changes += [dict(lam=0.0), dict(whitened=False), dict(bootstrap=()), dict(envs=4), dict(horizon=5)]
    for change in changes:
        assert not torch.equal(base.policy[2].weights, loop(**{**small, **change}).policy[2].weights), change


@pytest.mark.parametrize("loop, small", [(reinforce_with_baseline, SMALL), (actor_critic, SMALL_CRITIC)])
def test_loops_with_a_critic_refuse_bad_arguments_by_name(loop, small):
    bad = dict(seeds=0, iterations=0, hidden=2.5, learning_rate=0.0, value_learning_rate=-1.0, gamma=1.5, seed=-1)
    bad |= dict(envs=0, horizon=0, lam=1.1, bootstrap=("time",)) if loop is actor_critic else dict(episodes=0)
    for argument, value in bad.items():
        with pytest.raises(ValueError, match=f"^{argument}: expected"):
            loop(**{**small, argument: value})


def test_actor_critic_learns_and_against_the_advantages_it_does_not(monkeypatch):
    options = dict(seeds=3, iterations=80, envs=16, horizon=16, learning_rate=0.005)
    returns = actor_critic(**options).returns
    assert returns[-10:].mean() > 3 * returns[:10].mean()
    right = training.whiten_seeds
    monkeypatch.setattr(training, "whiten_seeds", lambda *arrays: -right(*arrays))
    returns = actor_critic(**options).returns
    assert returns[-10:].mean() < 0.7 * returns[:10].mean()
