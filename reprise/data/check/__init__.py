"""The check of data files: rows, lengths, repeats and amounts against a recipe.

Every problem of any number of files is reported in one pass.
"""
