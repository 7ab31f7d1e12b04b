"""Suggestions for a misspelt word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

__all__ = ["did_you_mean", "is_slip", "meant_word", "nearest_word", "nearest_words"]


def nearest_words(word: str, known: Iterable[str], most: int = 2) -> list[str]:
    """The known words that a misspelt one may have meant, the likeliest first."""
    return difflib.get_close_matches(word, list(known), n=most, cutoff=0.5)


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The known word closest to a misspelt one; empty when none is close."""
    return next(iter(nearest_words(word, known, 1)), "")


def did_you_mean(words: Sequence[str]) -> str:
    """The tail of a message that offers existing words; empty when there are none."""
    return f", did you mean {' or '.join(words)}" if words else ""


# Letters of a word from which one slip, and from which two are taken for a typing error. Below,
# other words are as near: top_p and top_k, min and max, encoder and decoder.
_ONE_SLIP, _TWO_SLIPS = 4, 8


def is_slip(word: str, other: str) -> bool:
    """Whether `word` is `other` with a typing error in it, and not another word.

    Letters exchanged, lost, doubled or wrong, another case, and other marks between the parts of
    the name; never another part: clip_ratio_low is no slip of clip_ratio_high.
    """
    if word == other:
        return False
    mine, theirs = _parts(word), _parts(other)
    if "".join(mine) == "".join(theirs):
        return True
    return len(mine) == len(theirs) and all(map(_near, mine, theirs))


def meant_word(word: str, known: Iterable[str]) -> str:
    """The one known word that a misspelt one is a slip of; empty where there is none or several."""
    found = [one for one in known if is_slip(word, one)]
    return found[0] if len(found) == 1 else ""


def _parts(name: str) -> list[str]:
    """`max_promptLength` as max, prompt, length."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")


def _near(word: str, other: str) -> bool:
    if word == other:
        return True
    longest = max(len(word), len(other))
    # A first letter is hardly ever wrong, and sync is no slip of async.
    if longest < _ONE_SLIP or word[:1] != other[:1]:
        return False
    return _distance(word, other) <= (2 if longest >= _TWO_SLIPS else 1)


def _distance(word: str, other: str) -> int:
    """Letters to insert, delete, replace or exchange with the next one (optimal alignment)."""
    if abs(len(word) - len(other)) > 2:
        return 3
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        previous, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
    return row[-1]
