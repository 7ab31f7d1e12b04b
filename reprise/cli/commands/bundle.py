"""`reprise bundle create | verify`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from reprise.cli.commands.machines import MachineOption, chosen_machine
from reprise.cli.options import EntriesArgument
from reprise.cli.render import JsonFlag, finish, guard
from reprise.core.errors import OperatorError
from reprise.core.progress import Display, Task
from reprise.core.project import find_project

__all__ = ["Steps", "register"]

_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class Steps:
    """Shows one step after the other, each as a task of its own."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._title = ""
        self._task: Task | None = None

    def __call__(self, title: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` of the step `title` is done."""
        if title != self._title or self._task is None:
            self.end()
            self._title, self._task = title, self._display.task(title, total)
        self._task.update(done)

    def end(self) -> None:
        """Close the step that is shown."""
        if self._task is not None:
            self._task.end()


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help="Everything for a machine without a network, in one file or in parts.")
    group.command("create")(create)
    group.command("verify")(verify)
    app.add_typer(group, name="bundle")


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = _SIZE.fullmatch(text.upper().removesuffix("IB").removesuffix("B"))
    if found is None:
        raise OperatorError("part-size.form", text)
    return int(found[1]) * _UNITS[found[2]]


@guard("bundle create")
def create(
    file: Annotated[Path, typer.Argument(help="The bundle to write.")],
    names: EntriesArgument = None,
    machine: MachineOption = None,
    part_size: Annotated[
        str | None, typer.Option(help="Cut into parts of at most this size (60M, 4G).")
    ] = None,
    images: Annotated[
        bool, typer.Option(help="Include the images, as the container engine saves them.")
    ] = False,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="Further files or folders of the project (machine gpu)."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a bundle: the project, source trees, wheels, data, and images if asked.

    Safe to interrupt and to repeat: fetched and written files stay.
    """
    from reprise.bundle.create import create as create_bundle

    kind, _ = chosen_machine(machine)
    with Display() as display:
        steps = Steps(display)
        size = _bytes(part_size)
        lock = find_project().lock
        report = create_bundle(lock, file, names or [], kind.lock, size, images, steps, also or ())
        steps.end()
    if not as_json:
        for part in report.data.get("parts", []):
            typer.echo(f"{part['sha256']}  {part['file']}")
    finish(report, as_json)


@guard("bundle verify")
def verify(
    file: Annotated[Path, typer.Argument(help="The bundle, or one part of it.")],
    as_json: JsonFlag = False,
) -> None:
    """Check every bit of a bundle, part by part. Exit code 2 while parts are missing."""
    from reprise.bundle.open import verify_bundle

    with Display() as display:
        steps = Steps(display)
        report = verify_bundle(file, steps)
        steps.end()
    finish(report, as_json)
