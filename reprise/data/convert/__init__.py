"""Convert a user's own file to the five fields of verl.

A value is kept exactly, or its row is rejected with its number.
"""
