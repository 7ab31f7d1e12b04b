"""`reprise runs`, `reprise status`, `reprise logs` and `reprise stop`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from reprise.cli.render import JsonFlag, finish, guard
from reprise.cli.tables import print_table
from reprise.core.errors import OperatorError
from reprise.core.project import find_project

__all__ = ["register"]

NewestArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Run id, its start or end, or run folder.")
]
RunArgument = Annotated[str, typer.Argument(help="Run id, its start or end, or run folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(runs)
    app.command()(status)
    app.command()(logs)
    app.command()(stop)


@guard("runs")
def runs(
    model: Annotated[str | None, typer.Argument(help="Only runs of this recipe.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the newest runs: state, steps, start time."""
    from reprise.flows.runs import list_runs

    report = list_runs(find_project(), model, most)
    if not as_json:
        _print_runs(report.data["runs"])
    finish(report, as_json, quiet_ok=True)


def _print_runs(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        created = row.get("created")
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(created)) if created else "?"
        steps = f"{row.get('step', '?')}/{row.get('steps') or '?'}"
        words = (row["id"], row["model"], row["state"], steps, row.get("attempt", "?"), began)
        cells.append([str(word) for word in words])
    names = ("run", "recipe", "state", "step", "attempt", "began")
    print_table(names, cells, right=("step", "attempt"))


@guard("status")
def status(
    run: NewestArgument = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Watch until the run ends; Ctrl-C leaves it running.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it as a web page, on this machine alone.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of --serve; 0: any that is free.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show a run: steps, reward, mismatch, checkpoint, nodes, alarms (default: the newest run).

    Works on any machine with access to the run folder; changes nothing. Exit code 1: the run
    failed, or an alarm is an error.
    """
    from reprise.flows.runs import run_status
    from reprise.runs.state.folder import RunFolder
    from reprise.runs.watch.summary import summary_lines
    from reprise.runs.watch.view import View, table_of

    if serve:
        _serve(run, port, watch or as_json)
        return
    view = View(quiet=as_json) if watch else None
    try:
        found = run_status(find_project(), run, view)
    except KeyboardInterrupt:
        sys.stderr.write(f"the run continues; show it again: reprise status {run or ''}\n")
        raise typer.Exit(0) from None
    if not as_json:
        Console(soft_wrap=True, highlight=False).print(table_of(found.seen))
        plain = "utf" not in (sys.stdout.encoding or "").lower()
        for line in summary_lines(RunFolder(Path(found.report.data["path"])), plain):
            sys.stdout.write(line + "\n")
    finish(found.report, as_json, quiet_ok=True)


def _serve(run: str | None, port: int, other: bool) -> None:
    """Serve the page of a run until Ctrl-C."""
    from reprise.flows.runs import run_status
    from reprise.flows.serve import PageServer, page_of

    if other:
        raise OperatorError("status-serve.alone", "--serve")
    project = find_project()
    # The run that is the newest now stays the page's; an unknown one is told before an address is.
    path = run_status(project, run).report.data["path"]
    with PageServer(lambda: page_of(project, path), port) as server:
        typer.echo(server.url)
        sys.stdout.flush()
        _say(
            "Ctrl-C ends this page, not the run; from another machine: ssh -N -L "
            f"{server.port}:127.0.0.1:{server.port} HOST"
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@guard("logs")
def logs(
    run: NewestArgument = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the job ends; Ctrl-C detaches.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt; default: the newest.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the log of a run's job (the newest run's by default).

    The log comes from Ray while the job runs, else from the run folder.
    """
    from reprise.flows.runs import run_log

    kept: list[str] = []

    def write(line: str) -> None:
        if as_json:
            kept.append(line)
        else:
            sys.stdout.write(line + "\n")
            if follow:
                sys.stdout.flush()

    try:
        report = run_log(find_project(), run, attempt, follow, write)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has ended (`| head`); the interpreter must not complain at its end.
        sys.stdout = None
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    if as_json:
        report.data["lines"] = kept
    finish(report, as_json, quiet_ok=True)


@guard("stop")
def stop(run: RunArgument, as_json: JsonFlag = False) -> None:
    """End a run: its job only, SIGTERM, then SIGKILL; no further attempt starts.

    A Ray that was started for this run alone is stopped as well. Saved checkpoints stay:
    `reprise train --resume` resumes the run.
    """
    from reprise.flows.runs import stop as stop_run

    report = stop_run(find_project(), run, _say)
    if not as_json and "state" in report.data:
        typer.echo(f"{report.data['id']}: {report.data['state']}")
    finish(report, as_json, quiet_ok=True)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
