"""Stands where IPython is not installed: SGLang imports two names of it, Ray a third.

Ray asks any loaded module of this name whether it runs in a notebook; it does not.
"""


def get_ipython() -> None:
    """The running notebook: there is none."""
