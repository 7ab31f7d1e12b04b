"""Every kind of machine by name: one TOML file in profiles/ each."""

from __future__ import annotations

import functools
import importlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.nearby import did_you_mean, nearest_words
from reprise.machines.accelerator import Accelerator
from reprise.machines.profile import Profile

__all__ = [
    "Machine",
    "accelerators",
    "guess_machine",
    "lock_keys",
    "machine_named",
    "machine_of_lock",
    "machines",
    "names_shown",
    "union",
]

_FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine; `name` is the stem of its file, which holds the other values.

    `lock` is the name in `machines = [...]` of versions.lock; `image` the folder of docker/ (empty:
    without an image), `image_trees` the checkouts of the lock that its build takes. `rank` orders
    lists. `guessed`: a host with this vendor's device files counts as this machine. `packed`:
    its jobs are packed from the project's folder, with the checkouts on PYTHONPATH. `bare`: it
    needs neither git nor pip, a bundle for it has archives. `settings` is the table [profile] as it
    is written.
    """

    name: str
    vendor: str
    lock: str
    aliases: tuple[str, ...] = ()
    image: str = ""
    image_trees: tuple[str, ...] = ()
    rank: int = 9
    guessed: bool = True
    packed: bool = False
    bare: bool = False
    settings: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name by which a command takes it, its own first."""
        return (self.name, *self.aliases)

    @property
    def accelerator(self) -> Accelerator:
        """The vendor's part: reprise/machines/<vendor>.py."""
        return _vendor(self.vendor)

    @property
    def trains(self) -> bool:
        """Whether jobs run on it: it has a profile."""
        return self.settings is not None

    @property
    def profile(self) -> Profile:
        """The requirements on such a host. Raises OperatorError for a machine without one."""
        if self.settings is None:
            raise OperatorError(
                "machine.runs-no-jobs",
                self.name,
                known=names_shown(lambda machine: machine.trains),
            )
        return _profile(self)


@functools.cache
def _profile(machine: Machine) -> Profile:
    return Profile(name=machine.name, **machine.settings or {})


@functools.cache
def _vendor(name: str) -> Accelerator:
    found: Accelerator = importlib.import_module(f"reprise.machines.{name}").ACCELERATOR
    return found


@functools.cache
def machines() -> tuple[Machine, ...]:
    """Every kind of machine, in the order in which lists name them."""
    found = []
    for path in _FOLDER.glob("*.toml"):
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = values.pop("profile", None)
        values |= {key: tuple(values.get(key, ())) for key in ("aliases", "image_trees")}
        found.append(Machine(path.stem, settings=settings, **values))
    return tuple(sorted(found, key=lambda machine: (machine.rank, machine.name)))


def accelerators() -> tuple[Accelerator, ...]:
    """One of each vendor, in the order of the machines."""
    return tuple(_vendor(name) for name in dict.fromkeys(item.vendor for item in machines()))


def union(of: Callable[[Accelerator], Sequence[str]]) -> tuple[str, ...]:
    """The values of `of` for all vendors, each once."""
    return tuple(dict.fromkeys(word for vendor in accelerators() for word in of(vendor)))


def lock_keys() -> tuple[str, ...]:
    """The names of versions.lock, in the order of the machines."""
    return tuple(machine.lock for machine in machines())


def names_shown(which: Callable[[Machine], bool] = lambda machine: True) -> str:
    """The names of the machines for which `which` holds: "h20, s5000 (musa), ..."."""
    return ", ".join(
        machine.name + (f" ({', '.join(machine.aliases)})" if machine.aliases else "")
        for machine in machines()
        if which(machine)
    )


def machine_named(name: str) -> Machine:
    """The machine with this name or alias. Raises OperatorError that lists the known names."""
    found = next((item for item in machines() if name in item.names), None)
    if found is not None:
        return found
    known = [word for item in machines() for word in item.names]
    hint = did_you_mean(nearest_words(name.lower(), known))
    raise OperatorError("machine.unknown", name, hint=hint, known=names_shown())


def machine_of_lock(key: str) -> Machine:
    """The machine with this name in versions.lock, which `lock_keys` holds."""
    return next(machine for machine in machines() if machine.lock == key)


def guess_machine(root: Path = Path("/")) -> tuple[Machine, str]:
    """The kind of this machine by device files below `root`, and the reason.

    A head node without GPUs looks like a rehearsal machine: name its machine there. Raises
    OperatorError when no kind matches.
    """
    guessed = [machine for machine in machines() if machine.guessed]
    for machine in sorted(guessed, key=lambda machine: machine.vendor == "none"):
        if (why := machine.accelerator.detect(root)) is not None:
            return machine, why
    raise OperatorError("machine.not-detected", str(root), known=names_shown())
