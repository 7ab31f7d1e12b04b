"""Recipes: the card, the composed configuration as rules see it, and their check.

What needs a GPU to be known is not checked here.
"""
