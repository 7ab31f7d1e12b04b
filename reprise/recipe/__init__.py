"""Recipes: the recipe card, the composed configuration, and the rules that check it.

What needs a GPU to be known is not checked here.
"""
