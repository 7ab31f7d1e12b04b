"""The user's own CI: init.py writes its jobs from the templates in this folder.

What the jobs run are commands of other folders.
"""
