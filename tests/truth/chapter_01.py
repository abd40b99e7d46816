"""Chapter 1: trajectories and the objective."""
from dataclasses import replace
from itertools import product

import mutants
import numpy as np

from . import row
from .common import finite_world, largest


@row("T1.1", wrong=[mutants.initial_law_left_out, mutants.start_is_uniform, mutants.world_left_out,
                    mutants.reward_of_the_next_step, mutants.one_step_short, mutants.mean_of_all_states,
                    mutants.best_action_values, mutants.reward_forgotten_in_Q, mutants.softmax_over_states])
def enumeration_J(lib, given):
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    return {"n_traj": len(every.probabilities), "prob_sum": every.probabilities.sum(),
            "J_enum": every.probabilities @ every.returns(world.gamma), "J_dp": lib.objective(world, policy),
            "V1": values.V[0], "Q1": values.Q[0]}


@row("T1.2", wrong=[mutants.initial_law_left_out, mutants.start_is_uniform])
def missing_initial_distribution(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    return {"mass_without_mu": (every.probabilities / world.initial[every.states[0]]).sum(),
            "n_states": len(np.unique(every.states))}


@row("T1.3", wrong=[mutants.policy_not_conditioned, mutants.initial_law_left_out, mutants.one_step_short])
def pair_chain(lib, given):
    world, policy = finite_world(lib, given)
    kernel, every = lib.pair_chain(world, policy), lib.trajectories(world, policy)
    first, last = np.zeros(policy.size), np.zeros(policy.size)
    pairs = every.states[:-1] * policy.shape[1] + every.actions
    np.add.at(first, pairs[0], every.probabilities)
    np.add.at(last, pairs[-1], every.probabilities)
    return {"kernel": kernel, "row_sums": kernel.sum(1), "marginal_t3_enum": last,
            "marginal_t3_chain": (world.initial[:, None] * policy).ravel() @ kernel @ kernel}


@row("T1.4", wrong=[mutants.values_without_time, mutants.best_action_values, mutants.reward_forgotten_in_Q,
                    mutants.mean_of_all_states])
def bellman_consistency(lib, given):
    world, policy = finite_world(lib, given)
    V, Q = (values := lib.values(world, policy)).V, values.Q
    gaps = largest(V[:-1] - (policy * Q).sum(-1), lib.objective(world, policy) - world.initial @ V[0],
                   *(Q[t] - world.reward - world.gamma * world.transition @ V[t + 1] for t in range(given.T)))
    return {"V": V, "max_gap": gaps, "J": lib.objective(world, policy), "V_t2_minus_V_t1": V[1] - V[0]}


@row("T1.5", wrong=[mutants.initial_law_left_out, mutants.world_left_out, mutants.reward_of_the_next_step])
def most_probable_trajectories(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    order = np.argsort(-every.probabilities)
    p = every.probabilities[order]
    return {"first_probability": p[0], "first_return": every.returns()[order[0]],
            "mass_of_the_first": p[:given.first].sum(), "most_over_least": p[0] / p[-1]}


@row("T1.6", wrong=[mutants.mean_of_all_states, mutants.softmax_over_states, mutants.logits_normalised_without_exp])
def policies_compared(lib, given):
    world, policy = finite_world(lib, given)
    moved = [lib.softmax_policy([[x, given.theta[0][1]], [given.theta[1][0], x]]) for x in given.logits]
    S, A = policy.shape
    fixed = [lib.objective(world, np.eye(A)[list(actions)]) for actions in product(range(A), repeat=S)]
    return {"J_at_logits": [lib.objective(world, p) for p in moved], "J_best_deterministic": max(fixed),
            "J_greedy": lib.objective(world, np.eye(A)[policy.argmax(-1)])}


@row("T1.7", wrong=[mutants.mean_of_all_states, mutants.undiscounted_objective, mutants.one_step_short])
def longer_horizons(lib, given):
    world, policy = finite_world(lib, given)
    worlds = [replace(world, horizon=T) for T in given.horizons]
    return {"trajectories": [len(lib.trajectories(w, policy).probabilities) for w in worlds],
            "J": [lib.objective(w, policy) for w in worlds],
            "J_gamma_0": [lib.objective(replace(w, gamma=0.0), policy) for w in worlds]}


@row("T1.8", wrong=[mutants.second_moment, mutants.equal_weights, mutants.reward_of_the_next_step])
def standard_error_of_the_mean_return(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    mean, variance = lib.moments(every.probabilities, every.returns())
    return {"mean": mean, "variance": variance, "standard_error": [(variance / n) ** 0.5 for n in given.N]}


@row("T1.9", wrong=[mutants.plays_on_after_the_end, mutants.equal_weights, mutants.one_step_short])
def reward_per_step(lib, given):
    world, zeros = lib.short_or_long()
    every = lib.trajectories(world, lib.softmax_policy(zeros + given.logits))
    lengths, returns = every.lengths, every.returns()
    return {"returns": sorted(set(returns)), "lengths": sorted(set(lengths.tolist())),
            "mean_return": lib.moments(every.probabilities, returns)[0],
            "mean_length": lib.moments(every.probabilities, lengths)[0],
            "mean_reward_per_step": lib.moments(every.probabilities, returns / lengths)[0]}


@row("T1.10", wrong=[mutants.initial_law_left_out, mutants.world_left_out, mutants.start_is_uniform])
def world_and_policy_in_a_probability(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    by_policy = np.prod(policy[every.states[:-1], every.actions], axis=0)
    most, least = every.probabilities.argmax(), every.probabilities.argmin()
    ratio = by_policy[most] / by_policy[least]
    return {"world": every.probabilities[most] / every.probabilities[least] / ratio, "policy": ratio}


@row("T1.11", wrong=[mutants.values_without_time, mutants.best_action_values, mutants.reward_forgotten_in_Q])
def discounted_values_far_from_the_end(lib, given):
    world, policy = finite_world(lib, given)
    Q = lib.values(world, policy).Q
    return {"V_of_state_0": (policy * Q).sum(-1)[np.array(given.steps) - 1, 0]}


@row("T1.12", wrong=[mutants.initial_law_left_out, mutants.start_is_uniform, mutants.world_left_out])
def mean_return_without_the_initial_law(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    return {"J_without_mu": every.probabilities / world.initial[every.states[0]] @ every.returns()}


@row("T1.13", wrong=[mutants.mean_of_all_states, mutants.reward_forgotten_in_Q])
def the_clock_helps(lib, given):
    """The best policy with a clock is found backwards: each last step's best actions, then the step before it."""
    world, grid = finite_world(lib, given)[0], np.linspace(0, 1, given.grid)
    S, A = world.reward.shape
    V, best = np.zeros(S), []
    for _ in range(given.T):
        # One step, then V: a world of one step whose rewards hold what follows.
        step = replace(world, horizon=1, reward=world.reward + world.gamma * world.transition @ V)
        Q = lib.values(step, np.full((S, A), 1 / A)).Q[0]
        V, best = Q.max(-1), [Q.argmax(-1), *best]
    without = max(lib.objective(world, np.array([[p, 1 - p], [q, 1 - q]])) for p, q in product(grid, grid))
    return {"with_clock": world.initial @ V, "without_clock": without, "best_actions": best}
