"""Results of the rules on each host; equal results of several hosts become one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprise.cluster.hosts.names import fold
from reprise.core.findings import Check, Finding, Report, Severity, State, make_finding

__all__ = ["Mark", "Marks"]

_RANK = {State.PASSED: 0, State.UNKNOWN: 1, State.FAILED: 2}


@dataclass(frozen=True, slots=True)
class Mark:
    """One rule's result on one host. `severity` None: no finding."""

    rule: str
    host: str
    state: State
    severity: Severity | None = None
    message: str = ""
    fix: str = ""


@dataclass(slots=True)
class Marks:
    """Collects marks; `report` turns them into one report."""

    marks: list[Mark] = field(default_factory=list)

    def good(self, rule: str, host: str) -> None:
        """The rule holds on `host`."""
        self.marks.append(Mark(rule, host, State.PASSED))

    def bad(
        self, rule: str, host: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """The rule does not hold: an error. Arguments as of `Report.failed`."""
        self._add(State.FAILED, Severity.ERROR, rule, host, message, fix, values)

    def warn(
        self, rule: str, host: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """The rule holds, with a warning."""
        self._add(State.PASSED, Severity.WARNING, rule, host, message, fix, values)

    def note(
        self, rule: str, host: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """The rule holds, with a note."""
        self._add(State.PASSED, Severity.NOTE, rule, host, message, fix, values)

    def blank(
        self, rule: str, host: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """The rule could not be evaluated; this never counts as passed."""
        self._add(State.UNKNOWN, Severity.WARNING, rule, host, message, fix, values)

    def _add(
        self,
        state: State,
        severity: Severity,
        rule: str,
        host: str,
        message: str | None,
        fix: str,
        values: Mapping[str, object],
    ) -> None:
        found = make_finding(severity, rule, host, message, fix, values)
        mark = Mark(found.rule, host, state, severity, found.message, found.fix)
        self.marks.append(mark)

    def groups(self, hosts: Iterable[str]) -> list[tuple[str, list[Mark]]]:
        """Hosts with the same findings, folded; hosts without findings first."""
        by_host: dict[str, list[Mark]] = {host: [] for host in hosts}
        for mark in self.marks:
            if mark.severity in (Severity.ERROR, Severity.WARNING):
                by_host.setdefault(mark.host, []).append(mark)
        grouped: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for host, marks in by_host.items():
            grouped.setdefault(tuple((m.rule, m.message) for m in marks), []).append(host)
        order = sorted(grouped.items(), key=lambda item: len(item[0]))
        return [(fold(names), by_host[names[0]]) for _, names in order]

    def report(self, command: str) -> Report:
        """One check per rule (the worst of its hosts), one finding per text."""
        report = Report(command)
        states: dict[str, State] = {}
        texts: dict[tuple[str, Severity, str, str], list[Mark]] = {}
        for mark in self.marks:
            known = states.setdefault(mark.rule, mark.state)
            states[mark.rule] = max(known, mark.state, key=_RANK.__getitem__)
            if mark.severity is not None:
                # A command in the fix may name the host: that does not make another finding.
                fix = _without(mark.fix, mark.host)
                texts.setdefault((mark.rule, mark.severity, mark.message, fix), []).append(mark)
        report.checks = [Check(rule, state) for rule, state in states.items()]
        order = list(Severity)
        for (rule, severity, *_), marks in sorted(
            texts.items(), key=lambda item: order.index(item[0][1])
        ):
            report.findings.append(_folded(rule, severity, marks))
        return report


def _without(text: str, host: str) -> str:
    """The text with another word for the host's own name."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text)


def _folded(rule: str, severity: Severity, marks: list[Mark]) -> Finding:
    """One finding of the marks; a command in the fix is that of the first host."""
    first = marks[0]
    names = list(dict.fromkeys(mark.host for mark in marks))
    fix = first.fix.replace(f"--exclude {first.host}", f"--exclude {fold(names)}")
    return Finding(rule, severity, fold(names), first.message, fix)
