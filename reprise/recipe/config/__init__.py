"""The Hydra configuration: composed from verl's own config files, with the origin of every key.

verl itself is never imported.
"""
