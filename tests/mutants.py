"""Wrong variants of the functions of utils, each a mistake that people make. No test may let one of them live.

    @wrong("gae")
    def recursion_not_cut(right):
        '''what is wrong, in a few words'''
        return a function with the arguments of gae

`right` holds the right functions, so that a variant can be written as a change of one of them.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

MUTANTS = {}


@dataclass(frozen=True)
class Mutant:
    """A wrong variant of the public function `replaces`."""
    name: str
    replaces: str
    build: Callable
    mistake: str


def wrong(replaces):
    """Register the decorated function as the builder of a wrong variant of `replaces`."""
    def register(build):
        assert build.__name__ not in MUTANTS and build.__doc__
        mutant = Mutant(build.__name__, replaces, build, build.__doc__)
        MUTANTS[mutant.name] = mutant
        return mutant
    return register


def xp(array):
    return torch if isinstance(array, torch.Tensor) else np


def no(like):
    """False everywhere, in the shape of `like`."""
    return like != like


def either(first, second):
    """Where one of two flags is up, each a list, an array or a tensor."""
    if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        first, second = torch.as_tensor(first), torch.as_tensor(second)
    return (xp(first).asarray(first) == 1) | (xp(second).asarray(second) == 1)


# --- finite worlds -------------------------------------------------------------------------------------------------

@wrong("trajectories")
def initial_law_left_out(right):
    """p(tau) without the initial distribution"""
    def trajectories(mdp, policy):
        every = right.trajectories(mdp, policy)
        return replace(every, probabilities=every.probabilities / mdp.initial[every.states[0]])
    return trajectories


@wrong("trajectories")
def start_is_uniform(right):
    """every state is as likely as any other at the start"""
    def trajectories(mdp, policy):
        uniform = np.full(len(mdp.initial), 1 / len(mdp.initial))
        return right.trajectories(replace(mdp, initial=uniform), policy)
    return trajectories


@wrong("trajectories")
def world_left_out(right):
    """p(tau) without the transition probabilities (all possible successors alike)"""
    def trajectories(mdp, policy):
        possible = mdp.transition > 0
        return right.trajectories(replace(mdp, transition=possible / possible.sum(-1, keepdims=True)), policy)
    return trajectories


@wrong("trajectories")
def wrong_successor_law(right):
    """P(s | s', a): the transition table is read the wrong way round"""
    def trajectories(mdp, policy):
        turned = mdp.transition.transpose(2, 1, 0) + 1e-12
        return right.trajectories(replace(mdp, transition=turned / turned.sum(-1, keepdims=True)), policy)
    return trajectories


@wrong("trajectories")
def reward_of_the_next_step(right):
    """the reward of the next step is credited to this one"""
    def trajectories(mdp, policy):
        every = right.trajectories(mdp, policy)
        return replace(every, rewards=np.vstack([every.rewards[1:], 0 * every.rewards[:1]]))
    return trajectories


@wrong("trajectories")
def one_step_short(right):
    """the loop ends one step too early"""
    def trajectories(mdp, policy):
        return right.trajectories(replace(mdp, horizon=max(1, mdp.horizon - 1)), policy)
    return trajectories


@wrong("trajectories")
def plays_on_after_the_end(right):
    """an episode goes on (and is masked in) after a terminal state"""
    def trajectories(mdp, policy):
        return right.trajectories(replace(mdp, terminal=None), policy)
    return trajectories


@wrong("trajectories")
def initial_law_scaled(right):
    """the initial distribution is counted twice (and normalised again)"""
    def trajectories(mdp, policy):
        return right.trajectories(replace(mdp, initial=mdp.initial ** 2 / (mdp.initial ** 2).sum()), policy)
    return trajectories


@wrong("sample_trajectories")
def greedy_sampling(right):
    """the most probable action is taken instead of a drawn one"""
    def sample_trajectories(mdp, policy, n, rng):
        return right.sample_trajectories(mdp, np.eye(policy.shape[1])[policy.argmax(-1)], n, rng)
    return sample_trajectories


@wrong("moments")
def second_moment(right):
    """E|x|^2 instead of the variance"""
    def moments(probabilities, estimates):
        mean, variance = right.moments(probabilities, estimates)
        return mean, variance + float((mean ** 2).sum())
    return moments


@wrong("moments")
def equal_weights(right):
    """the plain mean over the listed trajectories"""
    def moments(probabilities, estimates):
        return right.moments(np.full(len(probabilities), 1 / len(probabilities)), estimates)
    return moments


@wrong("moments")
def variance_of_the_sum(right):
    """variance of the summed components instead of the sum of their variances"""
    def moments(probabilities, estimates):
        estimates = np.asarray(estimates, float)
        mean, _ = right.moments(probabilities, estimates)
        return mean, right.moments(probabilities, estimates.reshape(len(estimates), -1).sum(-1))[1]
    return moments


@wrong("values")
def values_without_time(right):
    """the values of the first step are used at every step"""
    def values(mdp, policy):
        true = right.values(mdp, policy)
        if mdp.horizon is None:
            return true
        first = np.concatenate([np.repeat(true.V[:1], mdp.horizon, 0), true.V[-1:]])
        return type(true)(first, *(np.repeat(table[:1], mdp.horizon, 0) for table in (true.Q, true.A)))
    return values


@wrong("values")
def best_action_values(right):
    """max over the actions instead of the policy's mean"""
    def values(mdp, policy):
        V = np.zeros_like(right.values(mdp, policy).V)
        Q = np.zeros_like(right.values(mdp, policy).Q)
        if mdp.horizon is None:
            for _ in range(2000):
                Q = mdp.reward + mdp.gamma * mdp.transition @ V
                V = Q.max(-1)
            return type(right.values(mdp, policy))(V, Q, Q - V[:, None])
        for t in reversed(range(mdp.horizon)):
            Q[t] = mdp.reward + mdp.gamma * mdp.transition @ V[t + 1]
            V[t] = Q[t].max(-1)
        return type(right.values(mdp, policy))(V, Q, Q - V[:-1, :, None])
    return values


@wrong("values")
def reward_forgotten_in_Q(right):
    """Q without the reward of its own step"""
    def values(mdp, policy):
        true = right.values(mdp, policy)
        return replace(true, Q=true.Q - mdp.reward, A=true.A - mdp.reward)
    return values


@wrong("values")
def value_at_the_end(right):
    """a terminal state has a value"""
    def values(mdp, policy):
        return right.values(replace(mdp, terminal=None), policy)
    return values


@wrong("objective")
def mean_of_all_states(right):
    """V averaged over all states instead of the initial distribution"""
    def objective(mdp, policy):
        return right.objective(replace(mdp, initial=np.full(len(mdp.initial), 1 / len(mdp.initial))), policy)
    return objective


@wrong("objective")
def undiscounted_objective(right):
    """gamma forgotten (0.99 in a world without an end)"""
    def objective(mdp, policy):
        return right.objective(replace(mdp, gamma=1.0 if mdp.horizon else 0.99), policy)
    return objective


@wrong("visitation")
def law_of_the_first_step(right):
    """the initial distribution at every step"""
    def visitation(mdp, policy):
        true = right.visitation(mdp, policy)
        return mdp.initial * true.sum(-1, keepdims=True)
    return visitation


@wrong("visitation")
def visitation_that_counts_the_end(right):
    """terminal states are counted as visited"""
    def visitation(mdp, policy):
        return right.visitation(replace(mdp, terminal=None), policy)
    return visitation


@wrong("policy_gradient")
def gradient_without_discount(right):
    """gamma^(t-1) left out of the policy gradient"""
    def policy_gradient(mdp, policy, score):
        Q, law = right.values(mdp, policy).Q, right.visitation(mdp, policy)
        if mdp.horizon is None:
            return (1 - mdp.gamma) * right.policy_gradient(mdp, policy, score)
        return np.einsum("ts,sa,tsa,sa...->...", law, policy, Q, score)
    return policy_gradient


@wrong("policy_gradient")
def actions_not_weighted(right):
    """sum over the actions without the policy's probabilities"""
    def policy_gradient(mdp, policy, score):
        return right.policy_gradient(mdp, policy, np.asarray(score) / np.expand_dims(
            policy, tuple(range(2, np.ndim(score)))) / policy.shape[1])
    return policy_gradient


@wrong("policy_gradient")
def immediate_reward_only(right):
    """weighted by the reward of the step instead of Q"""
    def policy_gradient(mdp, policy, score):
        return right.policy_gradient(replace(mdp, gamma=0.0), policy, score)
    return policy_gradient


@wrong("policy_gradient")
def values_instead_of_Q(right):
    """weighted by V of the state, the same for all actions"""
    def policy_gradient(mdp, policy, score):
        same = np.einsum("sax,sa->sx", mdp.transition, policy)[:, None].repeat(policy.shape[1], 1)
        reward = (policy * mdp.reward).sum(-1, keepdims=True).repeat(policy.shape[1], 1)
        return right.policy_gradient(replace(mdp, transition=same, reward=reward), policy, score)
    return policy_gradient


@wrong("pair_chain")
def policy_not_conditioned(right):
    """policy(a' | s) instead of policy(a' | s')"""
    def pair_chain(mdp, policy):
        kernel = mdp.transition[:, :, :, None] * policy[:, None, None, :]
        return kernel.reshape(policy.size, policy.size)
    return pair_chain


@wrong("softmax_policy")
def logits_normalised_without_exp(right):
    """logits shifted to be positive and divided by their sum"""
    def softmax_policy(theta):
        shifted = np.asarray(theta, float) - np.min(theta) + 1
        return shifted / shifted.sum(-1, keepdims=True)
    return softmax_policy


@wrong("softmax_policy")
def softmax_over_states(right):
    """normalised over the states instead of the actions"""
    def softmax_policy(theta):
        policy = right.softmax_policy(np.transpose(theta)).T
        return policy / policy.sum(-1, keepdims=True)
    return softmax_policy


@wrong("softmax_score")
def score_not_centred(right):
    """1{a = b} without the subtracted probability"""
    def softmax_score(theta):
        states, actions = np.shape(theta)
        return np.einsum("st,ab->satb", np.eye(states), np.eye(actions))
    return softmax_score


@wrong("softmax_score")
def gradient_of_p_instead_of_log_p(right):
    """the gradient of pi instead of log pi"""
    def softmax_score(theta):
        return right.softmax_policy(theta)[:, :, None, None] * right.softmax_score(theta)
    return softmax_score


@wrong("sigmoid_policy")
def arms_swapped(right):
    """sigmoid(theta) given to action 0"""
    def sigmoid_policy(theta, states=1):
        return right.sigmoid_policy(theta, states)[:, ::-1]
    return sigmoid_policy


@wrong("sigmoid_score")
def score_by_probability(right):
    """1/p and -1/(1-p): the derivative by the probability instead of the logit"""
    def sigmoid_score(theta, states=1):
        q, p = right.sigmoid_policy(theta)[0]
        return np.tile(np.array([[-1 / q], [1 / p]]), (states, 1, 1))
    return sigmoid_score


@wrong("sigmoid_score")
def same_score_for_both_arms(right):
    """1 - p for both actions"""
    def sigmoid_score(theta, states=1):
        return np.abs(right.sigmoid_score(theta, states)[:, ::-1])[:, :1].repeat(2, 1)
    return sigmoid_score


# --- returns and advantages ----------------------------------------------------------------------------------------

@wrong("discounted_returns")
def return_not_cut(right):
    """the return runs on into the next episode"""
    def discounted_returns(rewards, *, gamma, **flags):
        return right.discounted_returns(rewards, gamma=gamma)
    return discounted_returns


@wrong("discounted_returns")
def return_without_bootstrap(right):
    """a cut episode is treated as one that ended"""
    def discounted_returns(rewards, *, gamma, terminated=None, truncated=None, next_values=None):
        if truncated is not None:
            terminated = truncated if terminated is None else either(terminated, truncated)
        return right.discounted_returns(rewards, gamma=gamma, terminated=terminated)
    return discounted_returns


@wrong("discounted_returns")
def return_bootstraps_after_termination(right):
    """the critic's value is added although the episode is over"""
    def discounted_returns(rewards, *, gamma, terminated=None, truncated=None, next_values=None):
        if next_values is not None and terminated is not None:
            truncated = terminated if truncated is None else either(terminated, truncated)
            terminated = None
        return right.discounted_returns(rewards, gamma=gamma, terminated=terminated, truncated=truncated,
                                        next_values=next_values)
    return discounted_returns


@wrong("discounted_returns")
def discount_counted_from_the_start(right):
    """gamma^(t'-1) instead of gamma^(t'-t)"""
    def discounted_returns(rewards, *, gamma, **flags):
        returns = right.discounted_returns(rewards, gamma=gamma, **flags)
        weights = gamma ** np.arange(len(returns)).reshape(-1, *[1] * (returns.ndim - 1))
        return returns * (torch.as_tensor(weights) if isinstance(returns, torch.Tensor) else weights)
    return discounted_returns


@wrong("discounted_returns")
def return_starts_one_step_late(right):
    """the reward of the step itself is left out"""
    def discounted_returns(rewards, *, gamma, **flags):
        returns = right.discounted_returns(rewards, gamma=gamma, **flags)
        return returns - xp(returns).asarray(rewards)
    return discounted_returns


@wrong("discounted_returns")
def full_return_everywhere(right):
    """the return of the whole episode instead of the reward-to-go"""
    def discounted_returns(rewards, *, gamma, **flags):
        returns = right.discounted_returns(rewards, gamma=gamma, **flags)
        return returns[:1] + 0 * returns
    return discounted_returns


@wrong("discounted_returns")
def discount_forgotten(right):
    """gamma is taken to be 1"""
    def discounted_returns(rewards, *, gamma, **flags):
        return right.discounted_returns(rewards, gamma=1, **flags)
    return discounted_returns


@wrong("td_errors")
def td_bootstraps_after_termination(right):
    """the value behind a terminated step is not set to 0"""
    def td_errors(rewards, values, next_values, *, gamma, terminated):
        never = no(xp(rewards).asarray(terminated))
        return right.td_errors(rewards, values, next_values, gamma=gamma, terminated=never)
    return td_errors


@wrong("td_errors")
def td_without_bootstrap(right):
    """the value behind the step is left out"""
    def td_errors(rewards, values, next_values, *, gamma, terminated):
        return right.td_errors(rewards, values, 0 * next_values, gamma=gamma, terminated=terminated)
    return td_errors


@wrong("td_errors")
def td_without_discount(right):
    """gamma is left out of the target"""
    def td_errors(rewards, values, next_values, *, gamma, terminated):
        return right.td_errors(rewards, values, next_values, gamma=1, terminated=terminated)
    return td_errors


@wrong("td_errors")
def td_with_the_sign_reversed(right):
    """prediction minus target"""
    def td_errors(rewards, values, next_values, *, gamma, terminated):
        return -right.td_errors(rewards, values, next_values, gamma=gamma, terminated=terminated)
    return td_errors


@wrong("n_step_advantages")
def one_step_too_many(right):
    """n + 1 steps"""
    def n_step_advantages(*arrays, n, **more):
        return right.n_step_advantages(*arrays, n=n + 1, **more)
    return n_step_advantages


@wrong("n_step_advantages")
def n_steps_across_resets(right):
    """the n steps run into the next episode"""
    def n_step_advantages(*arrays, n, gamma, terminated, truncated):
        deltas = right.td_errors(*arrays, gamma=gamma, terminated=terminated)
        flag = no(deltas)
        zero = 0 * deltas
        return right.n_step_advantages(deltas, zero, zero, n=n, gamma=gamma, terminated=flag, truncated=flag)
    return n_step_advantages


@wrong("n_step_advantages")
def n_step_without_bootstrap(right):
    """the critic's value behind the n steps is left out"""
    def n_step_advantages(rewards, values, next_values, *, n, gamma, terminated, truncated):
        zero = 0 * xp(rewards).asarray(rewards)
        rewards_only = right.n_step_advantages(rewards, zero, zero, n=n, gamma=gamma, terminated=terminated,
                                               truncated=truncated)
        return rewards_only - xp(rewards).asarray(values)
    return n_step_advantages


@wrong("n_step_advantages")
def bootstrap_discounted_once(right):
    """gamma v instead of gamma^n v behind the n steps"""
    def n_step_advantages(rewards, values, next_values, *, gamma, n, **ends):
        rewards_only = right.n_step_advantages(rewards, 0 * rewards, 0 * rewards, gamma=gamma, n=n, **ends)
        everything = right.n_step_advantages(rewards, values, next_values, gamma=gamma, n=n, **ends)
        bootstrap = everything - rewards_only + values
        return rewards_only + bootstrap * (gamma or 1) ** (1 - n) - values
    return n_step_advantages


@wrong("gae")
def recursion_not_cut(right):
    """A_{t+1} of the next episode leaks over a reset"""
    def gae(rewards, values, next_values, *, gamma, lam, terminated, truncated, mask=None):
        if mask is not None:
            return right.gae(rewards, values, next_values, gamma=gamma, lam=lam, terminated=terminated,
                             truncated=truncated, mask=mask)
        deltas = right.td_errors(rewards, values, next_values, gamma=gamma, terminated=terminated)
        return right.discounted_returns(deltas, gamma=gamma * lam)
    return gae


@wrong("gae")
def bootstrap_at_termination(right):
    """the critic's value is used behind a terminated step"""
    def gae(*arrays, terminated, truncated, **more):
        end = either(terminated, truncated)
        return right.gae(*arrays, terminated=no(end), truncated=end, **more)
    return gae


@wrong("gae")
def truncation_as_termination(right):
    """a cut episode is treated as one that ended"""
    def gae(*arrays, terminated, truncated, **more):
        end = either(terminated, truncated)
        return right.gae(*arrays, terminated=end, truncated=no(end), **more)
    return gae


@wrong("gae")
def lam_as_decay(right):
    """lambda discounts the rewards: GAE(lambda, 1)"""
    def gae(*arrays, gamma, lam, **more):
        return right.gae(*arrays, gamma=lam, lam=1, **more)
    return gae


@wrong("gae")
def decay_without_gamma(right):
    """A_t = delta_t + lambda A_{t+1}"""
    def gae(*arrays, gamma, lam, terminated, truncated, mask=None):
        if mask is not None:
            return right.gae(*arrays, gamma=gamma, lam=lam, terminated=terminated, truncated=truncated, mask=mask)
        deltas = right.td_errors(*arrays, gamma=gamma, terminated=terminated)
        return right.discounted_returns(deltas, gamma=lam, terminated=either(terminated, truncated))
    return gae


@wrong("gae")
def values_after_the_reset(right):
    """next_values taken from the next row, which holds the next episode's first state"""
    def gae(rewards, values, next_values, **more):
        shifted = xp(values).concatenate([xp(values).asarray(values)[1:], xp(values).asarray(next_values)[-1:]])
        return right.gae(rewards, values, shifted, **more)
    return gae


@wrong("gae")
def mask_ignored_by_gae(right):
    """steps that are not real count"""
    def gae(*arrays, mask=None, **more):
        return right.gae(*(xp(a).nan_to_num(xp(a).asarray(a)) for a in arrays), **more)
    return gae


@wrong("gae")
def mask_zeroes_the_carry(right):
    """a masked step in the middle stops the recursion instead of being skipped"""
    def gae(rewards, values, next_values, *, truncated, mask=None, **more):
        if mask is not None:
            gap = xp(rewards).asarray(mask) != 1
            before = xp(rewards).concatenate([gap[1:], no(gap[:1])])
            truncated = either(truncated, before)
        return right.gae(rewards, values, next_values, truncated=truncated, mask=mask, **more)
    return gae


@wrong("gae")
def weights_not_normalised(right):
    """A1 + lambda A2 + ... without the factor 1 - lambda"""
    def gae(*arrays, lam, **more):
        return right.gae(*arrays, lam=lam, **more) / (1 - lam if lam < 1 else 1e-9)
    return gae


@wrong("group_advantages")
def unbiased_group_deviation(right):
    """ddof 1 for ddof 0 (and 0 for 1)"""
    def group_advantages(rewards, *, scale="std", ddof=0, eps=0.0):
        return right.group_advantages(rewards, scale=scale, ddof=1 - ddof, eps=eps)
    return group_advantages


@wrong("group_advantages")
def group_mean_only(right):
    """not divided by the standard deviation"""
    def group_advantages(rewards, *, scale="std", ddof=0, eps=0.0):
        return right.group_advantages(rewards, scale=None)
    return group_advantages


@wrong("group_advantages")
def mean_of_the_others(right):
    """the mean leaves the sample itself out"""
    def group_advantages(rewards, **more):
        size = rewards.shape[-1]
        return right.group_advantages(rewards, **more) * size / (size - 1)
    return group_advantages


@wrong("group_advantages")
def mean_of_the_batch(right):
    """one mean and one deviation for all groups together"""
    def group_advantages(rewards, **more):
        rewards = xp(rewards).asarray(rewards)
        return right.group_advantages(rewards.reshape(-1), **more).reshape(rewards.shape)
    return group_advantages


@wrong("group_advantages")
def equal_rewards_blown_up(right):
    """rounding noise of a group of equal rewards is divided by itself"""
    def group_advantages(rewards, *, scale="std", ddof=0, eps=0.0):
        rewards = xp(rewards).asarray(rewards)
        centred = rewards - rewards.mean(-1)[..., None]
        deviation = ((centred ** 2).sum(-1) / (rewards.shape[-1] - ddof)) ** 0.5
        return centred / ((deviation[..., None] if scale else 1) + eps + 1e-30)
    return group_advantages


@wrong("whiten")
def whiten_ignores_the_mask(right):
    """mean and variance of all entries"""
    def whiten(values, *, mask=None, **more):
        return right.whiten(xp(values).nan_to_num(xp(values).asarray(values)), **more)
    return whiten


@wrong("whiten")
def whiten_with_the_biased_variance(right):
    """ddof 0 for ddof 1 (and 1 for 0)"""
    def whiten(values, *, ddof=1, **more):
        return right.whiten(values, ddof=1 - ddof, **more)
    return whiten


@wrong("whiten")
def eps_outside_the_root(right):
    """sqrt(variance) + eps instead of sqrt(variance + eps)"""
    def whiten(values, *, eps=1e-8, mask=None, shift_mean=True, ddof=1):
        values = xp(values).asarray(values)
        real = values[values == values] if mask is None else values[xp(values).asarray(mask) == 1]
        deviation = float(((real - real.mean()) ** 2).sum() / (len(real) - ddof)) ** 0.5
        return right.whiten(values, eps=2 * deviation * eps + eps ** 2, mask=mask, shift_mean=shift_mean, ddof=ddof)
    return whiten


@wrong("whiten")
def mean_always_shifted(right):
    """shift_mean=False has no effect"""
    def whiten(values, *, shift_mean=True, **more):
        return right.whiten(values, **more)
    return whiten


# --- losses --------------------------------------------------------------------------------------------------------

def real_entries(mask, like):
    return no(like) == 0 if mask is None else xp(like).asarray(mask) == 1


@wrong("policy_gradient_loss")
def sum_over_time_dropped(right):
    """mean over the time steps instead of their sum"""
    def policy_gradient_loss(log_probs, advantages, **more):
        return right.policy_gradient_loss(log_probs, advantages, **more) / len(log_probs)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def product_of_means(right):
    """mean log-probability times mean reward instead of the mean of the products"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        real = real_entries(mask, log_probs)
        mean = xp(log_probs).where(real, advantages, 0 * log_probs).sum() / real.sum()
        return right.policy_gradient_loss(log_probs, mean + 0 * log_probs, mask=mask, reduction=reduction)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def sign_forgotten(right):
    """the objective is minimised"""
    def policy_gradient_loss(*arrays, **more):
        return -right.policy_gradient_loss(*arrays, **more)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def gradient_of_the_product(right):
    """the gradient of p * R on a sample instead of log p * R"""
    def policy_gradient_loss(log_probs, advantages, **more):
        return right.policy_gradient_loss(xp(log_probs).exp(log_probs), advantages, **more)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def step_mean_for_trajectory_mean(right):
    """divided by the number of steps, whatever was asked for"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        return right.policy_gradient_loss(log_probs, advantages, mask=mask, reduction="step_mean")
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def trajectory_mean_for_step_mean(right):
    """divided by the number of trajectories, whatever was asked for"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        return right.policy_gradient_loss(log_probs, advantages, mask=mask)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def padding_counted(right):
    """step_mean divides by all entries, padding included"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        loss = right.policy_gradient_loss(log_probs, advantages, mask=mask, reduction=reduction)
        share = real_entries(mask, log_probs).sum() / log_probs[log_probs == log_probs].reshape(-1).shape[0]
        return loss * (share if reduction == "step_mean" else 1)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def mean_of_each_trajectorys_mean(right):
    """step_mean as the mean over trajectories of the mean over their own steps"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        if reduction == "step_mean" and mask is not None:
            lengths = real_entries(mask, log_probs).sum(0)
            return right.policy_gradient_loss(log_probs, advantages / lengths, mask=mask)
        return right.policy_gradient_loss(log_probs, advantages, mask=mask, reduction=reduction)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def mask_ignored_by_the_loss(right):
    """padding enters the sum"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        return right.policy_gradient_loss(xp(log_probs).nan_to_num(log_probs), xp(log_probs).nan_to_num(advantages),
                                          reduction=reduction)
    return policy_gradient_loss


