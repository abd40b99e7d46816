"""Figures of the training loops: seconds, environment steps a second, ratios, returns. Never fails on a time.

    python tests/bench_training.py [batches of ten seeds, default 1]

Ratios compare with a bare loop: random actions through the same vector environment, as many steps of as many
environments, on the same machine, in the same minute. They survive a slower or busier machine; seconds do not.
"""
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from utils import cartpole, training                                              # noqa: E402
from utils.cartpole import ENVIRONMENT, THRESHOLD                                 # noqa: E402
from utils.estimators import discounted_returns                                   # noqa: E402

LOOPS = {
    "REINFORCE": training.reinforce,
    "REINFORCE, mean over steps": partial(training.reinforce, reduction="step_mean"),
    "REINFORCE, reward-to-go": partial(training.reinforce, weights=discounted_returns),
    "REINFORCE, learned baseline": training.reinforce_with_baseline,
    "actor-critic, one-step TD": partial(training.actor_critic, lam=0),
    "actor-critic, GAE 0.95": training.actor_critic,
    "actor-critic, GAE 1": partial(training.actor_critic, lam=1),
    "PPO": training.ppo,
    "TRPO": training.trpo,
}


def cpu_seconds(function, *arguments, **options):
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


def counted(loop, **options):
    """The loop's log, and {environments: vector steps} of all that it played, the final evaluation included."""
    steps, right = Counter(), cartpole.CartPole.step

    def step(env, policy):
        steps[env.environment.num_envs] += 1
        return right(env, policy)

    cartpole.CartPole.step = step
    try:
        return loop(**options), steps
    finally:
        cartpole.CartPole.step = right


def random_actions(vector_steps):
    """The same numbers of steps of the same numbers of environments, and nothing else."""
    rng = np.random.default_rng(0)
    for envs, steps in vector_steps.items():
        env = gymnasium.make_vec(ENVIRONMENT, num_envs=envs, vectorization_mode="vector_entry_point")
        env.reset(seed=0)
        for _ in range(steps):
            env.step(rng.integers(2, size=envs))


def main(batches):
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, gymnasium {gymnasium.__version__}; "
          "ten seeds at once, default budgets")
    training.adam(learning_rate=(torch.nn.Linear(1, 1), 0.1))          # torch imports its compiler at the first one
    print(f"{'':28s} seed  CPU-s  steps a seed  env steps/s  random actions  times as long   final return  at {THRESHOLD:.0f}")
    for name, loop in LOOPS.items():
        for seed in range(batches):
            log, steps = counted(loop, seed=seed)
            bare = cpu_seconds(random_actions, steps)[0]
            total = sum(envs * count for envs, count in steps.items())
            final = log.final_returns
            print(f"{name:28s} {seed:4d} {log.seconds:6.1f} {log.steps[-1]:13,.0f} {total / log.seconds:12,.0f} "
                  f"{total / bare:15,.0f} {log.seconds / bare:14.1f} {final.mean():8.0f} ({final.min():3.0f}-{final.max():3.0f}) "
                  f"{(final >= THRESHOLD).sum():4d}", flush=True)
    one, ten, twenty = (cpu_seconds(training.reinforce, seeds=seeds, iterations=20)[0] for seeds in (1, 10, 20))
    print(f"REINFORCE, 20 iterations: 1 seed {one:.1f} CPU-s, 10 seeds {ten / one:.1f} times that, "
          f"20 seeds {twenty / one:.1f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
