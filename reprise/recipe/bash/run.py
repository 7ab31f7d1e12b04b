"""What the reading of a script records: the programs that it would start, and its own trouble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprise.recipe.bash.state import Field
from reprise.recipe.bash.unknown import Unknown

__all__ = ["Run", "TooMuch"]


class TooMuch(Exception):
    """The script runs for longer than it is read."""


@dataclass(frozen=True, slots=True)
class Run:
    """A program that the script would start.

    `environment` is what is exported to it, `branch` the condition that leaves open whether it is
    started, `via` the programs that start it on another host or in a container (srun, docker, …).
    `variables` are those of the command line alone (X=1 program).
    """

    words: tuple[Field, ...]
    environment: Mapping[str, str]
    rows: Mapping[str, int]
    row: int
    end_row: int
    branch: Unknown | None = None
    via: tuple[str, ...] = ()
    stdin: str = ""

    @property
    def argv(self) -> list[str]:
        """The arguments as text, marks of unknown values and all."""
        return [field.text for field in self.words]
