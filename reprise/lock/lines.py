"""The line of a table or key in versions.lock, so that a finding can name the line."""

from __future__ import annotations

import re

__all__ = ["line_of", "locate", "split_lines"]

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"^\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:#[^\n]*)?$")
_KEY = re.compile(rf"^\s*({_DOTTED})\s*=")
_PARTS = re.compile(_PART)

Lines = dict[tuple[str, ...], int]


def split_lines(text: str) -> list[str]:
    """The lines of `text` with their ends. TOML's lines end at a line feed and nowhere else."""
    return re.findall(r"[^\n]*\n|[^\n]+$", text)


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PARTS.findall(dotted))


def locate(text: str) -> Lines:
    """The 1-based line of each table header and key, by its full dotted path.

    The text need not be valid TOML: lines that are neither header nor key are skipped, also those
    inside a multi-line string. The first of two equal paths wins.
    """
    lines: Lines = {}
    table: tuple[str, ...] = ()
    closing = ""
    for number, line in enumerate(split_lines(text), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if header := _TABLE.match(line):
            table = _split(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(table + _split(key[1]), number)
            closing = _opened(line[key.end() :])
    return lines


def _opened(value: str) -> str:
    """The quotes that a multi-line string opened in `value` and did not close there, or ''."""
    for quotes in ('"""', "'''"):
        if value.lstrip().startswith(quotes) and value.count(quotes) == 1:
            return quotes
    return ""


def line_of(lines: Lines, path: tuple[str, ...]) -> int:
    """The line of `path`, or of the first below it, else of the nearest table around it, else 1."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
        # A table that is there only as the beginning of others: `[a.b]` alone also makes `a`.
        below = [line for key, line in lines.items() if key[:length] == path[:length]]
        if below:
            return min(below)
    return 1
