"""PPO and TRPO: the textbook's updates for each seed, seeds apart, runs that repeat, the trust region kept."""
import copy
import math
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cases import close
from test_kl import explicit_fisher, small_policies
from test_networks import separate

from utils import cartpole, trust_region
from utils.estimators import whiten
from utils.kl import categorical_kl, flatten
from utils.losses import ppo_clip_loss, value_loss
from utils.networks import mlp, torch_generator
from utils.trust_region import deal, line_search, natural_step, ppo, row_means, rows, trpo
from utils.updates import advantages_and_targets

SMALL_PPO = dict(seeds=2, envs=3, horizon=6, iterations=3, epochs=2, minibatches=2, hidden=8)
SMALL_TRPO = dict(seeds=2, envs=4, horizon=8, iterations=3, hidden=6, value_steps=2)
LOOPS = [(ppo, SMALL_PPO), (trpo, SMALL_TRPO)]


def with_ends(batch):
    """The rollout with an episode of seed 0 over in row 2, one of seed 1 cut in row 4, and the dummies after them."""
    limit, over, mask = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask), torch.ones_like(batch.mask)
    over[2, 0, 0], mask[3, 0, 0], limit[4, 1, 2], mask[5, 1, 2] = True, False, True, False
    return replace(batch, truncated=limit, terminated=over, mask=mask, rewards=mask.float())


def first_rollout(streams, sizes, seeds=2):
    """(policy, critic, rollout with ends) as a loop begins, from the three seed sequences that it takes."""
    envs, horizon, hidden = sizes["envs"], sizes["horizon"], sizes["hidden"]
    policy = mlp(seeds, (4, hidden, 2), generator=torch_generator(streams[0]))
    critic = mlp(seeds, (4, hidden, 1), gain=1, generator=torch_generator(streams[1]))
    batch = cartpole.rollout(cartpole.CartPole(seeds=seeds, envs=envs, seed=streams[2]), policy, horizon)
    return policy, critic, with_ends(batch)


# --- rows, and how they are dealt out ----------------------------------------------------------------------

def test_rows_and_their_means():
    batch = torch.arange(2 * 3 * 4).view(2, 3, 4)
    assert rows(batch)[1].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]
    assert rows(batch[..., None].expand(2, 3, 4, 5)).shape == (3, 8, 5)
    real = torch.tensor([[True, False, True], [True, True, True]])
    assert row_means(torch.tensor([[1.0, 9.0, 3.0], [1.0, 2.0, 6.0]]), real).tolist() == [2, 3]


def test_rows_are_dealt_like_cards():
    """Every row once, shuffled for each seed by itself, the real ones in equal parts."""
    real = torch.rand(5, 23, generator=torch_generator(0)) < 0.7
    hands = deal(real, 4, torch_generator(1))
    assert torch.equal(torch.cat(hands, 1).sort(1).values, torch.arange(23).expand(5, 23))
    counts = torch.stack([real.gather(1, hand).sum(1) for hand in hands], 1)
    assert (counts.amax(1) - counts.amin(1) <= 1).all()
    assert len({tuple(row.tolist()) for row in hands[0]}) == 5
    again, other = deal(real, 4, torch_generator(1)), deal(real, 4, torch_generator(2))
    assert torch.equal(hands[2], again[2]) and not torch.equal(hands[2], other[2])
    changed = real.clone()
    changed[3] = ~changed[3]
    apart = deal(changed, 4, torch_generator(1))
    assert torch.equal(apart[0][:3], hands[0][:3]) and torch.equal(apart[0][4], hands[0][4])


def test_every_row_comes_equally_often():
    generator, counts = torch_generator(0), torch.zeros(6)
    for _ in range(3000):
        counts[deal(torch.ones(1, 6, dtype=torch.bool), 2, generator)[0][0]] += 1
    assert ((counts / 3000 - 0.5).abs() < 4.5 * (0.25 / 3000) ** 0.5).all()


# --- PPO ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("change", [
    {}, dict(whitened=False), dict(value_clip=0.05), dict(entropy_coefficient=0.3), dict(bootstrap=()),
    dict(epsilon=0.02, lam=0.5, gamma=0.8)], ids=str)
