"""Small networks for many seeds at once: every parameter carries a leading seed axis.

Ten networks of one shape are ten matrices stacked into one tensor, and one batched product computes all of
them. No operation mixes the seeds: ten seeds trained together are ten separate networks, only faster.

Shapes: S seeds, N rows of a batch, A actions. A network maps [S, N, features] to [S, N, outputs].
"""
import numpy as np
import torch
from torch import nn

from .validate import floats, in_range, whole

# Products this small are done before a second thread has woken up; on a busy machine the threads then wait
# for each other, and a run takes many times as long. All training in this book imports this module.
torch.set_num_threads(1)


def torch_generator(seed):
    """A torch random generator from `seed`: a whole number >= 0 or a numpy.random.SeedSequence.

    A sequence turns one seed into any number of independent streams: numpy.random.SeedSequence(0).spawn(5).
    Raises ValueError for anything else.
    """
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(whole("seed", seed, 0))
    return torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0]))


class SeedLinear(nn.Module):
    """S linear layers side by side: [S, N, inputs] -> [S, N, outputs], one weight matrix each.

    Each seed's weights are a random orthogonal matrix times `gain` (Saxe et al., 2014), its biases 0. With gain None
    both are uniform between -1 / sqrt(inputs) and 1 / sqrt(inputs), as torch.nn.Linear has them.
    generator: where the random numbers come from; the same state gives the same weights.
    """

    def __init__(self, seeds, inputs, outputs, *, gain, generator):
        super().__init__()
        weights, biases = torch.empty(seeds, inputs, outputs), torch.zeros(seeds, 1, outputs)
        if gain is None:
            for array in (weights, biases):
                nn.init.uniform_(array, -inputs ** -0.5, inputs ** -0.5, generator=generator)
        else:
            for matrix in weights:
                nn.init.orthogonal_(matrix, gain, generator=generator)
        self.weights, self.biases = nn.Parameter(weights), nn.Parameter(biases)

    def forward(self, x):
        return torch.baddbmm(self.biases, x, self.weights)              # x @ weights + biases, for each seed


def mlp(seeds, sizes=(4, 32, 2), *, gain=0.01, orthogonal=True, generator):
    """S networks, tanh between the layers. Default: CartPole's 4 numbers, 32 hidden units, 2 action logits.

    seeds: S >= 1. sizes: inputs, hidden layers, outputs. generator: a torch.Generator, see `torch_generator`.
    gain >= 0: scale of the last layer's weights; 0.01 starts a policy near uniform, 1 suits a value function.
    orthogonal: False starts all layers as torch.nn.Linear does, whatever the gain.
    Returns a module [S, N, sizes[0]] -> [S, N, sizes[-1]].
    Raises ValueError when seeds or a size is not a whole number >= 1, or the gain is negative.
    """
    seeds, gain = whole("seeds", seeds), in_range("gain", gain, 0)
    sizes = [whole("sizes", size) for size in sizes]
    if len(sizes) < 2:
        raise ValueError(f"sizes: expected at least the number of inputs and of outputs, got {sizes}")
    first_gain, last_gain = (2 ** 0.5, gain) if orthogonal else (None, None)
    layers = []
    for inputs, outputs in zip(sizes[:-2], sizes[1:-1]):
        layers += [SeedLinear(seeds, inputs, outputs, gain=first_gain, generator=generator), nn.Tanh()]
    return nn.Sequential(*layers, SeedLinear(seeds, *sizes[-2:], gain=last_gain, generator=generator))


def sample_actions(logits, generator):
    """One action from each softmax distribution: logits [..., A] -> whole numbers [...] (int64).

    The Gumbel-max trick: with u uniform on (0, 1), -log(-log u) is Gumbel noise, and the largest of the sums
    logit + noise falls on action a with probability softmax(logits)_a.
    Source: Gumbel (1954); Maddison, Tarlow & Minka (2014).
    """
    uniform = torch.rand(logits.shape, generator=generator, dtype=logits.dtype)
    return (logits - (-uniform.log()).log()).argmax(-1)


def log_probs(logits, actions):
    """log pi(action), the logit minus logsumexp of all logits: [..., A] and int64 actions [...] -> [...].

    Raises ValueError when the shapes do not fit, an action is not in 0 ... A - 1, or a logit is not finite.
    """
    logits = floats("logits", logits)
    expected, count = tuple(logits.shape[:-1]), logits.shape[-1]
    if tuple(actions.shape) != expected:
        raise ValueError(f"actions: expected the shape {expected}, got {tuple(actions.shape)}")
    if actions.numel() and not 0 <= actions.min() <= actions.max() < count:
        raise ValueError(f"actions: expected whole numbers from 0 to {count - 1}, "
                         f"got {int(actions.min())} to {int(actions.max())}")
    return logits.gather(-1, actions[..., None]).squeeze(-1) - logits.logsumexp(-1)
