"""Data files: fetch the locked ones, check, convert and describe a user's own.

Whatever judges a prompt, an answer or a reward function belongs here.
"""