def test_every_update_of_ppo_is_the_textbooks(monkeypatch, change):
    """Two epochs of two minibatches: each loss from the plain networks as they then are, on the rows dealt out."""
    options = dict(SMALL_PPO, iterations=1, learning_rate=0.05, seed=0) | change
    policy, critic, batch = first_rollout(np.random.SeedSequence(0).spawn(5), options)
    monkeypatch.setattr(cartpole, "rollout", lambda *_: batch)
    updates, dealt, networks = [], [], []
    right_descend, right_deal, right_mlp = trust_region.descend, trust_region.deal, trust_region.mlp

    def descend(optimizer, losses, iteration, **more):
        updates.append((losses.detach().clone(), *copy.deepcopy(networks)))
        right_descend(optimizer, losses, iteration, **more)

    def dealing(*arguments):
        dealt.extend(right_deal(*arguments))
        return dealt[-2:]

    def new_mlp(*arguments, **more):
        networks.append(right_mlp(*arguments, **more))
        return networks[-1]
    for name, function in (("descend", descend), ("deal", dealing), ("mlp", new_mlp)):
        monkeypatch.setattr(trust_region, name, function)
    log = ppo(**options)
    values, advantages, targets = (x.detach() for x in advantages_and_targets(
        critic, batch, gamma=options.get("gamma", 0.98), lam=options.get("lam", 0.9),
        bootstrap=options.get("bootstrap", ("time limit", "rollout end"))))
    epsilon, seen_clipped = options.get("epsilon", 0.2), 0
    assert len(updates) == len(dealt) == 4
    for (losses, now, now_critic), hand in zip(updates, dealt):
        for s in range(2):
            mask = batch.mask[:, s]
            A = advantages[:, s] if options.get("whitened") is False else whiten(advantages[:, s], mask=mask)
            new, old, gains, v, old_v, goal, entropies = [], [], [], [], [], [], []
            for index in hand[s].tolist():
                t, e = divmod(index, 3)
                if not mask[t, e]:
                    continue
                state, action = batch.observations[t, s, e], batch.actions[t, s, e]
                law = separate(now, s)(state).log_softmax(-1)
                new.append(law[action])
                old.append(separate(policy, s)(state).log_softmax(-1)[action])
                entropies.append(-sum(x.exp() * x for x in law))
                gains.append(A[t, e])
                v.append(separate(now_critic, s)(state)[0])
                old_v.append(values[t, s, e])
                goal.append(targets[t, s, e])
            new, old, gains, v, old_v, goal = (torch.stack(x).detach() for x in (new, old, gains, v, old_v, goal))
            seen_clipped += int(((new - old).exp() - 1).abs().gt(epsilon).sum())
            clip = options.get("value_clip")
            expected = (ppo_clip_loss(new, old, gains, epsilon=min(epsilon, 1)) - options.get(
                "entropy_coefficient", 0) * sum(entropies) / len(entropies) + value_loss(
                    v, goal, **({} if clip is None else dict(clip=clip, old_values=old_v))))
            assert losses[s].item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
    if epsilon < 0.1:
        assert seen_clipped > 3
    for s in range(2):                                                 # what the log says about the last policy
        new, old = (separate(network, s)(batch.observations[:, s]).log_softmax(-1)
                    .gather(-1, batch.actions[:, s, :, None])[..., 0][batch.mask[:, s]] for network in
                    (log.policy, policy))
        ratio = (new - old).exp()
        assert log.diagnostics["largest_ratio"][0, s] == pytest.approx(ratio.max().item(), rel=1e-4)
        assert log.diagnostics["clipped"][0, s] == pytest.approx(((ratio - 1).abs() > epsilon).float().mean().item())


def test_ppo_clips_gradients_and_anneals(monkeypatch):
    norms, rates, right = [], [], trust_region.descend

    def descend(optimizer, losses, iteration, **more):
        norms.append(more["max_grad_norm"])
        rates.append([group["lr"] for group in optimizer.param_groups])
        right(optimizer, losses, iteration, **more)
    monkeypatch.setattr(trust_region, "descend", descend)
    ppo(**SMALL_PPO, learning_rate=0.3, value_learning_rate=0.6, anneal=True, max_grad_norm=0.7)
    assert set(norms) == {0.7} and len(norms) == 12
    close([rates[0], rates[4], rates[-1]], [[0.3, 0.6], [0.2, 0.4], [0.1, 0.2]])
    rates.clear()
    ppo(**SMALL_PPO, max_grad_norm=None)
    assert norms[-1] is None and len(set(map(tuple, rates))) == 1


