"""Small networks for many seeds at once: every parameter carries a leading seed axis.

Ten networks of one shape are ten matrices stacked into one tensor, and one batched product computes all of them. No
operation mixes the seeds, so training ten seeds is training ten separate networks, for the price of about two.

Shapes: S seeds, N rows of a batch, A actions. Networks map [S, N, features] to [S, N, outputs].
"""
import numpy as np
import torch
from torch import nn

from .validate import floats, in_range, whole

# Tensors this small are finished before a second thread has started: on a busy two-core machine two threads made the
# same run 10 to 20 times slower. This is the one place that sets it; everything in the book that trains comes by here.
torch.set_num_threads(1)


def torch_generator(seed):
    """A torch random generator from `seed`: a whole number >= 0 or a numpy.random.SeedSequence.

    A sequence lets one seed give many independent streams: numpy.random.SeedSequence(0).spawn(5).
    Raises ValueError for anything else.
    """
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(whole("seed", seed, 0))
    return torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0]))


class SeedLinear(nn.Module):
    """S linear layers side by side: [S, N, inputs] -> [S, N, outputs], one weight matrix and bias for each seed.

    Each seed's weights are a random orthogonal matrix times `gain` (Saxe et al., 2014), its biases 0.
    generator: where the random numbers come from; the same state gives the same weights.
    """

    def __init__(self, seeds, inputs, outputs, *, gain, generator):
        super().__init__()
        weights = torch.empty(seeds, inputs, outputs)
        for matrix in weights:
            nn.init.orthogonal_(matrix, gain, generator=generator)
        self.weights = nn.Parameter(weights)
        self.biases = nn.Parameter(torch.zeros(seeds, 1, outputs))

    def forward(self, x):
        return torch.baddbmm(self.biases, x, self.weights)                  # x @ weights + biases, seed by seed


def mlp(seeds, sizes=(4, 32, 2), *, gain=0.01, generator):
    """S networks with tanh between the layers; by default CartPole's 4 numbers, 32 hidden units, 2 action logits.

    seeds: S >= 1; sizes: inputs, hidden layers, outputs; generator: a torch.Generator (see `torch_generator`);
    gain >= 0: scale of the last layer's weights. 0.01 starts a policy close to uniform, 1 suits a value function.
    Returns a module [S, N, sizes[0]] -> [S, N, sizes[-1]]. Raises ValueError for sizes below 1 or a negative gain.
    """
    seeds, gain = whole("seeds", seeds), in_range("gain", gain, 0)
    sizes = [whole("sizes", size) for size in sizes]
    if len(sizes) < 2:
        raise ValueError(f"sizes: expected at least the number of inputs and of outputs, got {sizes}")
    layers = []
    for inputs, outputs in zip(sizes[:-2], sizes[1:-1]):
        layers += [SeedLinear(seeds, inputs, outputs, gain=2 ** 0.5, generator=generator), nn.Tanh()]
    return nn.Sequential(*layers, SeedLinear(seeds, *sizes[-2:], gain=gain, generator=generator))


def sample_actions(logits, generator):
    """One action from each softmax distribution: logits [..., A] -> whole numbers [...].

    The Gumbel-max trick: with u uniform on (0, 1), -log(-log u) is Gumbel noise, and the largest logit + noise falls on
    action a with probability softmax(logits)_a. Source: Gumbel (1954); Maddison, Tarlow & Minka (2014).
    """
    uniform = torch.rand(logits.shape, generator=generator, dtype=logits.dtype)
    return (logits - (-uniform.log()).log()).argmax(-1)


def log_probs(logits, actions):
    """log pi(action) under softmax(logits), the action's logit minus logsumexp of all: [..., A], int64 [...] -> [...].

    Raises ValueError when the shapes do not fit, or an action is not in 0 ... A - 1.
    """
    logits = floats("logits", logits)
    if tuple(actions.shape) != tuple(logits.shape[:-1]):
        raise ValueError(f"actions: expected the shape {tuple(logits.shape[:-1])}, got {tuple(actions.shape)}")
    if actions.numel() and not 0 <= int(actions.min()) <= int(actions.max()) < logits.shape[-1]:
        raise ValueError(f"actions: expected whole numbers from 0 to {logits.shape[-1] - 1}, "
                         f"got {int(actions.min())} to {int(actions.max())}")
    return logits.gather(-1, actions[..., None]).squeeze(-1) - logits.logsumexp(-1)
