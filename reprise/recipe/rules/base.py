"""What a rule is: an id, a formula with the numbers put in, findings, and a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reprise.core.findings import Severity
from reprise.core.nearby import meant_word
from reprise.core.rules import is_text_name, render
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.setup import Setup
from reprise.recipe.unknowns import Undecided

__all__ = [
    "Judgement",
    "NotApplicable",
    "Problem",
    "Rule",
    "Source",
    "Undecided",
    "choice",
    "choice_of",
    "divisors",
]


class NotApplicable(Exception):
    """The rule does not apply to this recipe; the text says why."""


@lru_cache(maxsize=1024)
def _line(source: str, text: str) -> int | None:
    """The line of `text` in a source."""
    words = r"\s+".join(re.escape(word) for word in text.split())
    found = re.search(words, source)
    return source.count("\n", 0, found.start()) + 1 if found else None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a rule comes from: a file of verl and the text of the line, or another project.

    The line number is looked up in the tree in use, so it is never stale.
    """

    file: str
    text: str = ""

    def cite(self, tree: VerlTree | None) -> str:
        """`verl/workers/engine_workers.py:258` in `tree`; without the number where it moved."""
        if not self.text:
            return self.file
        line = self.line(tree)
        return f"verl/{self.file}:{line}" if line else f"verl/{self.file}"

    def line(self, tree: VerlTree | None) -> int | None:
        """The line of the text in the tree's file (white space does not count), or None."""
        source = tree.source(self.file) if tree is not None else None
        return None if source is None else _line(source, self.text)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a rule found; `key` is the setting to change."""

    key: str
    message: str
    fix: str
    severity: Severity = Severity.ERROR


@dataclass(slots=True)
class Judgement:
    """The result of one rule on one recipe. `formula` shows the compared numbers."""

    formula: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def show(self, text: str) -> None:
        """Add a line to the formula."""
        self.formula.append(text)

    def error(self, key: str, text: str, fix: str | None = None, /, **values: object) -> None:
        """verl, or an engine below it, would refuse this or silently do something else.

        `text` names a text of the registry, filled with `values`; else it is the message itself.
        """
        self._add(Severity.ERROR, key, text, fix, values)

    def warn(self, key: str, text: str, fix: str | None = None, /, **values: object) -> None:
        """It runs, but most likely not as meant."""
        self._add(Severity.WARNING, key, text, fix, values)

    def note(self, key: str, text: str, fix: str | None = None, /, **values: object) -> None:
        """Worth knowing."""
        self._add(Severity.NOTE, key, text, fix, values)

    def _add(
        self, severity: Severity, key: str, text: str, fix: str | None, values: Mapping[str, object]
    ) -> None:
        if is_text_name(text):
            text, fix = render(text, values)
        self.problems.append(Problem(key, text, fix or "", severity))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the check. `judge` raises NotApplicable or Undecided where it must."""

    id: str
    source: Source
    judge: Callable[[Setup, Judgement], None]

    def of(self, setup: Setup) -> Judgement:
        """The judgement on `setup`."""
        judgement = Judgement()
        self.judge(setup, judgement)
        return judgement


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, in ascending order."""
    return [value for value in range(1, number + 1) if number % value == 0]


def choice(values: Iterable[int], current: int) -> str:
    """The value nearest to `current`, the others after it: `4 (or 1, 2, 8)`; '' without values."""
    ordered = sorted(values, key=lambda value: abs(value - current))
    others = ", ".join(map(str, sorted(ordered[1:])))
    return "".join(map(str, ordered[:1])) + (f" (or {others})" if others else "")


def choice_of(key: str, name: str, known: Sequence[str]) -> str:
    """The fix for an unknown `name`: the known one that it is a slip of, else all of them."""
    meant = meant_word(name, known)
    return f"{key}={meant}" if meant else f"set {key} to one of: {', '.join(known)}"
