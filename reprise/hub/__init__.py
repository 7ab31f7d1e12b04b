"""The one client of model and data hubs and container registries: resolve, download, verify.

A file has its final name only after its hash was checked.
"""
