"""64-bit keys of prompts and answers: what counts as the same problem, at the speed of a scan."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.data.read.arrow import Column, pc

__all__ = [
    "Keys",
    "Prompts",
    "TextMemo",
    "Texts",
    "canonical",
    "combine",
    "measure_prompts",
    "text_key",
]

Keys: TypeAlias = npt.NDArray[np.uint64]
Counts: TypeAlias = npt.NDArray[np.int64]
_Number = TypeVar("_Number", np.uint64, np.int64)

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, made odd
_MEMO_TEXTS = 32_768
_MEMO_BYTES = 32 << 20


def canonical(text: str) -> str:
    """The form in which two texts are compared: NFC, Unix line ends, no blanks around it."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def text_key(text: str) -> int:
    """A 64-bit key of the canonical text.

    Two different texts share one with a chance of n^2/2^65 among n of them: 1e-7 for two million.
    """
    data = canonical(text).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Texts:
    """One entry a text of a column: its key and its length in characters (0 for null)."""

    keys: Keys
    chars: Counts


_BLANK = np.uint64(text_key(""))


class TextMemo:
    """Keys and lengths of string columns; remembers the first texts, so that repeats cost little.

    Memory is bounded: at most 32,768 texts of 32 MiB in all are remembered. Each column has its
    own memo: a look-up costs as much as all that is remembered.
    """

    def __init__(self) -> None:
        self._texts: Column = pa.array([], pa.string())
        self._known = Texts(np.empty(0, np.uint64), np.empty(0, np.int64))

    def measure(self, column: Column) -> Texts:
        """The key and length of each text of `column`; null counts as the empty text."""
        column = column.fill_null("")
        place = pc.index_in(column, value_set=self._texts)
        known = place.is_valid().to_numpy(zero_copy_only=False)
        where = place.drop_null().to_numpy()
        keys, chars = np.empty(len(column), np.uint64), np.empty(len(column), np.int64)
        keys[known], chars[known] = self._known.keys[where], self._known.chars[where]
        if not known.all():
            new = self._learn(column.filter(pc.is_null(place)))
            keys[~known], chars[~known] = new.keys, new.chars
        return Texts(keys, chars)

    def _learn(self, column: Column) -> Texts:
        encoded = column.dictionary_encode()
        texts = encoded.dictionary
        keys = np.fromiter(map(text_key, texts.to_pylist()), np.uint64, len(texts))
        chars = pc.utf8_length(texts).to_numpy().astype(np.int64)
        room = _MEMO_TEXTS - len(self._texts)
        if room > 0 and self._texts.nbytes + texts.nbytes <= _MEMO_BYTES:
            self._texts = pa.concat_arrays([self._texts, texts.slice(0, room)])
            self._known = Texts(
                np.concatenate([self._known.keys, keys[:room]]),
                np.concatenate([self._known.chars, chars[:room]]),
            )
        places: Counts = encoded.indices.to_numpy()
        return Texts(keys[places], chars[places])


def combine(first: Keys, second: Keys) -> Keys:
    """One key for an ordered pair of keys, row by row."""
    mixed: Keys = (first * _ODD) ^ (first >> np.uint64(29))
    return (mixed + second) * _ODD


@dataclass(frozen=True, slots=True)
class Prompts:
    """One entry a prompt: its key, the characters of its contents, whether a message is blank."""

    keys: Keys
    chars: Counts
    blank: npt.NDArray[np.bool_]


def measure_prompts(
    memos: tuple[TextMemo, TextMemo], offsets: Counts, roles: Column, texts: Column
) -> Prompts:
    """Measure prompts by their messages' roles and contents, each with its own memo.

    `offsets` has one entry more than there are prompts: messages offsets[i] to offsets[i+1] belong
    to prompt i. A prompt without messages has key 0.
    """
    role, text = memos[0].measure(roles), memos[1].measure(texts)
    first = np.repeat(offsets[:-1], np.diff(offsets))
    place = (np.arange(len(first)) - first + 1).astype(np.uint64)
    placed = combine(combine(role.keys, text.keys), place)
    return Prompts(
        _sums(placed, offsets),
        _sums(text.chars, offsets),
        _sums((text.keys == _BLANK).astype(np.int64), offsets) > 0,
    )


def _sums(values: npt.NDArray[_Number], offsets: Counts) -> npt.NDArray[_Number]:
    """The sum of each prompt's messages (modulo 2^64)."""
    ends = np.zeros(len(values) + 1, values.dtype)
    np.cumsum(values, out=ends[1:])
    sums: npt.NDArray[_Number] = ends[offsets[1:]] - ends[offsets[:-1]]
    return sums
