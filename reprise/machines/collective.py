"""What nccl-tests and rccl-tests print: the bus bandwidth of an all-reduce, and its errors.

Form: https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and outputs in its public issues.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from reprise.machines.accelerator import Facts

__all__ = ["QUESTION", "Collective", "read_collective"]

QUESTION = "collective\n"
"""The line of `active_question`; scripts/active.sh has the function."""

_KEY = "collective"
_AVERAGE = re.compile(r"\bAvg bus bandwidth\s*:\s*(\S+)")
_WRONG = re.compile(r"\bOut of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")


@dataclass(frozen=True, slots=True)
class Collective:
    """Bus bandwidth in GB/s (None: not printed), values that were wrong (None: not checked).

    `why` is the reason where the test did not end well.
    """

    bus: float | None
    wrong: int | None
    why: str | None


def read_collective(facts: Facts) -> Collective | None:
    """The result of all_reduce_perf on a host; None where it is not installed."""
    if not facts.all(f"{_KEY}.ran"):
        return None
    text = "\n".join(facts.all(_KEY))
    average, wrong = _AVERAGE.search(text), _WRONG.search(text)
    return Collective(
        _number(average[1]) if average else None,
        int(wrong[1]) if wrong else None,
        facts.why(_KEY),
    )


def _number(text: str) -> float | None:
    """A positive number; "nan" and the 0 of a single GPU are no bandwidth."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
