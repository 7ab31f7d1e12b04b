"""`reprise reference create | show | compare | replace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reprise.cli.options import AcceptOption, AnyRunsArgument
from reprise.cli.render import JsonFlag, finish, guard
from reprise.cli.tables import print_table
from reprise.core.project import find_project

__all__ = ["register"]

_Name = Annotated[str, typer.Argument(help="Recipe, or a folder (a path with a slash).")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Make and compare reference runs.", no_args_is_help=True)
    group.command()(create)
    group.command()(show)
    group.command()(compare)
    group.command()(replace)
    app.add_typer(group, name="reference")


@guard("reference create")
def create(
    name: _Name,
    runs: AnyRunsArgument,
    judge: Annotated[
        Path | None, typer.Option(help="judge.toml to use; default: the recipe's, if any.")
    ] = None,
    accept: AcceptOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a reference of finished runs of any origin: each with another seed, all else equal."""
    from reprise.flows.judge.references import create_reference

    project = find_project()
    report = create_reference(project, name, _paths(runs), judge, tuple(accept or ()))
    _said(report.data, as_json)
    finish(report, as_json)


@guard("reference replace")
def replace(
    name: _Name,
    runs: AnyRunsArgument,
    reason: Annotated[str, typer.Option(help="Why; it is recorded with the shifts.")],
    accept: AcceptOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Replace a reference; the old one is kept, and the shift of each metric recorded."""
    from reprise.flows.judge.references import replace_reference

    project = find_project()
    report = replace_reference(project, name, _paths(runs), reason, tuple(accept or ()))
    _said(report.data, as_json)
    _shifts(report.data, as_json)
    finish(report, as_json)


@guard("reference show")
def show(name: _Name, as_json: JsonFlag = False) -> None:
    """Describe a reference: its runs, what it judges, and what it can detect."""
    from reprise.flows.judge.references import show_reference

    report = show_reference(find_project(), name)
    if not as_json:
        for key, value in report.data.items():
            typer.echo(f"{key}: {_text(value)}")
    finish(report, as_json)


@guard("reference compare")
def compare(name: _Name, other: _Name, as_json: JsonFlag = False) -> None:
    """Show how NAME differs from OTHER: the signed shift of every judged metric."""
    from reprise.flows.judge.references import compare_references

    report = compare_references(find_project(), name, other)
    _shifts(report.data, as_json)
    if not as_json:
        for line in report.data.get("configuration", ()):
            typer.echo(line)
    finish(report, as_json)


def _paths(runs: list[Path]) -> list[Path]:
    from reprise.flows.judge.judging import named_run

    project = find_project()
    return [named_run(project, run) for run in runs]


def _said(data: dict[str, Any], as_json: bool) -> None:
    if not as_json:
        for key in ("reference", "kept"):
            if key in data:
                typer.echo(f"{key}: {data[key]}")


def _shifts(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return
    names = ("metric", "steps", "old", "new", "shift", "sd")
    rows = []
    for row in data["shifts"]:
        units = row["deviations"]
        cells = [f"{row[key]:.4g}" for key in ("old", "new")]
        cells += [f"{row['shift']:+.4g}", "unknown" if units is None else f"{units:+.1f}"]
        rows.append((row["metric"], row["steps"], *cells))
    print_table(names, rows, names[2:])


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "none"
    return "unknown" if value is None else str(value)
