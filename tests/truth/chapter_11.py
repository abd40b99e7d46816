"""Chapter 11: the KL divergence and the natural gradient."""
from types import SimpleNamespace

import mutants
import numpy as np
import oracle
import torch

from . import row
from .common import largest, logit


def look(lib, given, theta=None):
    """What is known exactly about the softmax policy of the logits theta in the row's endless world.

    visits [S] sum to 1 / (1 - gamma); law [S], their share; g [S A], the gradient of J; F [S A, S A], the Fisher
    matrix, a mean over the law.
    """
    theta = np.array(given.theta if theta is None else theta, float)
    world = lib.FiniteMDP(given.mu, given.P, given.r, gamma=given.gamma)
    policy, score = lib.softmax_policy(theta), lib.softmax_score(theta)
    visits = lib.visitation(world, policy)
    z, law = score.reshape(*policy.shape, -1), visits * (1 - world.gamma)
    return SimpleNamespace(
        world=world, theta=theta, policy=policy, A=lib.values(world, policy).A, visits=visits, law=law,
        J=lib.objective(world, policy), g=lib.policy_gradient(world, policy, score).ravel(),
        F=np.einsum("s,sa,sai,saj->ij", law, policy, z, z))


def arms(lib, theta, rewards=(1.0, 0.0, 2.0)):
    """The same for a bandit with three arms: policy, A, g [A], F [A, A], and `gain` of a change of theta."""
    theta, world = np.array(theta), lib.bandit(rewards)

    def objective(theta):
        return lib.objective(world, lib.softmax_policy(theta[None]))
    policy, score = lib.softmax_policy(theta[None]), lib.softmax_score(theta[None])
    z = score.reshape(3, 3)
    return SimpleNamespace(
        theta=theta, policy=policy[0], A=lib.values(world, policy).A[0, 0],
        g=lib.policy_gradient(world, policy, score).ravel(), F=oracle.fisher(z, policy[0]),
        gain=lambda change: objective(theta + change) - objective(theta))


def natural(lib, F, g, iterations=3):
    """F^+ g, of least norm, by conjugate gradient: g has parts along 3 eigenvectors of F in TB-D, 2 in TB-B."""
    return lib.conjugate_gradient(lambda x: F @ x, g, iterations=iterations)


def scaled(x, F, delta):
    """x, with x.Fx / 2 = delta."""
    return x * np.sqrt(2 * delta / (x @ F @ x))


def log_law(theta):
    """Log-probabilities of logits, a plain second opinion."""
    return np.log(oracle.softmax(theta))


def slope(function, theta):
    """Gradient of function(theta), a torch scalar."""
    theta = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(function(theta), theta)[0].numpy()


@row("T11.1", wrong=[mutants.kl_as_a_mean, mutants.cross_entropy, mutants.logits_as_log_probs,
                     mutants.score_not_centred])
def second_order(lib, given):
    theta, D, rows = np.array(given.theta), np.array(given.D), []
    F = arms(lib, theta).F
    for eps in (1, 0.5, 0.25, 0.125, 0.0625):
        new, quadratic = theta + eps * D, eps ** 2 * D @ F @ D / 2
        one, other = lib.categorical_kl(theta, new), lib.categorical_kl(new, theta)
        rows.append({"eps": eps, "kl_old_new": one, "kl_new_old": other, "quad": quadratic, "ratio": one / quadratic})

    def order(gaps):
        return np.log2(abs(gaps[-2] / gaps[-1]))
    return {"rows": rows, "err_order": order([line["kl_old_new"] - line["quad"] for line in rows]),
            "dir_gap_order": order([line["kl_old_new"] - line["kl_new_old"] for line in rows])}


@row("T11.2", wrong=[mutants.score_not_centred, mutants.gradient_of_p_instead_of_log_p, mutants.kl_as_a_mean,
                     mutants.logits_as_log_probs])
