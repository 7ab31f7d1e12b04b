"""Runs of a recipe: the run folder, its Ray, its attempts and what is seen of it.

Starting and judging runs is the work of `reprise.flows`.
"""