@wrong("policy_gradient_loss")
def advantages_not_detached(right):
    """the gradient flows into the advantages"""
    def policy_gradient_loss(log_probs, advantages, *, mask=None, reduction="trajectory_mean"):
        real = real_entries(mask, log_probs)
        weighted = xp(log_probs).where(real, log_probs * advantages, 0 * log_probs)
        count = np.prod(log_probs.shape[1:]) if reduction == "trajectory_mean" else real.sum()
        return -weighted.sum() / (float(count) if xp(log_probs) is torch else count)
    return policy_gradient_loss


@wrong("value_loss")
def half_forgotten(right):
    """the mean square without the factor 1/2"""
    def value_loss(*arrays, **more):
        return 2 * right.value_loss(*arrays, **more)
    return value_loss


@wrong("value_loss")
def optimistic_clip(right):
    """the smaller of the two squared errors"""
    def value_loss(values, targets, *, old_values=None, clip=None, mask=None):
        plain = right.value_loss(values, targets, mask=mask)
        if clip is None:
            return plain
        clipped = old_values + xp(values).clip(values - old_values, -clip, clip)
        larger = right.value_loss(values, targets, old_values=old_values, clip=clip, mask=mask)
        return plain + right.value_loss(clipped, targets, mask=mask) - larger
    return value_loss


