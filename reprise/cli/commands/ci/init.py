"""`reprise ci init`."""

from __future__ import annotations

from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.project import find_project

__all__ = ["register"]

group = typer.Typer(help="Jobs for your own CI.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="ci")


@group.callback()
def ci() -> None:
    """Jobs for your own CI."""


@group.command()
@guard("ci init")
def init(
    recipes: Annotated[list[str], typer.Argument(help="Recipes, one file of jobs each.")],
    host: Annotated[
        str | None,
        typer.Option(help="github or gitlab; default: that of the remote origin."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write jobs that check a recipe, rehearse its shape and judge its newest cluster run.

    GitHub: .github/workflows/reprise-NAME.yml. GitLab: .gitlab/reprise-NAME.yml, and a
    .gitlab-ci.yml that includes it where there is none. No existing file is changed.
    """
    from reprise.flows.ci.init import write_jobs

    report = write_jobs(find_project(), recipes, host)
    if not as_json:
        for item in report.data.get("files", ()):
            typer.echo(f"{item['state']}: {item['file']}")
    finish(report, as_json)
