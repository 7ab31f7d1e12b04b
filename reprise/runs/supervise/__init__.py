"""Attempts of a run: submit, follow, stop, retry, resume.

One attempt at a time; an attempt never erases an earlier one's metrics.
"""
