"""`reprise lock check | verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reprise.cli.render import JsonFlag, finish, guard
from reprise.findings import Report
from reprise.lock.check import check_lock
from reprise.lock.machine import machine_named
from reprise.lock.reality import verify as verify_lock
from reprise.lock.verify import Site
from reprise.project import find_project

__all__ = ["MachineOption", "register"]

MachineOption = Annotated[
    str | None, typer.Option(help="h20, musa, rehearsal, gpu or operator; default: by what is here")
]

_STATES = {"ok": "green", "unknown": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="The lock: is it sound, does reality match it, move one entry.")
    group.command("check")(check)
    group.command("verify")(verify)
    app.add_typer(group, name="lock")


@guard("lock check")
def check(
    file: Annotated[
        Path | None, typer.Argument(help="The lock; default: versions.lock of the project.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Is the lock itself sound: form, full hashes, known contradictions, requirements files."""
    finish(check_lock(file or find_project().lock), as_json)


@guard("lock verify")
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries, or runtime_env; default: the machine's.")
    ] = None,
    machine: MachineOption = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter in which the packages should be.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    plain_ray: Annotated[
        bool, typer.Option(help="Judge the package as a plain `ray job submit` makes it.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Does reality match the lock: checkouts, files, packages, images, what Ray would pack.

    Exit code 0: all ok; 1: something differs, is dirty or missing; 2: something is not known.
    """
    project = find_project()
    kind, why = machine_named(machine)
    site = Site(project.root, python, data)
    report = verify_lock(project.lock, names or [], kind, site, plain_ray)
    if not as_json:
        typer.echo(f"machine: {kind} ({why})")
        _print_rows(report)
    finish(report, as_json)


def _print_rows(report: Report) -> None:
    rows: list[dict[str, Any]] = report.data["rows"]
    table = Table("entry", "state", "expected", "found", box=None, pad_edge=False)
    for row in rows:
        state = row["state"]
        style = _STATES.get(state, "red")
        table.add_row(
            row["entry"], f"[{style}]{state}[/]", _short(row["expected"]), _short(row["found"])
        )
    Console(highlight=False).print(table)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
