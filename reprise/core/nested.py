"""Nested mappings, as configurations are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten"]


def flatten(config: Mapping[str, Any], stem: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; lists are values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{stem}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat
