"""`reprise triage` and `reprise support-bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import find_project

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(triage)
    app.command("support-bundle")(support_bundle)


@guard("triage")
def triage(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Log files, folders of logs, run folders or ids."),
    ] = None,
    patterns: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A site's own patterns, tried first (repeatable)."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ADDRESS", help="The address of a folder's host (repeatable)."),
    ] = None,
    clock: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=SECONDS",
            help="How far a host's clock is ahead, where it was not measured (repeatable).",
        ),
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Try every pattern on its own examples.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find the first root cause of a failure in the logs of all ranks and hosts.

    Exit code 0: the job ended well; 1: a root cause was found; 2: it could not be determined.
    """
    from reprise.flows.triage.explain import triage_paths, triage_self_test
    from reprise.triage.model import Clock
    from reprise.triage.report import cascade_lines

    files = patterns or []
    if self_test:
        finish(triage_self_test(find_project(), files), as_json)
    if not paths:
        raise OperatorError(
            "triage-paths",
            "PATH...",
            "expected log files, folders or a run, found none",
            "name some, as in: reprise triage logs/*.log, or a folder of runs/",
        )
    hosts = dict(_pair("--host", text) for text in host or [])
    clocks = {
        name: Clock(_seconds(name, value))
        for name, value in (_pair("--clock", text) for text in clock or [])
    }
    report, examined = triage_paths(find_project(), paths, files, hosts, clocks)
    if not as_json:
        console = Console(soft_wrap=True, highlight=False)
        for line in cascade_lines(examined):
            console.print(Text(line))
    finish(report, as_json)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise OperatorError(
            "triage-option",
            f"{option} {text}",
            "expected NAME=VALUE",
            f"write it as {option} node02=10.8.0.12"
            if option == "--host"
            else f"write it as {option} 10.8.0.12=1.5",
        )
    return name, value


def _seconds(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise OperatorError(
            "triage-option",
            f"--clock {name}={value}",
            f"{value!r} is not a number of seconds",
            f"write it as --clock {name}=1.5",
        ) from None


@guard("support-bundle")
def support_bundle(
    run: Annotated[str, typer.Argument(help="A run's id, its start or end, its folder.")],
    out: Annotated[
        Path | None, typer.Option(help="The archive; default: support-RUN.tar.gz here.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pack a run's logs, triage, configuration, lock and host facts, with secrets removed."""
    from reprise.flows.triage.explain import pack_support

    report = pack_support(find_project(), run, out)
    if not as_json and "archive" in report.data:
        size = int(report.data["bytes"])
        typer.echo(
            f"{report.data['archive']}: {report.data['files']} files, {size / 1e6:.1f} MB, "
            f"{report.data['masked']} secrets removed"
        )
    finish(_settled(report), as_json)


def _settled(report: Report) -> Report:
    return report
