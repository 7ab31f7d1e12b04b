"""What stays on the screen when a run has ended."""

from __future__ import annotations

import json
import math
from pathlib import Path

from reprise.runs.state.folder import RunFolder
from reprise.runs.watch.summary import sparkline, summary_lines


def test_a_curve_in_one_line() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, math.nan, 1.0], plain=True) == "_ @"
    assert sparkline([math.inf]) == ""
    assert len(sparkline([float(n) for n in range(1000)])) == 40
    assert sparkline([float(n) for n in range(1000)])[::39] == "▁█"


def test_first_and_last_values_and_the_pace(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "m", {"steps": 3})
    rows = [{"step": 0, "data": {"val-core/math/acc/mean@4": 0.25}}]
    rows += [
        {
            "step": step,
            "data": {
                "critic/rewards/mean": step / 4,
                "timing_s/step": 2.0 * step,
                "perf/throughput": 1000.0,
            },
        }
        for step in (1, 2, 3)
    ]
    rows.append({"step": 3, "data": {"val-core/math/acc/mean@4": 0.75}})
    run.metrics_file(1).write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward, validation, pace = summary_lines(run, plain=True)
    assert reward == "reward     0.25 (step 1) _+@ 0.75 (step 3)"
    assert validation == "validation 0.25 (step 0) _@ 0.75 (step 3)"
    assert pace == "3 steps in 12 s, median 4.0 s a step, 1000 tokens/s per GPU"


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert list(summary_lines(RunFolder.create(tmp_path, "m", {"steps": 3}))) == []
