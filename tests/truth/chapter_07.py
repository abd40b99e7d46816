"""Chapter 7: actor-critic."""
import mutants
import numpy as np
import oracle
import torch

from . import row
from .common import finite_world, largest, per_trajectory


def along(table, every):
    """table [T + 1, S] or [T, S, A] read along the trajectories, [T + 1, N] or [T, N]."""
    if np.ndim(table) == 2:
        return np.take_along_axis(np.asarray(table, float), every.states, 1)
    return table[np.arange(len(table))[:, None], every.states[:-1], every.actions]


def last_step(every):
    """terminated [T, N]: True in the last row."""
    terminated = np.zeros(every.rewards.shape, bool)
    terminated[-1] = True
    return terminated


def errors(lib, world, every, critic, bootstrap=None):
    """delta_t [T, N] with the critic [T + 1, S]; another table may be used behind the step."""
    behind = critic if bootstrap is None else bootstrap
    return lib.td_errors(every.rewards, along(critic, every)[:-1], along(behind, every)[1:], gamma=world.gamma,
                         terminated=last_step(every))


def conditional(lib, every, quantity, *keys):
    """E[quantity | keys], an array over the values of the keys, each an integer array [N]."""
    result = np.zeros([int(key.max()) + 1 for key in keys])
    for index in np.ndindex(result.shape):
        inside = np.all([key == value for key, value in zip(keys, index)], axis=0)
        p = every.probabilities[inside]
        result[index] = lib.moments(p / p.sum(), quantity[inside])[0]
    return result


@row("T7.1", wrong=[mutants.td_without_bootstrap, mutants.td_with_the_sign_reversed, mutants.values_without_time,
                    mutants.reward_forgotten_in_Q, mutants.score_not_centred, mutants.return_starts_one_step_late])
def psi_choices(lib, given):
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    steps = every.scores(lib.softmax_score(given.theta))
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)
    psi = {"G": togo, "G_minus_V": togo - along(values.V, every)[:-1], "Q": along(values.Q, every),
           "A": along(values.A, every), "delta": errors(lib, world, every, values.V)}
    full = every.returns(world.gamma) * np.ones(togo.shape)
    found = {name: lib.moments(every.probabilities, per_trajectory(weights, steps))
             for name, weights in (psi | {"R": full}).items()}
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]
    return {"mean_gap": largest(*(mean - true for mean, _ in found.values())),
            "var": {name: found[name][1] for name in psi}}


@row("T7.2", wrong=[mutants.td_without_bootstrap, mutants.td_with_the_sign_reversed, mutants.values_without_time,
                    mutants.best_action_values, mutants.wrong_successor_law])
def td_error_is_advantage(lib, given):
    world, policy = finite_world(lib, given)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    delta = errors(lib, world, every, values.V)
    times = range(given.T)
    return {"max_gap": largest(*(conditional(lib, every, delta[t], every.states[t], every.actions[t]) - values.A[t]
                                 for t in times)),
            "mean_given_s": largest(*(conditional(lib, every, delta[t], every.states[t]) for t in times))}


@row("T7.3", wrong=[mutants.td_without_bootstrap, mutants.td_with_the_sign_reversed, mutants.values_without_time,
                    mutants.score_not_centred])
def where_critic_error_matters(lib, given):
    world, policy = finite_world(lib, given)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V
    steps = every.scores(lib.softmax_score(given.theta))
    wrong, offset = V + np.array(given.err), V + 1.0
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]

    def gradient(critic, bootstrap):
        weights = errors(lib, world, every, critic, bootstrap)
        return lib.moments(every.probabilities, per_trajectory(weights, steps))[0]

    bootstrapped = gradient(V, wrong)
    return {"bias_if_error_in_baseline": largest(gradient(wrong, V) - true),
            "bias_if_error_in_bootstrap": largest(bootstrapped - true), "gradient_with_bootstrap_error": bootstrapped,
            "true_gradient": true, "bias_constant_offset": largest(gradient(offset, offset) - true)}


@row("T7.4", wrong=[mutants.full_return_everywhere, mutants.reward_forgotten_in_Q, mutants.second_moment,
                    mutants.values_without_time])
