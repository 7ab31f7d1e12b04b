"""Hydra override lines: the place of each, and its faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from reprise.core.errors import OperatorError
from reprise.core.rules import render, rule_id
from reprise.recipe.unknowns import NotKnown, revealed

__all__ = ["Fault", "Line", "fault", "nearest", "parse", "paths", "read_lines"]


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
    """A fault of one override line; `fatal`: Hydra refuses the line or ignores it."""

    rule: str
    line: Line
    message: str
    fix: str
    fatal: bool = True


def fault(name: str, line: Line, /, *, fatal: bool = True, **values: object) -> Fault:
    """A fault of `line` with the text `name` of the registry, filled with `values`."""
    return Fault(rule_id(name), line, *render(name, values), fatal)


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


# KEY=VALUE with a whole number, a boolean or a word: most lines, and the parser takes half a
# millisecond for each.
_SIMPLE = re.compile(
    r"(\+\+|\+|)([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(-?[1-9]\d*|0|[A-Za-z_]\w*)", re.A
)
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_TYPES = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD}


def _simple(text: str) -> Override | None:
    """An override of the simplest form as Hydra's parser has it; None for any other form."""
    match = _SIMPLE.fullmatch(text)
    if match is None:
        return None
    plus, key, value = match.groups()
    made: object = value
    if value[-1].isdigit() and not (value[0].isalpha() or value[0] == "_"):
        made = int(value)
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


def paths(config: DictConfig) -> Iterator[str]:
    """Every dotted path of the config, nodes and leaves, in order."""

    def walk(node: object, prefix: str) -> Iterator[str]:
        if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
            return
        for name in node:
            key = name if isinstance(name, str) else repr(name)
            yield f"{prefix}{key}"
            if not OmegaConf.is_interpolation(node, key) and not OmegaConf.is_missing(node, key):
                yield from walk(node[name], f"{prefix}{key}.")

    yield from walk(config, "")


def nearest(key: str, config: DictConfig) -> list[str]:
    """Up to three existing keys that are close to a wrong `key`, the most likely first.

    Siblings under the longest existing parent come first, then the same last part elsewhere.
    """
    known = list(paths(config))
    parts = key.split(".")
    found: list[str] = []
    for depth in range(len(parts) - 1, 0, -1):
        parent = ".".join(parts[:depth]) + "."
        here = {path.removeprefix(parent): path for path in known if path.startswith(parent)}
        if here:
            rest = ".".join(parts[depth:])
            found += [here[name] for name in difflib.get_close_matches(rest, here, n=3, cutoff=0.7)]
            break
    found += [path for path in known if path.rsplit(".", 1)[-1] == parts[-1] and path != key]
    found += difflib.get_close_matches(key, known, n=2, cutoff=0.85)
    return list(dict.fromkeys(found))[:3]
