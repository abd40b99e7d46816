"""Chapter 13: PPO."""
import mutants
import numpy as np
import oracle
import torch
from mutants import Mutant

from . import row
from .chapter_11 import slope
from .common import logit


# --- the pieces that people get wrong; a wrong variant below replaces one of them -----------------------------------

def next_beta(beta, kl, target):
    """PPO's rule for the weight of the penalty, after an update that has moved the policy by kl."""
    return beta / 2 if kl < target / 1.5 else 2 * beta if kl > 1.5 * target else beta


def dual_clip(loss, advantage, c):
    """The clipped loss of one entry, not above -c A where A < 0."""
    return np.minimum(loss, -c * advantage) if advantage < 0 else loss


def entropy_slope(pi):
    """dH / dtheta of a softmax policy."""
    return -pi * (np.log(pi) - pi @ np.log(pi))


def helper(lib, name):
    """The function of this file, or its wrong variant."""
    return getattr(lib, name, globals()[name])


def variant(name, replaces, build, mistake):
    return Mutant(name, replaces, lambda right: build, mistake)


beta_turned_round = variant("beta_turned_round", "next_beta",
                            lambda beta, kl, target: next_beta(beta, target ** 2 / kl, target),
                            "a far policy gets a smaller penalty")
beta_at_the_target = variant("beta_at_the_target", "next_beta",
                             lambda beta, kl, target: beta / 2 if kl < target else 2 * beta,
                             "no band around the target")
beta_by_three_halves = variant("beta_by_three_halves", "next_beta", lambda beta, kl, target: (
    beta / 1.5 if kl < target / 1.5 else 1.5 * beta if kl > 1.5 * target else beta), "1.5 for 2")
dual_clip_for_both = variant("dual_clip_for_both", "dual_clip", lambda loss, A, c: np.maximum(loss, -c * A),
                             "the larger loss")
no_dual_clip = variant("no_dual_clip", "dual_clip", lambda loss, A, c: loss, "plain clip")
entropy_slope_without_mean = variant("entropy_slope_without_mean", "entropy_slope", lambda pi: -pi * np.log(pi),
                                     "H left out: the slopes do not sum to 0")
entropy_slope_reversed = variant("entropy_slope_reversed", "entropy_slope", lambda pi: -entropy_slope(pi), "the sign")


def objective(lib, ratio, A, eps=0.2, **more):
    """min(rho A, clip(rho) A) of one entry, by the loss."""
    return -lib.ppo_clip_loss(np.log([float(ratio)]), np.zeros(1), np.array([float(A)]), epsilon=eps, **more)


GRID = [(rho, A) for rho in np.linspace(0.05, 3, 60) for A in (-2.0, -1.0, -0.3, 0.0, 0.4, 1.0, 2.5)]


@row("T13.1", wrong=[mutants.clipped_only, mutants.maximum_for_minimum, mutants.never_clipped,
                     mutants.minimum_of_the_ratios, mutants.clipped_ratio_inverted, mutants.clipped_sign_forgotten])
def clip_in_cases(lib, given):
    result = {}
    for A in map(float, given.A):
        for rho in given.rho:
            log_ratio = torch.tensor([np.log(rho)], requires_grad=True)
            loss = lib.ppo_clip_loss(log_ratio, torch.zeros(1).double(), torch.tensor([A]).double(), epsilon=given.eps)
            by_log = torch.autograd.grad(loss, log_ratio)[0].item()
            result[f"A={A},rho={rho}"] = {"value": -loss.item(), "d_drho": -by_log / rho}
    return result


@row("T13.2", wrong=[mutants.clipped_only, mutants.maximum_for_minimum, mutants.never_clipped,
                     mutants.minimum_of_the_ratios])
def equivalent_form(lib, given):
    def g(A):
        return (1 + given.eps) * A if A >= 0 else (1 - given.eps) * A
    return {"max_abs_diff": max(abs(objective(lib, rho, A, given.eps) - min(rho * A, g(A))) for rho, A in GRID)}


