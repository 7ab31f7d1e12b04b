"""The table of metrics and its curves, attempts merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reprise.core.findings import Finding

__all__ = [
    "BoolArray",
    "CodeArray",
    "FloatArray",
    "IntArray",
    "MetricTable",
    "Series",
    "is_validation",
    "spans",
]

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def is_validation(metric: str) -> bool:
    """Whether verl writes `metric` during validation (`val-core/...`, `val-aux/...`, `val/...`)."""
    return metric.startswith(("val-", "val/"))


def spans(steps: Iterable[int]) -> str:
    """Steps as text, runs joined: 1-3, 7."""
    parts: list[list[int]] = []
    for step in sorted(set(steps)):
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in parts[:8]]
    return ", ".join(shown) + (f" and {len(parts) - 8} more ranges" if len(parts) > 8 else "")


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric of one run, attempts merged. All arrays have shape (n,), steps rise strictly.

    `errors` holds 1-sigma reading errors in the metric's unit, NaN where none is known.
    """

    metric: str
    steps: IntArray
    values: FloatArray
    errors: FloatArray

    def __len__(self) -> int:
        return len(self.steps)

    def keep(self, mask: BoolArray) -> Series:
        """The points where `mask` (shape (n,)) is true."""
        return Series(self.metric, self.steps[mask], self.values[mask], self.errors[mask])

    def between(self, first: int, last: int) -> Series:
        """The points with first <= step <= last."""
        return self.keep((self.steps >= first) & (self.steps <= last))

    def finite(self) -> Series:
        """The points whose value is neither NaN nor infinite."""
        return self.keep(np.isfinite(self.values))

    @property
    def looks_sampled(self) -> bool:
        """Whether rows seem to have been drawn from a longer history.

        Trackers return a random sample of at most about 500 rows of a long history unless asked
        for all of it (wandb/wandb#1783, #5219), so gaps are many and of several sizes.
        """
        if not 20 <= len(self) <= 500:
            return False
        gaps = np.diff(self.steps)
        return bool(np.mean(gaps > 1) >= 0.1 and len(np.unique(gaps)) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class MetricTable:
    """All rows that were read for one run: columns of shape (rows,), in the order of reading.

    `metric` indexes `names`. `live` marks the rows that count once attempts are merged: a later
    attempt supersedes everything from its first training step on, and at one step the row read
    last wins. `findings` list what was decided or left out while reading.
    """

    run: str
    names: tuple[str, ...]
    attempt: CodeArray
    metric: CodeArray
    step: IntArray
    value: FloatArray
    error: FloatArray
    live: BoolArray
    findings: tuple[Finding, ...] = ()

    def __contains__(self, metric: str) -> bool:
        return metric in self.names

    def series(self, metric: str) -> Series:
        """The merged curve of `metric`; empty when the run has none."""
        code = self.names.index(metric) if metric in self.names else -1
        rows = np.flatnonzero(self.live & (self.metric == code))
        rows = rows[np.argsort(self.step[rows], kind="stable")]
        return Series(metric, self.step[rows], self.value[rows], self.error[rows])

    def training_steps(self) -> IntArray:
        """The steps, ascending, at which any metric outside validation was written."""
        training = np.array([not is_validation(name) for name in self.names], dtype=bool)
        if not len(self.step):
            return np.array([], dtype=np.int64)
        return np.unique(self.step[self.live & training[self.metric]])
