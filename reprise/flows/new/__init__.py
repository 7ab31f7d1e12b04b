"""`reprise new recipe`: a recipe of one's own, from a recipe that exists.

What is here finds facts, proposes a layout and writes files. What is not known stays open.
"""
