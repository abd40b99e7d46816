"""Returns and advantages from rewards and values: pure functions, time axis first.

Every array is [T, ...]: T time steps, then any batch shape, the same for all arguments. NumPy in, NumPy out; torch in,
torch out; the precision is kept. `terminated` says that the episode ended at this step (nothing comes after it),
`truncated` that it was cut (a time limit, or the end of the rollout) although it would have gone on.
"""
from .validate import blank, choice, flags, floats, in_range, namespace, same_shape, time_axis, whole


def discounted_returns(rewards, *, gamma, terminated=None, truncated=None, next_values=None):
    """Reward-to-go at every step: G_t = r_t + gamma * (what follows).

    What follows is 0 where the episode terminated, `next_values` where it was truncated, G_{t+1} elsewhere.
    Without flags each column is one complete episode; after the last row nothing follows.

    rewards [T, ...]; gamma in [0, 1]; terminated, truncated [T, ...] bool; next_values [T, ...]: the critic at the true
    next state (before any reset), needed with `truncated` and read only there.
    Returns [T, ...]. Raises ValueError on a wrong shape, range or non-finite number.
    Source: Sutton & Barto (2018), section 3.3.
    """
    rewards, gamma = floats("rewards", rewards), in_range("gamma", gamma, 0, 1)
    time_axis("rewards", rewards)
    xp = namespace(rewards)
    never = xp.zeros_like(rewards) == 1
    terminated = never if terminated is None else flags("terminated", terminated, rewards)
    truncated = never if truncated is None else flags("truncated", truncated, rewards)
    cut = truncated & ~terminated
    if next_values is None:
        if cut.any():
            raise ValueError("next_values: expected the critic's values after the truncated steps, got None")
        next_values = xp.zeros_like(rewards)
    next_values = floats("next_values", next_values, mask=False)
    same_shape(rewards=rewards, next_values=next_values)
    floats("next_values", next_values, mask=cut)

    returns = xp.zeros_like(rewards)
    following = xp.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        following = xp.where(cut[t], next_values[t], following)
        following = xp.where(terminated[t], xp.zeros_like(following), following)
        following = rewards[t] + gamma * following
        returns[t] = following
    return returns


def td_errors(rewards, values, next_values, *, gamma, terminated):
    """One-step errors of the critic: delta_t = r_t + gamma * next_values_t * (1 - terminated_t) - values_t.

    All arrays [T, ...] as in `gae`. Returns [T, ...]. Raises ValueError on a wrong shape, range or non-finite number.
    Source: Sutton & Barto (2018), equation 6.5.
    """
    rewards, values = floats("rewards", rewards), floats("values", values)
    next_values, gamma = floats("next_values", next_values), in_range("gamma", gamma, 0, 1)
    time_axis("rewards", rewards)
    same_shape(rewards=rewards, values=values, next_values=next_values)
    terminated = flags("terminated", terminated, rewards)
    return rewards + gamma * namespace(rewards).where(terminated, 0 * next_values, next_values) - values


def n_step_advantages(rewards, values, next_values, *, n, gamma, terminated, truncated):
    """n-step advantage: the next n rewards, then the critic, minus the critic now. Stops early at an episode's end.

    A^(n)_t = delta_t + gamma * A^(n-1)_{t+1}, with A^(1)_t = delta_t, and delta_t alone where the episode ends at t.
    Near the end of the rollout the longest available estimate is used.

    Arguments and errors as in `gae`; n is a whole number >= 1. Returns [T, ...].
    Source: Schulman et al. (2016), equations 11 to 15.
    """
    n, gamma = whole("n", n), in_range("gamma", gamma, 0, 1)
    deltas = td_errors(rewards, values, next_values, gamma=gamma, terminated=terminated)
    end = flags("terminated", terminated, deltas) | flags("truncated", truncated, deltas)
    advantages = deltas
    for _ in range(min(n, len(deltas)) - 1):
        following = namespace(deltas).zeros_like(deltas)
        following[:-1] = advantages[1:]
        advantages = deltas + gamma * namespace(deltas).where(end, 0 * following, following)
    return advantages


