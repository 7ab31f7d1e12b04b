"""Errors that an operator can cause or see: they carry data and become one finding."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.core.rules import render, rule_id

__all__ = ["CannotTell", "OperatorError"]


class OperatorError(Exception):
    """Something is wrong, and the command cannot continue: exit code 1.

    `rule` names a text of the registry (`lock-unknown.machine`), filled with `values`; or a rule,
    with its own message and fix. `where` names the operator's own thing.
    """

    exit_code = 1

    def __init__(
        self, rule: str, where: str, message: str | None = None, fix: str = "", /, **values: object
    ) -> None:
        if message is None:
            message, fix = render(rule, values)
            rule = rule_id(rule)
        super().__init__(f"{where}: {message}")
        self.rule = rule
        self.where = where
        self.message = message
        self.fix = fix

    def report(self, command: str) -> Report:
        """The error as a report of `command`."""
        report = Report(command)
        report.failed(self.rule, self.where, self.message, self.fix)
        return report


class CannotTell(OperatorError):
    """The question could not be answered (no network, no engine, no permission): exit code 2."""

    exit_code = 2

    def report(self, command: str) -> Report:
        """The error as a report of `command`, with the rule's state unknown."""
        report = Report(command)
        report.unknown(self.rule, self.where, self.message, self.fix)
        return report
