"""The grammar of bash: words, commands and compound commands as a tree.

Nothing is evaluated here.
"""
