"""What a comparison says: checks with their numbers, windows, and one outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from reprise.core.findings import Finding, Report, Severity, State

__all__ = ["CheckResult", "Judgement", "Outcome", "WindowResult", "number", "outcome_of"]


class Outcome(StrEnum):
    """PASS needs every check, FAIL needs evidence, all else is INCONCLUSIVE."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


def number(value: float) -> str:
    """A number for people: four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) else "unknown"


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One metric over the steps first..last: the run against the reference runs.

    `bound` is what the run has to stay above (below, where lower is better); `smallest` the loss
    that this window sees with nine chances in ten. NaN where one reference run gives no spread.
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
        for check in self.checks:
            if check.state is State.PASSED:
                report.passed(check.rule)
            elif check.state is State.FAILED:
                report.failed(check.rule, check.where, check.message, check.fix)
            else:
                report.unknown(check.rule, check.where, check.message, check.fix)
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
            "checks": [_json(check) for check in self.checks],
            "notes": [note.to_json() for note in self.all_notes()],
        }

    def text(self) -> str:
        """A summary for the terminal, one line a check, without colours."""
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
        lines += [f"  {n.severity.value}: {n.where}: {n.message}" for n in self.all_notes()]
        return "\n".join(lines)


def _window_lines(check: CheckResult) -> list[str]:
    lines = []
    for w in check.windows:
        parts = [f"reference {number(w.reference)}"]
        parts += [f"sd {number(w.deviation)}"] * math.isfinite(w.deviation)
        parts += [f"bound {number(w.bound)}"] * math.isfinite(w.bound)
        parts += [f"sees a shift of {number(w.smallest)}"] * math.isfinite(w.smallest)
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


def note(rule: str, where: str, message: str) -> Finding:
    """A note: it informs and does not change the outcome."""
    return Finding(rule, Severity.NOTE, where, message)