def rao_blackwell(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    steps = every.scores(lib.softmax_score(given.theta))
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)
    Q = along(lib.values(world, policy).Q, every)
    terms = [[lib.moments(every.probabilities, weights[t][:, None, None] * steps[t])[1] for weights in (togo, Q)]
             for t in range(given.T)]
    total_G, total_Q = (lib.moments(every.probabilities, per_trajectory(w, steps))[1] for w in (togo, Q))
    return {"per_term_G_Q": terms, "total_G": total_G, "total_Q": total_Q}


@row("T7.5", wrong=[mutants.full_return_everywhere, mutants.reward_forgotten_in_Q, mutants.values_without_time])
def Q_sum_can_be_worse(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    steps = every.scores(lib.softmax_score(given.theta))
    togo = lib.discounted_returns(every.rewards, gamma=1.0)
    Q = along(lib.values(world, policy).Q, every)
    var_G, var_Q = (lib.moments(every.probabilities, per_trajectory(w, steps))[1] for w in (togo, Q))
    return {"var_G": var_G, "var_Q": var_Q, "ratio": var_Q / var_G}


@row("T7.6", wrong=[mutants.targets_not_detached, mutants.best_action_values, mutants.td_without_discount])
def stop_gradient_matters(lib, given):
    """All (s, a, s') weighted by their on-policy probability; the mean gradient is linear: solve for its root."""
    world = lib.FiniteMDP(given.mu, given.P, given.r, gamma=given.gamma)
    policy = lib.softmax_policy(given.theta)
    kernel = np.einsum("sa,sax->sx", policy, world.transition)
    S, A = policy.shape
    stationary = np.linalg.lstsq(np.vstack([kernel.T - np.eye(S), np.ones(S)]), np.eye(S + 1)[-1], rcond=None)[0]
    weight = torch.tensor(stationary[:, None, None] * policy[:, :, None] * world.transition)

    def expected_gradient(table, semi):
        """d/dv of E[1/2 (r + gamma v(s') - v(s))^2], with the target held fixed or not."""
        table = torch.tensor(table, requires_grad=True)
        now, after = table[:, None, None].expand(S, A, S), table.expand(S, A, S)
        root = weight.sqrt()
        if semi:
            target = now + lib.td_errors(torch.tensor(world.reward)[:, :, None].expand(S, A, S), now, after,
                                         gamma=given.gamma, terminated=np.zeros((S, A, S)))
            loss = lib.value_loss(root * now, root * target)
        else:
            loss = lib.value_loss(root * (now - torch.tensor(world.reward)[:, :, None] - given.gamma * after), 0 * root)
        return torch.autograd.grad(loss, table)[0].numpy()

    def root_of(semi):
        at_zero = expected_gradient(np.zeros(S), semi)
        slope = np.stack([expected_gradient(np.eye(S)[s], semi) - at_zero for s in range(S)], 1)
        return np.linalg.solve(slope, -at_zero)

    V, td, residual = lib.values(world, policy).V, root_of(semi=True), root_of(semi=False)
    return {"V_pi": V, "td_fixed_point": td, "residual_minimiser": residual, "max_gap": largest(residual - V)}


@row("T7.7", wrong=[mutants.return_starts_one_step_late, mutants.best_action_values, mutants.equal_weights])
def monte_carlo_regression(lib, given):
    world, policy = finite_world(lib, given)
    every = lib.trajectories(world, policy)
    togo = lib.discounted_returns(every.rewards, gamma=world.gamma)
    return {"V1": lib.values(world, policy).V[0], "regression": conditional(lib, every, togo[0], every.states[0])}


@row("T7.8", wrong=[mutants.td_without_bootstrap, mutants.td_with_the_sign_reversed, mutants.best_action_values,
                    mutants.reward_of_the_next_step])
def language_model_td_is_exact(lib, given):
    world, theta, _ = lib.two_token_language_model()
    reward = np.array(given.reward)
    theta = np.vstack([given.logits1, given.logits2, theta[4:]])
    policy = lib.softmax_policy(theta)
    every, values = lib.trajectories(world, policy), lib.values(world, policy)
    assert np.array_equal(world.reward[1:4], reward)
    delta = errors(lib, world, every, values.V)
    by_first = conditional(lib, every, delta[0], every.actions[0])
    advantage = lib.discounted_returns(every.rewards, gamma=1.0)[0] - along(values.V, every)[0]
    spread = conditional(lib, every, (delta[0] - by_first[every.actions[0]]) ** 2, every.actions[0])
    mean = conditional(lib, every, advantage, every.actions[0])
    return {"V0": values.V[0, 0], "delta_1": by_first, "A_1": values.A[0, 0], "var_delta_given_a": spread.max(),
            "var_mc_given_a1": conditional(lib, every, (advantage - mean[every.actions[0]]) ** 2, every.actions[0]),
            "delta_2": conditional(lib, every, delta[1], *every.actions)}


def tabular_estimate(lib, every, score, weights):
    """Exact mean and total variance of sum_t z_t weights_t."""
    return lib.moments(every.probabilities, per_trajectory(weights, every.scores(score)))


@row("T7.9", wrong=[mutants.td_without_bootstrap, mutants.values_without_time, mutants.return_starts_one_step_late,
                    mutants.best_action_values])
def noise_adds_up(lib, given):
    world, policy = finite_world(lib, given)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V
    delta, first = errors(lib, world, every, V), every.states[0]
    parts = np.array([conditional(lib, every, delta[t] ** 2, first) for t in range(given.T)])
    luck = lib.discounted_returns(every.rewards, gamma=1.0)[0] - along(V, every)[0]
    variance = conditional(lib, every, luck ** 2, first)
    return {"variance": variance, "parts_from_state_0": parts[:, 0], "gap": largest(parts.sum(0) - variance)}


@row("T7.10", wrong=[mutants.score_not_centred, mutants.values_without_time, mutants.law_of_the_first_step])
def compatible_critic(lib, given):
    world, policy = finite_world(lib, given)
    every, values, visits = lib.trajectories(world, policy), lib.values(world, policy), lib.visitation(world, policy)
    score = lib.softmax_score(given.theta)
    features = score.reshape(*policy.shape, -1)
    fisher = np.einsum("ts,sa,sak,sal->kl", visits, policy, features, features)
    w = np.linalg.lstsq(fisher, np.einsum("ts,sa,sak,tsa->k", visits, policy, features, values.Q), rcond=None)[0]
    f = features @ w
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]
    mean, _ = tabular_estimate(lib, every, score, f[every.states[:-1], every.actions])
    return {"largest_miss": largest(f - values.A), "gap": largest(mean - true)}


