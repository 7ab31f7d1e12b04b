"""The checks of a verdict, one file each: what is compared, and what its answer means.

Each takes the run's table and the reference, and gives a CheckResult. curves/judge.py calls them.
"""
