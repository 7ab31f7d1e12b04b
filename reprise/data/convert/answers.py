"""Final answers out of worked solutions, and answers as the strings that scorers compare."""

from __future__ import annotations

import math
import re
from typing import Literal

__all__ = ["Extraction", "extract_answer", "normalise_answer"]

Extraction = Literal["auto", "gsm8k", "boxed", "raw"]

_HASHES = "####"
_GROUPED = re.compile(r"^[-+]?\$?\d{1,3}(,\d{3})+(\.\d+)?%?$")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")


def extract_answer(text: str, how: Extraction = "auto") -> str | None:
    """The final answer of a solution; None when `how` asks for a mark that is not there.

    "gsm8k" takes what follows the last `####`, "boxed" what the last \\boxed{} holds, "raw" the
    whole text, "auto" the first of the three that applies. Digits grouped by commas lose them.
    """
    found: str | None = None
    if how in ("auto", "gsm8k") and _HASHES in text:
        found = text.rsplit(_HASHES, 1)[1]
    elif how in ("auto", "boxed"):
        found = _last_boxed(text)
    if found is None and how in ("auto", "raw"):
        found = text
    return None if found is None else _ungroup(found.strip())


def _ungroup(text: str) -> str:
    return text.replace(",", "") if _GROUPED.match(text) else text


def _last_boxed(text: str) -> str | None:
    """What the last complete \\boxed{...} holds, nested braces included."""
    for opening in reversed(list(_BOXED.finditer(text))):
        depth = 1
        for place in range(opening.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[opening.end() : place]
    return None


def normalise_answer(value: object) -> tuple[str | None, str]:
    """The answer as a string, and what was done to it or why it cannot be one.

    Returns (text, "") for a string left as it is, (text, change) for one that was changed, and
    (None, reason) for null, blank, bool, list, object, NaN and infinity.
    """
    if isinstance(value, bool):
        return None, f"ground_truth is the truth value {value}"
    if isinstance(value, int):
        return str(value), "whole number written as a string"
    if isinstance(value, float):
        return _from_float(value)
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        return None, f"ground_truth is {kind}"
    text = value.strip()
    if not text:
        return None, "ground_truth is blank"
    return text, "" if text == value else "blanks around the answer removed"


def _from_float(value: float) -> tuple[str | None, str]:
    if not math.isfinite(value):
        return None, f"ground_truth is {value}"
    if value.is_integer():
        return str(int(value)), "decimal without a fraction written as a whole number"
    return repr(value), "decimal number written as a string"
