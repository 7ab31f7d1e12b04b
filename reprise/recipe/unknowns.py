"""Values of a config that nothing at hand fixes: a value of a type of its own, never a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["NotKnown", "Undecided", "ValueUnknown", "filled", "guarded", "placeholder"]

_PLACEHOLDER = re.compile(r"__UNKNOWN_\d+__")


class Undecided(Exception):
    """A rule could not be evaluated; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class NotKnown:
    """A value that is not known.

    `decided_by` names what fixes it (`nvidia-smi -L | wc -l`), `where` its place (run.sh:3),
    `text` the value as far as it is known. `absolute`: it is an absolute path whatever it is.
    `fix` is what to do where --set does not help.
    """

    decided_by: str
    where: str = ""
    text: str = ""
    absolute: bool = False
    fix: str = ""


class ValueUnknown(Undecided):
    """A rule needs a value that is not known; `key` is the setting."""

    def __init__(self, key: str, value: NotKnown) -> None:
        place = f" ({value.where})" if value.where else ""
        super().__init__(f"{key} is set by {value.decided_by}{place}")
        self.key = key
        self.value = value


def placeholder(number: int) -> str:
    """What an unknown value is called while Hydra composes."""
    return f"__UNKNOWN_{number}__"


def revealed(text: str, table: Mapping[str, NotKnown]) -> str:
    """A text for a reader: each placeholder as <what decides it>."""

    def one(match: re.Match[str]) -> str:
        known = table.get(match.group())
        if known is None:
            return match.group()
        name = known.decided_by.strip("`").removeprefix("$")
        return f"/<{name}>" if known.absolute else f"<{name}>"

    return _PLACEHOLDER.sub(one, text)


def filled(node: Any, table: Mapping[str, NotKnown]) -> Any:
    """A resolved config with its placeholders replaced.

    A path whose beginning is known stays text, with <name> for what is not (`/<HOME>/data`);
    any other text with a placeholder, and a list with an unknown element, become NotKnown.
    """
    if not table:
        return node
    if isinstance(node, Mapping):
        return {str(filled_key(key, table)): filled(value, table) for key, value in node.items()}
    if isinstance(node, list):
        values = [filled(value, table) for value in node]
        return next((value for value in values if isinstance(value, NotKnown)), values)
    return _filled_text(node, table) if isinstance(node, str) else node


def _filled_text(node: str, table: Mapping[str, NotKnown]) -> str | NotKnown:
    names = _PLACEHOLDER.findall(node)
    known = next((table[name] for name in names if name in table), None)
    if known is None:
        return node
    text = revealed(node, table)
    if text.startswith("/") or "://" in text.partition("<")[0]:
        return text
    return NotKnown(known.decided_by, known.where, text)


def filled_key(key: Any, table: Mapping[str, NotKnown]) -> Any:
    """A key of a config for a reader."""
    return revealed(key, table) if isinstance(key, str) else key


class _Guarded(dict[str, Any]):
    """A mapping of a config: reading an unknown value raises ValueUnknown."""

    path = ""

    def __getitem__(self, key: str) -> Any:
        return self._checked(key, super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        return self._checked(key, super().get(key, default))

    def _checked(self, key: str, value: Any) -> Any:
        if isinstance(value, NotKnown):
            raise ValueUnknown(f"{self.path}{key}", value)
        return value


def guarded(node: Any, path: str = "") -> Any:
    """`node` with mappings that refuse to hand out an unknown value."""
    if isinstance(node, Mapping):
        made = _Guarded({key: guarded(value, f"{path}{key}.") for key, value in node.items()})
        made.path = path
        return made
    return node


def any_unknown(node: Any) -> bool:
    """Whether a config has an unknown value."""
    if isinstance(node, Mapping):
        return any(any_unknown(value) for value in node.values())
    if isinstance(node, Sequence) and not isinstance(node, str):
        return any(any_unknown(value) for value in node)
    return isinstance(node, NotKnown)
