"""The first root cause in the logs of many ranks: patterns as data, one pass, one answer.

Patterns, their categories and what judges them belong here; nothing here knows of runs, clusters
or commands.
"""
