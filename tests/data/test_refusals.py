"""Files and settings that cannot be meant are refused for what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reprise.cli import app

from .inputs import row, write_jsonl

MAPPING = ("--data-source", "math_dapo", "--question", "q", "--answer", "a")


@pytest.mark.parametrize("command", ["check", "describe", "convert"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "file not found"),
        ("none.jsonl", "file not found"),
        ("none.parquet", "file not found"),
        ("folder", "expected a file, found a folder"),
        ("folder.parquet", "expected a file, found a folder"),
        ("folder.jsonl", "expected a file, found a folder"),
    ],
)
def test_what_is_no_file_is_not_judged_by_its_ending(
    tmp_path: Path, command: str, name: str, message: str
) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    more = (str(tmp_path / "out.parquet"), *MAPPING) if command == "convert" else ()
    done = CliRunner().invoke(app, ["data", command, str(tmp_path / name), *more, "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)["findings"][0]
    assert (told["rule"], told["message"]) == ("data-file", message)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("data.train_batch_size=0", "a positive integer"),
        ("data.max_prompt_length=-1", "a positive integer"),
        ("actor_rollout_ref.rollout.n=0", "a positive integer"),
        ("data.truncation=head", "error, left, right, middle"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, setting: str, expected: str) -> None:
    file = str(write_jsonl(tmp_path / "a.jsonl", [row("1+1?", "2")]))
    short = ("--set", "data.max_prompt_length=1") if "truncation" in setting else ()
    done = CliRunner().invoke(app, ["data", "check", file, *short, "--set", setting, "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)["findings"][0]
    assert told["message"].startswith(f"expected {expected}, found ")
    asked = CliRunner().invoke(app, ["data", "check", setting, "--json"])
    assert json.loads(asked.stdout)["findings"][0]["fix"].endswith(f"--set {setting}")


def test_a_file_without_rows_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    words = ["data", "convert", str(tmp_path / "a.jsonl"), str(tmp_path / "b.parquet"), *MAPPING]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["message"] == "the file has no rows"
