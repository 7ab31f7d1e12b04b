"""Reprise: from pinned commits to a judged training curve."""

__version__ = "0.1.0"
