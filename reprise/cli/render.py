"""How a report reaches the operator: a table, or one JSON object."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, NoReturn

import orjson
import typer
from rich.console import Console
from rich.text import Text

from reprise.core.errors import OperatorError
from reprise.core.findings import Finding, Report, Severity, State, Verdict
from reprise.core.progress import error_console

__all__ = ["JsonFlag", "finish", "guard", "proceed"]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_VERDICTS = {Verdict.OK: "green", Verdict.PROBLEM: "red", Verdict.UNKNOWN: "yellow"}


# The command as typed: a report of an inner function may have another name.
_command: ContextVar[str] = ContextVar("command")


def finish(report: Report, as_json: bool, quiet_ok: bool = False) -> NoReturn:
    """Print `report` and exit with its code. `quiet_ok` omits the summary of a good report."""
    report.command = _command.get(report.command)
    if as_json:
        sys.stdout.write(_json(report.to_json()) + "\n")
        sys.stdout.flush()
    else:
        _print(report, quiet_ok)
    raise typer.Exit(report.exit_code)


def proceed(before: Report, as_json: bool) -> None:
    """Exit with the report of what a long command needs, unless it is good.

    Its warnings are printed on standard error at once: later they would be too late.
    """
    if before.verdict is not Verdict.OK:
        finish(before, as_json)
    console = error_console(soft_wrap=True)
    for finding in before.findings:
        _print_finding(console, finding)


def _json(value: dict[str, Any]) -> str:
    """One line of JSON that standard output can carry, whatever its encoding."""
    try:
        raw = orjson.dumps(value)
    except TypeError:
        # Bytes of a file's name or an argument that are not UTF-8 arrive as lone surrogates.
        raw = orjson.dumps(_readable(value))
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return raw.decode() if utf8 else json.dumps(orjson.loads(raw), separators=(",", ":"))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value


def _print(report: Report, quiet_ok: bool) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for finding in report.findings:
        _print_finding(console, finding)
    if quiet_ok and report.verdict is Verdict.OK:
        return
    counts = {state: sum(check.state is state for check in report.checks) for state in State}
    line = Text(f"{report.command}: ")
    line.append(report.verdict.value, style=_VERDICTS[report.verdict])
    line.append(
        f" ({counts[State.PASSED]} checks passed, {counts[State.FAILED]} failed, "
        f"{counts[State.UNKNOWN]} could not be evaluated)"
    )
    console.print(line)


def _print_finding(console: Console, finding: Finding) -> None:
    head = Text(finding.severity.value, style=_COLOURS[finding.severity])
    head.append(f" {finding.where}: {finding.message} [{finding.rule}]", style="default")
    console.print(head)
    if finding.fix:
        console.print(Text(f"    fix: {finding.fix}"))


def guard(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn an OperatorError that leaves a command into a report with its own exit code.

    The decorated function takes `as_json`. Ctrl-C ends with exit code 130 and no traceback.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            _command.set(command)
            try:
                function(*args, **kwargs)
            except OperatorError as error:
                finish(error.report(command), bool(kwargs.get("as_json")))
            except OSError as error:
                where, reason = error.filename or command, error.strerror or str(error)
                wrapped = OperatorError("system.error", where, reason=reason)
                finish(wrapped.report(command), bool(kwargs.get("as_json")))
            except KeyboardInterrupt:
                raise typer.Exit(130) from None

        return guarded

    return decorate
