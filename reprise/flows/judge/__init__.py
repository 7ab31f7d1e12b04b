"""Judge runs of any origin, and make references of them.

judging.py opens a run with what is known of it; references.py creates, compares and replaces.
"""