@row("T13.3", wrong=[mutants.never_clipped, mutants.maximum_for_minimum, mutants.clipped_sign_forgotten])
def clip_does_not_bound_the_ratio(lib, given):
    features = torch.tensor(given.features, dtype=torch.float64)

    def ratios(theta):
        return torch.sigmoid(features * theta) / 0.5

    def pull(theta):
        """Slope of the objective in the shared parameter."""
        return -slope(lambda x: lib.ppo_clip_loss(ratios(x).log(), torch.zeros(2).double(), torch.ones(2).double(),
                                                  epsilon=given.eps), theta)
    low, high = 0.0, 20.0                                    # where the gradient flow comes to rest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if pull(middle) > 0 else (low, middle)
    rho = ratios(torch.tensor(low, dtype=torch.float64))
    return {"theta_stop": low, "rho1": rho[0], "rho2": rho[1]}


@row("T13.4", wrong=[mutants.never_clipped, mutants.maximum_for_minimum, mutants.clipped_sign_forgotten])
def no_restoring_force(lib, given):
    def pull(theta):
        return -slope(lambda x: lib.ppo_clip_loss(
            (torch.sigmoid(x) / 0.5).log()[None], torch.zeros(1).double(), torch.ones(1).double(),
            epsilon=given.eps), theta)
    theta = given.lr * pull(0.0)
    return {"theta1": theta, "rho": 2 * torch.sigmoid(torch.tensor(theta)), "grad_after": pull(float(theta))}


def expected_loss(lib, name, theta, given, **more):
    """The loss `name` over the actions of pi_old, an entry weighted by 3 pi_old(a): the loss is a mean of three."""
    old, A = (torch.tensor(x, dtype=torch.float64) for x in (given.pi_old, given.A))
    log_old, weights = old.log(), 3 * old * A
    if name == "policy_gradient_loss":
        return lib.policy_gradient_loss(theta.log_softmax(-1)[None], weights[None])
    return getattr(lib, name)(theta.log_softmax(-1), log_old, weights, **more)


@row("T13.5", wrong=[mutants.clipped_sign_forgotten, mutants.clipped_ratio_inverted, mutants.penalised_ratio_inverted,
                     mutants.gradient_of_the_product])
def first_step_is_the_policy_gradients(lib, given):
    theta, zero = np.log(given.pi_old), torch.zeros(3).double()
    clip = -slope(lambda x: expected_loss(lib, "ppo_clip_loss", x, given, epsilon=given.eps), theta)
    cpi = -slope(lambda x: expected_loss(lib, "ppo_penalty_loss", x, given, kl=zero, beta=0), theta)
    plain = -slope(lambda x: expected_loss(lib, "policy_gradient_loss", x, given), theta)
    return {"clip": clip, "cpi": cpi, "pg": plain}


@row("T13.6", wrong=[beta_turned_round, beta_at_the_target, beta_by_three_halves])
def adaptive_beta(lib, given):
    beta, sequence = 1.0, []
    for d in (0.001, 0.004, 0.008, 0.012, 0.02, 0.05, 0.0066, 0.0067):
        after = helper(lib, "next_beta")(beta, d, given.d_targ)
        sequence.append({"d": d, "beta_before": beta, "beta_after": after})
        beta = after
    return {"sequence": sequence}


def root(function, low, high):
    """Where the falling function is 0: bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return low


@row("T13.7", wrong=[mutants.kl_swapped, mutants.penalty_halved, mutants.penalty_as_a_reward, mutants.penalty_detached,
                     mutants.kl_as_a_mean])
def closed_forms_of_the_penalty(lib, given):
    """Closed forms, moved to where the slope of the penalised loss is 0 from there: Newton's method on the logits."""
    old, A, beta = np.array(given.pi_old), np.array(given.A), given.beta
    log_old = torch.tensor(np.log(old))
    tilt = old * np.exp(A / beta)
    nu = root(lambda nu: (beta * old / (nu - A)).sum() - 1, A.max() + 1e-9, A.max() + 100)
    starts = {"reverse": tilt / tilt.sum(), "forward": beta * old / (nu - A)}

    def loss(theta, forward):
        one, other = (log_old, theta) if forward else (theta, log_old)
        kl = lib.categorical_kl(one, other).expand(3)
        ratio_gain = 3 * log_old.exp() * torch.tensor(A)             # the mean of three entries is sum pi_old rho A
        return lib.ppo_penalty_loss(theta.log_softmax(-1), log_old, ratio_gain, kl, beta=beta)
    result = {}
    for name, start in starts.items():
        theta = torch.tensor(np.log(start))
        for _ in range(3):
            gradient = torch.tensor(slope(lambda x: loss(x, name == "forward"), theta.numpy()))
            curvature = torch.autograd.functional.hessian(lambda x: loss(x, name == "forward"), theta)
            theta = theta - torch.linalg.pinv(curvature, rtol=1e-9) @ gradient
        result[name] = theta.softmax(-1).numpy()
    return {**result, "nu": nu, "sum_forward": starts["forward"].sum()}


