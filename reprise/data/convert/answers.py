"""Final answers out of worked solutions, and answers as the strings that scorers compare."""

from __future__ import annotations

import math
import re
from typing import Literal

__all__ = ["Extraction", "NoAnswer", "extract_answer", "has_mark", "normalise_answer"]

Extraction = Literal["auto", "gsm8k", "boxed", "raw"]

# GSM8K's mark: `#### answer` as the last line. A heading of that level is followed by text.
_HASHES = re.compile(r"^####[ \t]*(\S[^\n]*)$", re.MULTILINE)
_GROUPED = re.compile(r"^[-+]?\$?\d{1,3}(,\d{3})+(\.\d+)?%?$")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_EXACT = 1 << 53


class NoAnswer(Exception):
    """The text has no final answer, or two; the message gives the reason."""


def has_mark(text: str) -> bool:
    """Does the text mark its final answer, by `####` or by \\boxed{}?"""
    return _after_hashes(text) is not None or _last_boxed(text) is not None


def extract_answer(text: str, how: Extraction = "auto", marked: bool = False) -> str:
    """The final answer of a solution.

    "gsm8k" takes the last line after its `####`, "boxed" what the last \\boxed{} holds, "raw" the
    whole text. "auto" takes the marked answer; a text without a mark is an answer itself if it is
    one line and no other row of the file has a mark (`marked`). Grouping commas of numbers are
    removed. Raises NoAnswer.
    """
    if how == "raw":
        return _ungroup(text.strip())
    hashes = _after_hashes(text) if how in ("auto", "gsm8k") else None
    boxed = _last_boxed(text) if how in ("auto", "boxed") else None
    found = [_ungroup(item.strip()) for item in (hashes, boxed) if item is not None]
    if len(set(found)) == 2:
        raise NoAnswer("#### and \\boxed{} give different answers: choose one with --extract")
    if found:
        return found[0]
    if how != "auto":
        raise NoAnswer(f"no answer in the form {how}")
    if marked or "\n" in text.strip():
        raise NoAnswer(
            "no #### answer or \\boxed{answer} in the solution (--extract raw takes the whole text)"
        )
    return _ungroup(text.strip())


def _after_hashes(text: str) -> str | None:
    """What follows `####` on the last line; a box there is opened."""
    lines = text.rstrip().rsplit("\n", 1)
    match = _HASHES.match(lines[-1].strip())
    if match is None:
        return None
    boxed = _last_boxed(match[1])
    return match[1] if boxed is None else boxed


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
    """The answer as a string, and the change made to it or the reason why it is rejected.

    Returns (text, "") for a string left as it is, (text, change) for one that was changed, and
    (None, reason) for null, blank, bool, list, object, NaN and infinity.
    """
    if isinstance(value, bool):
        return None, f"ground_truth is the boolean {value}"
    if isinstance(value, int):
        return str(value), "integer written as a string"
    if isinstance(value, float):
        return _from_float(value)
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        return None, f"ground_truth is {kind}"
    text = value.strip()
    if not text:
        return None, "ground_truth is blank"
    return text, "" if text == value else "spaces around the answer removed"


def _from_float(value: float) -> tuple[str | None, str]:
    if not math.isfinite(value):
        return None, f"ground_truth is {value}"
    if value.is_integer() and abs(value) > _EXACT:
        return None, f"ground_truth is {value!r}, a float whose digits are not exact: use a string"
    if value.is_integer():
        return str(int(value)), "decimal without a fraction written as an integer"
    return repr(value), "decimal number written as a string"
