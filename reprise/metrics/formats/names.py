"""Names of steps and metrics, as the trackers spell them."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["STEP_NAMES", "natural"]

STEP_NAMES = ("step", "_step", "global_step", "training/global_step", "trainer/global_step")
"""What trackers call the step, in order of preference."""

# MLflow allows no "@": verl writes mean_at_32 there (utils/tracking.py).
_AT = re.compile(r"(?<=[a-z0-9])_at_(?=\d+(?:/|$))")


@lru_cache(maxsize=1 << 16)
def natural(metric: str) -> str:
    """verl's own name of a metric that a tracker had to rename."""
    return _AT.sub("@", metric) if metric.startswith("val") else metric