# --- TRPO ---------------------------------------------------------------------------------------------------

def test_the_natural_step_is_that_of_the_explicit_fisher_matrix():
    policy, states = small_policies(0)
    gradient = torch.randn(flatten(policy.parameters()).shape, generator=torch_generator(9)).double()
    gradient[1] = 0
    real = torch.ones(2, 5, dtype=torch.bool)
    real[0, 3] = False
    step = natural_step(policy, states, real, gradient, delta=0.03, damping=0.2, iterations=40)
    kept = [0, 1, 2, 4]
    F = explicit_fisher(policy, states[:, kept], 0) + 0.2 * np.eye(len(step[0]))
    x = np.linalg.solve(F, gradient[0].numpy())
    close(step[0], x * math.sqrt(2 * 0.03 / (x @ F @ x)), 1e-8)
    assert abs(step[0].numpy() @ F @ step[0].numpy() / 2 - 0.03) < 1e-9
    assert not step[1].any(), "no gradient, no step"
    for delta in (0, -1, None):
        with pytest.raises(ValueError, match="^delta: expected"):
            natural_step(policy, states, real, gradient, delta=delta)


def moved(content, *, tries=10, backtracking=0.8, seeds=4):
    """(parameters before, after, scale) of a search along a step of ones; content(scale [S]) says who is content."""
    policy = mlp(seeds, (1, 1), gain=1, generator=torch_generator(0)).double()
    before = flatten(policy.parameters()).detach().clone()
    scale = line_search(policy, torch.ones(seeds, 2).double(), lambda: content(flatten(policy.parameters()) - before),
                        backtracking=backtracking, tries=tries)
    return before, flatten(policy.parameters()).detach(), scale


def test_the_line_search_stops_at_the_first_step_that_is_accepted_for_each_seed():
    bounds = torch.tensor([2.0, 0.7, 0.3, 0.01])
    before, after, scale = moved(lambda d: d[:, 0] <= bounds)
    expected = [1.0, 0.8 ** 2, 0.8 ** 6, 0.0]                           # 0.8^9 = 0.134 is the last that is tried
    close(scale, expected, 1e-6)
    close(after - before, np.outer(expected, [1, 1]), 1e-6)
    before, after, scale = moved(lambda d: d[:, 0] <= bounds, tries=30)
    assert scale[3] == pytest.approx(0.8 ** 21, rel=1e-5)              # 0.8^21 = 0.0092
    before, after, scale = moved(lambda d: d[:, 0] <= bounds, tries=1)
    assert scale.tolist() == [1, 0, 0, 0] and torch.equal(after[1:], before[1:])
    assert moved(lambda d: d[:, 0] < 0)[2].tolist() == [0, 0, 0, 0]
    for name, value in (("tries", 0), ("backtracking", 0), ("backtracking", 2)):
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            moved(lambda d: d[:, 0] < 0, **{name: value})


