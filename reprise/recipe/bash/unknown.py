"""Values that a script alone does not fix, as single characters inside ordinary text.

An unknown value is one character of a private area of Unicode. Text that holds it can be joined,
split, matched and parsed like any other text, and what comes of it still names its unknowns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["MARKS", "Unknown", "Unknowns", "has_unknown"]

_FIRST, _LAST = 0xF0000, 0xFFFFD
MARKS = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
"""The characters that mark an unknown value."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a value is not known.

    `name` is what decides it, as the script writes it (`nvidia-smi -L | wc -l`, `$SLURM_NNODES`);
    `row` its line. `absolute`: whatever it is, it is an absolute path. `choices` are the texts
    that a branch leaves open, each a tuple of words. `unset`: a variable that the script leaves
    to its caller. `cause` is what a branch depends on.
    """

    name: str
    row: int
    absolute: bool = False
    choices: tuple[tuple[str, ...], ...] = ()
    unset: bool = False
    cause: str = ""

    def text(self) -> str:
        """The name, and what a branch depends on."""
        return f"{self.name}, which depends on {self.cause}" if self.cause else self.name


class Unknowns:
    """The unknown values of one reading, each with its character."""

    def __init__(self) -> None:
        self._found: list[Unknown] = []
        self._known: dict[Unknown, str] = {}

    def mark(self, unknown: Unknown) -> str:
        """The character of `unknown`."""
        found = self._known.get(unknown)
        if found is None:
            found = chr(min(_FIRST + len(self._found), _LAST))
            self._found.append(unknown)
            self._known[unknown] = found
        return found

    def of(self, text: str) -> Iterator[Unknown]:
        """The unknown values in `text`, in order."""
        for match in MARKS.finditer(text):
            index = ord(match.group()) - _FIRST
            if index < len(self._found):
                yield self._found[index]

    def first(self, text: str) -> Unknown | None:
        """The first unknown value in `text`."""
        return next(self.of(text), None)

    def shown(self, text: str) -> str:
        """`text` for a reader: each unknown as <name>, an absolute path as /<name>."""

        def one(match: re.Match[str]) -> str:
            unknown = self.first(match.group())
            if unknown is None:
                return match.group()
            name = unknown.name.removeprefix("$")
            return f"/<{name}>" if unknown.absolute else f"<{name}>"

        return MARKS.sub(one, text)


def has_unknown(text: str) -> bool:
    """Whether `text` holds a value that is not known."""
    return MARKS.search(text) is not None
