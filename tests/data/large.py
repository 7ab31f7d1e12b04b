"""A file of DAPO-Math-17k's shape: 17,917 problems in turn, 100 times, about 300 MB."""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PROBLEMS = 17_917
CYCLES = 100


def problems(count: int = PROBLEMS) -> pa.Table:
    """Distinct problems with random words, answers and identifiers, the same at every call."""
    random_ = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random_.choices(letters, k=random_.randint(2, 9))) for _ in range(4000)]
    rows = []
    for _ in range(count):
        text = " ".join(random_.choices(words, k=random_.randint(12, 44)))
        content = (
            "Solve the following problem step by step and finish with a line that reads Answer: X, "
            f"where X is the result.\n\n{text}\n\nDo not forget the last line."
        )
        rows.append(
            {
                "data_source": "math_dapo",
                "prompt": [{"content": content, "role": "user"}],
                "ability": "MATH",
                "reward_model": {"ground_truth": str(random_.randint(0, 999)), "style": "rule"},
                "extra_info": {"index": str(uuid.UUID(int=random_.getrandbits(128)))},
            }
        )
    return pa.Table.from_pylist(rows)


def write_large(path: Path, cycles: int = CYCLES, count: int = PROBLEMS) -> Path:
    """Write the problems `cycles` times, ten cycles a row group; an existing file is kept."""
    if path.exists():
        return path
    table = problems(count)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with pq.ParquetWriter(part, table.schema) as writer:
        for start in range(0, cycles, 10):
            writer.write_table(pa.concat_tables([table] * min(10, cycles - start)))
    part.replace(path)
    return path


def cached_large() -> Path:
    """The whole file, made once for this machine under the temporary folder."""
    folder = Path(tempfile.gettempdir()) / "reprise-large-data"
    folder.mkdir(exist_ok=True)
    return write_large(folder / "dapo-shape.parquet")
