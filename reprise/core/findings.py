"""The one result type: a report of which rules ran, and what they found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reprise.core import rules

__all__ = [
    "Check",
    "Finding",
    "Report",
    "Severity",
    "State",
    "Verdict",
    "make_finding",
    "without_credentials",
]

# user:password@ up to the last @, also with / in the password (host:port/path@x is none), or what
# else stands before an @ of the host.
_CREDENTIALS = re.compile(r"(\w+://)(?:[^/@\s:]*:(?!\d+/)\S*|[^/\s]+)@")
_QUERY = re.compile(
    r"([?&;][\w.-]*(?:token|key|secret|passw(?:or)?d|signature|sig|credential|auth)[\w.-]*=)[^&;\s#\"']+",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """`text` with the login and the tokens in the query of every URL in it replaced by stars."""
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


class Severity(StrEnum):
    """How much a finding matters: an error makes the report a problem, the others do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class State(StrEnum):
    """What became of one rule. `unknown` means that it could not be evaluated: never fine."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """The report as a whole; the exit code follows from it (0, 1, 2)."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


EXIT_CODES: Mapping[Verdict, int] = {Verdict.OK: 0, Verdict.PROBLEM: 1, Verdict.UNKNOWN: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result shown to the operator.

    `where` names the operator's own thing: file:line, a lock entry, a host, metric@step.
    `fix` is what to type or change; empty only for notes. Credentials in URLs are removed.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str = ""

    def __post_init__(self) -> None:
        for name in ("where", "message", "fix"):
            object.__setattr__(self, name, without_credentials(getattr(self, name)))

    def to_json(self) -> dict[str, str]:
        """The finding as the object that `--json` prints."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "where": self.where,
            "message": self.message,
            "fix": self.fix,
        }


def make_finding(
    severity: Severity,
    rule: str,
    where: str,
    message: str | None,
    fix: str,
    values: Mapping[str, object],
) -> Finding:
    """A finding with the text that the registry has for `rule` (as in `gpu-count.too-few`).

    Where `message` is given, `rule` is a plain id and `message` and `fix` are used as they are.
    """
    if message is None:
        message, fix = rules.render(rule, values)
        rule = rules.rule_id(rule)
    return Finding(rule, severity, where, message, fix)


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that was to be evaluated, and its state."""

    rule: str
    state: State

    def to_json(self) -> dict[str, str]:
        """The check as the object that `--json` prints."""
        return {"rule": self.rule, "state": self.state.value}


@dataclass(slots=True)
class Report:
    """The result of a command. `data` holds the command's own results (JSON values only)."""

    command: str
    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def passed(self, rule: str) -> None:
        """Record that `rule` was evaluated and is met."""
        self.checks.append(Check(rule, State.PASSED))

    def failed(
        self, rule: str, where: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """Record that a rule does not hold: an error.

        `rule` names a text of the registry, filled with `values`; or a rule, with its own text.
        """
        found = self._add(Severity.ERROR, rule, where, message, fix, values)
        self.checks.append(Check(found.rule, State.FAILED))

    def unknown(
        self, rule: str, where: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """Record that a rule could not be evaluated, and why; arguments as of `failed`."""
        found = self._add(Severity.WARNING, rule, where, message, fix, values)
        self.checks.append(Check(found.rule, State.UNKNOWN))

    def warn(
        self, rule: str, where: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """Add a warning; it does not change the verdict. Record the rule's state separately."""
        self._add(Severity.WARNING, rule, where, message, fix, values)

    def note(
        self, rule: str, where: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        """Add a note; it does not change the verdict."""
        self._add(Severity.NOTE, rule, where, message, fix, values)

    def _add(
        self,
        severity: Severity,
        rule: str,
        where: str,
        message: str | None,
        fix: str,
        values: Mapping[str, object],
    ) -> Finding:
        found = make_finding(severity, rule, where, message, fix, values)
        self.findings.append(found)
        return found

    def settle(self, rule: str) -> None:
        """Record `rule` as passed unless it already has a state (it found nothing wrong)."""
        if all(check.rule != rule for check in self.checks):
            self.passed(rule)

    def absorb(self, other: Report) -> None:
        """Take over the checks and findings of another report (its data stays with it)."""
        self.checks.extend(other.checks)
        self.findings.extend(other.findings)

    def downgrade(self, rules: Collection[str], why: str) -> None:
        """Count the named rules as passed and their errors as warnings, which end with `why`."""
        self.checks = [
            Check(check.rule, State.PASSED) if check.rule in rules else check
            for check in self.checks
        ]
        self.findings = [
            Finding(f.rule, Severity.WARNING, f.where, f"{f.message} ({why})", f.fix)
            if f.rule in rules and f.severity is Severity.ERROR
            else f
            for f in self.findings
        ]

    @property
    def verdict(self) -> Verdict:
        """A problem outweighs an unknown; a report in which nothing ran is unknown."""
        states = {check.state for check in self.checks}
        severities = {finding.severity for finding in self.findings}
        if State.FAILED in states or Severity.ERROR in severities:
            return Verdict.PROBLEM
        if State.UNKNOWN in states or not states:
            return Verdict.UNKNOWN
        return Verdict.OK

    @property
    def exit_code(self) -> int:
        """0 fine (warnings allowed), 1 something is wrong, 2 could not find out."""
        return EXIT_CODES[self.verdict]

    def errors(self) -> Iterable[Finding]:
        """The findings of severity error, in order."""
        return (finding for finding in self.findings if finding.severity is Severity.ERROR)

    def to_json(self) -> dict[str, Any]:
        """The whole report as the one object that `--json` prints."""
        head: dict[str, Any] = {
            "command": self.command,
            "verdict": self.verdict.value,
            "checks": [check.to_json() for check in self.checks],
            "findings": [finding.to_json() for finding in self.findings],
        }
        return head | {key: value for key, value in self.data.items() if key not in head}
