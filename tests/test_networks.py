"""Networks with a seed axis: S separate networks in one, their sampling and their log-probabilities."""
import numpy as np
import pytest
import torch
from torch import nn

from utils.networks import SeedLinear, log_probs, mlp, sample_actions, torch_generator


def network(seeds=3, sizes=(4, 5, 2), *, gain=1.0, seed=0):
    return mlp(seeds, sizes, gain=gain, generator=torch_generator(seed))


def separate(network, seed):
    """The plain torch network with the weights that `network` holds for `seed`."""
    layers = []
    for layer in network:
        if isinstance(layer, SeedLinear):
            weights, biases = layer.weights[seed].detach(), layer.biases[seed, 0].detach()
            layer = nn.Linear(*weights.shape, dtype=weights.dtype)
            layer.weight.data, layer.bias.data = weights.T.clone(), biases.clone()
        layers.append(layer)
    return nn.Sequential(*layers)


def test_importing_sets_one_thread():
    assert torch.get_num_threads() == 1


def test_every_seed_is_a_plain_network():
    net = network().double()
    for layer in (net[0], net[2]):
        nn.init.normal_(layer.biases, generator=torch_generator(5))   # zeros would hide a lost bias
    x = torch.randn(3, 7, 4, dtype=torch.float64, generator=torch_generator(1))
    for s in range(3):
        torch.testing.assert_close(net(x)[s], separate(net, s)(x[s]), rtol=1e-13, atol=1e-13)
    assert not torch.allclose(net(x[:1].expand(3, 7, 4))[0], net(x[:1].expand(3, 7, 4))[1])


def test_a_gradient_reaches_its_own_seed_only():
    net = network()
    net(torch.ones(3, 7, 4))[1].sum().backward()
    for parameter in net.parameters():
        assert parameter.grad[1].any() and not parameter.grad[0].any() and not parameter.grad[2].any()


def test_changing_one_seeds_input_leaves_the_others_bitwise_unchanged():
    net, x = network(10, (4, 32, 2)), torch.randn(10, 400, 4, generator=torch_generator(2))
    changed = x.clone()
    changed[3] += 1
    others = torch.arange(10) != 3
    gradients = []
    for rows in (x, changed):
        net.zero_grad()
        net(rows).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])
    assert torch.equal(net(x)[others], net(changed)[others]) and not torch.equal(net(x)[3], net(changed)[3])
    for before, after in zip(*gradients):
        assert torch.equal(before[others], after[others]) and not torch.equal(before[3], after[3])


def test_initial_weights_are_orthogonal_for_each_seed_and_repeat():
    net = network(3, (4, 32, 2), gain=0.01)
    for s in range(3):
        hidden, last = net[0].weights[s].double(), net[2].weights[s].double()
        torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(4).double(), rtol=0, atol=1e-5)
        torch.testing.assert_close(last.T @ last, 1e-4 * torch.eye(2).double(), rtol=0, atol=1e-9)
    assert not net[0].biases.any() and not net[2].biases.any()
    again, other = network(3, (4, 32, 2), gain=0.01), network(3, (4, 32, 2), gain=0.01, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters()))
    assert not torch.equal(net[0].weights, other[0].weights)
    assert not torch.equal(net[0].weights[0], net[0].weights[1])


def test_initial_weights_of_torch_on_request():
    """Uniform within 1 / sqrt(inputs), biases too, whatever the gain: the law of torch.nn.Linear."""
    net = mlp(200, (4, 9, 2), orthogonal=False, gain=0.01, generator=torch_generator(0))
    plain = nn.Linear(4, 9)
    assert plain.weight.abs().max() <= 0.5 and plain.bias.abs().max() <= 0.5
    for array, bound in zip(net.parameters(), (1 / 2, 1 / 2, 1 / 3, 1 / 3)):
        assert 0.98 * bound < array.abs().max() <= bound
        assert abs(array.std() / (bound / 3 ** 0.5) - 1) < 0.1 and abs(array.mean()) < 0.1 * bound
    again = mlp(200, (4, 9, 2), orthogonal=False, generator=torch_generator(0))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters()))


