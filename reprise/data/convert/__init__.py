"""A user's own file as verl's five fields.

A value is kept exactly or its row is rejected with its number.
"""
