"""Container images: build from the lock, compare with it, save and load as files.

The client of the container engine belongs here.
"""