def test_mlp_has_tanh_between_layers_and_defaults_for_cartpole():
    kinds = [type(layer) for layer in network(2, (4, 8, 8, 1))]
    assert kinds == [SeedLinear, nn.Tanh, SeedLinear, nn.Tanh, SeedLinear]
    assert mlp(2, generator=torch_generator(0))(torch.zeros(2, 6, 4)).shape == (2, 6, 2)
    assert network(2, (3, 1))(torch.zeros(2, 6, 3)).shape == (2, 6, 1)


@pytest.mark.parametrize("arguments, name", [
    (dict(seeds=0), "seeds"), (dict(seeds=1.5), "seeds"), (dict(sizes=(4, 0, 2)), "sizes"),
    (dict(sizes=(4,)), "sizes"), (dict(gain=-1.0), "gain"), (dict(gain=float("nan")), "gain")])
def test_mlp_refuses(arguments, name):
    with pytest.raises(ValueError, match=name):
        network(**arguments)


def test_generator_from_numbers_and_sequences():
    draw = lambda seed: torch.rand(3, generator=torch_generator(seed))
    first, second = np.random.SeedSequence(0).spawn(2)
    assert torch.equal(draw(7), draw(7)) and torch.equal(draw(first), draw(first))
    assert len({tuple(draw(seed).tolist()) for seed in (0, 1, 7, first, second)}) == 5
    for bad in (-1, 0.5, None, "0"):
        with pytest.raises(ValueError, match="seed"):
            torch_generator(bad)


def test_actions_are_sampled_from_the_softmax():
    logits = torch.tensor([[1.0, -0.5, 0.3], [-2.0, 2.0, 0.0]])
    n = 40_000
    actions = sample_actions(logits.expand(n, 2, 3), torch_generator(0))
    assert actions.shape == (n, 2) and actions.dtype == torch.int64
    for row, p in enumerate(logits.softmax(-1)):
        frequency = torch.bincount(actions[:, row], minlength=3) / n
        assert ((frequency - p).abs() < 4.5 * (p * (1 - p) / n).sqrt()).all()
    assert torch.equal(actions, sample_actions(logits.expand(n, 2, 3), torch_generator(0)))
    assert not torch.equal(actions, sample_actions(logits.expand(n, 2, 3), torch_generator(1)))


def test_noise_that_is_not_gumbel_would_be_noticed():
    """The test above must fail for the usual slip, adding uniform noise to the logits."""
    logits = torch.tensor([1.0, -0.5, 0.3]).expand(40_000, 3)
    wrong = (logits + torch.rand(logits.shape, generator=torch_generator(0))).argmax(-1)
    p = logits[0].softmax(-1)
    gap = (torch.bincount(wrong, minlength=3) / 40_000 - p).abs()
    assert (gap > 4.5 * (p * (1 - p) / 40_000).sqrt()).any()


def test_log_probs_are_those_of_torch_distributions():
    logits = torch.randn(4, 3, 5, dtype=torch.float64, generator=torch_generator(0)) * 10
    actions = torch.randint(5, (4, 3), generator=torch_generator(1))
    expected = torch.distributions.Categorical(logits=logits).log_prob(actions)
    torch.testing.assert_close(log_probs(logits, actions), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(log_probs(logits + 1000, actions), expected, rtol=1e-9, atol=1e-9)


def test_gradient_of_log_probs_is_the_score():
    logits = torch.tensor([0.2, -0.3, 0.5], dtype=torch.float64, requires_grad=True)
    log_probs(logits, torch.tensor(1)).backward()
    expected = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64) - logits.detach().softmax(-1)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("logits, actions, name", [
    (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), "actions"),
    (torch.zeros(3, 2), torch.tensor([0, 1, 2]), "actions"),
    (torch.zeros(3, 2), torch.tensor([0, -1, 1]), "actions"),
    (torch.full((3, 2), float("nan")), torch.tensor([0, 0, 1]), "logits")])
def test_log_probs_refuses(logits, actions, name):
    with pytest.raises(ValueError, match=name):
        log_probs(logits, actions)
