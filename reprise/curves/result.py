"""The result of a comparison: checks with their numbers, windows, and one outcome."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from reprise.core.findings import Finding, Report, Severity, State, make_finding
from reprise.core.rules import render, rule_id, text_of

__all__ = [
    "CheckResult",
    "Difference",
    "Judgement",
    "Outcome",
    "Weight",
    "WindowResult",
    "add_checks",
    "drawn_windows",
    "found",
    "note",
    "number",
    "outcome_of",
]


class Outcome(StrEnum):
    """PASS needs every check, FAIL needs evidence, all else is INCONCLUSIVE."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


Weight = Literal["matters", "may matter", "no effect"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which run and reference differ: the name to accept it by, and both values."""

    name: str
    weight: Weight
    run: str
    reference: str

    def __str__(self) -> str:
        return f"{self.name}: {self.run} (reference {self.reference})"


def number(value: float) -> str:
    """A number for people: four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) else "unknown"


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One metric over the steps first..last: the run against the reference runs.

    `bound` is the limit that the run must not cross; `smallest` the minimum detectable drop of this
    window (90 % power). NaN where one reference run gives no spread.
    """

    metric: str
    first: int
    last: int
    run: float
    reference: float
    deviation: float
    bound: float
    smallest: float
    state: State


def drawn_windows(windows: Sequence[WindowResult], metric: str) -> list[WindowResult]:
    """What a chart of `metric` shows: its own windows, without that of the whole run.

    The mean of the whole run would cover the windows, and a trend is on another scale.
    """
    own = [window for window in windows if window.metric == metric]
    whole = min((w.first for w in own), default=0), max((w.last for w in own), default=0)
    return [w for w in own if len(own) == 1 or (w.first, w.last) != whole]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. `numbers` holds JSON values; `fix` is empty only when it passed."""

    rule: str
    state: State
    where: str
    message: str
    fix: str
    numbers: Mapping[str, Any]
    windows: tuple[WindowResult, ...] = ()
    notes: tuple[Finding, ...] = ()


def found(
    text: str,
    where: str,
    numbers: Mapping[str, Any],
    windows: tuple[WindowResult, ...] = (),
    notes: tuple[Finding, ...] = (),
    /,
    **values: object,
) -> CheckResult:
    """The check of a text of the registry, such as `reward.below`, filled with `values`.

    Its state follows from the text's severity: failed for an error, else unknown.
    """
    message, fix = render(text, values)
    state = State.FAILED if text_of(text).severity == "error" else State.UNKNOWN
    return CheckResult(rule_id(text), state, where, message, fix, numbers, windows, notes)


def add_checks(report: Report, checks: Iterable[CheckResult]) -> None:
    """Put the answers of `checks` into `report`, without their notes."""
    for check in checks:
        if check.state is State.PASSED:
            report.passed(check.rule)
        elif check.state is State.FAILED:
            report.failed(check.rule, check.where, check.message, check.fix)
        else:
            report.unknown(check.rule, check.where, check.message, check.fix)


def outcome_of(checks: Sequence[CheckResult]) -> Outcome:
    """Evidence against the run outweighs everything; one unanswered check prevents a PASS."""
    states = {check.state for check in checks}
    if State.FAILED in states:
        return Outcome.FAIL
    return Outcome.PASS if states == {State.PASSED} else Outcome.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of comparing one run with a reference."""

    outcome: Outcome
    run: str
    reference: str
    reference_runs: int
    expected_steps: int
    compared_steps: int
    checks: tuple[CheckResult, ...]
    notes: tuple[Finding, ...]
    smallest: str
    undecided: tuple[CheckResult, ...] = ()
    """Guards that could not have failed: listed, neither passed nor in the way of a PASS."""
    differences: tuple[Difference, ...] = ()
    false_alarms: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 PASS, 1 FAIL, 2 INCONCLUSIVE."""
        return {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 2}[self.outcome]

    def check(self, rule: str) -> CheckResult:
        """The check named `rule`; KeyError when it was not part of this comparison."""
        for check in self.checks:
            if check.rule == rule:
                return check
        raise KeyError(rule)

    def report(self, command: str) -> Report:
        """The judgement as a report; its exit code is that of the outcome."""
        report = Report(command)
        add_checks(report, self.checks)
        report.findings.extend(self.all_notes())
        report.data["judgement"] = self.to_json()
        return report

    def all_notes(self) -> list[Finding]:
        """The notes and warnings of reading, of the comparison and of every check."""
        return [*self.notes, *(note for check in self.checks for note in check.notes)]

    def to_json(self) -> dict[str, Any]:
        """The judgement as JSON values; NaN becomes null."""
        return {
            "outcome": self.outcome.value,
            "run": self.run,
            "reference": self.reference,
            "reference_runs": self.reference_runs,
            "expected_steps": self.expected_steps,
            "compared_steps": self.compared_steps,
            "smallest_regression": self.smallest,
            "false_alarm_rate": self.false_alarms,
            "undecided": [check.rule for check in self.undecided],
            "differences": [asdict(difference) for difference in self.differences],
            "checks": [_json(check) for check in self.checks],
            "notes": [note.to_json() for note in self.all_notes()],
        }

    def text(self) -> str:
        """A summary for the terminal, one line per check, without colours."""
        signs = {State.PASSED: "ok     ", State.FAILED: "FAILED ", State.UNKNOWN: "unknown"}
        lines = [
            f"{self.outcome.value}: {self.run} against {self.reference} "
            f"({self.reference_runs} reference run{'s' if self.reference_runs != 1 else ''}, "
            f"{self.compared_steps} of {self.expected_steps} steps compared)"
        ]
        fixes: set[str] = {""}
        for check in self.checks:
            lines.append(f"  {signs[check.state]} {check.rule}: {check.message}")
            lines += [f"            {line}" for line in _window_lines(check)]
            if check.fix not in fixes:
                lines.append(f"            fix: {check.fix}")
            fixes.add(check.fix)
        lines.append(f"  {self.smallest}")
        lines.append(
            f"  probability of failing a correct run: at most {self.false_alarms:.2%}, by design"
        )
        lines += [f"  {n.severity.value}: {n.where}: {n.message}" for n in self.all_notes()]
        return "\n".join(lines)


def _window_lines(check: CheckResult) -> list[str]:
    lines = []
    for w in check.windows:
        parts = [f"reference {number(w.reference)}"]
        parts += [f"sd {number(w.deviation)}"] * math.isfinite(w.deviation)
        parts += [f"bound {number(w.bound)}"] * math.isfinite(w.bound)
        parts += [f"min. detectable {number(w.smallest)}"] * math.isfinite(w.smallest)
        text = f"steps {w.first}-{w.last}: {number(w.run)} ({', '.join(parts)})"
        lines.append(text if w.state is State.UNKNOWN else f"{text} {w.state.value}")
    return lines


def _json(check: CheckResult) -> dict[str, Any]:
    return {
        "rule": check.rule,
        "state": check.state.value,
        "where": check.where,
        "message": check.message,
        "fix": check.fix,
        "numbers": dict(check.numbers),
        "windows": [asdict(window) for window in check.windows],
    }


def note(text: str, where: str, /, **values: object) -> Finding:
    """A note of the registry: it does not change the outcome."""
    return make_finding(Severity.NOTE, text, where, None, "", values)
