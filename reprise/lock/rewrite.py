"""Change some values of one entry of versions.lock and leave every other byte as it is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import tomlkit

from reprise.core.errors import OperatorError
from reprise.lock.lines import locate, split_lines

__all__ = ["Value", "rewrite"]

Value = str | int | list[str] | None


def rewrite(text: str, table: tuple[str, ...], changes: Mapping[str, Value]) -> str:
    """`text` with the keys of `[table]` set to new values; None removes a key.

    Only the lines of those keys change: their comments and spacing stay, a new key goes below the
    table's last one. Raises OperatorError when the table is not written as a table of its own.
    """
    for key, value in changes.items():
        text = _set(text, table, key, value)
    return text


def _set(text: str, table: tuple[str, ...], key: str, value: Value) -> str:
    where = locate(text)
    lines = split_lines(text)
    if table not in where:
        fix = f"write it as [{'.'.join(table)}], or change it by hand"
        message = f"{'.'.join(table)} is not written as a table of its own"
        raise OperatorError("lock-form", ".".join(table), message, fix)
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
    """The lines of one key with another value; what stands before and after it stays."""
    document = tomlkit.parse(span)
    document[key] = value
    return tomlkit.dumps(document)
