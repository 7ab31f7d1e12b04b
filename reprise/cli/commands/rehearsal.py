"""`reprise rehearsal build-model`."""

from __future__ import annotations

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.project import find_project
from reprise.flows.target import DEFAULT

__all__ = ["register"]

group = typer.Typer(help="The rehearsal's start model.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="rehearsal")


@group.callback()
def rehearsal() -> None:
    """The rehearsal's start model."""


@group.command("build-model")
@guard("rehearsal build-model")
def build_model(as_json: JsonFlag = False) -> None:
    """Train the start model again and print its difference from the shipped one.

    The result is kept in .cache/start-model and not used by runs: another processor, or another
    instruction set (ATEN_CPU_CAPABILITY=default), gives different bits.
    """
    from reprise.flows.start_model import build_start_model

    project = find_project()

    def say(line: str) -> None:
        typer.echo(line, err=True)

    finish(build_start_model(project, DEFAULT.python(project), say), as_json)
