"""The result of comparing two groups: every number with its interval, and one outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from reprise.core.findings import Report
from reprise.curves.result import CheckResult, Outcome, add_checks, number, outcome_of

__all__ = ["Answer", "Compared", "Comparison"]

Answer = Literal[
    "better",
    "worse",
    "higher",
    "lower",
    "no difference",
    "no improvement",
    "inconclusive",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Compared:
    """One number of every run, first..last: group a against group b.

    For a `ratio`, `difference`, `low` and `high` are factors (b over a) and `smallest` is the
    smallest factor above 1 that is detected; else they are differences (b - a) in the metric's
    unit. NaN: not known.
    """

    metric: str
    first: int
    last: int
    a: float
    b: float
    difference: float
    low: float
    high: float
    smallest: float
    ratio: bool
    decides: bool
    answer: Answer
    reason: str = ""

    def text(self) -> str:
        """The comparison in one line."""
        head = f"steps {self.first}-{self.last}: A {number(self.a)}, B {number(self.b)}"
        reason = f" ({self.reason})" if self.reason else ""
        if self.answer == "unknown":
            return f"{head}: unknown{reason}"
        if self.ratio:
            ends = f"{_factor(self.low)} to {_factor(self.high)}"
            shown = f"{_factor(self.difference)} times (interval {ends})"
            least = f"{_factor(self.smallest)} times"
        else:
            shown = f"{self.difference:+.4g} (interval {self.low:+.4g} to {self.high:+.4g})"
            least = number(self.smallest)
        return f"{head}, {shown}, min. detectable {least}: {self.answer}{reason}"


def _factor(value: float) -> str:
    """A factor for people: two runs a side give bounds that are no factors any more."""
    return "above 1000" if value > 1000 else "below 0.001" if value < 0.001 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two groups of `runs_a` and `runs_b` runs over the steps 1..`steps`.

    `confidence`: of each interval of the columns that decide (together 95 %).
    """

    outcome: Outcome
    runs_a: int
    runs_b: int
    steps: int
    confidence: float
    compared: tuple[Compared, ...]
    checks: tuple[CheckResult, ...]

    def after(self, checks: Sequence[CheckResult]) -> Comparison:
        """The comparison with further checks, before its own."""
        together = (*checks, *self.checks)
        return replace(self, checks=together, outcome=outcome_of(together))

    def report(self, command: str) -> Report:
        """The comparison as a report; exit code 0 PASS, 1 FAIL, 2 INCONCLUSIVE."""
        report = Report(command)
        for check in self.checks:
            add_checks(report, [check])
            report.findings.extend(check.notes)
        report.data["comparison"] = self.to_json()
        return report

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values; what is not known is null."""
        rows = []
        for one in self.compared:
            values = asdict(one)
            wrong = {k for k, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
            rows.append(values | dict.fromkeys(wrong))
        return {
            "outcome": self.outcome.value,
            "runs": {"a": self.runs_a, "b": self.runs_b},
            "steps": self.steps,
            "confidence": self.confidence,
            "metrics": rows,
        }

    def text(self) -> str:
        """A summary for the terminal without colours: what decides, and what else differs."""
        sizes = " ".join(
            f"{name} {count} run{'s' if count != 1 else ''},"
            for name, count in (("A", self.runs_a), ("B", self.runs_b))
        )
        level = f"intervals of {self.confidence:.4g} %, together 95 %"
        lines = [f"{self.outcome.value}: is B better than A? {sizes} steps 1-{self.steps}; {level}"]
        rest: dict[str, dict[str, None]] = {"no difference visible": {}, "not known": {}}
        last = ""
        for one in self.compared:
            if not one.decides and one.answer in ("inconclusive", "unknown"):
                kind = "not known" if one.answer == "unknown" else "no difference visible"
                rest[kind][one.metric] = None
                continue
            if one.metric != last:
                lines.append(f"  {one.metric}" + " (does not decide)" * (not one.decides))
                last = one.metric
            lines.append(f"    {one.text()}")
        lines += [f"  {kind}: {', '.join(names)}" for kind, names in rest.items() if names]
        return "\n".join(lines)
