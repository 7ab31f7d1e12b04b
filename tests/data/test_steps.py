"""Steps of a run against its rows and epochs: the numbers of verl-project/verl#5011, both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.findings import Report, Severity
from reprise.data.check.amounts import judge_steps
from reprise.data.check.settings import Settings

from .inputs import row, verl_tree, write_parquet

CASE = {"train_batch_size": 64, "total_steps": 100, "epochs": 1, "save_freq": 50, "test_freq": 30}


def judged(rows: int = 1600, **settings: Any) -> Report:
    report = Report("data check")
    judge_steps(report, rows, rows, "t.parquet", Settings(**settings))
    return report


def texts(report: Report, severity: Severity) -> list[str]:
    return [item.message for item in report.findings if item.severity is severity]


def test_training_that_ends_with_its_epochs_never_sees_a_last_step() -> None:
    report = judged(**CASE)
    end, save, validate = texts(report, Severity.ERROR)
    assert "total_training_steps=100, but training ends after 25 steps" in end
    assert "save_freq=50 > 25 steps" in save and "no checkpoint at all" in save
    assert "test_freq=30 > 25 steps" in validate and "no validation at all" in validate
    (note,) = texts(report, Severity.NOTE)
    assert "25 steps in total" in note and "100" not in note


@pytest.mark.parametrize(
    ("settings", "severity", "part"),
    [
        ({"total_steps": 25}, Severity.WARNING, "no checkpoint before the last step"),
        ({"epochs": 4, "save_freq": 101}, Severity.WARNING, "101 > 100 steps"),
        ({"total_steps": None}, Severity.WARNING, "50 > 25 steps"),
        ({"train_max_samples": 640, "total_steps": 25}, Severity.ERROR, "ends after 10 steps"),
        # Epochs that nobody gave are not one epoch.
        ({"epochs": None, "save_freq": 101}, Severity.WARNING, "101 > 100 steps"),
    ],
)
def test_the_edges(settings: dict[str, Any], severity: Severity, part: str) -> None:
    assert any(part in text for text in texts(judged(**{**CASE, **settings}), severity))


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 4},
        {"total_steps": 25, "save_freq": 25, "test_freq": 5},
        {"epochs": None},
        {"epochs": None, "total_steps": None},
        {"save_freq": -1, "test_freq": -1, "total_steps": None},
    ],
)
def test_what_is_right_or_not_known_is_no_finding(settings: dict[str, Any]) -> None:
    report = judged(**{**CASE, **settings})
    assert texts(report, Severity.ERROR) + texts(report, Severity.WARNING) == []


def test_steps_in_total_are_not_invented() -> None:
    (note,) = texts(judged(train_batch_size=64), Severity.NOTE)
    assert "25 steps/epoch" in note and "in total" not in note
    (note,) = texts(judged(train_batch_size=64, total_steps=9), Severity.NOTE)
    assert "at most 9 steps" in note


def tree_for_commands(folder: Path) -> Path:
    """A stand-in for verl's source that the commands take as --verl."""
    tree = verl_tree(folder / "tree")
    (tree / "verl/trainer/config").mkdir(parents=True)
    (tree / "verl/trainer/config/ppo_trainer.yaml").write_text("{}\n")
    return tree


def test_each_printed_setting_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as typed in the folder of the files, then with what it printed."""
    monkeypatch.chdir(tmp_path)
    tree = tree_for_commands(tmp_path)
    write_parquet(tmp_path / "train.parquet", [row(f"q{i}", str(i)) for i in range(160)])
    lines = [
        *("data.train_batch_size=64", "trainer.total_training_steps=100", "trainer.total_epochs=1"),
        *("trainer.save_freq=50", "trainer.test_freq=30", "data.train_files=train.parquet"),
    ]
    command = ["data", "check", "--verl", str(tree), "--overrides", "overrides.txt"]

    def run(*more: str) -> tuple[int, str]:
        (tmp_path / "overrides.txt").write_text("\n".join([*lines, *more]))
        done = CliRunner().invoke(app, command)
        return done.exit_code, done.stdout

    code, text = run()
    assert code == 1 and "training ends after 2 steps" in text
    fixed = "trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.test_freq=1"
    for setting in fixed:
        assert setting in text
    assert run(*fixed)[0] == 0
    # The other way out that is printed.
    assert "trainer.total_epochs=50" in text
    assert run("trainer.total_epochs=50")[0] == 0


def test_a_file_that_an_override_names_is_looked_for_where_the_command_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = tree_for_commands(tmp_path)
    command = ["data", "check", "--verl", str(tree), "--set", "data.train_files=nope.parquet"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "error nope.parquet: file not found" in done.stdout and "make data" not in done.stdout
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "nope.parquet", [row("a", "1")])
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    assert "file not found" not in CliRunner().invoke(app, command).stdout