@wrong("value_loss")
def clip_ignored(right):
    """the plain squared error, whatever clip is"""
    def value_loss(values, targets, *, old_values=None, clip=None, mask=None):
        return right.value_loss(values, targets, mask=mask)
    return value_loss


@wrong("value_loss")
def mask_ignored_by_the_value_loss(right):
    """padding enters the mean"""
    def value_loss(values, targets, *, mask=None, **more):
        return right.value_loss(xp(values).nan_to_num(values), xp(values).nan_to_num(targets), **more)
    return value_loss


@wrong("value_loss")
def targets_not_detached(right):
    """the gradient flows into the targets (no semi-gradient)"""
    def value_loss(values, targets, *, old_values=None, clip=None, mask=None):
        right.value_loss(values, targets, old_values=old_values, clip=clip, mask=mask)
        real = real_entries(mask, values)
        if clip is not None:
            clipped = old_values + xp(values).clip(values - old_values, -clip, clip)
            errors = xp(values).maximum((values - targets) ** 2, (clipped - targets) ** 2)
        else:
            errors = (values - targets) ** 2
        return xp(values).where(real, errors, 0 * values).sum() / real.sum() / 2
    return value_loss


def old_log_probs_and_advantages(log_probs, mask, *arrays):
    """The mask, and arrays with 0 where it is False."""
    real = real_entries(mask, log_probs)
    return real, [xp(x).where(real, x, xp(x).zeros_like(x)) for x in (log_probs, *arrays)]


