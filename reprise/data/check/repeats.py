"""From the keys of a file: repeats, conflicting answers, prompts shared with another file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.data.read.keys import Keys, canonical
from reprise.data.read.reading import Source
from reprise.data.read.rows import as_list
from reprise.data.read.scan import FileScan

__all__ = ["Repeats", "count_repeats", "distinct", "prompt_text", "rows_at", "shared_rows"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Counts of one file; `conflicts` holds, for each prompt that has several answers, the places
    (0-based, in the file's order) of the first row with each.
    """

    rows: int
    prompts: int
    pairs: int
    indices: int
    least: int
    most: int
    conflicts: tuple[tuple[int, ...], ...]


def _numbered(keys: Keys) -> Places:
    """For each key the number of its first appearance, from 0; faster than sorting the keys."""
    numbers: Places = pa.array(keys).dictionary_encode().indices.to_numpy()
    return numbers


def distinct(keys: Keys) -> int:
    """How many different keys there are."""
    return len(pa.array(keys).unique())


def _first(keys: Keys) -> Places:
    """The places of each different key's first appearance, ascending."""
    numbers = _numbered(keys)
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    # Of several values for one place the last one stays: from behind, that is the first row.
    first[numbers[::-1]] = np.arange(len(keys))[::-1]
    return first


def count_repeats(scan: FileScan) -> Repeats:
    """Count a scanned file."""
    if not scan.rows:
        return Repeats(0, 0, 0, 0, 0, 0, ())
    counts = np.bincount(_numbered(scan.prompts))
    first = _first(scan.pairs)
    prompts = scan.prompts[first]
    values, answers = np.unique(prompts, return_counts=True)
    conflicts: dict[int, list[int]] = {}
    clashing = np.isin(prompts, values[answers > 1])
    for key, place in sorted(
        zip(prompts[clashing], first[clashing], strict=True), key=lambda p: p[1]
    ):
        conflicts.setdefault(int(key), []).append(int(place))
    return Repeats(
        scan.rows,
        len(counts),
        len(first),
        distinct(scan.indices),
        int(counts.min()),
        int(counts.max()),
        tuple(tuple(places) for places in conflicts.values()),
    )


def first_places(scan: FileScan) -> Places:
    """The place of the first row of each distinct prompt, in the file's order."""
    return _first(scan.prompts)


def shared_rows(train: FileScan, val: FileScan) -> Places:
    """Places of the training rows whose prompt is also in the validation file."""
    return np.flatnonzero(np.isin(train.prompts, val.prompts))


def rows_at(source: Source, places: Places, prompt_key: str) -> list[dict[str, Any]]:
    """The rows at sorted 0-based `places`, read in one more pass over the file."""
    found: list[dict[str, Any]] = []
    before = 0
    for batch, _, _ in source.batches(prompt_key):
        count = len(batch.numbers)
        here = places[(places >= before) & (places < before + count)] - before
        wanted = np.zeros(count, np.bool_)
        wanted[here] = True
        found.extend(row for _, row in batch.rows(wanted))
        before += count
        if before > (places[-1] if len(places) else -1):
            break
    return found


def prompt_text(prompt: object, limit: int = 80) -> str:
    """The last message of a prompt on one line, shortened in the middle to `limit` characters."""
    messages = as_list(prompt)
    last = messages[-1] if messages else prompt
    text = canonical(str(last.get("content") if isinstance(last, dict) else last))
    line = " ".join(text.split())
    half = limit // 2
    return line if len(line) <= limit else f"{line[:half]} ... {line[-half:]}"
