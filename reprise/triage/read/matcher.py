"""All patterns' literals found in one pass over a block of bytes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from reprise.triage.model import Role
from reprise.triage.patterns import Pattern

hyperscan: Any = None
with contextlib.suppress(ImportError):
    # A machine that takes its packages from a site tree may lack it: then each literal is looked
    # for by itself, which is slower and finds the same.
    import hyperscan

__all__ = ["ABOVE", "BARE", "FRAME", "HEADER", "STEP", "Matcher"]

# What a log's structure is read from, in the numbers below the literals'.
HEADER, FRAME, STEP, BARE, ABOVE = range(5)
_STRUCTURE = (
    rb"Traceback \(most recent call last\)",
    rb'", line [0-9]+, in ',
    rb"step:[0-9]+ - ",
    rb"(?:Error|Exception): ",
    rb"above exception",
)


class Matcher:
    """Where literals are, as (end offset, numbers): 0-4 for the structure, then the literals."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        literals: dict[str, list[int]] = {}
        for index, pattern in enumerate(patterns):
            if pattern.role is Role.NOISE and not pattern.suppresses:
                # Noise alone is nothing; it is asked for where another pattern matched.
                continue
            for text in pattern.literals:
                literals.setdefault(text, []).append(index)
        self._patterns: list[list[int]] = [[] for _ in _STRUCTURE] + list(literals.values())
        expressions = [*_STRUCTURE, *(re.escape(text).encode() for text in literals)]
        self._database: Any = None
        self._alone: list[re.Pattern[bytes]] = []
        if hyperscan is None:
            self._alone = [re.compile(expression) for expression in expressions]
            return
        self._database = hyperscan.Database()
        self._database.compile(
            expressions=expressions,
            ids=list(range(len(expressions))),
            elements=len(expressions),
            flags=[0] * len(expressions),
        )

    def patterns_of(self, numbers: Iterable[int]) -> list[int]:
        """The indexes of the patterns that own one of the literals, in their order."""
        return sorted({index for number in numbers for index in self._patterns[number]})

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """(end offset, number) of every literal in `block`, by offset."""
        found: list[tuple[int, int]] = []
        if self._database is None:
            for number, pattern in enumerate(self._alone):
                found += [(match.end(), number) for match in pattern.finditer(block)]
            return sorted(found)

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            found.append((end, number))

        self._database.scan(block, match_event_handler=on_match)
        # Not every expression reports in order of its end.
        found.sort()
        return found
