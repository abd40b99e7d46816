"""Shared helpers of "Policy Gradients, Interactively".

The modules form layers; each uses only those before it:

    validate                                   turns arguments into arrays and refuses bad ones
    mdp, estimators, losses, networks, checks  mathematics on arrays
    cartpole                                   batched rollouts of a real environment
    training                                   the training loops
    plotting, explore                          figures and figures with sliders
"""
