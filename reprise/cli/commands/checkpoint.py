"""`reprise checkpoint check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from reprise.cli.render import JsonFlag, finish, guard
from reprise.cli.tables import print_table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Checkpoints of a run.", no_args_is_help=True)
    group.callback()(_group)
    group.command()(check)
    app.add_typer(group, name="checkpoint")


def _group() -> None:
    """Checkpoints of a run."""


@guard("checkpoint check")
def check(
    folder: Annotated[
        Path, typer.Argument(help="Folder of global_step_N, one of them, or converted weights.")
    ],
    world_size: Annotated[
        int | None, typer.Option(min=1, help="Ranks of the job that would continue from it.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Are checkpoints whole, and from which can a job continue: layout, ranks, sizes, tracker.

    Knows verl's FSDP and Megatron layouts. Reads names, sizes and the ends of files, no tensor;
    changes nothing.
    """
    from reprise.models.checkpoints.report import check_folder

    report = check_folder(folder, world_size)
    if not as_json:
        _print(report.data)
    finish(report, as_json)


def _print(data: dict[str, Any]) -> None:
    rows = [(step["step"], step, part) for step in data.get("steps", ()) for part in step["parts"]]
    if part := data.get("part"):
        rows.append(("-", {"usable": not part["faults"]}, part))
    cells = []
    for step, whole, part in rows:
        size = part["world_size"]
        ranks = f"{len(part['whole_ranks'])} of {size}" if part["layout"] == "FSDP" else size
        words = (
            *(step, part["role"], part["layout"], ", ".join(part["contents"]), ranks or "-"),
            *(decimal(part["bytes"]), "yes" if whole["usable"] else "no"),
        )
        cells.append([str(word) for word in words])
    names = ("step", "role", "layout", "contents", "whole ranks", "size", "usable")
    print_table(names, cells, right=("step", "size"))
    if data.get("resume"):
        typer.echo(f"continue: {data['resume']}")
