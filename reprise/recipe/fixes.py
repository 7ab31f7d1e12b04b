"""Suggested settings, tried before they are printed: what does not pass every rule is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Trial", "checked", "first_settings"]

Trial = Callable[[Mapping[str, str]], int | None]
"""How many problems a recipe with these settings (key to text) has; None where one is new."""

_SETTING = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=('[^']*'|[^\s,()]+)")
_REMOVED = re.compile(r"\(and remove ([A-Za-z_][\w.]*\w)\)")
_OTHERS = re.compile(r" \(or ([^()]*)\)")
_MOST = 6  # values of one setting that are printed
_TRIED = 12  # values of one setting that are tried


@dataclass(frozen=True, slots=True)
class _Way:
    """One of the ways that a fix names: its text, and the settings in it."""

    text: str
    settings: tuple[tuple[str, str], ...]
    removed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def tried(self, trial: Trial) -> str:
        """The text with the values that pass; '' where none does."""
        if not self.settings:
            return self.text
        *first, (key, value) = self.settings
        before = {**dict.fromkeys(self.removed, "null"), **dict(first)}
        values = (value, *self.others)[:_TRIED]
        left = {one: trial({**before, key: one}) for one in values}
        least = min((count for count in left.values() if count is not None), default=None)
        # Of several values those with which the fewest problems are left.
        good = [one for one in values if least is not None and left[one] == least]
        if not good:
            return ""
        if not self.others:
            return self.text
        best, rest = good[0], good[1:_MOST]
        text = _OTHERS.sub("", self.text, count=1)
        text = text.replace(f"{key}={value}", f"{key}={best}", 1)
        return text + (f" (or {', '.join(rest)})" if rest else "")


def checked(fix: str, rule: str, trial: Trial) -> str:
    """`fix` without the settings that do not pass.

    Text without a setting is kept. Where no setting of the fix passes, it names what to read.
    """
    ways = [_way(text) for text in _ways(fix)]
    if not any(way.settings for way in ways):
        return fix
    passed = [text for way in ways if (text := way.tried(trial))]
    settings = [text for text in passed if _SETTING.search(text)]
    if not settings:
        return f"reprise explain {rule} (no single setting is enough here)"
    return ", or ".join(passed)


def _way(text: str) -> _Way:
    outside = re.sub(r"\([^()]*\)", "", text)
    settings = tuple(_SETTING.findall(outside))
    found = _OTHERS.search(text)
    others: Sequence[str] = ()
    if found and settings and re.fullmatch(r"[\w.\-]+(, [\w.\-]+)*", found.group(1)):
        others = found.group(1).split(", ")
    return _Way(text, settings, tuple(_REMOVED.findall(text)), tuple(others))


def first_settings(fix: str) -> dict[str, str]:
    """The settings of the first way that a fix names: key to text."""
    way = _way(_ways(fix)[0])
    return {**dict.fromkeys(way.removed, "null"), **dict(way.settings)}


def _ways(fix: str) -> list[str]:
    return re.split(r", or (?=[+\w])", fix)