def fisher_three_ways(lib, given):
    bandit, theta = arms(lib, given.theta), torch.tensor(given.theta, dtype=torch.float64)
    pi, hessian = bandit.policy, torch.autograd.functional.hessian
    right = np.diag(pi) - np.outer(pi, pi)
    curvature = -sum(p * hessian(lambda x, a=a: x.log_softmax(-1)[a], theta).numpy() for a, p in enumerate(pi))
    of_kl = hessian(lambda x: lib.categorical_kl(theta, x), theta).numpy()
    return {"F": bandit.F, "gap_score": largest(bandit.F - right), "gap_hess": largest(curvature - right),
            "gap_kl": largest(of_kl - right), "F_times_ones": bandit.F @ np.ones(3),
            "eig": np.linalg.eigvalsh(bandit.F)}


@row("T11.3", wrong=[mutants.without_conjugation, mutants.one_product_short, mutants.score_not_centred,
                     mutants.actions_not_weighted, mutants.logits_normalised_without_exp])
def natural_gradient_is_the_advantage(lib, given):
    bandit = arms(lib, given.theta, given.r)
    step = natural(lib, bandit.F, bandit.g, iterations=2)
    tilt = bandit.policy * np.exp(bandit.A)
    return {"F_pinv_g": step, "A_centered": bandit.A - bandit.A.mean(),
            "step_eta1": lib.softmax_policy([bandit.theta + step])[0], "tilt_eta1": tilt / tilt.sum()}


def two_coordinates(lib, given):
    """(slope of J, Fisher number, dp / dcoordinate) of the good arm's p: in logit and in probability coordinates."""
    theta, world = logit(given.p), lib.bandit(given.r[::-1])                    # action 1 has the probability p
    policy, good = lib.sigmoid_policy(theta), np.array([0.0, 1.0])
    scores = {"logit": lib.sigmoid_score(theta), "p": np.array([[[-1 / (1 - given.p)], [1 / given.p]]])}
    return {name: (lib.policy_gradient(world, policy, score)[0], policy[0] @ score[0, :, 0] ** 2,
                   (policy[0] * score[0, :, 0]) @ good) for name, score in scores.items()}


@row("T11.4", wrong=[mutants.arms_swapped, mutants.score_by_probability, mutants.same_score_for_both_arms,
                     mutants.actions_not_weighted])
def natural_step_ignores_the_coordinates(lib, given):
    found = two_coordinates(lib, given)
    plain = {name: to_p * slope for name, (slope, _, to_p) in found.items()}
    step = {name: to_p * slope / fisher for name, (slope, fisher, to_p) in found.items()}
    return {"vanilla_dp_logit": plain["logit"], "vanilla_dp_prob": plain["p"],
            "natural_dp_logit": step["logit"], "natural_dp_prob": step["p"]}


@row("T11.5", wrong=[mutants.kl_swapped, mutants.without_conjugation, mutants.one_product_short,
                     mutants.score_not_centred, mutants.logits_as_log_probs])
def trust_region_step(lib, given):
    bandit = arms(lib, given.theta, given.r)
    x = natural(lib, bandit.F, bandit.g, iterations=2)
    step, plain = scaled(x, bandit.F, given.delta), scaled(bandit.g, bandit.F, given.delta)
    return {"step": step, "quad_kl": step @ bandit.F @ step / 2,
            "true_kl": lib.categorical_kl(bandit.theta, bandit.theta + step),
            "lagrange": np.sqrt(bandit.g @ x / (2 * given.delta)), "improvement": bandit.gain(step),
            "linear_pred": bandit.g @ step, "vanilla_same_quadKL": bandit.g @ plain}


@row("T11.6", wrong=[mutants.kl_swapped, mutants.kl_as_a_mean, mutants.logits_as_log_probs])
def radius_in_the_lagrangian_is_a_constant(lib, given):
    world, theta = lib.three_armed_bandit()
    old, rewards = torch.tensor(theta[0]), torch.tensor(world.reward[0])
    change = torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64)

    def lagrangian(eps):
        return lambda x: x.softmax(-1) @ rewards - given.lam * (lib.categorical_kl(old, x) - eps)
    slopes = [slope(lagrangian(eps), (old + change).numpy()) for eps in given.eps]
    values = [lagrangian(eps)(old + change).item() for eps in given.eps]
    return {"grad_eps1": slopes[0], "grad_eps2": slopes[1], "max_diff": largest(slopes[0] - slopes[1]),
            "value_diff": values[1] - values[0]}


