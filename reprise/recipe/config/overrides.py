"""Hydra override lines: the place of each, and its faults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import HydraException

from reprise.core.errors import OperatorError
from reprise.core.rules import render, rule_id
from reprise.recipe.unknowns import NotKnown, revealed

__all__ = ["Fault", "Line", "fault", "parse", "read_lines"]


@dataclass(frozen=True, slots=True)
class Line:
    """One override and the operator's own place of it (`run.sh:57`, `command line`).

    `unknowns` are its parts that are not known, by the placeholder in `text`.
    """

    text: str
    where: str = "command line"
    unknowns: tuple[tuple[str, NotKnown], ...] = ()

    @property
    def shown(self) -> str:
        """The text for a reader: what is not known as <name>."""
        return revealed(self.text, dict(self.unknowns)) if self.unknowns else self.text


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one override line; `fatal`: Hydra refuses the line or ignores it.

    `meant` are the keys that a wrong key may have meant.
    """

    rule: str
    line: Line
    message: str
    fix: str
    fatal: bool = True
    meant: tuple[str, ...] = ()


def fault(
    name: str, line: Line, /, *, fatal: bool = True, meant: Sequence[str] = (), **values: object
) -> Fault:
    """A fault of `line` with the text `name` of the registry, filled with `values`."""
    return Fault(rule_id(name), line, *render(name, values), fatal, tuple(meant))


@cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


def read_lines(path: Path) -> list[Line]:
    """The overrides of a file, one per line, without blank lines and comments (#).

    Raises OperatorError when the file cannot be read as text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError("recipe-override-file.not-readable", str(path), reason=error) from error
    rows = ((number, row.strip()) for number, row in enumerate(text.splitlines(), 1))
    return [Line(row, f"{path}:{number}") for number, row in rows if row and row[0] != "#"]


# KEY=VALUE with a number, a boolean, a word or a path: most lines, and the parser takes half a
# millisecond for each.
_SIMPLE = re.compile(
    r"(\+\+|\+|)([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)="
    r"(-?[1-9]\d*|0|[A-Za-z_]\w*|-?(?:0|[1-9]\d*)\.\d+|[1-9]\d*(?:\.\d+)?e-?\d+"
    r"|(?=[\w.-]*/)[A-Za-z_/][\w.\-/]*)",
    re.A,
)
_NUMBER = re.compile(r"-?\d+")
_FRACTION = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_TYPES = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD}


def _simple(text: str) -> Override | None:
    """An override of the simplest form as Hydra's parser has it; None for any other form."""
    match = _SIMPLE.fullmatch(text)
    if match is None:
        return None
    plus, key, value = match.groups()
    made: object = value
    if _NUMBER.fullmatch(value):
        made = int(value)
    elif _FRACTION.fullmatch(value):
        made = float(value)
    elif value.lower() in ("nan", "inf"):
        return None
    else:
        made = _WORDS.get(value.lower(), value)
    return Override(
        type=_TYPES[plus],
        key_or_group=key,
        value_type=ValueType.ELEMENT,
        _value=made,  # type: ignore[arg-type]
        input_line=text,
    )


def parse(line: Line) -> Override | Fault:
    """The override in Hydra's grammar, or what is wrong with its text."""
    simple = _simple(line.text)
    if simple is not None:
        return simple
    try:
        override = _parser().parse_override(line.text)
    except HydraException as error:
        return _syntax_fault(line, _first(str(error)))
    if override.is_sweep_override():
        return fault("recipe-override-syntax.sweep", line, quoted=_quoted(line.text))
    return override


def _syntax_fault(line: Line, reason: str) -> Fault:
    key, equals, value = line.text.partition("=")
    if not equals:
        return fault("recipe-override-syntax.no-value", line, reason=reason, text=line.text)
    if value.startswith("~/"):
        path = f"{key}=$HOME{value[1:]}"
        return fault("recipe-override-syntax.tilde", line, reason=reason, path=path)
    if value.startswith(("'", '"')):
        return fault("recipe-override-syntax.open-quote", line, reason=reason, setting=key)
    return fault("recipe-override-syntax.unquoted", line, reason=reason, quoted=_quoted(line.text))


def _first(text: str) -> str:
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return rows[0] if rows else text


def _quoted(text: str) -> str:
    """The override as a shell argument with its value quoted for Hydra."""
    key, _, value = text.partition("=")
    return f"\"{key}='{value}'\""