def clip_variant(combine):
    """The clipped loss with another way to combine rho A and clip(rho) A."""
    def ppo_clip_loss(log_probs, old_log_probs, advantages, *, epsilon, epsilon_high=None, mask=None):
        real, (new, old, A) = old_log_probs_and_advantages(log_probs, mask, old_log_probs, advantages)
        old, A = (x.detach() if xp(x) is torch else x for x in (old, A))
        ratio = xp(new).exp(new - old)
        clipped = xp(new).clip(ratio, 1 - epsilon, 1 + (epsilon_high or epsilon))
        return -combine(ratio, clipped, A).sum() / int(real.sum())
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def clipped_only(right):
    """clip(rho) A without the minimum: a bad move is not undone"""
    return clip_variant(lambda ratio, clipped, A: clipped * A)


@wrong("ppo_clip_loss")
def maximum_for_minimum(right):
    """max for min: optimistic instead of pessimistic"""
    return clip_variant(lambda ratio, clipped, A: xp(A).maximum(ratio * A, clipped * A))


@wrong("ppo_clip_loss")
def never_clipped(right):
    """rho A, whatever epsilon is"""
    return clip_variant(lambda ratio, clipped, A: ratio * A)


@wrong("ppo_clip_loss")
def minimum_of_the_ratios(right):
    """min(rho, clip(rho)) A: the sign of A is not looked at"""
    return clip_variant(lambda ratio, clipped, A: xp(A).minimum(ratio, clipped) * A)