def log_normal(x, mean, sd):
    return -(x - mean) ** 2 / (2 * sd ** 2) - np.log(sd * np.sqrt(2 * np.pi))


def log_modes(x, d):
    """log of N(-d, 1) / 2 + N(d, 1) / 2."""
    return np.logaddexp(log_normal(x, -d, 1), log_normal(x, d, 1)) - np.log(2)


def divergence(lib, one, other):
    """KL of two densities on an even grid, given by their logarithms [..., N]: the softmax makes them sum to 1."""
    with np.errstate(under="ignore"):                        # far in the tails
        return lib.categorical_kl(*np.broadcast_arrays(one, other))


@row("T11.7", wrong=[mutants.kl_swapped, mutants.kl_as_a_mean, mutants.cross_entropy, mutants.equal_weights])
def forward_and_reverse_fit(lib, given):
    x = np.linspace(-14, 14, 1401)
    target, means, sds = log_modes(x, 3), np.arange(0, 6, 0.25), np.arange(0.5, 4, 0.25)
    mean, variance = lib.moments(np.exp(target) / np.exp(target).sum(), x)
    forward = log_normal(x, mean, np.sqrt(variance))
    reverse = divergence(lib, log_normal(x, means[:, None, None], sds[:, None]), target)
    i, j = np.unravel_index(reverse.argmin(), reverse.shape)
    return {"forward_mean": mean, "forward_var": variance, "forward_kl": divergence(lib, target, forward),
            "reverse_mean": means[i], "reverse_sd": sds[j], "reverse_kl": reverse[i, j],
            "reverse_kl_centered": reverse[0].min(), "reverse_centered_sd": sds[reverse[0].argmin()],
            "fit_density_at_0": np.exp(log_normal(0, mean, np.sqrt(variance))),
            "target_density_at_0": np.exp(log_modes(0, 3))}


@row("T11.8", wrong=[mutants.cross_entropy, mutants.logits_as_log_probs])
def no_collapse_of_a_free_law(lib, given):
    target = torch.tensor(given.P, dtype=torch.float64).log()

    def fitted(kl):
        theta = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64).log().requires_grad_()
        for _ in range(400):
            theta = (theta - 3 * torch.autograd.grad(kl(theta), theta)[0]).detach().nan_to_num().requires_grad_()
        return theta.softmax(-1).detach().numpy()
    return {"forward": fitted(lambda x: lib.categorical_kl(target, x)),
            "reverse": fitted(lambda x: lib.categorical_kl(x, target))}


@row("T11.9", wrong=[mutants.without_conjugation, mutants.conjugation_upside_down, mutants.one_product_short,
                     mutants.residual_with_the_sign_reversed])
def conjugate_gradient(lib, given):
    H, b = np.array(given.H), np.array(given.b)
    points = [0 * b] + [natural(lib, H, b, k) for k in range(1, 7)]
    return {"residuals": [np.linalg.norm(b - H @ x) for x in points],
            "err_after_6": largest(points[-1] - np.linalg.solve(H, b))}


@row("T11.10", wrong=[mutants.kl_as_a_mean, mutants.cross_entropy])
def pinsker(lib, given):
    p, q = np.array(given.p), np.array(given.q)
    kl = lib.categorical_kl(np.log(p), np.log(q))
    return {"tv2": (abs(p - q).sum() / 2) ** 2, "half_kl": kl / 2, "kl": kl}


