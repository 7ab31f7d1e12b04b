"""The user's own CI: init.py writes its jobs from the templates in this folder.

shape.py is the rehearsal that one of them runs.
"""
