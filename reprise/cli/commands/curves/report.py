"""`reprise report`: several runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.options import AnyRunsArgument
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.findings import Report
from reprise.core.project import find_project

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(report)


@guard("report")
def report(
    runs: AnyRunsArgument,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    as_json: JsonFlag = False,
) -> None:
    """Write one HTML page with the curves of several runs, their time lines and differences."""
    from reprise.core.files import write_text
    from reprise.curves.checks.comparable import config_differences
    from reprise.curves.page import runs_page
    from reprise.flows.judge.judging import named_run, open_run, past_of

    project = find_project()
    read = [open_run(named_run(project, run)) for run in runs]
    names = [run.table.run for run in read]
    if len(set(names)) < len(names):
        names = [str(path) for path in runs]
    first = read[0]
    differing = [
        (name, config_differences(run.config, first.config))
        for name, run in zip(names[1:], read[1:], strict=True)
        if run.config and first.config
    ]
    tables, pasts = [run.table for run in read], [past_of(run) for run in read]
    write_text(out, runs_page(names, tables, differing, pasts))
    made = Report("report", data={"report": str(out), "runs": names})
    made.passed("metrics")
    for run in read:
        made.findings.extend(run.table.findings)
    if not as_json:
        typer.echo(f"report: {out}")
    finish(made, as_json)
