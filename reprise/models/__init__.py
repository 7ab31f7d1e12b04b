"""Weights: check a folder and its config, fetch locked models.

Formats of weight files are read here, for checkpoints as well.
"""