@row("T11.11", wrong=[mutants.half_of_fisher, mutants.kl_as_a_mean, mutants.score_not_centred])
def hessian_vector_product(lib, given):
    theta = torch.tensor([given.theta], dtype=torch.float64, requires_grad=True)
    vector = torch.tensor([given.v], dtype=torch.float64)
    kl = lib.categorical_kl(theta.detach(), theta)
    return {"hvp": lib.fisher_vector_product(kl, [theta], vector)[0].numpy(),
            "Fv": arms(lib, given.theta).F @ given.v,
            "grad_kl_norm": torch.autograd.grad(kl.sum(), theta)[0].norm()}


@row("T11.12", wrong=[mutants.kl_swapped, mutants.kl_as_a_mean, mutants.score_not_centred, mutants.start_is_uniform,
                      mutants.law_of_the_first_step, mutants.k1_upside_down])
def laws_of_trajectories(lib, given):
    world = lib.FiniteMDP(given.mu, given.P, given.r, horizon=given.T, gamma=given.gamma)
    theta, new = np.array(given.theta), np.array(given.theta) + given.shift
    old, score = lib.softmax_policy(theta), lib.softmax_score(theta)
    every, visits = lib.trajectories(world, old), lib.visitation(world, old).sum(0)
    whole = np.einsum("n,ni,nj->ij", every.probabilities, *[every.scores(score).sum(0).reshape(-1, 4)] * 2)
    z = score.reshape(2, 2, 4)
    by_step = np.einsum("s,sa,sai,saj->ij", visits, old, z, z)
    at = every.states[:-1], every.actions
    ratios = lib.k1(np.log(old)[at], np.log(lib.softmax_policy(new))[at]).sum(0)
    return {"fisher": whole[[0, 2], [0, 2]], "fisher_gap": largest(whole - by_step),
            "kl_of_trajectories": every.probabilities @ ratios,
            "kl_summed_over_steps": visits @ lib.categorical_kl(theta, new)}


@row("T11.13", wrong=[mutants.kl_swapped, mutants.kl_as_a_mean, mutants.cross_entropy])
def a_fixed_multiplier_fixes_no_radius(lib, given):
    old = np.zeros(2)                     # the maximum of J - multiplier KL(pi || old) is old e^(r / multiplier) / Z
    return {"kl": [lib.categorical_kl(old + scale * np.array(given.rewards) / given.multiplier, old)
                   for scale in given.scales]}


@row("T11.14", wrong=[mutants.law_of_the_first_step, mutants.without_conjugation, mutants.score_not_centred,
                      mutants.gradient_without_discount, mutants.values_instead_of_Q])
def natural_gradient_forgets_the_visits(lib, given):
    old = look(lib, given)
    x = natural(lib, old.F / (1 - given.gamma), old.g).reshape(old.A.shape)
    return {"natural_arm_1": x[:, 1], "gap_to_advantage": largest(x - old.A + old.A.mean(1, keepdims=True)),
            "plain_over_natural": old.g.reshape(x.shape)[:, 1] / x[:, 1]}


@row("T11.15", wrong=[mutants.arms_swapped, mutants.score_by_probability, mutants.actions_not_weighted])
def finite_natural_steps_differ(lib, given):
    rates = {name: grad / fisher for name, (grad, fisher, _) in two_coordinates(lib, given).items()}
    etas = np.array(given.eta)
    by_logit = np.array([lib.sigmoid_policy(logit(given.p) + eta * rates["logit"])[0, 1] for eta in etas])
    by_p = given.p + etas * rates["p"]
    gaps = by_logit - by_p
    return {"by_logit": by_logit[0], "by_p": by_p[0], "ratios": gaps[:-1] / gaps[1:]}


def estimates(lib, law, *logs):
    """[(mean, sd) of k1, k2, k3 under `law`]."""
    found = [lib.moments(law, k(*logs)) for k in (lib.k1, lib.k2, lib.k3)]
    return [(mean, variance ** 0.5) for mean, variance in found]


@row("T11.16", wrong=[mutants.k1_upside_down, mutants.k1_without_sign, mutants.k1_of_probabilities,
                      mutants.k2_without_half, mutants.k2_of_the_ratio, mutants.k3_upside_down,
                      mutants.k3_with_the_sign_reversed, mutants.k3_without_control_variate, mutants.second_moment])
