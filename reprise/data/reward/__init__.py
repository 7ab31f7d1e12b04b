"""Reward functions tried on correct, wrong and empty answers.

The scorer runs in an environment with verl; this package starts it and checks its results.
"""
