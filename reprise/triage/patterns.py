"""The patterns: TOML files that name what lines of a log mean."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.triage.model import Role

__all__ = ["Category", "Library", "Pattern", "load_library", "shipped_files"]

HERE = Path(__file__).resolve().parent
CATEGORIES = HERE / "categories.toml"
_SHORTEST_LITERAL = 4
_KEYS = {
    *("id", "role", "category", "literals", "match", "explanation", "advice", "source"),
    *("positive", "negative", "frame", "needs", "explains", "priority", "promote", "any_level"),
    "suppresses",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line. `file` and `number` say where it is written.

    `match` is searched in a line's text behind its prefixes; named groups become facts. `frame`,
    where given, must be found in the traceback that ends with the line. A root whose `needs` names
    patterns counts only when one of them was seen, too. `explains` lists the categories that a
    cascade or a confirmation belongs to (empty: any). A confirmation with `promote` is the root
    where nothing else is; noise that `suppresses` also covers the traceback right below it.
    """

    id: str
    role: Role
    category: str
    literals: tuple[str, ...]
    match: re.Pattern[str]
    explanation: str
    advice: tuple[str, ...]
    source: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    file: str
    frame: re.Pattern[str] | None = None
    needs: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    priority: int = 0
    promote: bool = False
    any_level: bool = False
    suppresses: bool = False


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of failure: its title, what to change (per phase), whether a retry can help.

    `retry` is again (the same may pass), exclude_host (a host is bad) or never (it would repeat).
    """

    name: str
    title: str
    retry: str
    advice: tuple[str, ...]
    phases: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Library:
    """All patterns in the order in which they are tried, and the categories by name."""

    patterns: tuple[Pattern, ...]
    categories: Mapping[str, Category]

    def category(self, name: str) -> Category:
        """The category `name`; one that only a site's file knows has no advice of its own."""
        return self.categories.get(name) or Category(name, name.replace("_", " "), "again", (), {})

    def pattern(self, name: str) -> Pattern | None:
        """The pattern with the id `name`, or None."""
        return next((item for item in self.patterns if item.id == name), None)

    def first(self, text: str) -> Pattern | None:
        """The first pattern that a line is an example of by itself, outside a traceback."""
        return next(
            (
                item
                for item in self.patterns
                if item.frame is None
                and any(literal in text for literal in item.literals)
                and item.match.search(text)
            ),
            None,
        )


def shipped_files() -> list[Path]:
    """The pattern files that come with the package, in the order of their names."""
    return sorted((HERE / "patterns").glob("*.toml"))


def load_library(extra: Sequence[Path] = ()) -> Library:
    """The shipped patterns and those of `extra`, which come first and may replace by id.

    Raises OperatorError that lists every fault of a file in one pass.
    """
    own = [pattern for path in extra for pattern in _load(path)]
    names = {pattern.id for pattern in own}
    shipped = [pattern for pattern in _shipped() if pattern.id not in names]
    # Noise first: a line that is known to mean nothing is not looked at again.
    order = sorted(own, key=_rank) + sorted(shipped, key=_rank)
    _check_needs(order, extra)
    return Library(tuple(sorted(order, key=_noise_last)), _categories())


def _rank(pattern: Pattern) -> int:
    return -pattern.priority


def _noise_last(pattern: Pattern) -> tuple[int, int]:
    return (0 if pattern.role is Role.NOISE else 1, -pattern.priority)


@cache
def _shipped() -> tuple[Pattern, ...]:
    return tuple(pattern for path in shipped_files() for pattern in _load(path))


@cache
def _categories() -> Mapping[str, Category]:
    raw = tomllib.loads(CATEGORIES.read_text(encoding="utf-8"))
    return {
        name: Category(
            name,
            value["title"],
            value["retry"],
            tuple(value.get("advice", ())),
            {phase: tuple(lines) for phase, lines in value.get("phase", {}).items()},
        )
        for name, value in raw.items()
    }


