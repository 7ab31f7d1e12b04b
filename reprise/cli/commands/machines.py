"""`--machine`: one option with the same names in every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reprise.core.errors import OperatorError

if TYPE_CHECKING:
    from reprise.machines.registry import Machine

__all__ = ["MachineOption", "OldName", "chosen_machine", "one_of"]

MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        help="Kind of machine: h20, s5000, gpu, cpu, or another name of docs/machines.md; default: "
        "machine = of the site file for hosts, else detected by this machine's device files.",
        show_default=False,
    ),
]

OldName = Annotated[str | None, typer.Option("--profile", hidden=True)]
"""The former name of --machine in some commands."""


def one_of(machine: str | None, *others: str | None) -> str | None:
    """The one name given. Raises OperatorError when two differ, known or not."""
    from reprise.machines.registry import machine_named

    named = [name for name in (machine, *others) if name]
    if len({machine_named(name).name for name in named}) > 1:
        raise OperatorError("machine.two-kinds-machine", " and ".join(named))
    return named[0] if named else None


def chosen_machine(name: str | None) -> tuple[Machine, str]:
    """The machine `name`, or the detected one when it is None, with the reason."""
    from reprise.machines.registry import guess_machine, machine_named

    return (machine_named(name), "named") if name is not None else guess_machine()
