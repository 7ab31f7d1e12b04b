"""Small data files that the tests share, and a stand-in for verl's source tree."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# The construct of verl's router, with the names that the tests need.
ROUTER = """
def default_compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source == "openai/gsm8k":
        res = 1
    elif data_source in ["lighteval/MATH", "HuggingFaceH4/MATH-500"]:
        res = 2
    elif data_source in ["math_dapo", "math"] or data_source.startswith("aime"):
        res = 3
    else:
        raise NotImplementedError(f"Reward function is not implemented for {data_source=}")
    return res
"""


def verl_tree(folder: Path) -> Path:
    """A folder with the router's file where verl has it."""
    file = folder / "verl" / "utils" / "reward_score" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(ROUTER)
    return folder


def row(
    prompt: Any = "1+1?", truth: Any = "2", source: Any = "math_dapo", **more: Any
) -> dict[str, Any]:
    """One five-field row; a string prompt becomes one user message."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    base = {
        "data_source": source,
        "prompt": messages,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 0},
    }
    return base | more


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As a user's own script writes it: PyArrow's defaults."""
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def repeated_problems(copies: int) -> list[dict[str, Any]]:
    """Three problems in turn, `copies` times each; the row before the last has another answer."""
    problems = [("What is 2+3?", "5"), ("What is 7*6?", "42"), ("Primes below 10?", "4")]
    rows = []
    for place in range(3 * copies):
        text, answer = problems[place % 3]
        truth = "41" if place == 3 * copies - 2 else answer
        rows.append(row(f"Solve.\n\n{text}", truth, extra_info={"index": f"id-{place:03d}"}))
    return rows