def values_of_the_estimators(lib, given):
    log_pi, result = log_law(given.theta), {}
    for name in ("far", "near"):
        found = estimates(lib, np.exp(log_pi), log_pi, log_law(getattr(given, name)))
        result[name] = {"mean": [mean for mean, _ in found], "sd": [sd for _, sd in found]}
    log_far = log_law(given.far)
    return {**result, "k1_on_samples_of_ref": np.exp(log_far) @ lib.k1(log_pi, log_far)}


@row("T11.17", wrong=[mutants.k3_upside_down, mutants.k2_without_half, mutants.k2_of_the_ratio,
                      mutants.k1_without_sign, mutants.kl_swapped])
def gradients_of_the_estimators(lib, given):
    log_ref = torch.tensor(log_law(given.ref))
    law = torch.tensor(np.exp(log_law(given.theta)))
    found = {name: slope(lambda x, k=getattr(lib, name): law @ k(x.log_softmax(-1), log_ref), given.theta)
             for name in ("k1", "k2", "k3")}
    wanted, other = (slope(f, given.theta) for f in (
        lambda x: lib.categorical_kl(x, log_ref), lambda x: lib.categorical_kl(log_ref, x)))
    return {**found, "k2_gap": largest(found["k2"] - wanted), "k3_gap": largest(found["k3"] - other),
            "k3_off_by": np.linalg.norm(found["k3"] - wanted), "length_wanted": np.linalg.norm(wanted)}


@row("T11.18", wrong=[mutants.k3_upside_down, mutants.k3_without_the_one, mutants.k1_upside_down,
                      mutants.second_moment, mutants.equal_weights])
def heavy_tail_of_k3(lib, given):
    found = estimates(lib, np.array(given.policy), np.log(given.policy), np.log(given.ref))
    return {"mean": [found[0][0], found[2][0]], "sd": [found[0][1], found[2][1]]}


@row("T11.19", wrong=[mutants.k3_upside_down, mutants.k3_without_control_variate, mutants.k1_upside_down,
                      mutants.kl_swapped, mutants.equal_weights])
def gradients_on_old_samples(lib, given):
    log_old = torch.tensor(log_law(given.theta))

    def mean_and_noise(k, theta):
        each = [slope(lambda x, a=a: k(log_old, x.log_softmax(-1))[a], theta) for a in range(3)]
        mean, variance = lib.moments(log_old.exp().numpy(), np.stack(each))
        return mean, variance
    wanted = slope(lambda x: lib.categorical_kl(log_old, x), given.new)
    pairs = {"far": [mean_and_noise(k, given.new) for k in (lib.k1, lib.k3)],
             "old": [mean_and_noise(k, given.theta) for k in (lib.k1, lib.k3)]}
    return {"gap": [largest(mean - wanted) for mean, _ in pairs["far"]],
            "noise_far": [variance for _, variance in pairs["far"]],
            "noise_at_old": [variance for _, variance in pairs["old"]]}


@row("T11.20", wrong=[mutants.k1_upside_down, mutants.k1_without_sign, mutants.kl_swapped, mutants.cross_entropy])
def contributions(lib, given):
    logs = np.log(given.P), np.log(given.Q)
    return {"contributions": np.array(given.P) * lib.k1(*logs), "kl": lib.categorical_kl(*logs)}


@row("T11.21", wrong=[mutants.kl_swapped, mutants.one_product_short, mutants.score_not_centred])
def true_ball_and_quadratic_ball(lib, given):
    starts = {"TB-B": getattr(given, "TB-B"), "rare": np.log(given.rare), "two_rare": np.log(given.two_rare)}

    def steps(name, delta):
        """[(true KL, gain) of the natural and of the plain step whose quadratic KL is delta]."""
        bandit = arms(lib, starts[name], given.r)
        both = natural(lib, bandit.F, bandit.g, iterations=2), bandit.g
        return [(lib.categorical_kl(bandit.theta, bandit.theta + step), bandit.gain(step))
                for step in (scaled(x, bandit.F, delta) for x in both)]
    large = {name: steps(name, delta) for name, delta in zip(starts, given.delta)}
    return {"gains_TB-B": [[gain for _, gain in steps("TB-B", delta)] for delta in given.delta_small],
            "natural_at_1": large["TB-B"][0], "gains_rare": [gain for _, gain in large["rare"]],
            "kl_two_rare": large["two_rare"][0][0]}


