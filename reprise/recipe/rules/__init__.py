"""The rules of the recipe check, one module a subject; `reprise.recipe.ruleset` lists them all.

A rule states its formula with the numbers put in, and its source.
"""