@pytest.mark.parametrize("whitened", [True, False])
def test_the_first_update_of_trpo_is_the_textbooks(monkeypatch, whitened):
    """Explicit gradient and Fisher matrix of each seed, dense algebra, and the search in Python, in float64."""
    policy, critic, batch = first_rollout(np.random.SeedSequence(4).spawn(4), SMALL_TRPO)
    monkeypatch.setattr(cartpole, "rollout", lambda *_: batch)
    options = dict(SMALL_TRPO, iterations=1, delta=0.02, cg_iterations=60, fisher_every=3, whitened=whitened, seed=4)
    log = trpo(**options)
    _, advantages, _ = advantages_and_targets(critic, batch, gamma=0.98, lam=0.95,
                                              bootstrap=("time limit", "rollout end"))
    policy = policy.double()
    states, actions = rows(batch.observations).double(), rows(batch.actions)
    for s in range(2):
        real = rows(batch.mask)[s].nonzero().flatten()
        A = whiten(advantages[:, s], mask=batch.mask[:, s]) if whitened else advantages[:, s]
        A = A.flatten()[real].double()
        network = separate(policy, s)
        parameters, here, taken = list(network.parameters()), states[s][real], actions[s][real]

        def laws():
            return network(here).log_softmax(-1)

        def flat(parts):
            return np.concatenate([part.t().flatten().detach().numpy() for part in parts])
        old = laws().detach()
        old_taken = old[range(len(real)), taken]
        ratio = (laws()[range(len(real)), taken] - old_taken).exp()
        gradient = flat(torch.autograd.grad((ratio * A).mean(), parameters))
        third = torch.tensor([i for i in real.tolist() if i % 3 == 0])
        F = explicit_fisher(policy, states[:, third], s) + 0.1 * np.eye(len(gradient))
        x = np.linalg.solve(F, gradient)
        step, start = x * math.sqrt(2 * 0.02 / (x @ F @ x)), [p.detach().clone() for p in parameters]
        for j in range(10):
            at = 0
            for p, p0 in zip(parameters, start):
                part = 0.8 ** j * torch.tensor(step[at:at + p.numel()])
                p.data, at = p0 + (part.view(p.shape[::-1]).t() if p.ndim == 2 else part), at + p.numel()
            new = laws().detach()
            kl = np.mean([oracle.kl(a, b) for a, b in zip(old.exp().tolist(), new.exp().tolist())])
            gain = ((new[range(len(real)), taken] - old_taken).exp() * A).mean() - A.mean()
            if kl <= 0.02 and gain > 0:
                break
        else:
            raise AssertionError("the case must accept a step")
        assert log.diagnostics["scale"][0, s] == pytest.approx(0.8 ** j, rel=1e-5)
        assert log.diagnostics["kl"][0, s] == pytest.approx(kl, rel=1e-2)
        found = flatten(log.policy.parameters())[s].detach().double().numpy()
        change = found - flatten(policy.parameters())[s].detach().numpy()
        np.testing.assert_allclose(change, 0.8 ** j * step, rtol=2e-2, atol=2e-4)


def test_no_step_of_trpo_leaves_the_trust_region():
    log = trpo(seeds=3, envs=4, horizon=32, iterations=12, delta=0.005)
    assert log.diagnostics["kl"].shape == log.diagnostics["scale"].shape == (12, 3)
    assert (log.diagnostics["kl"] <= 0.005 * (1 + 1e-5)).all() and log.diagnostics["kl"].max() > 0.002


def test_a_step_that_lowers_the_surrogate_is_refused_however_short(monkeypatch):
    """Against the natural step: within the radius, and never better, so the policy stays as it was."""
    right, options = trust_region.natural_step, dict(SMALL_TRPO, iterations=1, delta=0.001)
    up = trpo(**options)
    monkeypatch.setattr(trust_region, "natural_step", lambda *arrays, **more: -right(*arrays, **more))
    down = trpo(**options)
    start = mlp(2, (4, 6, 2), generator=torch_generator(np.random.SeedSequence(0).spawn(4)[0]))
    assert up.diagnostics["scale"].all() and not down.diagnostics["scale"].any()
    assert all(torch.equal(a, b) for a, b in zip(down.policy.parameters(), start.parameters()))
    assert not torch.equal(up.policy[2].weights, start[2].weights)


# --- both ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("loop, small", LOOPS)
def test_one_seeds_data_leaves_the_others_update_bitwise_unchanged(monkeypatch, loop, small):
    """Three iterations on the same rollouts but for seed 0, whose rewards, states, actions and ends differ."""
    right, after = cartpole.rollout, []
    options = dict(small, seeds=3, iterations=3)
    env = cartpole.CartPole(seeds=3, envs=options["envs"], seed=7)
    policy = mlp(3, generator=torch_generator(0))
    played = [with_ends(right(env, policy, options["horizon"])) for _ in range(3)]
    for spoil in (False, True):
        def rollout(*_):
            batch = replace(next(batches))
            if spoil:
                names = ("observations", "actions", "rewards", "terminated")
                arrays = {name: getattr(batch, name).clone() for name in names}
                arrays["observations"][:, 0] *= -1.5
                arrays["actions"][:, 0] = 1 - arrays["actions"][:, 0]
                arrays["rewards"][:, 0] *= 30
                arrays["terminated"][4, 0] = True
                batch = replace(batch, **arrays)
            return batch
        batches = iter(played)
        monkeypatch.setattr(cartpole, "rollout", rollout)
        after.append(loop(**options).policy)
    for a, b in zip(*(network.parameters() for network in after)):
        assert torch.equal(a[1:], b[1:]) and not torch.equal(a[0], b[0])


