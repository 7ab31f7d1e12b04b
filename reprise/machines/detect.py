"""Which kind of machine this is, as far as its device files tell."""

from __future__ import annotations

from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.lock.model import MACHINES, Machine

__all__ = ["guess_machine", "machine_named"]


def guess_machine(dev: Path = Path("/dev")) -> tuple[Machine, str]:
    """The machine that this seems to be, and why.

    A head node without cards is taken for one that rehearses: name the machine there.
    """
    if any(dev.glob("mtgpu.[0-9]*")):
        return "musa", f"{dev}/mtgpu.* is there"
    if any(dev.glob("nvidia[0-9]*")):
        return "h20", f"{dev}/nvidia* is there"
    return "rehearsal", "no accelerator's device file is there"


def machine_named(name: str | None) -> tuple[Machine, str]:
    """The machine called `name`, or the one guessed when it is None. Raises OperatorError."""
    if name is None:
        return guess_machine()
    for machine in MACHINES:
        if name == machine:
            return machine, "named"
    fix = f"name one of {', '.join(MACHINES)}"
    raise OperatorError("machine", name, "is no machine of the lock", fix)