@row("T7.11", wrong=[mutants.best_action_values, mutants.softmax_over_states, mutants.logits_normalised_without_exp])
def certain_transitions_are_not_enough(lib, given):
    world, theta, _ = lib.two_token_language_model()
    policy = lib.softmax_policy(theta)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V
    root, eye = np.sqrt(np.tile(every.probabilities, 2)), np.eye(5)[:, :4]
    rows = eye[every.states[:-1].ravel()] - eye[every.states[1:].ravel()]
    residual = np.linalg.lstsq(rows * root[:, None], every.rewards.ravel() * root, rcond=None)[0]
    return {"V": [V[0, 0], *V[1, 1:4]], "residual_minimiser": residual}


@row("T7.12", wrong=[mutants.td_bootstraps_after_termination, mutants.td_without_bootstrap,
                     mutants.td_with_the_sign_reversed])
def offset_and_termination(lib, given):
    world, theta = lib.short_or_long()
    policy = lib.softmax_policy(theta)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V
    slopes = []
    for c in given.offsets:
        seen = along(V + c, every)                       # also at the end: `terminated` must keep it out
        delta = lib.td_errors(every.rewards, seen[:-1], seen[1:], gamma=1.0,
                              terminated=world.terminal[every.states[1:]]) * every.mask
        slopes.append(tabular_estimate(lib, every, lib.softmax_score(theta), delta)[0][0, 1])
    return {"slopes": slopes}


@row("T7.13", wrong=[mutants.full_return_everywhere, mutants.values_without_time, mutants.logits_normalised_without_exp])
def actor_loss_in_the_critic(lib, given):
    world, policy = finite_world(lib, given)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V[:-1]
    entropy = -(policy * np.log(policy)).sum(1)
    togo = torch.tensor(lib.discounted_returns(every.rewards, gamma=1.0))
    log_pi = torch.tensor(np.log(policy[every.states[:-1], every.actions]))

    def slope(table, attached):
        table = torch.tensor(table, requires_grad=True)
        v = table.gather(1, torch.tensor(every.states[:-1]))
        loss = -log_pi * (togo - (v if attached else v.detach())) + (v - togo) ** 2 / 2
        (loss * torch.tensor(every.probabilities)).sum().backward()
        return largest(table.grad.numpy())

    return {"entropy": entropy, "detached_at_V": slope(V, False), "attached_at_V_plus_H": slope(V + entropy, True)}


