"""Everything for a machine without a network, in one file or in parts: create, verify, open.

There is one format; what goes into it is decided here.
"""