@wrong("ppo_clip_loss")
def clipped_ratio_inverted(right):
    """old / new for new / old"""
    def ppo_clip_loss(log_probs, old_log_probs, advantages, **more):
        if xp(log_probs) is torch:
            return right.ppo_clip_loss(-log_probs, -old_log_probs.detach(), advantages, **more)
        return right.ppo_clip_loss(-log_probs, -old_log_probs, advantages, **more)
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def clipped_sign_forgotten(right):
    """the objective is minimised"""
    def ppo_clip_loss(*arrays, **more):
        return -right.ppo_clip_loss(*arrays, **more)
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def upper_width_ignored(right):
    """epsilon_high has no effect"""
    def ppo_clip_loss(*arrays, epsilon, epsilon_high=None, mask=None):
        return right.ppo_clip_loss(*arrays, epsilon=epsilon, mask=mask)
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def clipped_advantages_not_detached(right):
    """the gradient flows into the advantages"""
    def ppo_clip_loss(log_probs, old_log_probs, advantages, *, epsilon, epsilon_high=None, mask=None):
        real, (new, old, A) = old_log_probs_and_advantages(log_probs, mask, old_log_probs, advantages)
        ratio = xp(new).exp(new - (old.detach() if xp(old) is torch else old))
        clipped = xp(new).clip(ratio, 1 - epsilon, 1 + (epsilon_high or epsilon))
        return -xp(new).minimum(ratio * A, clipped * A).sum() / int(real.sum())
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def old_log_probs_not_detached(right):
    """the gradient flows into the old log-probabilities: with the same network twice it is 0"""
    def ppo_clip_loss(log_probs, old_log_probs, advantages, *, epsilon, epsilon_high=None, mask=None):
        real, (new, old, A) = old_log_probs_and_advantages(log_probs, mask, old_log_probs, advantages)
        A, ratio = A.detach() if xp(A) is torch else A, xp(new).exp(new - old)
        clipped = xp(new).clip(ratio, 1 - epsilon, 1 + (epsilon_high or epsilon))
        return -xp(new).minimum(ratio * A, clipped * A).sum() / int(real.sum())
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def mask_ignored_by_the_clipped_loss(right):
    """padding enters the mean"""
    def ppo_clip_loss(*arrays, mask=None, **more):
        return right.ppo_clip_loss(*(xp(x).clip(xp(x).nan_to_num(x), -9, 9) for x in arrays), **more)
    return ppo_clip_loss


