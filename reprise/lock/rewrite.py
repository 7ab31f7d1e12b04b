"""Change some values of one entry of versions.lock and leave every other byte as it is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import tomlkit

from reprise.core.errors import OperatorError
from reprise.lock.lines import locate, split_lines

__all__ = ["Value", "add_entry", "rewrite"]

Value = str | int | list[str] | None
_ABSENT: tuple[Value, ...] = ("", [])


def rewrite(text: str, table: tuple[str, ...], changes: Mapping[str, Value]) -> str:
    """`text` with the keys of `[table]` set to new values; None removes a key.

    Only the lines of those keys change: their comments and spacing stay, a new key goes below the
    table's last one. Raises OperatorError when the table is not a table with its own header.
    """
    for key, value in changes.items():
        text = _set(text, table, key, value)
    return text


def add_entry(
    text: str,
    table: tuple[str, str],
    values: Mapping[str, Value],
    below: Mapping[str, Mapping[str, str]],
) -> str:
    """`text` with a new entry `[kind.name]` after the last one of its kind, else at the end.

    `below` are tables of the entry, by name. Keys without a value (None, "" and empty lists) are
    left out. No other byte changes. Raises OperatorError when the entry exists.
    """
    where = locate(text)
    if any(path[:2] == table for path in where):
        name = ".".join(table)
        raise OperatorError("lock-add.exists", name, name=name)
    lines = split_lines(text)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    ends = [_end(lines, at - 1) for path, at in where.items() if path[0] == table[0]]
    at = max(ends, default=len(lines))
    block = [f"[{table[0]}.{table[1]}]"]
    for key, value in values.items():
        if value is not None and value not in _ABSENT:
            block.append(f"{key} = {_shown(value)}")
    for name, inner in below.items():
        if inner:
            block += ["", f"[{table[0]}.{table[1]}.{name}]"]
            block += [f"{_shown(key)} = {_shown(value)}" for key, value in inner.items()]
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += ending
    return "".join([*lines[:at], *(f"{line}{ending}" for line in ("", *block)), *lines[at:]])


def _set(text: str, table: tuple[str, ...], key: str, value: Value) -> str:
    where = locate(text)
    lines = split_lines(text)
    if table not in where:
        name = ".".join(table)
        raise OperatorError("lock-form.no-table", name, table=name)
    ending = "\r\n" if lines[where[table] - 1].endswith("\r\n") else "\n"
    number = where.get((*table, key))
    if number is not None:
        start, end = number - 1, _end(lines, number - 1)
        new = "" if value is None else _replaced("".join(lines[start:end]), key, value)
        return "".join([*lines[:start], new, *lines[end:]])
    if value is None:
        return text
    last = max(
        [where[table]]
        + [_end(lines, at - 1) for path, at in where.items() if path[:-1] == table
           and not lines[at - 1].lstrip().startswith("[")]
    )  # fmt: skip
    if not lines[last - 1].endswith("\n"):
        lines[last - 1] += ending
    return "".join([*lines[:last], f"{key} = {_shown(value)}{ending}", *lines[last:]])


def _end(lines: list[str], start: int) -> int:
    """The index after the last line of the value that begins on line `start`."""
    for end in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return start + 1


def _shown(value: str | int | list[str]) -> str:
    return tomlkit.item(value).as_string()


def _replaced(span: str, key: str, value: str | int | list[str]) -> str:
    """The lines of one key with another value; the text before and after it stays."""
    document = tomlkit.parse(span)
    document[key] = value
    return tomlkit.dumps(document)