def _load(path: Path) -> list[Pattern]:
    """The patterns of one file."""
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OperatorError(
            "triage-patterns",
            str(path),
            f"expected a TOML file of patterns, found: {error}",
            "name a readable file with [[pattern]] tables (docs/triage.md shows one)",
        ) from None
    raw = value.get("pattern")
    faults: list[str] = []
    patterns: list[Pattern] = []
    if not isinstance(raw, list) or set(value) != {"pattern"}:
        faults.append(f"expected only [[pattern]] tables, found {', '.join(value) or 'nothing'}")
        raw = []
    for number, item in enumerate(raw, start=1):
        name = str(item.get("id", "")) or f"pattern {number}"
        problems = _faults(item)
        if name in {pattern.id for pattern in patterns}:
            problems.append("the id is used twice")
        if problems:
            faults.append(f"{name}: {'; '.join(problems)}")
        else:
            patterns.append(_pattern(item, path))
    if faults:
        raise OperatorError(
            "triage-patterns",
            str(path),
            "\n".join(faults),
            f"correct {path}; docs/triage.md lists the keys of a pattern",
        )
    return patterns


def _faults(item: Mapping[str, Any]) -> list[str]:
    """What is wrong with one table."""
    found = [f"unknown key {key}" for key in sorted(set(item) - _KEYS)]
    texts = ("id", "role", "category", "match", "explanation", "source")
    lists = ("literals", "positive", "negative")
    found += [
        f"{key} is missing" for key in (*texts, *lists) if not item.get(key) and key != "category"
    ]
    found += [f"{key} is not a text" for key in texts if not isinstance(item.get(key, ""), str)]
    for key in (*lists, "advice", "needs", "explains"):
        value = item.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            found.append(f"{key} is not a list of texts")
    if item.get("role") not in set(Role):
        found.append(f"role {item.get('role')!r} is not one of {', '.join(Role)}")
    elif item["role"] in {Role.ROOT, Role.CASCADE} and not item.get("category"):
        found.append("category is missing")
    for key in ("match", "frame"):
        try:
            re.compile(str(item.get(key, "")))
        except re.error as error:
            found.append(f"{key} is not a regular expression: {error}")
    short = [text for text in item.get("literals", []) if len(str(text)) < _SHORTEST_LITERAL]
    if short:
        found.append(f"literals shorter than {_SHORTEST_LITERAL} characters: {', '.join(short)}")
    return found


def _pattern(item: Mapping[str, Any], path: Path) -> Pattern:
    return Pattern(
        id=item["id"],
        role=Role(item["role"]),
        category=item.get("category", ""),
        literals=tuple(item["literals"]),
        match=re.compile(item["match"]),
        explanation=item["explanation"],
        advice=tuple(item.get("advice", ())),
        source=item["source"],
        positive=tuple(item["positive"]),
        negative=tuple(item["negative"]),
        file=str(path),
        frame=re.compile(item["frame"]) if item.get("frame") else None,
        needs=tuple(item.get("needs", ())),
        explains=tuple(item.get("explains", ())),
        priority=int(item.get("priority", 0)),
        promote=bool(item.get("promote", False)),
        any_level=bool(item.get("any_level", False)),
        suppresses=bool(item.get("suppresses", False)),
    )


def _check_needs(patterns: Sequence[Pattern], extra: Sequence[Path]) -> None:
    """Every name in `needs` must be a pattern's id."""
    names = {pattern.id for pattern in patterns}
    wrong = [
        f"{item.id} needs {name}" for item in patterns for name in item.needs if name not in names
    ]
    if wrong:
        raise OperatorError(
            "triage-patterns",
            ", ".join(map(str, extra)) or str(HERE),
            f"no pattern has the id that is named: {'; '.join(wrong)}",
            "name the id of a pattern in this file or of a shipped one",
        )
