"""Files that the trackers themselves wrote: twelve steps of a toy run, validation at every sixth.

tracked/ was written by tensorboard 2.21.0, wandb 0.31.0 (offline), swanlab 0.10.3 (offline) and
mlflow-skinny 3.17.2 (file store). The readers of the first three need those libraries.
"""

from __future__ import annotations

import builtins
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reprise.core.errors import CannotTell, OperatorError
from reprise.metrics import MetricTable, read_run

HERE = Path(__file__).parent / "tracked"
REWARD = "critic/rewards/mean"
ACCURACY = "val-core/toy/acc/mean@32"


def check(table: MetricTable) -> None:
    assert table.training_steps().tolist() == list(range(1, 13))
    assert table.series(REWARD).values == pytest.approx([0.2 + s / 20 for s in range(1, 13)])
    assert table.series("actor/entropy").values[-1] == pytest.approx(1 / 13)
    assert table.series(ACCURACY).steps.tolist() == [0, 6, 12]
    assert table.series(ACCURACY).values == pytest.approx([0.25, 0.4, 0.55])


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "swanlab", "mlflow"])
def test_a_folder_of_a_tracker(tracker: str) -> None:
    if tracker != "mlflow":
        pytest.importorskip(tracker)
    check(read_run(HERE / tracker))
    files = [path for path in (HERE / tracker).rglob("*") if path.is_file()]
    if len(files) == 1:
        check(read_run(files[0]))


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "swanlab"])
def test_a_missing_library_names_its_extra(tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == tracker:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(CannotTell, match=tracker) as raised:
        read_run(HERE / tracker)
    assert f"[{tracker}]" in raised.value.fix


@pytest.mark.parametrize("tracker", ["wandb", "swanlab"])
def test_a_log_whose_writer_was_killed(tracker: str, tmp_path: Path) -> None:
    pytest.importorskip(tracker)
    file = next(path for path in (HERE / tracker).rglob("*") if path.is_file())
    cut = tmp_path / file.name
    cut.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    table = read_run(cut)
    assert 3 <= len(table.training_steps()) < 12
    assert "metrics-log" in [finding.rule for finding in table.findings]


def test_two_runs_in_one_folder_are_not_merged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(HERE / "mlflow/toy", tmp_path / name)
    with pytest.raises(OperatorError, match="2 runs in this folder: a, b"):
        read_run(tmp_path)
    check(read_run(tmp_path / "a"))


def rows() -> list[tuple[int, dict[str, float]]]:
    made: list[tuple[int, dict[str, float]]] = []
    for step in range(13):
        if step % 6 == 0:
            made.append((step, {ACCURACY: 0.25 + step / 40}))
        if step:
            values = {REWARD: 0.2 + step / 20, "actor/entropy": 1 / (step + 1)}
            made.append((step, values))
    return made


def test_a_panel_export_with_several_runs_asks_which(tmp_path: Path) -> None:
    file = tmp_path / "panel.csv"
    head = f'"Step","ref - {REWARD}","ref - {REWARD}__MIN","cand - {REWARD}"\n'
    file.write_text(head + "".join(f'"{s}","{s / 10}","0","{s / 5}"\n' for s in range(1, 5)))
    with pytest.raises(OperatorError, match="2 runs in this file: ref, cand") as raised:
        read_run(file)
    assert "--series 'ref'" in raised.value.fix
    assert read_run(file, "ref").series(REWARD).values.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert read_run(file, "cand").series(REWARD).values.tolist() == [0.2, 0.4, 0.6, 0.8]
    with pytest.raises(OperatorError, match="no run named 'other'"):
        read_run(file, "other")


def test_a_text_cell_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    table = "{'_type': 'table-file', 'nrows': 8}"
    lines = [f"_step,_timestamp,{REWARD},{ACCURACY},val/generations"]
    lines += [f'0,1764480000,,0.1,"{table}"']
    lines += [f"{s},{1764480000 + 60 * s},{s / 10},," for s in range(1, 6)]
    file.write_text("\n".join(lines) + "\n")
    read = read_run(file)
    assert read.series(ACCURACY).values.tolist() == [0.1]
    assert len(read.series(REWARD)) == 5
    (finding,) = read.findings
    assert "1 cells of column val/generations" in finding.message
    assert "table-file" in finding.message


def test_an_mlflow_export_has_verls_names_and_one_run(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    lines = ["Run ID,Name,Metric,Step,Timestamp,Value"]
    for run in ("0f3a", "77bc"):
        for step, values in rows():
            lines += [
                f"{run},toy,{k.replace('@', '_at_')},{step},{1764480000000 + step},{v}"
                for k, v in values.items()
            ]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(OperatorError, match="2 runs in this file: 0f3a, 77bc"):
        read_run(file)
    check(read_run(file, "0f3a"))


@pytest.mark.parametrize(
    ("name", "delimiter", "comma"), [("a.tsv", "\t", "."), ("b.csv", ";", ",")]
)
def test_other_dialects(tmp_path: Path, name: str, delimiter: str, comma: str) -> None:
    file = tmp_path / name
    lines = [delimiter.join(["Step", REWARD, "actor/entropy", ACCURACY])]
    for step in range(13):
        cells = [str(step), "", "", ""]
        if step:
            cells[1:3] = [repr(0.2 + step / 20), repr(1 / (step + 1))]
        if step % 6 == 0:
            cells[3] = repr(0.25 + step / 40)
        lines.append(delimiter.join(cell.replace(".", comma) for cell in cells))
    file.write_bytes(("\r\n".join(lines) + "\r\n").encode("utf-16" if comma == "," else "utf-8"))
    check(read_run(file))


def test_a_trainer_state_of_hugging_face(tmp_path: Path) -> None:
    history = [{"epoch": 0.1, "step": s, **values} for s, values in rows()]
    state = {"global_step": 12, "best_metric": None, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state, indent=2))
    check(read_run(tmp_path / "trainer_state.json"))
    check(read_run(tmp_path))


def test_a_metric_history_of_mlflows_server(tmp_path: Path) -> None:
    metrics = [
        {"key": k, "value": v, "step": s, "timestamp": 1764480000000 + s}
        for s, values in rows()
        for k, v in values.items()
    ]
    (tmp_path / "history.json").write_text(json.dumps({"metrics": metrics}))
    check(read_run(tmp_path / "history.json"))


def jsonl(path: Path, made: list[tuple[int, dict[str, float]]]) -> Path:
    path.write_text("".join(json.dumps({"step": s, "data": d}) + "\n" for s, d in made))
    return path


def test_a_late_row_is_no_attempt(tmp_path: Path) -> None:
    made = rows()
    late = made.pop(3)
    read = read_run(jsonl(tmp_path / "late.jsonl", [*made, late]))
    check(read)
    assert [finding.rule for finding in read.findings] == ["metrics-order"]


def test_shuffled_and_repeated_rows(tmp_path: Path) -> None:
    made = rows()
    mixed = made[7:] + made[:7] + made[2:5]
    read = read_run(jsonl(tmp_path / "mixed.jsonl", mixed))
    check(read)
    assert "3 rows repeat" in " ".join(finding.message for finding in read.findings)


def test_time_stamps_order_the_attempts(tmp_path: Path) -> None:
    first = [{"_step": s, "_timestamp": 1000 + s, REWARD: -1.0} for s in range(1, 13)]
    second = [{"_step": s, "_timestamp": 2000 + s, REWARD: 1.0} for s in range(9, 12)]
    file = tmp_path / "history.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in [*second, *first]))
    series = read_run(file).series(REWARD)
    assert series.steps.tolist() == list(range(1, 12))
    assert series.values.tolist() == [-1.0] * 8 + [1.0] * 3


def test_gzip_that_ends_early_keeps_what_it_has(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"step": s, "data": {REWARD: s / 7}}) + "\n" for s in range(1, 2000))
    packed = gzip.compress(lines.encode())
    file = tmp_path / "m.jsonl.gz"
    file.write_bytes(packed[: len(packed) // 2])
    read = read_run(file)
    assert len(read.series(REWARD)) > 100
    assert "metrics-gzip" in [finding.rule for finding in read.findings]
    file.write_text(lines)
    with pytest.raises(OperatorError, match="not gzip"):
        read_run(file)


def test_a_long_run_fits(tmp_path: Path) -> None:
    names = [f"group/metric_{i}" for i in range(116)] + [REWARD]
    data = dict.fromkeys(names, 0.5)
    file = tmp_path / "long.jsonl"
    with file.open("w") as out:
        for step in range(1, 2001):
            out.write(json.dumps({"step": step, "data": data | {REWARD: step / 2000}}) + "\n")
    table = read_run(file)
    assert len(table.value) == 2000 * 117
    assert len(table.series(REWARD)) == 2000
