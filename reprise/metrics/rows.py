"""From rows as they are read to the table: in order, attempts separated and merged.

A row is what was logged at once: a step, its values, and a time stamp where the writer gives one.
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reprise.core.findings import Finding, Severity, make_finding
from reprise.metrics.table import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    MetricTable,
    Series,
    is_validation,
    spans,
)

__all__ = ["LongRows", "Rows"]

_NAN = float("nan")


def _ints() -> array[int]:
    return array("q")


def _codes() -> array[int]:
    return array("i")


def _floats() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Rows:
    """Rows in the order of reading; `table` sorts them into attempts.

    Within one source (a file), a step that is trained again with other values begins a new
    attempt. A row that is late or repeated is not: time stamps order the rows where all have one.
    Numbers are kept in flat arrays: a run of 20,000 steps has millions.
    """

    run: str
    attempt: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _attempts: array[int] = field(default_factory=_ints)
    _steps: array[int] = field(default_factory=_ints)
    _times: array[float] = field(default_factory=_floats)
    _starts: array[int] = field(default_factory=_ints)
    _metrics: array[int] = field(default_factory=_codes)
    _values: array[float] = field(default_factory=_floats)
    _errors: dict[int, float] = field(default_factory=dict)
    _fresh: int = 0

    def __len__(self) -> int:
        return len(self._steps)

    def new_attempt(self, number: int = 0) -> None:
        """Begin another source; `number` is its attempt's where the file's name gives one."""
        self.settle()
        self.attempt = max(self.attempt + 1, number)

    def add_step(
        self,
        step: int,
        values: Mapping[str, float],
        time: float = _NAN,
        errors: Mapping[str, float] | None = None,
    ) -> None:
        """Add the values of one line: `time` in seconds since the epoch, 1-sigma `errors`."""
        self._attempts.append(self.attempt)
        self._steps.append(step)
        self._times.append(time)
        self._starts.append(len(self._values))
        if errors:
            at = {metric: place for place, metric in enumerate(values, start=len(self._values))}
            self._errors |= {at[metric]: error for metric, error in errors.items() if metric in at}
        if not values.keys() <= self.codes.keys():
            for metric in values:
                self.codes.setdefault(metric, len(self.codes))
        self._metrics.extend([self.codes[metric] for metric in values])
        self._values.extend(values.values())

    def add(self, metric: str, step: int, value: float, error: float) -> None:
        """Add one value with its 1-sigma reading error (NaN where none is known)."""
        self.add_step(step, {metric: value}, errors={metric: error})

    def damaged(self, path: Path, lines: list[int], what: str) -> None:
        """Record lines that were left out, if any."""
        if lines:
            where = f"{path}:{lines[0]}"
            known = {"count": len(lines), "problem": what, "lines": spans(lines)}
            self.findings.append(_warning("metrics-line.left-out", where, **known))

    def settle(self) -> None:
        """Find the attempts among the rows of the source that was just read."""
        first, last = self._fresh, len(self._steps)
        self._fresh = last
        if last - first < 2:
            return
        order = self._order(first, last)
        sorter = _Sorter(self, order)
        sorter.sort()
        self.attempt = max(self.attempt, sorter.attempt)
        self.findings += sorter.findings()

    def _order(self, first: int, last: int) -> list[int]:
        """Rows first..last-1 by time where all have one, else as they were read."""
        times = np.frombuffer(self._times, dtype=np.float64)[first:last]
        if np.isfinite(times).all():
            return [first + int(i) for i in np.argsort(times, kind="stable")]
        return list(range(first, last))

    def table(self, where: str) -> MetricTable:
        """The rows as a table, attempts merged."""
        self.settle()
        value = np.frombuffer(self._values, dtype=np.float64).copy()
        metric = np.frombuffer(self._metrics, dtype=np.int32).copy()
        counts = np.diff(np.append(np.frombuffer(self._starts, dtype=np.int64), len(value)))
        attempt = np.repeat(np.frombuffer(self._attempts, dtype=np.int64).astype(np.int32), counts)
        step = np.repeat(np.frombuffer(self._steps, dtype=np.int64), counts)
        names = tuple(self.codes)
        training = np.array([not is_validation(name) for name in names], dtype=bool)[metric]
        live = _superseded(attempt, step, training) & (attempt >= 0)
        rest = np.flatnonzero(live)
        # lexsort keeps the order of reading among equals: the last of each (metric, step) wins.
        order = rest[np.lexsort((attempt[rest], step[rest], metric[rest]))]
        last = np.ones(len(order), dtype=bool)
        last[:-1] = (np.diff(metric[order]) != 0) | (np.diff(step[order]) != 0)
        live[order[~last]] = False
        table = MetricTable(self.run, names, attempt, metric, step, value, self._error(), live)
        found = (
            *self.findings,
            *_merge_findings(table, training, order[~last], where),
            *_history_findings(table, where),
        )
        return dataclasses.replace(table, findings=found)

    def _error(self) -> FloatArray:
        """The reading errors, shape (values,); one NaN in memory where none is known."""
        if not self._errors:
            return np.broadcast_to(np.float64(_NAN), len(self._values))
        error = np.full(len(self._values), _NAN)
        error[list(self._errors)] = list(self._errors.values())
        return error

    def values_of(self, row: int) -> dict[int, float]:
        """The values of one row by the number of their metric."""
        end = self._starts[row + 1] if row + 1 < len(self._starts) else len(self._values)
        span = range(self._starts[row], end)
        return {self._metrics[i]: self._values[i] for i in span}


class _Sorter:
    """Attempts among the rows of one source, in their order."""

    def __init__(self, rows: Rows, order: list[int]) -> None:
        self.rows, self.order = rows, order
        self.attempt = rows._attempts[order[0]]
        self.late: list[int] = []
        self.copies: list[int] = []
        self._at: dict[int, list[int]] = defaultdict(list)
        self._most = -1
        self._tell = [not is_validation(name) for name in rows.codes]

    def sort(self) -> None:
        """Give each row its attempt; -1 for a row that repeats another one to the digit."""
        for place, row in enumerate(self.order):
            step = self.rows._steps[row]
            earlier = self._at.get(step)
            kind = self._kind(place, row, step, earlier) if earlier else ""
            if kind == "copy":
                self.copies.append(step)
                self.rows._attempts[row] = -1
                continue
            if kind == "again":
                self.attempt += 1
                self._at.clear()
                self._most = -1
            elif step < self._most and not kind and self._trains(row):
                self.late.append(step)
            self.rows._attempts[row] = self.attempt
            self._at[step].append(row)
            self._most = max(self._most, step)

    def _trains(self, row: int) -> bool:
        """Whether a row has more than a validation, which is repeated at a checkpoint's step."""
        return any(self._tell[code] for code in self.rows.values_of(row))

    def _kind(self, place: int, row: int, step: int, earlier: list[int]) -> str:
        """What a row is whose step was seen: "" (other metrics), copy, stray, or again."""
        ours = self.rows.values_of(row)
        shared: dict[int, float] = {}
        for other in earlier:
            shared |= {k: v for k, v in self.rows.values_of(other).items() if k in ours}
        if not shared:
            return ""
        if len(shared) == len(ours) and all(
            value == ours[key] or (math.isnan(value) and math.isnan(ours[key]))
            for key, value in shared.items()
        ):
            return "copy"
        if not any(self._tell[code] for code in shared):
            return "stray"  # A validation that is repeated at the checkpoint's step.
        following = next((self.rows._steps[r] for r in self.order[place + 1 : place + 2]), None)
        # One row among those of a run that goes on (or ends): written twice, the later counts.
        stray = step < self._most and (following is None or following > self._most)
        return "stray" if stray else "again"

    def findings(self) -> Iterator[Finding]:
        """What was out of order or repeated, with an example."""
        for text, steps in (("metrics-order.late", self.late), ("metrics-order.copy", self.copies)):
            if steps:
                known = {"count": len(steps), "steps": spans(steps)}
                yield make_finding(Severity.NOTE, text, self.rows.run, None, "", known)


