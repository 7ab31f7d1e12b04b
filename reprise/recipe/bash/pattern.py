"""Patterns of bash (globs) as regular expressions, and what ${…} does with them."""

from __future__ import annotations

import re

__all__ = ["expression", "is_pattern", "matches", "remove", "replace", "with_case"]

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9a-fA-F",
    "word": r"\w",
}  # fmt: skip


def expression(pieces: list[tuple[str, bool]]) -> str:
    """The regular expression of a pattern, given as pieces of (text, quoted)."""
    return _translated([(char, quoted) for text, quoted in pieces for char in text])


def _translated(flat: list[tuple[str, bool]]) -> str:
    made, at = list[str](), 0
    while at < len(flat):
        char, quoted = flat[at]
        if quoted:
            made.append(re.escape(char))
        elif char in "?*+@!" and (end := _group(flat, at + 1)):
            made.append(_alternatives(char, flat[at + 2 : end]))
            at = end
        elif char == "*":
            made.append(".*")
        elif char == "?":
            made.append(".")
        elif char == "[" and (end := _bracket(flat, at)):
            made.append(_set("".join(one for one, _ in flat[at + 1 : end])))
            at = end
        else:
            made.append(re.escape(char))
        at += 1
    return "".join(made)


def _group(flat: list[tuple[str, bool]], start: int) -> int | None:
    """The position of the ) that closes an unquoted ( at `start`."""
    depth = 0
    for at in range(start, len(flat)):
        char, quoted = flat[at]
        if not quoted:
            depth += (char == "(") - (char == ")")
        if depth == 0:
            return at if at > start else None
    return None


def _alternatives(kind: str, flat: list[tuple[str, bool]]) -> str:
    """?(a|b), *(a|b), +(a|b), @(a|b), !(a|b)."""
    branches: list[list[tuple[str, bool]]] = [[]]
    depth = 0
    for char, quoted in flat:
        depth += 0 if quoted else (char == "(") - (char == ")")
        if char == "|" and not quoted and depth == 0:
            branches.append([])
        else:
            branches[-1].append((char, quoted))
    inner = "|".join(_translated(branch) for branch in branches)
    if kind == "!":
        return f"(?!(?:{inner})\\Z).*"
    return f"(?:{inner}){'' if kind == '@' else kind}"


def _bracket(flat: list[tuple[str, bool]], start: int) -> int | None:
    """The position of the ] that closes the [ at `start`."""
    at = start + 1
    if at < len(flat) and flat[at][0] in "!^":
        at += 1
    if at < len(flat) and flat[at][0] == "]":
        at += 1
    while at < len(flat):
        if flat[at][0] == "[" and at + 1 < len(flat) and flat[at + 1][0] == ":":
            rest = "".join(char for char, _ in flat[at:])
            end = rest.find(":]")
            if end > 0:
                at += end + 2
                continue
        if flat[at][0] == "]":
            return at
        at += 1
    return None


def _set(text: str) -> str:
    negated = text[:1] in ("!", "^")
    body = text[1:] if negated else text
    body = body.replace("\\", "\\\\")
    body = re.sub(r"\[:(\w+):\]", lambda m: _CLASSES.get(m.group(1), ""), body)
    body = re.sub(r"(?<!\\)([\[\]^&~|])", r"\\\1", body) if ":]" not in text else body
    return f"[{'^' if negated else ''}{body}]"


def is_pattern(pieces: list[tuple[str, bool]]) -> bool:
    """Whether any unquoted character of the pieces matches more than itself."""
    return any(not quoted and re.search(r"[*?\[]", text) for text, quoted in pieces)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.S)
    except re.error:
        return re.compile(r"(?!)")


def matches(text: str, pieces: list[tuple[str, bool]]) -> bool:
    """Whether the whole of `text` matches."""
    return _compiled(expression(pieces)).fullmatch(text) is not None


def remove(text: str, pieces: list[tuple[str, bool]], operator: str) -> str:
    """${text#pattern}, ##, %, %%."""
    found = _compiled(expression(pieces))
    size = len(text)
    lengths = range(size + 1) if len(operator) == 1 else range(size, -1, -1)
    for length in lengths:
        if operator[0] == "#" and found.fullmatch(text, 0, length):
            return text[length:]
        if operator[0] == "%" and found.fullmatch(text, size - length):
            return text[: size - length]
    return text


def replace(text: str, pieces: list[tuple[str, bool]], new: str, operator: str) -> str:
    """${text/pattern/new}, //, /#, /%."""
    source = expression(pieces)
    if not source:
        return text
    anchored = {"/#": f"\\A(?:{source})", "/%": f"(?:{source})\\Z"}.get(operator, source)
    count = 0 if operator == "//" else 1
    found = _compiled(anchored)
    if operator in ("/", "//"):
        # bash passes over an empty match.
        return found.sub(lambda match: new if match.group() else "", text, count=count)
    return found.sub(lambda _: new, text, count=count)


def with_case(text: str, pieces: list[tuple[str, bool]] | None, operator: str) -> str:
    """${text^}, ^^, ",", ",,": only characters that match the pattern change."""
    found = _compiled(expression(pieces)) if pieces else None
    change = str.upper if operator[0] == "^" else str.lower
    limit = len(text) if len(operator) == 2 else 1
    return "".join(
        change(char) if at < limit and (found is None or found.fullmatch(char)) else char
        for at, char in enumerate(text)
    )
