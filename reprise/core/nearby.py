"""What a misspelt word may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["did_you_mean", "nearest_word", "nearest_words"]


def nearest_words(word: str, known: Iterable[str], most: int = 2) -> list[str]:
    """The known words that a misspelt one may have meant, the likeliest first."""
    return difflib.get_close_matches(word, list(known), n=most, cutoff=0.5)


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The known word closest to a misspelt one; empty when none is close."""
    return next(iter(nearest_words(word, known, 1)), "")


def did_you_mean(words: Sequence[str]) -> str:
    """The tail of a message that offers existing words; empty when there are none."""
    return f", did you mean {' or '.join(words)}" if words else ""
