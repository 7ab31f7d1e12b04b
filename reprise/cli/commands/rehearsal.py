"""`reprise rehearsal build-model` and `reprise rehearsal run`."""

from __future__ import annotations

from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard, proceed
from reprise.core.project import find_project
from reprise.flows.target import DEFAULT

__all__ = ["register"]

group = typer.Typer(help="Parts of the rehearsal.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="rehearsal")


@group.callback()
def rehearsal() -> None:
    """Parts of the rehearsal."""


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


@group.command("run")
@guard("rehearsal run")
def run(
    recipe: Annotated[str, typer.Argument(help="Recipe whose shape is rehearsed.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps to train.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Train a few steps of a recipe's algorithm on this machine's CPU, with a tiny model.

    The tiny model has the recipe's architecture where one is shipped. Passes if every step is
    recorded and finite; the curve is not judged.
    """
    from reprise.flows.ci.shape import check_shape, rehearse_shape, shape_of

    project = find_project()
    shape = shape_of(project, recipe)
    proceed(check_shape(project, shape, steps), as_json)
    finish(rehearse_shape(project, recipe, shape, steps), as_json)
