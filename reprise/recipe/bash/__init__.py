"""A bash script evaluated without running it: what is known, and why the rest is unknown.

No program is started and no file is written.
"""
