"""`reprise train`: checks, place, job, session, resume.

One file a part of the chain; `train.py` holds it together.
"""