@wrong("ppo_clip_loss")
def clipped_padding_counted(right):
    """the sum over real entries is divided by the number of all entries"""
    def ppo_clip_loss(log_probs, *arrays, mask=None, **more):
        share = real_entries(mask, log_probs).sum() / np.prod(log_probs.shape)
        return right.ppo_clip_loss(log_probs, *arrays, mask=mask, **more) * float(share)
    return ppo_clip_loss


@wrong("ppo_penalty_loss")
def penalty_as_a_reward(right):
    """+ beta KL for - beta KL: the distance is rewarded"""
    def ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, **more):
        return right.ppo_penalty_loss(log_probs, old_log_probs, advantages, -kl, **more)
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def penalty_forgotten(right):
    """rho A alone"""
    def ppo_penalty_loss(*arrays, beta, mask=None):
        return right.ppo_penalty_loss(*arrays, beta=0, mask=mask)
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def penalty_detached(right):
    """the KL is a number in the loss, not a function of the policy"""
    def ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, **more):
        kl = kl.detach() if xp(kl) is torch else kl
        return right.ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, **more)
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def penalised_ratio_inverted(right):
    """old / new for new / old"""
    def ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, **more):
        old = old_log_probs.detach() if xp(kl) is torch else old_log_probs
        return right.ppo_penalty_loss(-log_probs, -old, advantages, kl, **more)
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def penalty_halved(right):
    """beta / 2 for beta, as if the penalty were a square"""
    def ppo_penalty_loss(*arrays, beta, mask=None):
        return right.ppo_penalty_loss(*arrays, beta=beta / 2, mask=mask)
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def penalised_advantages_not_detached(right):
    """the gradient flows into the advantages"""
    def ppo_penalty_loss(log_probs, old_log_probs, advantages, kl, *, beta, mask=None):
        real, (new, old, A, kl) = old_log_probs_and_advantages(log_probs, mask, old_log_probs, advantages, kl)
        ratio = xp(new).exp(new - (old.detach() if xp(old) is torch else old))
        return -(ratio * A - beta * kl).sum() / int(real.sum())
    return ppo_penalty_loss


