"""Kullback-Leibler divergence between policies: exact, estimated from samples, and as a metric near one policy.

The estimators take log-probabilities of samples that the policy has drawn and give one number a sample, whose mean
estimates KL(policy || ref). NumPy in, NumPy out; torch in, torch out; the precision is kept.
"""
import torch

from .validate import floats, in_range, namespace, same_shape, whole


def _log_ratio(log_probs, ref_log_probs):
    """log(policy / ref) of each sample."""
    log_probs, ref_log_probs = floats("log_probs", log_probs), floats("ref_log_probs", ref_log_probs)
    same_shape(log_probs=log_probs, ref_log_probs=ref_log_probs)
    return log_probs - ref_log_probs


def k1(log_probs, ref_log_probs):
    """log(policy / ref): unbiased, of either sign. As a loss on the policy's own samples its mean gradient is 0.

    log_probs, ref_log_probs: one shape, the same samples under both. Returns that shape.
    Raises ValueError on a wrong shape or a non-finite number. Source: Schulman (2020).
    """
    return _log_ratio(log_probs, ref_log_probs)


def k2(log_probs, ref_log_probs):
    """Half the square of log(policy / ref): never negative, biased. As a loss: the gradient of KL(policy || ref).

    Arguments, shape and errors as in `k1`. Source: Schulman (2020); Tang & Munos (2025) for the gradients.
    """
    return _log_ratio(log_probs, ref_log_probs) ** 2 / 2


def k3(log_probs, ref_log_probs):
    """ref / policy - 1 + log(policy / ref): never negative, unbiased. As a loss: the gradient of KL(ref || policy).

    Unbiased where the policy can draw whatever the reference can. Arguments, shape and errors as in `k1`.
    Source: Schulman (2020); Tang & Munos (2025) for the gradients.
    """
    log_ratio = _log_ratio(log_probs, ref_log_probs)
    return namespace(log_ratio).expm1(-log_ratio) + log_ratio


def categorical_kl(p_logits, q_logits):
    """KL(p || q) = sum over a of p_a log(p_a / q_a), exact, of softmax distributions: logits [..., A] -> [...].

    Raises ValueError on a wrong shape or a non-finite number. Source: Kullback & Leibler (1951).
    """
    p_logits, q_logits = floats("p_logits", p_logits), floats("q_logits", q_logits)
    same_shape(p_logits=p_logits, q_logits=q_logits)
    if p_logits.ndim == 0:
        raise ValueError("p_logits: expected the shape [..., A], got a single number")
    log_p, log_q = _log_softmax(p_logits), _log_softmax(q_logits)
    return (namespace(log_p).exp(log_p) * (log_p - log_q)).sum(-1)


def _log_softmax(logits):
    """log softmax over the last axis."""
    if isinstance(logits, torch.Tensor):
        return logits.log_softmax(-1)
    xp, shifted = namespace(logits), logits - logits.max(-1)[..., None]
    return shifted - xp.log(xp.exp(shifted).sum(-1))[..., None]


def flatten(tensors):
    """Tensors [S, ...] as one matrix with a row for each seed: [S, D]."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], 1)


def fisher_vector_product(mean_kl, parameters, vector, *, damping=0.0):
    """(F + damping I) v of each seed, without the matrix: the gradient of (gradient of mean_kl) . v.

    F, the Fisher matrix E[score score^T], is the Hessian of KL(old || policy) where the two are equal.
    mean_kl [S]: each seed's mean of it over states, computed there with old detached. parameters: tensors [S, ...],
    none shared by two seeds. vector [S, D]: v, the D numbers of a seed as `flatten` lays them out. damping >= 0.
    Returns [S, D]. Raises ValueError on a wrong shape or a non-finite number.
    Source: Pearlmutter (1994); Schulman et al. (2015), appendix C.
    """
    damping, vector, parameters = in_range("damping", damping, 0), floats("vector", vector), list(parameters)
    if not parameters:
        raise ValueError("parameters: expected at least one tensor, got none")
    seeds = len(parameters[0])
    for name, array, shape in (("mean_kl", mean_kl, (seeds,)), ("vector", vector, tuple(flatten(parameters).shape))):
        if tuple(array.shape) != shape:
            raise ValueError(f"{name}: expected the shape {shape}, got {tuple(array.shape)}")
    slope = flatten(torch.autograd.grad(mean_kl.sum(), parameters, create_graph=True))
    product = torch.autograd.grad((slope * vector).sum(), parameters, retain_graph=True)
    return flatten(product) + damping * vector


def conjugate_gradient(apply_matrix, b, *, iterations, tolerance=0.0):
    """x with H x = b, for a symmetric positive definite H that is known by its products only.

    apply_matrix: x -> H x, shape kept. b [..., D]: a system for each leading index, all solved side by side.
    iterations: at most so many products; D are enough but for rounding. tolerance >= 0: a system whose |b - H x|
    has come down to it, or to rounding, rests.
    Returns x in the shape of b. Raises ValueError on a bad argument, or when a product shows that H is not such.
    Source: Hestenes & Stiefel (1952).
    """
    b, tolerance = floats("b", b), in_range("tolerance", tolerance, 0)
    if b.ndim == 0:
        raise ValueError("b: expected the shape [..., D], got a single number")
    xp = namespace(b)

    def dot(first, second):
        return (first * second).sum(-1)[..., None]

    def divide(first, second):
        return xp.where(active, first / xp.where(active, second, xp.ones_like(second)), xp.zeros_like(first))

    x, residual, direction, square = xp.zeros_like(b), b, b, dot(b, b)
    resting = xp.clip(square * (10 * xp.finfo(b.dtype).eps) ** 2, tolerance ** 2, None)
    for _ in range(whole("iterations", iterations)):
        active = square > resting
        if not active.any():
            break
        product = floats("apply_matrix", apply_matrix(direction))
        same_shape(b=b, apply_matrix=product)
        curvature = dot(direction, product)
        if not (curvature > 0)[active].all():
            raise ValueError("apply_matrix: expected a positive definite matrix H, got a vector d with d.Hd <= 0")
        step = divide(square, curvature)
        x = x + step * direction
        residual = residual - step * product
        new = dot(residual, residual)
        direction, square = residual + divide(new, square) * direction, xp.where(active, new, square)
    return x
