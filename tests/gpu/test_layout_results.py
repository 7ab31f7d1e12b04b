"""What a visit to several GPUs found, gathered: runs judged, exports, memory, resumes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reprise.core.project import Project
from reprise.flows.reproduce import judge_folder
from reprise.runs.state.folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "recipes/rehearsal/reference-gpu-megatron"


@pytest.fixture(scope="module")
def layouts() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks/gpu"))
    try:
        file = ROOT / "benchmarks/gpu/layouts.py"
        spec = importlib.util.spec_from_file_location("gpu_layouts", file)
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
    finally:
        sys.path.pop(0)
    return made


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def run_of(folder: Path, layout: str, source: Path, **facts: Any) -> None:
    shared = {"command": "reproduce", "layout": layout, "arch": "hy3", "seed": 1, "steps": 30}
    run = RunFolder.create(folder, "rehearsal", {**shared, **facts})
    run.metrics_file(1).parent.mkdir(exist_ok=True)
    shutil.copy(source, run.metrics_file(1))


def test_a_run_in_a_layout_is_judged_by_the_seeds_of_one_gpu(
    layouts: ModuleType, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    run_of(runs, "pp2", ROOT / "benchmarks/gpu/runs/megatron-1.jsonl")
    run_of(runs, "tp2", ROOT / "benchmarks/gpu/runs/frozen-megatron.jsonl")
    run_of(runs, "ep2", REFERENCE / "seed-101.jsonl", arch="qwen3-moe")
    run_of(runs, "one", REFERENCE / "seed-101.jsonl")
    found = layouts.gather(tmp_path, runs)["runs"]
    rows = {row["layout"]: row for row in found}
    assert set(rows) == {"pp2", "tp2", "ep2"}
    assert rows["pp2"]["outcome"] == "PASS"
    assert rows["tp2"]["outcome"] == "FAIL"
    assert "outcome" not in rows["ep2"]
    assert rows["pp2"]["steps"] == 30 and rows["pp2"]["seconds_a_step"] > 1
    layouts.show(layouts.gather(tmp_path, runs))


def test_exports_name_what_is_missing_and_the_gap_to_one_gpu(
    layouts: ModuleType, tmp_path: Path
) -> None:
    trip = {"keys_in_checkpoint": 2, "keys_sent": 1, "missing": ["b"], "extra": []}
    trip |= {"largest_error": 0.5, "largest_rounding": 0.0, "equal_to_the_rounded_checkpoint": 0}
    one = {"logprobs": [[-1.0, -2.0]], "round_trip": trip}
    write(tmp_path / "weights-qwen3-moe-one.json", one)
    moved = {"logprobs": [[-1.5, -2.0]], "round_trip": trip}
    write(tmp_path / "weights-qwen3-moe-pp2-rank1.json", moved)
    # The first stage of a pipeline has no outputs.
    write(tmp_path / "weights-qwen3-moe-pp2.json", {"logprobs": [], "round_trip": trip})
    rows = {(row["layout"], row["rank"]): row for row in layouts.exports(tmp_path)}
    assert set(rows) == {("one", 0), ("pp2", 0), ("pp2", 1)}
    assert rows["pp2", 1]["arch"] == "qwen3-moe" and rows["pp2", 1]["missing"] == ["b"]
    assert rows["pp2", 1]["log_mean"] == pytest.approx(0.25)
    assert "log_mean" not in rows["pp2", 0]


def test_memory_is_that_of_the_fullest_gpu_and_of_no_half_measured_layout(
    layouts: ModuleType, tmp_path: Path
) -> None:
    def rank(peak: int) -> dict[str, Any]:
        found = {"peak_forward_backward": peak, "peak_optimizer": 1}
        return {"variants": {"plain": found}}

    planned = sum(layouts.planner.predict("0.8B", "megatron", "plain", layout="pp2").values())
    write(tmp_path / "0.8B-megatron-pp2.json", rank(planned * 2))
    write(tmp_path / "0.8B-megatron-pp2-rank1.json", rank(planned // 2))
    write(tmp_path / "0.8B-megatron-tp2.json", rank(planned))
    write(
        tmp_path / "0.8B-megatron-tp2-rank1.json",
        {"variants": {"plain": {"out_of_memory": "no"}}},
    )
    rows = {row["layout"]: row for row in layouts.memory(tmp_path)}
    assert rows["pp2"]["off"] == pytest.approx(-0.5, abs=1e-6)
    assert "off" not in rows["tp2"]


def test_the_matrix_shows_what_resumed_what_was_refused_and_what_was_not_run(
    layouts: ModuleType, tmp_path: Path
) -> None:
    def load(saved: str, under: str, **more: Any) -> None:
        base = {"form": "plain", "from": saved, "config": f"config-megatron-{under}"}
        write(tmp_path / f"load-plain-{saved}-{under}.json", {**base, **more})

    same = {"keys": 88, "equal": 88, "one_side_only": [], "largest": 0.0}
    step = {"keys": 88, "equal": 3, "one_side_only": [], "largest": 1e-4}
    load("pp2", "pp2", state="trained", weights=same, after_next=step, one_step=step)
    load("pp2", "two", state="built", error="CheckpointingException: rng_state has another shape")
    load("two", "pp2", state="trained", weights={**same, "equal": 80}, after_next=step)
    lines = list(layouts.matrix(list(layouts.resumed(tmp_path)), "plain"))
    assert lines[0] == "| plain | pp2 | two |"
    assert lines[2] == (
        "| pp2 | resumed; next step off by 1.0e-04 "
        "| refused: CheckpointingException: rng_state has another shape |"
    )
    assert lines[3] == "| two | weights differ: 8 of 88 | not run |"


@pytest.mark.parametrize("same", [True, False])
def test_the_verdict_accepts_another_layout_and_no_other_difference(
    tmp_path: Path, same: bool
) -> None:
    text = (REFERENCE / "reference.toml").read_text(encoding="utf-8")
    recorded = tomllib.loads(text)["provenance"]
    names = ("lock", "plugins", "model_sha256", "data_sha256")
    facts = {name: recorded[name] for name in names}
    facts |= {"recipe": "0" * 64, "platform": "gpu", "engine": "megatron", "state": "finished"}
    facts["recipe_one_gpu"] = recorded["recipe"] if same else "1" * 64
    run_of(tmp_path, "pp2", ROOT / "benchmarks/gpu/runs/megatron-1.jsonl", **facts)
    (folder,) = (tmp_path / "rehearsal").iterdir()
    judged = judge_folder(Project(ROOT), "rehearsal", folder)
    assert judged.judgement is not None
    assert judged.judgement.outcome.value == ("PASS" if same else "INCONCLUSIVE")
    notes = [finding.rule for finding in judged.report.findings if "one GPU" in finding.message]
    assert notes == ["rehearsal-layout"]