@wrong("ppo_penalty_loss")
def mask_ignored_by_the_penalised_loss(right):
    """padding enters the mean"""
    def ppo_penalty_loss(*arrays, mask=None, **more):
        return right.ppo_penalty_loss(*(xp(x).clip(xp(x).nan_to_num(x), -9, 9) for x in arrays), **more)
    return ppo_penalty_loss


# --- distances between policies ------------------------------------------------------------------------------------

@wrong("k1")
def k1_upside_down(right):
    """log(ref / policy): the estimate has the wrong sign"""
    return lambda log_probs, ref_log_probs: right.k1(ref_log_probs, log_probs)


@wrong("k1")
def k1_without_sign(right):
    """the absolute value, "because a divergence is not negative\""""
    return lambda log_probs, ref_log_probs: abs(right.k1(log_probs, ref_log_probs))


@wrong("k1")
def k1_of_probabilities(right):
    """the difference of the probabilities for that of their logarithms"""
    return lambda log_probs, ref_log_probs: xp(log_probs).exp(log_probs) - xp(log_probs).exp(ref_log_probs)


@wrong("k2")
def k2_without_half(right):
    """the square without the factor 1/2"""
    return lambda log_probs, ref_log_probs: 2 * right.k2(log_probs, ref_log_probs)


@wrong("k2")
def k2_squares_the_mean(right):
    """half the square of the mean log-ratio for the mean of the squares"""
    return lambda log_probs, ref_log_probs: right.k2(log_probs, ref_log_probs) * 0 + (
        (log_probs - ref_log_probs).mean() ** 2 / 2)


@wrong("k2")
def k2_of_the_ratio(right):
    """half the square of ratio - 1 for that of the log-ratio"""
    return lambda log_probs, ref_log_probs: xp(log_probs).expm1(log_probs - ref_log_probs) ** 2 / 2


@wrong("k3")
def k3_upside_down(right):
    """the ratio policy / ref where ref / policy belongs: on the policy's samples not a divergence's estimate"""
    return lambda log_probs, ref_log_probs: right.k3(ref_log_probs, log_probs)


@wrong("k3")
def k3_with_the_sign_reversed(right):
    """ref / policy - 1 - log(policy / ref)"""
    return lambda log_probs, ref_log_probs: (
        right.k3(log_probs, ref_log_probs) - 2 * right.k1(log_probs, ref_log_probs))


