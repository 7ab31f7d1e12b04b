"""The memory of the machine that the command runs on."""

from __future__ import annotations

from pathlib import Path

import psutil

from reprise.recipe.plan.memory import GIB

__all__ = ["machine_memory"]

# What a container may take, by the control groups' second and first version.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def machine_memory(limits: tuple[Path, ...] = _LIMITS) -> float:
    """GiB that this machine has, or its container may take of it."""
    found = [psutil.virtual_memory().total]
    for file in limits:
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        # "max" is no limit.
        found += [int(text)] if text.isdigit() else []
    return min(found) / GIB
