"""`reprise rehearsal build-model` and `shape`."""

from __future__ import annotations

from typing import Annotated

import typer

from reprise.cli.options import ModelArgument, NoWaitOption, OverridesArgument
from reprise.cli.render import JsonFlag, finish, guard, proceed
from reprise.core.project import find_project
from reprise.flows.target import DEFAULT

__all__ = ["register"]

group = typer.Typer(
    help="Parts of the rehearsal: its start model, the shape of a recipe.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    app.add_typer(group, name="rehearsal")


@group.callback()
def rehearsal() -> None:
    """Parts of the rehearsal: its start model, the shape of a recipe."""


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


@group.command("shape")
@guard("rehearsal shape")
def shape(
    model: ModelArgument,
    overrides: OverridesArgument = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
    no_wait: NoWaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a tiny model of a recipe's class for a few steps on this machine's CPU.

    Real verl, Ray and vLLM with FSDP; algorithm and sampling are the recipe's. Its parallel sizes,
    lengths and data are not: the rehearsal's toy arithmetic is trained.
    """
    from reprise.flows.rehearsal import RehearsalOptions
    from reprise.flows.shape import check_shape, rehearse_shape, shape_options

    project = find_project()
    asked = RehearsalOptions(seed, steps, overrides=tuple(overrides or ()), wait=not no_wait)
    options = shape_options(project, model, asked)
    proceed(check_shape(project, options), as_json)
    finish(rehearse_shape(project, model, options), as_json)
