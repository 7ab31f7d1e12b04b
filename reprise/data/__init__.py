"""Data files: fetch the locked ones, check, convert and describe a user's own.

Checks of prompts, answers and reward functions belong here.
"""
