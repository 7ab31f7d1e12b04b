"""From rows as they are read to the table: attempts told apart and merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reprise.core.findings import Finding, Severity
from reprise.metrics.table import (
    BoolArray,
    IntArray,
    MetricTable,
    Series,
    is_validation,
    spans,
)

__all__ = ["Rows"]


@dataclass(slots=True)
class Rows:
    """Rows in the order of reading. A step that comes again with a known key is a new attempt."""

    run: str
    attempt: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    numbers: list[tuple[float, float]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _last: int = -1
    _seen: set[str] = field(default_factory=set)

    def new_attempt(self, number: int = 0) -> None:
        """Begin another attempt; `number` is its own number where the file's name gives one."""
        self.attempt = max(self.attempt + 1, number)
        self._last, self._seen = -1, set()

    def add_step(self, step: int, values: Mapping[str, float]) -> None:
        """Add what one line holds."""
        if step < self._last or (step == self._last and self._seen & values.keys()):
            self.new_attempt()
        if step != self._last:
            self._last, self._seen = step, set()
        self._seen |= values.keys()
        for metric, value in values.items():
            self.add(metric, step, value, float("nan"))

    def add(self, metric: str, step: int, value: float, error: float) -> None:
        """Add one value with its 1-sigma reading error (NaN where none is known)."""
        code = self.codes.setdefault(metric, len(self.codes))
        self.rows.append((self.attempt, code, step))
        self.numbers.append((value, error))

    def damaged(self, path: Path, lines: list[int], what: str) -> None:
        """Record lines that were left out, if any."""
        if lines:
            message = f"{len(lines)} {what} left out (lines {spans(lines)})"
            fix = "nothing, if the writer was interrupted there; else write the file again"
            where = f"{path}:{lines[0]}"
            self.findings.append(Finding("metrics-line", Severity.WARNING, where, message, fix))

    def table(self, where: str) -> MetricTable:
        """The rows as a table, attempts merged."""
        attempt, metric, step = np.array(self.rows, dtype=np.int64).reshape(-1, 3).T
        value, error = np.array(self.numbers, dtype=np.float64).reshape(-1, 2).T
        names = tuple(self.codes)
        training = np.array([not is_validation(name) for name in names], dtype=bool)[metric]
        live = _superseded(attempt, step, training)
        rest = np.flatnonzero(live)
        # lexsort keeps the order of reading among equals: the last of each (metric, step) wins.
        order = rest[np.lexsort((attempt[rest], step[rest], metric[rest]))]
        last = np.ones(len(order), dtype=bool)
        last[:-1] = (np.diff(metric[order]) != 0) | (np.diff(step[order]) != 0)
        live[order[~last]] = False
        table = MetricTable(self.run, names, attempt, metric, step, value, error, live)
        found = (
            *self.findings,
            *_merge_findings(table, training, order[~last], where),
            *_history_findings(table, where),
        )
        return dataclasses.replace(table, findings=found)


def _superseded(attempt: IntArray, step: IntArray, training: BoolArray) -> BoolArray:
    """Rows that no later attempt trained again: shape (rows,).

    An attempt that resumes at step s trained s and all that follows anew, so the earlier
    attempt's rows from s on belong to weights that were thrown away.
    """
    live = np.ones(len(step), dtype=bool)
    for number in np.unique(attempt)[1:]:
        own = step[(attempt == number) & training]
        if len(own):
            live &= (attempt >= number) | (step < own.min())
    return live


def _merge_findings(
    table: MetricTable, training: BoolArray, repeated: IntArray, where: str
) -> Iterator[Finding]:
    numbers = np.unique(table.attempt)
    dead = (~table.live) & training
    lost = np.unique(table.step[dead])
    if len(numbers) > 1 and len(lost):
        kept = np.intersect1d(lost, table.training_steps())
        gone = np.setdiff1d(lost, kept)
        text = f"{len(numbers)} attempts; steps {spans(kept.tolist())} were trained more than once"
        if len(gone):
            text += f"; steps {spans(gone.tolist())} of an abandoned attempt were left out"
        yield Finding("metrics-overlap", Severity.NOTE, where, f"{text}: the later attempt counts")
    if len(numbers) == 1 and len(repeated):
        yield Finding(
            "metrics-repeated",
            Severity.WARNING,
            where,
            f"steps {spans(table.step[repeated].tolist())} stand more than once for one metric",
            "the row read last counts; check how the file was made",
        )


def _history_findings(table: MetricTable, where: str) -> Iterator[Finding]:
    steps = table.training_steps()
    series = Series("", steps, steps.astype(np.float64), steps.astype(np.float64))
    if series.looks_sampled:
        yield Finding(
            "metrics-sampled",
            Severity.WARNING,
            where,
            f"looks sampled: {len(steps)} rows with uneven gaps between steps "
            f"{steps[0]} and {steps[-1]}",
            "export the whole history (scan_history, not history), or use the run's own file",
        )
    elif len(steps) and steps[0] > 1:
        yield Finding(
            "metrics-history",
            Severity.WARNING,
            where,
            f"starts at step {steps[0]}: the history before it is missing",
            "a resumed job that writes to the same file erases it: add the earlier attempt's file",
        )
