"""Shared helpers of "Policy Gradients, Interactively".

The modules form layers; each uses only those before it:

    validate                                   turns arguments into arrays and refuses bad ones
    mdp, estimators, losses, kl, checks        mathematics on arrays
    networks                                   many small networks side by side
    cartpole                                   batched rollouts of a real environment
    updates                                    what the training loops are made of
    trust_region                               PPO and TRPO
    training                                   REINFORCE, actor-critic, and all loops by one name
    plotting, explore                          figures and figures with sliders
"""
