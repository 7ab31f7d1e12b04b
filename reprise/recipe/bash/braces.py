"""Brace expansion: {a,b} and {1..9..2}, before every other expansion."""

from __future__ import annotations

import re
from itertools import islice

from reprise.recipe.bash.grammar.lexer import literal
from reprise.recipe.bash.grammar.syntax import Lit, Part
from reprise.recipe.bash.run import TooMuch

__all__ = ["braced"]

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")
_MOST = 20_000
_Items = list[str | Part]


def braced(parts: list[Part]) -> list[list[Part]]:
    """The words that braces make of one word: that word alone where there are none."""
    if not any(isinstance(p, Lit) and not p.quoted and "{" in p.text for p in parts):
        return [parts]
    items: _Items = []
    for part in parts:
        if isinstance(part, Lit) and not part.quoted:
            items += part.text
        else:
            items.append(part)
    return [_parts(one) for one in _expanded(items)]


def _parts(items: _Items) -> list[Part]:
    made: list[Part] = []
    for item in items:
        if isinstance(item, str):
            literal(made, item, False)
        elif isinstance(item, Lit):
            literal(made, item.text, item.quoted, empty=True)
        else:
            made.append(item)
    return made


def _expanded(items: _Items) -> list[_Items]:
    for start, item in enumerate(items):
        if item != "{":
            continue
        found = _alternatives(items, start)
        if found is None:
            continue
        alternatives, end = found
        head, tails = items[:start], _expanded(items[end + 1 :])
        made = (
            [*head, *middle, *tail]
            for alternative in alternatives
            for middle in _expanded(alternative)
            for tail in tails
        )
        words = list(islice(made, _MOST + 1))
        if len(words) > _MOST:
            raise TooMuch
        return words
    return [items]


def _alternatives(items: _Items, start: int) -> tuple[list[_Items], int] | None:
    depth, pieces = 0, list[_Items]([[]])
    for at in range(start, len(items)):
        item = items[at]
        if item == "{":
            depth += 1
            if depth == 1:
                continue
        elif item == "}":
            depth -= 1
            if depth == 0:
                if len(pieces) > 1:
                    return pieces, at
                made = _range(pieces[0])
                return (made, at) if made else None
        elif item == "," and depth == 1:
            pieces.append([])
            continue
        pieces[-1].append(item)
    return None


def _range(items: _Items) -> list[_Items] | None:
    if not all(isinstance(item, str) for item in items):
        return None
    text = "".join(str(item) for item in items)
    match = _RANGE.fullmatch(text)
    if match:
        first, last = int(match.group(1)), int(match.group(2))
        digits = [one.lstrip("-") for one in match.groups()[:2]]
        padded = any(len(one) > 1 and one[0] == "0" for one in digits)
        width = max(len(one) for one in match.groups()[:2]) if padded else 0
        return [[*f"{n:0{width}d}"] for n in _steps(first, last, match.group(3))]
    match = _LETTERS.fullmatch(text)
    if match:
        first, last = ord(match.group(1)), ord(match.group(2))
        return [[chr(n)] for n in _steps(first, last, match.group(3))]
    return None


def _steps(first: int, last: int, step: str | None) -> range:
    size = abs(int(step)) if step and int(step) else 1
    end = first + (_MOST if last > first else -_MOST) * size
    if last >= first:
        return range(first, min(last, end) + 1, size)
    return range(first, max(last, end) - 1, -size)