@row("T13.8", wrong=[mutants.maximum_for_minimum, mutants.clipped_only, mutants.minimum_of_the_ratios,
                     mutants.clipped_sign_forgotten])
def clip_is_pessimistic(lib, given):
    return {"max_excess": max(max(0.0, objective(lib, rho, A, given.eps) - rho * A) for rho, A in GRID)}


@row("T13.9", wrong=[mutants.never_clipped, mutants.clipped_ratio_inverted, mutants.clipped_sign_forgotten,
                     mutants.maximum_for_minimum])
def clip_is_not_a_learning_rate(lib, given):
    p = np.array(given.rho) / 2                                   # of the arms taken, 1/2 each under the old policy
    theta, old = np.array([logit(x) for x in p]), torch.tensor([0.5, 0.5]).double().log()
    A = torch.tensor(given.A, dtype=torch.float64)

    def each(loss):
        return -2 * slope(lambda x: loss(torch.nn.functional.logsigmoid(x)), theta)     # twice: the loss is a mean
    clipped = each(lambda log_pi: lib.ppo_clip_loss(log_pi, old, A, epsilon=0.2))
    plain = each(lambda log_pi: lib.ppo_penalty_loss(log_pi, old, A, 0 * A, beta=0))
    return {"clipped": clipped, "unclipped": plain, "note": "g = rho*(1-pi), pi=(.75,.5), pi_old=(.5,.5)"}


@row("T13.10", wrong=[mutants.equal_weights, mutants.penalised_ratio_inverted,
                      mutants.mask_ignored_by_the_penalised_loss])
def mean_ratio(lib, given):
    old, new = np.array(given.pi_old), np.array(given.pi_new)
    arrays = np.log(new), np.log(old), np.ones(3)
    ratio = np.array([-lib.ppo_penalty_loss(*arrays, np.zeros(3), beta=0, mask=np.eye(3)[a]) for a in range(3)])
    return {"mean": lib.moments(old, ratio)[0], "mad": lib.moments(old, abs(ratio - 1))[0],
            "two_tv": abs(old - new).sum()}


@row("T13.11", wrong=[entropy_slope_without_mean, entropy_slope_reversed, mutants.kl_swapped, mutants.kl_as_a_mean])
def entropy_gradient(lib, given):
    uniform = torch.zeros(3).double()                             # H = log 3 - KL(pi || uniform)
    return {"formula": helper(lib, "entropy_slope")(np.array(oracle.softmax(given.theta))),
            "autograd": -slope(lambda x: lib.categorical_kl(x, uniform), given.theta)}


@row("T13.12", wrong=[no_dual_clip, dual_clip_for_both, mutants.clipped_only, mutants.maximum_for_minimum])
def dual_clip_of_the_loss(lib, given):
    ratios = (0.5, 1.0, 2.0, 5.0)
    loss = {str(rho): -objective(lib, rho, -1, given.eps) for rho in ratios}
    return {"plain": {name: -value for name, value in loss.items()},
            "dual": {name: -helper(lib, "dual_clip")(value, -1, given.c) for name, value in loss.items()}}


@row("T13.13", wrong=[mutants.half_forgotten, mutants.optimistic_clip])
def value_clip(lib, given):
    def square(v, **more):
        return 2 * lib.value_loss(np.array([v]), np.array([given.R]), **more)
    inside = np.clip(given.v, given.v_old - given.eps, given.v_old + given.eps)
    return {"plain": square(given.v), "clipped_branch": square(inside),
            "loss": square(given.v, old_values=np.array([given.v_old]), clip=given.eps)}
