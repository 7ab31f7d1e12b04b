"""Parquet, JSON lines and CSV as batches of rows, in constant memory.

The schema of verl's five fields belongs here.
"""
