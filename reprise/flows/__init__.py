"""The chains behind the commands, one file each: they pass the answer of one layer to another.

A chain ends in one report.
"""
