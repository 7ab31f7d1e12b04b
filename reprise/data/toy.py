"""Toy arithmetic in verl's five-field parquet: what the rehearsal trains on."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reprise.errors import OperatorError
from reprise.files import sha256_file, writing

__all__ = ["DATA_SOURCE", "SCHEMA", "ToyData", "write_toy"]

DATA_SOURCE = "reprise/arithmetic"

# The five fields that verl's RLHFDataset and reward loop read (docs/preparation/prepare_data.rst
# of verl). The order of the struct's fields is part of the file's bytes.
SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("split", pa.string()), ("index", pa.int64())])),
    ]
)

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
            "toy-data-size",
            f"val_rows={val_rows}",
            f"expected 1 to {len(PROBLEMS) - 1} validation problems out of {len(PROBLEMS)}",
            "give a number of validation rows in that range",
        )
    problems = list(PROBLEMS)
    random.Random(seed).shuffle(problems)  # noqa: S311 - a reproducible order, not a secret
    folder.mkdir(parents=True, exist_ok=True)
    train, val = folder / "train.parquet", folder / "val.parquet"
    _write(train, problems[val_rows:], "train")
    _write(val, problems[:val_rows], "test")
    return ToyData(
        train=train,
        val=val,
        train_rows=len(problems) - val_rows,
        val_rows=val_rows,
        train_sha256=sha256_file(train),
        val_sha256=sha256_file(val),
    )


def _row(index: int, problem: tuple[int, int], split: str) -> dict[str, Any]:
    first, second = problem
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{first}+{second}=?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(first + second)},
        "extra_info": {"split": split, "index": index},
    }


def _write(path: Path, problems: list[tuple[int, int]], split: str) -> None:
    rows = [_row(index, problem, split) for index, problem in enumerate(problems)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    with writing(path) as file:
        # Every setting that shapes the bytes is named, and no schema is stored beside parquet's
        # own: a reader that trusts such metadata over the columns can disagree with one that
        # does not.
        pq.write_table(
            table,
            file,
            version="2.6",
            compression="none",
            use_dictionary=False,
            write_statistics=True,
            data_page_version="1.0",
            row_group_size=len(rows),
            store_schema=False,
        )