@dataclass(slots=True)
class LongRows:
    """Single values, one at a time, gathered into rows: what was logged of one step together.

    The second value of a metric at a step belongs to a second row of that step, and so on.
    """

    _rows: dict[tuple[int, int, int], tuple[dict[str, float], dict[str, float], float]] = field(
        default_factory=dict
    )
    _seen: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def add(
        self,
        metric: str,
        step: int,
        value: float,
        error: float = _NAN,
        time: float = _NAN,
        attempt: int = 0,
    ) -> None:
        """Take one value; `attempt` where the file numbers them."""
        nth = self._seen.get((attempt, step, metric), 0)
        self._seen[attempt, step, metric] = nth + 1
        values, errors, _ = self._rows.setdefault((attempt, nth, step), ({}, {}, time))
        values[metric] = value
        if not math.isnan(error):
            errors[metric] = error

    def pour(self, rows: Rows) -> None:
        """Give everything to `rows`, as one source for each numbered attempt."""
        attempts = sorted({attempt for attempt, _, _ in self._rows})
        base = rows.attempt
        for number in attempts:
            if number:
                rows.new_attempt(base - 1 + number)
            for (attempt, _, step), (values, errors, time) in self._rows.items():
                if attempt == number:
                    rows.add_step(step, values, time, errors)


def _superseded(attempt: CodeArray, step: IntArray, training: BoolArray) -> BoolArray:
    """Rows that no later attempt trained again: shape (rows,).

    An attempt that resumes at step s trained s and all later steps again, so the earlier
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
    numbers = np.unique(table.attempt[table.attempt >= 0])
    dead = (~table.live) & training & (table.attempt >= 0)
    lost = np.unique(table.step[dead])
    if len(numbers) > 1 and len(lost):
        kept = np.intersect1d(lost, table.training_steps())
        gone = np.setdiff1d(lost, kept)
        text = "metrics-overlap.abandoned" if len(gone) else "metrics-overlap.merged"
        values = {
            "attempts": len(numbers),
            "repeated": spans(kept.tolist()),
            "abandoned": spans(gone.tolist()),
        }
        yield make_finding(Severity.NOTE, text, where, None, "", values)
    if len(numbers) == 1 and len(repeated):
        steps = spans(table.step[repeated].tolist())
        yield _warning("metrics-repeated.steps", where, steps=steps)


def _history_findings(table: MetricTable, where: str) -> Iterator[Finding]:
    steps = table.training_steps()
    series = Series("", steps, steps.astype(np.float64), steps.astype(np.float64))
    if series.looks_sampled:
        yield _warning(
            "metrics-sampled.gaps", where, rows=len(steps), first=steps[0], last=steps[-1]
        )
    elif len(steps) and steps[0] > 1:
        yield _warning("metrics-history.late-start", where, first=steps[0])


def _warning(text: str, where: str, **values: object) -> Finding:
    return make_finding(Severity.WARNING, text, where, None, "", values)
