"""The clip ratio where verl pads a step's batch to its longest answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reprise.curves.checks.soundness import clipped, collapse_events, longest
from reprise.metrics import read_run

ROOT = Path(__file__).resolve().parents[2]
RATIO = "response_length/clip_ratio"
RECORDED = ROOT / "benchmarks/gpu/sglang/qwen3-101.jsonl"


def test_answers_of_one_length_below_the_limit_are_not_clipped() -> None:
    """Recorded on a GPU: from step 25 on all answers have three tokens, the ratio is 1."""
    run = read_run(RECORDED)
    assert run.series(RATIO).values[-1] == 1
    assert longest(run) == 5
    assert clipped(run, longest(run)).values.max() < 1
    assert not [e for e in collapse_events(run, "critic/rewards/mean") if e.metric == RATIO]


def test_answers_at_the_longest_length_are_clipped(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    for row in rows[15:]:
        row["data"] |= {RATIO: 1.0, "response_length/max": 8.0, "response_length/mean": 8.0}
    file = tmp_path / "clipped.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = read_run(file)
    assert clipped(run, longest(run)).between(15, 30).values.min() == 1
    (event,) = [e for e in collapse_events(run, "critic/rewards/mean") if e.metric == RATIO]
    assert event.step == 15


def test_without_lengths_the_ratio_stays_as_it_is() -> None:
    run = read_run(RECORDED)
    same = clipped(run, np.nan)
    assert same.values == pytest.approx(run.series(RATIO).finite().values)
