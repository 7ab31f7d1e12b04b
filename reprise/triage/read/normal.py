"""Texts without what changes from rank to rank and from run to run."""

from __future__ import annotations

import re

__all__ = ["clean", "normalise"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\[\d{1,2}(?:;\d{1,2})*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_REPEATED = re.compile(r"\s*\[repeated (\d+)x across cluster\].*$")
_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<addr>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<ip>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T_]\d\d[:-]\d\d[:-]\d\d(?:[.,]\d+)?Z?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "#"),
    (re.compile(r"\s+"), " "),
)


def clean(text: str) -> str:
    """`text` without colours and control characters (tabs stay)."""
    if "\x1b" in text or "[3" in text or "[0m" in text:
        text = _ANSI.sub("", text)
    return text if text.isprintable() else _CONTROL.sub("", text)


def normalise(text: str) -> tuple[str, int]:
    """`text` with its volatile tokens replaced, and how many lines it stands for.

    Ray folds equal lines of many workers into one that ends in "[repeated 14x across cluster]".
    """
    count = 1
    if match := _REPEATED.search(text):
        count += int(match.group(1))
        text = text[: match.start()]
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text.strip()[:300], count
