"""Figures of the training runs: seconds, shares, ratios and returns. Prints them and never fails on a time.

    python tests/bench_training.py [batches of ten seeds, default 2]

Ratios compare with a bare loop: random actions through the same vector environment, on the same machine, in
the same minute. They survive a slower or busier machine; seconds do not.
"""
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from utils import cartpole, training                                              # noqa: E402
from utils.cartpole import ENVIRONMENT, THRESHOLD                                 # noqa: E402


def cpu_seconds(function, *arguments, **options):
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


class Clock:
    """Puts a stopwatch around functions, to see where a run spends its time."""

    def __init__(self):
        self.seconds, self.vector_steps = {}, 0

    def watch(self, owner, name, label):
        function = getattr(owner, name)

        def timed(*arguments, **options):
            seconds, result = cpu_seconds(function, *arguments, **options)
            self.seconds[label] = self.seconds.get(label, 0) + seconds
            if isinstance(result, cartpole.Rollout):
                self.vector_steps += len(result.mask)
            return result
        setattr(owner, name, timed)
        return lambda: setattr(owner, name, function)


def bare_loop(envs, steps):
    env = gymnasium.make_vec(ENVIRONMENT, num_envs=envs, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        env.step(rng.integers(2, size=envs))


def shares():
    clock = Clock()
    undo = [clock.watch(cartpole, "episodes", "environment and sampling"),
            clock.watch(training, "action_log_probs", "forward"),
            clock.watch(training, "policy_gradient_loss", "loss"),
            clock.watch(training, "descend", "backward and Adam")]
    log = training.reinforce()
    for restore in undo:
        restore()
    bare, _ = cpu_seconds(bare_loop, 1000, clock.vector_steps)
    print(f"REINFORCE, 10 seeds, defaults: {log.seconds:.1f} CPU-s, {log.steps[-1]:,.0f} steps a seed")
    for label, seconds in clock.seconds.items():
        print(f"  {label:26s} {seconds:5.2f} s  {100 * seconds / log.seconds:3.0f} %")
    print(f"  random actions through the same environment, as many vector steps: {bare:.2f} s; "
          f"the run takes {log.seconds / bare:.1f} times as long")


def returns(batches, **options):
    for seed in range(batches):
        log = training.reinforce(seed=seed, **options)
        final = log.final_returns
        print(f"  batch seed {seed}: {log.seconds:4.1f} CPU-s, mean of ten {final.mean():3.0f}, "
              f"{(final >= THRESHOLD).sum():2d} of 10 at {THRESHOLD:.0f} or more, "
              f"each {np.sort(final).round().astype(int).tolist()}")


def main(batches):
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, gymnasium {gymnasium.__version__}")
    shares()
    one, ten, twenty = (cpu_seconds(training.reinforce, seeds=seeds, iterations=20)[0]
                        for seeds in (1, 10, 20))
    print(f"20 iterations: 1 seed {one:.1f} s, 10 seeds {ten:.1f} s ({ten / one:.1f} times), "
          f"20 seeds {twenty:.1f} s ({twenty / one:.1f} times)")
    print("defaults (sum over time, mean over trajectories):")
    returns(batches)
    print("mean over all steps instead:")
    returns(batches, reduction="step_mean")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
