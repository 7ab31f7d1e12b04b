"""Kinds of machine: one entry a machine, one file an accelerator vendor.

Whatever depends on the vendor of a GPU belongs here and nowhere else.
"""
