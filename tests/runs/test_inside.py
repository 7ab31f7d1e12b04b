"""What runs inside a job, by the interpreter of this test and the standard library alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VALUE = "key-0123456789abcdef"


def run_inside(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reprise.runs.inside", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{folder}",
            "REPRISE_RUN_DIR": str(folder / "run"),
            "REPRISE_RUN_ID": "r1",
            "REPRISE_ATTEMPT": "2",
            **variables,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    (tmp_path / "toy_trainer.py").write_text(
        "import os, sys, numpy\n"
        "print(__name__, sys.argv[1:], len(os.environ.get('WANDB_API_KEY', '')))\n"
    )
    return tmp_path


def test_the_trainer_runs_as_if_it_were_started_itself(trainer: Path) -> None:
    done = run_inside(trainer, "toy_trainer", "a=1", "b c")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['a=1', 'b c'] 0\n"
    found = json.loads(
        (trainer / "run" / "versions" / "attempt-2.json").read_text(encoding="utf-8")
    )
    assert found["executable"] == sys.executable
    assert found["modules"]["numpy"]["version"]
    assert not found["modules"]["numpy"]["imported"], "it was only looked for"


def test_secrets_reach_the_trainer_and_go_with_it(trainer: Path) -> None:
    secrets = trainer / "secrets.json"
    secrets.write_text(json.dumps({"WANDB_API_KEY": VALUE}))
    done = run_inside(trainer, "toy_trainer", REPRISE_SECRETS_FILE=str(secrets))
    assert done.stdout.endswith(f"[] {len(VALUE)}\n")
    assert not secrets.exists()
    for path in (trainer / "run").rglob("*"):
        assert path.is_dir() or VALUE not in path.read_text(encoding="utf-8")


def test_a_missing_secrets_file_is_said_and_hinders_nothing(trainer: Path) -> None:
    done = run_inside(trainer, "toy_trainer", REPRISE_SECRETS_FILE=str(trainer / "none"))
    assert done.returncode == 0
    assert "secrets were not read" in done.stderr


def test_the_folder_of_another_run_is_refused(trainer: Path) -> None:
    (trainer / "run").mkdir()
    (trainer / "run" / "run.json").write_text('{"id": "r2"}')
    done = run_inside(trainer, "toy_trainer", REPRISE_RUN_VISIBLE="yes")
    assert done.returncode == 3
    assert "is run r2, not r1: storage is not shared" in done.stderr
    assert "Traceback" not in done.stderr


def test_storage_that_the_node_does_not_have_is_refused(trainer: Path) -> None:
    done = run_inside(trainer, "toy_trainer", REPRISE_RUN_VISIBLE="yes")
    assert done.returncode == 3
    assert "cannot be used" in done.stderr and "Traceback" not in done.stderr


def test_the_trainers_failure_is_its_own(trainer: Path) -> None:
    (trainer / "bad.py").write_text("raise SystemExit(7)")
    assert run_inside(trainer, "bad").returncode == 7
    assert run_inside(trainer, "no_such_module").returncode == 1
