"""Checkpoints that verl writes: which steps are complete, and from which a job can resume.

The layouts of verl's checkpoint managers belong here.
"""
