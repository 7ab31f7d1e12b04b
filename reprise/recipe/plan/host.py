"""The memory of the machine that the command runs on."""

from __future__ import annotations

from pathlib import Path

import psutil

from reprise.recipe.plan.memory import GIB

__all__ = ["machine_memory"]

# Memory limit of a container: control groups version 2 and 1.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def machine_memory(limits: tuple[Path, ...] = _LIMITS) -> float:
    """Memory of this machine in GiB, or the limit of its container."""
    found = [psutil.virtual_memory().total]
    for file in limits:
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        # "max" means unlimited.
        found += [int(text)] if text.isdigit() else []
    return min(found) / GIB
