"""Weights: is a folder complete, what does its config say, fetch what the lock names.

Formats of weight files are read here, for checkpoints as well.
"""