@row("T7.14", wrong=[mutants.values_without_time, mutants.best_action_values, mutants.reward_of_the_next_step])
def squared_advantages_attached(lib, given):
    world, policy = finite_world(lib, given)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V[:-1]
    S, N = len(world.initial), len(every.probabilities)
    root, gaps = np.sqrt(every.probabilities), []
    for lam in given.lams:
        rows, constants = np.zeros((given.T + 1, N, S * (given.T + 1))), np.zeros((given.T + 1, N))
        for t in reversed(range(given.T)):
            rows[t] = lam * rows[t + 1]
            rows[t, np.arange(N), S * t + every.states[t]] += 1
            rows[t, np.arange(N), S * (t + 1) + every.states[t + 1]] -= 1
            constants[t] = every.rewards[t] + lam * constants[t + 1]
        left = (rows[:-1, :, :S * given.T] * root[:, None]).reshape(-1, S * given.T)
        table = np.linalg.lstsq(left, (constants[:-1] * root).ravel(), rcond=None)[0]
        gaps.append(largest(table.reshape(given.T, S) - V))
    return {"gaps": gaps}


@row("T7.15", wrong=[mutants.td_without_bootstrap, mutants.law_of_the_first_step, mutants.wrong_successor_law,
                     mutants.score_not_centred])
def bias_by_formula(lib, given):
    world, policy = finite_world(lib, given)
    every, V = lib.trajectories(world, policy), lib.values(world, policy).V
    score, error = lib.softmax_score(given.theta), np.array(given.err)
    true = oracle.objective_gradient(given.theta, given.mu, given.P, given.r, given.T, given.gamma)[1]
    extra = np.einsum("sax,tx->tsa", np.array(given.P), error[1:])
    formula = np.einsum("ts,sa,tsa,sabc->bc", lib.visitation(world, policy), policy, extra, score)

    def found(base, boot):
        mean, variance = tabular_estimate(lib, every, score, errors(lib, world, every, V + base, V + boot))
        return [np.linalg.norm(mean - true), variance]

    mean = tabular_estimate(lib, every, score, errors(lib, world, every, V, V + error))[0]
    one, running = np.zeros(V.shape), np.zeros(V.shape)
    one[1, 0], running[:-1] = 2, 3
    return {"formula_gap": largest(mean - true - formula), "variance_error_in_baseline": found(error, 0)[1],
            "one_place": [found(one, 0), found(0, one), found(one, one)],
            "offset_3": [found(running, 0), found(0, running), found(running, running)]}


@row("T7.16", wrong=[mutants.full_return_everywhere, mutants.values_without_time, mutants.td_without_bootstrap])
def variance_ratios(lib, given):
    def variances(name, horizon):
        P, r, mu, theta = (np.array(getattr(given, name)[key]) for key in ("P", "r", "mu", "theta"))
        world, policy = lib.FiniteMDP(mu, P, r, horizon=horizon), lib.softmax_policy(theta)
        every, V = lib.trajectories(world, policy), lib.values(world, policy).V
        togo = lib.discounted_returns(every.rewards, gamma=1.0)
        psis = togo, togo - along(V, every)[:-1], errors(lib, world, every, V)
        return [tabular_estimate(lib, every, lib.softmax_score(theta), psi)[1] for psi in psis]

    tb_c = variances("tb_c", 6)
    twist = [variances("twist", horizon) for horizon in (2, 3, 4)]
    return {"G_over_delta_TB_C": tb_c[0] / tb_c[2], "delta_over_G_minus_V": [d / g for _, g, d in twist]}


@row("T7.17", wrong=[mutants.equal_weights, mutants.best_action_values, mutants.return_starts_one_step_late])
def regression_follows_the_sampler(lib, given):
    world, _ = finite_world(lib, given)
    uniform = np.full(world.reward.shape, 0.5)
    every = lib.trajectories(world, uniform)
    togo = lib.discounted_returns(every.rewards, gamma=1.0)
    return {"regression": conditional(lib, every, togo[0], every.states[0]), "V1": lib.values(world, uniform).V[0]}


@row("T7.18", wrong=[mutants.best_action_values, mutants.softmax_over_states])
def sparse_rewards_dense_Q(lib, given):
    world, theta, _ = lib.two_token_language_model()
    return {"reward_of_first_token": largest(world.reward[0]),
            "Q_first": lib.values(world, lib.softmax_policy(theta)).Q[0, 0]}
