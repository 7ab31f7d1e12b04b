"""printf's formats."""

from __future__ import annotations

import re
import shlex

from reprise.recipe.bash.grammar.lexer import _DOLLAR_ESCAPE, _unescaped
from reprise.recipe.bash.unknown import has_unknown

__all__ = ["formatted"]

_SPEC = re.compile(r"%(?:(%)|([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?([a-zA-Z]))")
_ROUNDS = 20_000
_WIDEST = 10_000


def formatted(text: str, arguments: list[str]) -> str | None:
    """What `printf text arguments…` prints; None where that is not known."""
    text = _DOLLAR_ESCAPE.sub(_unescaped, text)
    wants = any(match.group(1) is None for match in _SPEC.finditer(text))
    made, rest = list[str](), list(arguments)
    for _ in range(_ROUNDS):
        at = 0
        for match in _SPEC.finditer(text):
            made.append(text[at : match.start()])
            at = match.end()
            one = "%" if match.group(1) else _one(match, rest)
            if one is None:
                return None
            made.append(one)
        made.append(text[at:])
        if not rest or not wants:
            break
    return "".join(made)


def _one(match: re.Match[str], rest: list[str]) -> str | None:
    _, flags, width, precision, kind = match.groups()
    if "*" in (width, precision) or any(int(size or 0) > _WIDEST for size in (width, precision)):
        return None
    value = rest.pop(0) if rest else ""
    if kind in "sbq":
        value = _DOLLAR_ESCAPE.sub(_unescaped, value) if kind == "b" else value
        value = shlex.quote(value) if kind == "q" and not has_unknown(value) else value
        if width and has_unknown(value):
            return None
        value = value[: int(precision)] if precision else value
        size = int(width or 0)
        return value.ljust(size) if "-" in flags else value.rjust(size)
    if has_unknown(value):
        return value if not width else None
    return _number(kind, flags, width or "", precision, value)


def _number(kind: str, flags: str, width: str, precision: str | None, value: str) -> str | None:
    if kind == "c":
        return value[:1]
    try:
        number = float(value or 0) if kind in "eEfgG" else int(value or "0", 0)
    except ValueError:
        return "0" if kind in "di" else None
    if kind not in "diouxXeEfgG":
        return None
    dot = f".{precision}" if precision else ""
    return f"%{flags}{width}{dot}{'d' if kind == 'i' else kind}" % number