def reverse_fit(lib, d):
    """(mean, sd) of the Gaussian Q with the smallest KL(Q || P), the mean not below 0: a grid that closes in."""
    u = np.linspace(-7, 7, 113)                              # Q's own standard units
    (mean, log_sd), halves = (3.0, 0.5), np.array([3.0, 1.5])
    for zoom in range(26):
        grid = np.linspace(-1, 1, 31 if zoom == 0 else 9)
        means, sds = abs(mean + halves[0] * grid), np.exp(log_sd + halves[1] * grid)
        x = means[:, None, None] + sds[:, None] * u
        kl = divergence(lib, log_normal(u, 0, 1), log_modes(x, d) + np.log(sds)[:, None])
        with np.errstate(under="ignore"):
            inside = np.logaddexp.reduce(log_modes(x, d) + np.log(sds)[:, None], -1) + np.log(u[1] - u[0])
        kl = kl - inside                                     # the softmax has put all of P on the grid
        i, j = np.unravel_index(kl.argmin(), kl.shape)
        mean, log_sd, halves = means[i], np.log(sds[j]), halves * 0.6
    return mean, np.exp(log_sd)


@row("T11.22", wrong=[mutants.kl_swapped, mutants.logits_as_log_probs])
def reverse_fit_jumps(lib, given):
    distances = np.linspace(*given.grid)
    fits = np.array([reverse_fit(lib, d) for d in distances])
    chosen = fits[[np.abs(distances - d).argmin() for d in given.d]]
    off = distances[fits[:, 0] > 1e-3]
    return {"mean": chosen[:, 0], "sd": chosen[:, 1], "first_off_the_middle": off[0] if len(off) else np.nan}


@row("T11.23", wrong=[mutants.kl_swapped, mutants.without_conjugation, mutants.law_of_the_first_step,
                      mutants.gradient_without_discount, mutants.score_not_centred])
def along_the_natural_direction(lib, given):
    old = look(lib, given)
    both = [scaled(x, old.F, 1.0) for x in (natural(lib, old.F, old.g), old.g)]

    def at(direction, length):
        new = look(lib, given, old.theta + (length * direction).reshape(old.theta.shape))
        return [new.J - old.J, length * old.g @ direction, old.law @ lib.categorical_kl(old.theta, new.theta)]
    first, last, middle = given.lengths
    return {"at_0.1": at(both[0], first), "at_1.2": at(both[0], last),
            "gains_at_0.3": [at(direction, middle)[0] for direction in both]}


@row("T11.24", wrong=[mutants.half_of_fisher, mutants.kl_as_a_mean])
def self_divergence_not_detached(lib, given):
    vector, found = torch.tensor([given.v], dtype=torch.float64), []
    for detached in (False, True):
        theta = torch.tensor([given.theta], dtype=torch.float64, requires_grad=True)
        kl = lib.categorical_kl(theta.detach() if detached else theta, theta)
        found.append(lib.fisher_vector_product(kl, [theta], vector).norm())
    return {"not_detached": found[0], "detached": found[1]}


@row("T11.25", wrong=[mutants.kl_swapped, mutants.kl_as_a_mean, mutants.cross_entropy])
def argument_order_of_torch(lib, given):
    own = lib.categorical_kl(np.array(given.theta), np.array(given.q))
    entries = torch.nn.functional.kl_div(torch.tensor(log_law(given.q)), torch.tensor(np.exp(log_law(given.theta))),
                                         reduction="none")
    return {"sum": own, "mean": entries.mean() + (own - entries.sum())}