@pytest.mark.parametrize("loop, small", LOOPS)
def test_runs_repeat_and_arguments_reach_the_update(loop, small):
    base, again, longer = loop(**small), loop(**small), loop(**{**small, "iterations": 4})
    assert np.array_equal(base.final_returns, again.final_returns) and base.returns.shape == (3, 2)
    assert np.array_equal(base.returns, longer.returns[:3], equal_nan=True)
    assert np.array_equal(base.steps, longer.steps[:3])
    for name, values in base.diagnostics.items():
        assert values.shape == (3, 2) and np.array_equal(values, again.diagnostics[name])
        assert np.array_equal(values, longer.diagnostics[name][:3])
    last_layer = base.policy[2].weights
    assert torch.equal(last_layer, again.policy[2].weights) and not torch.equal(last_layer[0], last_layer[1])
    changes = [dict(gamma=0.5), dict(lam=0.0), dict(whitened=False), dict(bootstrap=()), dict(envs=5), dict(horizon=5),
               dict(value_learning_rate=0.3), dict(orthogonal=False), dict(iterations=4), dict(seed=1), dict(hidden=9)]
    if loop is ppo:
        changes += [dict(epochs=3), dict(minibatches=3), dict(epsilon=0.001), dict(learning_rate=0.05),
                    dict(anneal=True), dict(max_grad_norm=0.01), dict(max_grad_norm=None),
                    dict(entropy_coefficient=0.1), dict(value_clip=1e-3)]
    else:
        changes += [dict(delta=0.02), dict(damping=0.5), dict(cg_iterations=1), dict(fisher_every=1),
                    dict(value_steps=3)]
    for change in changes:
        other = loop(**{**small, **change}).policy[2].weights
        assert other.shape != last_layer.shape or not torch.equal(last_layer, other), change
    if loop is trpo:
        refused = [loop(**small, delta=0.5, **change).policy[2].weights for change in ({}, dict(backtracking=0.5))]
        assert not torch.equal(*refused)


@pytest.mark.parametrize("loop, small", LOOPS)
def test_bad_arguments_are_refused_by_name(loop, small):
    bad = dict(seeds=0, envs=0, horizon=0, iterations=0, hidden=2.5, value_learning_rate=-1.0, gamma=1.5, lam=-0.1,
               bootstrap=("time",), seed=-1)
    bad |= (dict(epochs=0, minibatches=19, epsilon=0.0, learning_rate=0.0, max_grad_norm=0.0, value_clip=-1.0,
                 entropy_coefficient=-0.1) if loop is ppo else
            dict(delta=0.0, damping=-0.1, cg_iterations=0, fisher_every=0, backtracking=1.5, tries=0, value_steps=0))
    for argument, value in bad.items():
        with pytest.raises(ValueError, match=f"^{argument}: expected"):
            loop(**{**small, argument: value})
    if loop is ppo:
        with pytest.raises(ValueError, match="^minibatches: expected a whole number"):
            ppo(**{**small, "minibatches": 0})


@pytest.mark.parametrize("loop, small", LOOPS)
def test_nan_never_trains_on(monkeypatch, loop, small):
    right = trust_region.advantages_and_targets

    def spoiled(*arguments, **more):
        values, advantages, targets = right(*arguments, **more)
        advantages[0, 1, 0] = torch.nan
        return values, advantages, targets
    monkeypatch.setattr(trust_region, "advantages_and_targets", spoiled)
    with pytest.raises(FloatingPointError, match=r"iteration 0: (loss|gradient) of seed\(s\) \[1\]"):
        loop(**small)


@pytest.mark.parametrize("loop, options", [
    (ppo, dict(seeds=3, envs=8, horizon=32, iterations=25)), (trpo, dict(seeds=3, envs=8, horizon=64, iterations=20))])
def test_it_learns_and_against_the_advantages_it_does_not(monkeypatch, loop, options):
    returns = loop(**options).returns
    assert returns[-5:].mean() > 3 * np.nanmean(returns[:3])
    right = trust_region.whiten_seeds
    monkeypatch.setattr(trust_region, "whiten_seeds", lambda *arrays: -right(*arrays))
    returns = loop(**options).returns
    assert returns[-5:].mean() < 0.7 * np.nanmean(returns[:3])
