"""`reprise new recipe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.project import find_project

__all__ = ["group"]

group = typer.Typer(help="Make a recipe of your own.", no_args_is_help=True)


@group.callback()
def new() -> None:
    """Make a recipe of your own."""


@group.command("recipe")
@guard("new recipe")
def recipe(
    name: Annotated[str, typer.Argument(help="Name of the new recipe: a-z, 0-9 and dashes.")],
    base: Annotated[str, typer.Option("--from", help="Recipe that it starts from.")],
    model: Annotated[
        str | None,
        typer.Option(help="Folder with config.json, or a model of the lock; default: the base's."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Training file, or a data entry of the lock.")
    ] = None,
    val: Annotated[
        str | None, typer.Option(help="Validation file, or a data entry of the lock.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Kind of machine, for example h20; default: the base's.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Number of nodes; default: the fewest that fit.")
    ] = None,
    response: Annotated[
        int | None, typer.Option(min=1, help="Longest answer in tokens; default: the base's.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of recipes; default: first of REPRISE_RECIPES, else recipes/."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a recipe for your model, data and machine, from one that exists.

    Sizes are read from the model's config.json, lengths from the data; parallel sizes are the
    cheapest layout that the rules allow and that fits.
    """
    from reprise.flows.new.new import NewRecipe, new_recipe

    wanted = NewRecipe(name, base, machine, model, data, val, folder, nodes, response)
    report = new_recipe(find_project(), wanted)
    if not as_json:
        found = report.data
        lengths = found["lengths"]
        typer.echo(f"{found['folder']}: card.toml, recipe.yaml, judge.toml")
        typer.echo(f"prompt {lengths['prompt']}, response {lengths['response']} tokens")
        for title, row in [("layout", found["layout"]), *(("or", row) for row in found["others"])]:
            sizes = " ".join(f"{key}={row[key]}" for key in _SIZES)
            typer.echo(f"{title}: {sizes} ({row['training_gib']} GiB, {row['seconds']} s a step)")
        typer.echo(f"time: {found['time_is']}")
    finish(report, as_json)


_SIZES = ("nodes", "tp", "pp", "cp", "ep", "etp", "rollout_tp", "offload", "recompute")
