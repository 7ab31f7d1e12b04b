"""Toy arithmetic in verl's five-field parquet: what the rehearsal trains on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.data.read.parquet import write_rows

__all__ = ["DATA_SOURCE", "PROBLEMS", "ToyData", "write_toy"]

DATA_SOURCE = "reprise/arithmetic"

# A two-digit number plus a one-digit number: no problem is another one with its terms swapped,
# so a split by rows is a split by problems.
PROBLEMS = tuple((first, second) for first in range(10, 100) for second in range(10))


@dataclass(frozen=True, slots=True)
class ToyData:
    """The two files, their row counts and their SHA-256 digests (64 hex digits)."""

    train: Path
    val: Path
    train_rows: int
    val_rows: int
    train_sha256: str
    val_sha256: str


def write_toy(folder: Path, seed: int, val_rows: int = 256) -> ToyData:
    """Write `train.parquet` and `val.parquet` into `folder`, which is made when missing.

    The 900 problems are shuffled with `seed` and cut in two: `val_rows` of them are validation,
    the rest training, so none is in both. A proportion p measured on n validation rows has the
    binomial standard error sqrt(p (1 - p) / n): at most 0.032 for 256 rows.
    The same seed and pyarrow version give the same bytes. A file that already holds these bytes
    is replaced by itself.

    Raises OperatorError when `val_rows` leaves one side empty, OSError when it cannot write.
    """
    if not 0 < val_rows < len(PROBLEMS):
        raise OperatorError(
            "toy-data-size.expected-validation-problems",
            f"val_rows={val_rows}",
            problems_count=len(PROBLEMS) - 1,
            problems_count2=len(PROBLEMS),
        )
    problems = list(PROBLEMS)
    random.Random(seed).shuffle(problems)  # noqa: S311 - a reproducible order, not a secret
    folder.mkdir(parents=True, exist_ok=True)
    train, val = folder / "train.parquet", folder / "val.parquet"
    write_rows(train, _rows(problems[val_rows:], "train"))
    write_rows(val, _rows(problems[:val_rows], "test"))
    return ToyData(
        train=train,
        val=val,
        train_rows=len(problems) - val_rows,
        val_rows=val_rows,
        train_sha256=sha256_file(train),
        val_sha256=sha256_file(val),
    )


def _rows(problems: list[tuple[int, int]], split: str) -> Iterator[dict[str, Any]]:
    """The problems as rows of verl's five fields."""
    for index, (first, second) in enumerate(problems):
        yield {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": f"{first}+{second}=?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(first + second)},
            "extra_info": {"split": split, "index": index},
        }
