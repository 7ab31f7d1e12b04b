"""64-bit keys of prompts and answers: what counts as the same problem, at the speed of a scan."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.data.arrow import Column, pc

__all__ = ["KeyMemo", "Keys", "canonical", "combine", "prompt_keys", "text_key"]

Keys: TypeAlias = npt.NDArray[np.uint64]

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


class KeyMemo:
    """Keys of whole string columns; remembers the first texts, so that repeats cost no hashing.

    Memory is bounded: at most 32,768 texts of 32 MiB in all are remembered.
    """

    def __init__(self) -> None:
        self._texts: Column = pa.array([], pa.string())
        self._keys: Keys = np.empty(0, np.uint64)

    def keys(self, column: Column) -> Keys:
        """One key a row; null has the key of the empty text."""
        column = column.fill_null("")
        place = pc.index_in(column, value_set=self._texts)
        known = place.is_valid().to_numpy(zero_copy_only=False)
        result = np.empty(len(column), np.uint64)
        result[known] = self._keys[place.drop_null().to_numpy()]
        if not known.all():
            result[~known] = self._learn(column.filter(pc.is_null(place)))
        return result

    def _learn(self, column: Column) -> Keys:
        encoded = column.dictionary_encode()
        texts = encoded.dictionary
        keys = np.fromiter(map(text_key, texts.to_pylist()), np.uint64, len(texts))
        room = _MEMO_TEXTS - len(self._texts)
        if room > 0 and self._texts.nbytes + texts.nbytes <= _MEMO_BYTES:
            self._texts = pa.concat_arrays([self._texts, texts.slice(0, room)])
            self._keys = np.concatenate([self._keys, keys[:room]])
        places: npt.NDArray[np.int32] = encoded.indices.to_numpy()
        return keys[places]


def combine(first: Keys, second: Keys) -> Keys:
    """One key for an ordered pair of keys, row by row."""
    mixed: Keys = (first * _ODD) ^ (first >> np.uint64(29))
    return (mixed + second) * _ODD


def prompt_keys(
    memo: KeyMemo, offsets: Sequence[int] | npt.NDArray[np.int64], roles: Column, texts: Column
) -> Keys:
    """One key a prompt from its messages' roles and contents.

    `offsets` has one entry more than there are prompts: messages offsets[i] to offsets[i+1] belong
    to prompt i. A prompt without messages has key 0.
    """
    bounds = np.asarray(offsets, np.int64)
    messages = combine(memo.keys(roles), memo.keys(texts))
    start = np.repeat(bounds[:-1], np.diff(bounds))
    place = (np.arange(len(messages)) - start + 1).astype(np.uint64)
    placed = combine(messages, place)
    sums: Keys = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    return sums[bounds[1:]] - sums[bounds[:-1]]
