"""`reprise compare`: two groups of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.commands.curves.compare import reference_or_run
from reprise.cli.options import AcceptOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.project import find_project

__all__ = ["register"]

BETWEEN = "vs"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(compare)


@guard("compare")
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="A and B; or the runs of A, the word vs, the runs of B. Each is a run folder or "
            "its id, a metrics file, a folder of files, a reference or a recipe with one.",
        ),
    ],
    margin: Annotated[
        float | None,
        typer.Option(min=1e-9, help="Smallest difference of reward and validation that counts."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Compare steps 1..N; default: all that runs share.")
    ] = None,
    judge: Annotated[
        Path | None, typer.Option(help="judge.toml to use; default: that of A's recipe, if any.")
    ] = None,
    accept: AcceptOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Is the change from A to B an improvement? The difference between seeds, and its interval.

    A is what you had, B the change. Exit code 0: PASS, B is better; 1: FAIL, B is worse, or an
    improvement of the margin is excluded; 2: INCONCLUSIVE, these runs cannot show it.
    """
    from reprise.flows.judge.groups import GroupsOptions, compare_sides

    options = GroupsOptions(judge, steps, margin, tuple(accept or ()))
    a, b = ([reference_or_run(Path(name)) for name in side] for side in _sides(runs))
    comparison, report = compare_sides(find_project(), a, b, options)
    if comparison is not None and not as_json:
        typer.echo(comparison.text())
    finish(report, as_json)


def _sides(words: list[str]) -> tuple[list[str], list[str]]:
    if BETWEEN in words:
        at = words.index(BETWEEN)
        sides = words[:at], words[at + 1 :]
        if all(sides) and BETWEEN not in sides[1]:
            return sides
        found = f"{len(sides[0])} before vs, {len(sides[1])} after"
        raise OperatorError("compare-groups.sides", " ".join(words), found=found)
    if len(words) == 2:
        return words[:1], words[1:]
    count = f"{len(words)} run{'s' if len(words) != 1 else ''}"
    raise OperatorError("compare-groups.sides", " ".join(words), found=count)
