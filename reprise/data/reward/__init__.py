"""Reward functions tried on correct, wrong and empty answers.

The scorer runs in an environment that has verl; this package starts it and judges its answers.
"""