def gae(rewards, values, next_values, *, gamma, lam, terminated, truncated, mask=None):
    """Generalised advantage estimation, computed backwards in time.

        delta_t = r_t + gamma * next_values_t * (1 - terminated_t) - values_t
        A_t     = delta_t + gamma * lam * (1 - (terminated_t or truncated_t)) * A_{t+1}

    rewards, values [T, ...]; next_values [T, ...]: the critic at the true next state, before any reset; gamma, lam in
    [0, 1]; terminated, truncated [T, ...] bool. A rollout cut in mid-episode is marked truncated in its last row.
    mask [T, ...] is True where the step is real: other steps give 0 and leak nothing, whatever they hold; A_{t+1} is
    then the advantage of the next real step.
    Returns [T, ...]. Raises ValueError on a wrong shape, range or non-finite number.
    Source: Schulman et al. (2016), equation 16; Pardo et al. (2018) for truncation.
    """
    gamma, lam = in_range("gamma", gamma, 0, 1), in_range("lam", lam, 0, 1)
    if mask is not None:
        given = {"rewards": rewards, "values": values, "next_values": next_values}
        given = {name: floats(name, array, mask=False) for name, array in given.items()}
        time_axis("rewards", given["rewards"])
        same_shape(**given)
        mask = flags("mask", mask, given["rewards"])
        rewards, values, next_values = (blank(name, array, mask) for name, array in given.items())
    deltas = td_errors(rewards, values, next_values, gamma=gamma, terminated=terminated)
    xp = namespace(deltas)
    end = flags("terminated", terminated, deltas) | flags("truncated", truncated, deltas)
    mask = xp.ones_like(end) if mask is None else mask

    advantages = xp.zeros_like(deltas)
    carry = xp.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        advantage = deltas[t] + gamma * lam * xp.where(end[t], xp.zeros_like(carry), carry)
        carry = xp.where(mask[t], advantage, carry)
        advantages[t] = xp.where(mask[t], advantage, xp.zeros_like(carry))
    return advantages


def group_advantages(rewards, *, scale="std", ddof=0, eps=0.0):
    """Advantages of G responses to one prompt: the reward minus the group's mean, divided by its standard deviation.

    rewards [..., G]; scale "std" or None (subtract the mean only); ddof 0 divides the squared deviations by G, 1 by
    G - 1; eps >= 0 is added to the standard deviation. A group whose rewards are all equal gives exactly 0.
    Returns [..., G]. Raises ValueError on a wrong shape, range or non-finite number.
    Source: Shao et al. (2024), section 4.1.
    """
    rewards, eps = floats("rewards", rewards), in_range("eps", eps, 0)
    choice("scale", scale, ("std", None))
    choice("ddof", ddof, (0, 1))
    if rewards.ndim == 0 or rewards.shape[-1] < 1 + ddof:
        raise ValueError(f"rewards: expected the shape [..., G] with G >= {1 + ddof}, got {tuple(rewards.shape)}")
    xp, size = namespace(rewards), rewards.shape[-1]
    equal = (rewards == rewards[..., :1]).all(-1)[..., None]
    centred = xp.where(equal, xp.zeros_like(rewards), rewards - rewards.mean(-1)[..., None])
    if scale is None:
        return centred
    std = (((centred ** 2).sum(-1) / (size - ddof)) ** 0.5)[..., None]
    return centred / (xp.where(equal, xp.ones_like(std), std) + eps)


def whiten(values, *, mask=None, shift_mean=True, ddof=1, eps=1e-8):
    """Shift and scale to mean 0 and variance 1 over all real entries: (x - mean) / sqrt(variance + eps).

    values: any shape; mask: the same shape, True where the entry is real (the others become 0); shift_mean=False
    puts the mean back after scaling; ddof 1 (default) uses the unbiased variance, 0 the biased one; eps >= 0.
    Returns the shape of `values`. Raises ValueError on a wrong shape, range or non-finite number, on fewer than
    1 + ddof real entries, and when all real entries are equal while eps is 0.
    Source: Schulman et al. (2017) normalise advantages so in their code; Engstrom et al. (2020) measure the effect.
    """
    values, eps = floats("values", values, mask=False), in_range("eps", eps, 0)
    choice("ddof", ddof, (0, 1))
    xp = namespace(values)
    mask = xp.zeros_like(values) == 0 if mask is None else flags("mask", mask, values)
    values = blank("values", values, mask)
    count = int(mask.sum())
    if count < 1 + ddof:
        raise ValueError(f"values: expected at least {1 + ddof} real entries, got {count}")
    mean = values.sum() / count
    variance = xp.where(mask, (values - mean) ** 2, xp.zeros_like(values)).sum() / (count - ddof)
    if eps == 0 and (values == values[mask][0])[mask].all():
        raise ValueError("eps: expected a number > 0 when all entries of values are equal, got 0")
    whitened = (values - mean) / (variance + eps) ** 0.5 + (0 if shift_mean else mean)
    return xp.where(mask, whitened, xp.zeros_like(values))
