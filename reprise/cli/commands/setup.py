"""`reprise setup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.commands.bundle import Steps
from reprise.cli.commands.machines import MachineOption, chosen_machine
from reprise.cli.options import EntriesArgument, MirrorOption
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.progress import Display, Task
from reprise.core.project import find_project

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(setup)


class _Trees:
    """Shows each tree as a task in hundredths of its present phase."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._tasks: dict[str, Task] = {}

    def __call__(self, name: str, phase: str, done: float | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._display.task(name, 100, "%")
        if phase in ("fetched", "already", "replaced", "failed"):
            self._tasks[name].end(phase)
        else:
            self._tasks[name].update(round(100 * (done or 0)), phase)


@guard("setup")
def setup(
    names: EntriesArgument = None,
    machine: MachineOption = None,
    mirror: MirrorOption = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Install everything from this bundle, or from a part of it.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Install the locked source trees and environments on this machine.

    Exactly the locked commits, verified by their tree hashes. Safe to interrupt and to repeat; a
    checkout that you changed or moved is not touched. Mirrors also come from REPRISE_MIRROR.
    """
    from reprise.bundle.setup import setup_from_bundle
    from reprise.trees.install import setup as install
    from reprise.trees.sources import mirrors_from

    if bundle is not None and mirror:
        raise OperatorError("setup-source.conflict", "--mirror and --bundle")
    project = find_project()
    kind, why = chosen_machine(machine)
    mirrors = mirrors_from(mirror or [])
    with Display() as display:
        display.line(f"machine: {kind.name} ({why})")
        trees = _Trees(display)
        if bundle is not None:
            steps = Steps(display)
            report = setup_from_bundle(project.lock, bundle, names or [], kind.lock, trees, steps)
            steps.end()
        else:
            report = install(project.lock, names or [], kind.lock, mirrors, trees)
    finish(report, as_json)
