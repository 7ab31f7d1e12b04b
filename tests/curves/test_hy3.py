"""The published run of Hy3 as a reference: the answers of docs/curves.md, in every form of file."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from curves.runs import KL, PROBS, REWARD
from reprise.cli import app
from reprise.core.findings import State
from reprise.curves import Judgement, Outcome, judge_run, load_reference
from reprise.metrics import read_run

ROOT = Path(__file__).resolve().parents[2]
HY3 = ROOT / "recipes/hy3/reference"
ACCURACY = "val-core/math_dapo/acc/mean@1"
Steps = dict[int, dict[str, float]]
Edit = Callable[[str, int, float], float]


def published(edit: Edit, last: int = 189) -> Steps:
    """The published curves by step, every value passed through `edit` (metric, step, value)."""
    steps: Steps = defaultdict(dict)
    with (HY3 / "curves.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = int(row["step"])
            if step <= last:
                steps[step][row["metric"]] = edit(row["metric"], step, float(row["value"]))
    return dict(sorted(steps.items()))


def noise(share: float) -> Edit:
    """Each value with normal noise of `share` of itself, the same draws every time."""
    rng = np.random.default_rng(7)
    return lambda metric, step, value: value * (1 + share * float(rng.normal()))


def beside(_: str, step: int, value: float) -> float:
    """A hair beside the published value, so that the run is not the reference itself."""
    return value + 1e-9


def on(metric: str, change: Callable[[float], float]) -> Edit:
    return lambda name, step, value: change(value) if name == metric else beside(name, step, value)


def written(folder: Path, steps: Steps) -> Path:
    lines = [json.dumps({"step": step, "data": data}) for step, data in steps.items()]
    (folder / "run.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "run.jsonl"


def judged(folder: Path, steps: Steps) -> Judgement:
    return judge_run(read_run(written(folder, steps)), load_reference(HY3), 189)


@pytest.mark.parametrize(
    ("metric", "edit", "rule"),
    [
        (ACCURACY, lambda v: v - 0.6, "validation"),
        (REWARD, lambda v: v * 100, "guard-reward-range"),
        (PROBS, lambda v: v * 3, "probs-diff"),
        (PROBS, lambda v: v * 1.3, "probs-diff-ceiling"),
        (KL, lambda v: v * 100, "kl"),
    ],
)
def test_gross_faults_fail_against_the_one_published_run(
    tmp_path: Path, metric: str, edit: Callable[[float], float], rule: str
) -> None:
    found = judged(tmp_path, published(on(metric, edit)))
    assert found.outcome is Outcome.FAIL
    assert found.check(rule).state is State.FAILED, found.text()


def test_a_run_like_the_published_one_is_decided_where_it_can_be(tmp_path: Path) -> None:
    found = judged(tmp_path, published(on(REWARD, lambda v: v + 1e-6)))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.check("probs-diff").state is State.PASSED
    assert found.check("guard-reward-range").state is State.PASSED
    assert "borrowed" in found.check("resolution").message
    assert found.check("validation").state is State.UNKNOWN
    assert "guard-entropy" in [check.rule for check in found.undecided]


def test_a_factor_of_1_3_is_named_as_documented(tmp_path: Path) -> None:
    found = judged(tmp_path, published(on(PROBS, lambda v: v * 1.3)))
    message = found.check("probs-diff-ceiling").message
    assert "46 of 189 steps above 0.015" in message and "15%" in message
    assert found.check("probs-diff").numbers["detectable_factor"] == pytest.approx(2.95, abs=0.01)


def test_a_lost_validation_of_five_points_is_not_resolved(tmp_path: Path) -> None:
    found = judged(tmp_path, published(on(ACCURACY, lambda v: v - 0.05)))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.check("validation").state is State.UNKNOWN
    assert found.check("validation").numbers["smallest"] == pytest.approx(0.29, abs=0.01)


def test_a_run_that_stops_at_step_100(tmp_path: Path) -> None:
    found = judged(tmp_path, published(beside, last=100))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert (found.compared_steps, found.expected_steps) == (100, 189)
    assert "89 of 189 steps are missing" in found.check("complete").message


def events(folder: Path, steps: Steps) -> Path:
    """An event file that TensorBoard's own writer made."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "tensorboard"))
    for step, data in steps.items():
        values = [Summary.Value(tag=name, simple_value=value) for name, value in data.items()]
        wall = 1.8e9 + 60 * step
        writer.add_event(Event(wall_time=wall, step=step, summary=Summary(value=values)))
    writer.close()
    return folder / "tensorboard"


def console(folder: Path, steps: Steps) -> Path:
    """A console log as verl's trainer prints it, among lines of other processes."""
    lines = ["(TaskRunnerV1 pid=812) Training Progress:   0%|          | 0/189"]
    for step, data in steps.items():
        shown = " - ".join(f"{name}:{value:.4f}" for name, value in data.items())
        lines.append(f"(TaskRunnerV1 pid=812) step:{step} - {shown}")
        lines.append("(WorkerDict pid=1044) INFO: weights sent")
    (folder / "console.log").write_text("\n".join(lines) + "\n")
    return folder / "console.log"


FORMS: dict[str, Callable[[Path, Steps], Path]] = {
    "jsonl": written,
    "tensorboard": events,
    "console": console,
}


@pytest.mark.parametrize("form", FORMS)
def test_one_curve_has_one_answer_in_every_form(tmp_path: Path, form: str) -> None:
    """`curves compare` on 10 % noise: undecided for want of a margin, and says what it detects."""
    run = FORMS[form](tmp_path, published(noise(0.1)))
    result = CliRunner().invoke(
        app, ["curves", "compare", str(run), "--reference", "hy3", "--json"]
    )
    assert result.exit_code == 2, result.output
    found: dict[str, Any] = json.loads(result.stdout)["judgement"]
    checks = {check["rule"]: check for check in found["checks"]}
    assert found["compared_steps"] == 189
    numbers = checks["resolution"]["numbers"]
    # A console log has four decimals, an event file 32-bit floats.
    assert numbers["smallest"] == pytest.approx(0.161, abs=0.03)
    assert numbers["smallest_whole"] == pytest.approx(0.055, abs=0.01)
    assert checks["reward"]["state"] == "passed"
    assert checks["validation"]["state"] == "unknown"