@wrong("k3")
def k3_without_the_one(right):
    """ref / policy + log(policy / ref), 1 too large"""
    return lambda log_probs, ref_log_probs: right.k3(log_probs, ref_log_probs) + 1


@wrong("k3")
def k3_without_control_variate(right):
    """log(policy / ref) alone: unbiased, and negative now and then"""
    return lambda log_probs, ref_log_probs: right.k1(log_probs, ref_log_probs)


@wrong("categorical_kl")
def kl_swapped(right):
    """KL(q || p) for KL(p || q)"""
    return lambda p_logits, q_logits: right.categorical_kl(q_logits, p_logits)


@wrong("categorical_kl")
def kl_as_a_mean(right):
    """the mean over actions of p log(p / q) for the sum"""
    return lambda p_logits, q_logits: right.categorical_kl(p_logits, q_logits) / p_logits.shape[-1]


@wrong("categorical_kl")
def cross_entropy(right):
    """-sum p log q: the entropy of p is left in"""
    def categorical_kl(p_logits, q_logits):
        size = p_logits.shape[-1]
        return (right.categorical_kl(p_logits, q_logits) - right.categorical_kl(p_logits, 0 * p_logits)
                + float(np.log(size)))
    return categorical_kl


@wrong("categorical_kl")
def logits_as_log_probs(right):
    """sum p (p_logit - q_logit): the logits are not normalised"""
    def categorical_kl(p_logits, q_logits):
        p = xp(p_logits).exp(p_logits)
        return ((p / p.sum(-1)[..., None]) * (p_logits - q_logits)).sum(-1)
    return categorical_kl


@wrong("flatten")
def columns_in_another_order(right):
    """the parameters' order is turned round"""
    return lambda tensors: right.flatten(list(tensors)[::-1])


@wrong("flatten")
def parameters_transposed(right):
    """each matrix is read column by column"""
    return lambda tensors: right.flatten([t.transpose(1, -1) if t.ndim > 2 else t for t in tensors])


@wrong("fisher_vector_product")
def damping_forgotten(right):
    """F v without + damping v"""
    return lambda mean_kl, parameters, vector, *, damping=0.0: right.fisher_vector_product(mean_kl, parameters, vector)


@wrong("fisher_vector_product")
def damping_scales_fisher(right):
    """(1 + damping) F v for (F + damping I) v"""
    return lambda mean_kl, parameters, vector, *, damping=0.0: (
        (1 + damping) * right.fisher_vector_product(mean_kl, parameters, vector))


@wrong("fisher_vector_product")
def fisher_averaged_over_seeds(right):
    """the mean of all seeds' divergences: every seed's matrix is too small"""
    def fisher_vector_product(mean_kl, parameters, vector, *, damping=0.0):
        mixed = mean_kl.mean().expand(len(mean_kl))
        return right.fisher_vector_product(mixed / len(mean_kl), parameters, vector, damping=damping)
    return fisher_vector_product


@wrong("fisher_vector_product")
def half_of_fisher(right):
    """F / 2: the 1/2 of the quadratic model counted twice"""
    return lambda mean_kl, parameters, vector, *, damping=0.0: (
        right.fisher_vector_product(mean_kl, parameters, vector, damping=2 * damping) / 2)


def another_conjugate_gradient(ratio=lambda new, old: new / old, together=False, sign=-1.0):
    """Conjugate gradient with one part of it exchanged."""
    def conjugate_gradient(apply_matrix, b, *, iterations, tolerance=0.0):
        def dot(first, second):
            return (first * second).sum() if together else (first * second).sum(-1)[..., None]
        x, residual, direction = 0 * b, b, b
        for _ in range(iterations):
            square, product = dot(residual, residual), apply_matrix(direction)
            step = square / (dot(direction, product) + 1e-300)
            x, residual = x + step * direction, residual + sign * step * product
            direction = residual + ratio(dot(residual, residual), square + 1e-300) * direction
        return x
    return conjugate_gradient


@wrong("conjugate_gradient")
def without_conjugation(right):
    """steepest descent: the next direction is the residual"""
    return another_conjugate_gradient(ratio=lambda new, old: 0 * old)


@wrong("conjugate_gradient")
def conjugation_upside_down(right):
    """old / new for new / old in the next direction"""
    return another_conjugate_gradient(ratio=lambda new, old: old / (new + 1e-300))


@wrong("conjugate_gradient")
def systems_mixed(right):
    """the products run over all systems together: one step length for all"""
    return another_conjugate_gradient(together=True)


@wrong("conjugate_gradient")
def residual_with_the_sign_reversed(right):
    """the residual grows: + step H d"""
    return another_conjugate_gradient(sign=1.0)


@wrong("conjugate_gradient")
def one_product_short(right):
    """the loop ends one product too early"""
    def conjugate_gradient(apply_matrix, b, *, iterations, tolerance=0.0):
        return right.conjugate_gradient(apply_matrix, b, iterations=max(1, iterations - 1), tolerance=tolerance)
    return conjugate_gradient


@wrong("conjugate_gradient")
def tolerance_ignored(right):
    """every system is solved as far as it goes"""
    return lambda apply_matrix, b, *, iterations, tolerance=0.0: right.conjugate_gradient(
        apply_matrix, b, iterations=iterations)
