"""The real rehearsal under `reprise train`, killed at each place: each step once, one curve."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.runs.ray.processes import marked
from tests.flows.command import (
    Command,
    assert_every_step_once,
    kill,
    largest_difference,
    named,
    stop_everything,
    titled,
    wait,
)

pytestmark = pytest.mark.rehearsal

TOTAL = 6
# Runs of one seed on one machine agree to this (docs/rehearsal.md says how far they do).
SPREAD = 1e-3
SETTINGS = (
    "trainer.save_freq=2",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
)


def train(runs: Path, total: int = TOTAL) -> Command:
    words = ["--attempts", "3", "--", "rehearsal", *SETTINGS]
    return Command(runs, [*words, f"trainer.total_training_steps={total}"])


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_everything(tmp_path)


def assert_survived(command: Command, reference: Path, attempts: int = 2) -> None:
    folder = command.folder()
    facts = folder.read()
    assert facts.status == "finished"
    assert len(facts.attempts) == attempts, facts.attempts
    assert_every_step_once(folder, TOTAL)
    differences = largest_difference(folder.path, reference)
    print(json.dumps(differences))
    assert max(differences.values()) <= SPREAD, differences
    assert marked(folder.name) == []
    assert facts.address is None and facts.watcher is None


@pytest.mark.full
def test_a_killed_trainer_goes_on_from_its_checkpoint(runs: Path) -> None:
    """The short one: the step that both attempts trained came out the same."""
    command = train(runs, total=4).start()
    folder = command.at_step(3)
    kill(titled(folder.name, "ray::WorkerDict"))
    code, report, err = command.end()
    assert code == 0, (report, err)
    first, second = folder.read().attempts
    assert (first.outcome, second.resumed_from) == ("failed", 2)
    assert_every_step_once(folder, 4)
    values = [
        {
            item["step"]: item["data"]
            for line in folder.metrics_file(number).read_text(encoding="utf-8").splitlines()
            if (item := json.loads(line))
        }
        for number in (1, 2)
    ]
    assert sorted(values[1]) == [3, 4]
    for name in ("critic/rewards/mean", "actor/grad_norm", "response_length/mean"):
        assert values[0][3][name] == pytest.approx(values[1][3][name], abs=SPREAD)
    versions = json.loads((folder.path / "versions" / "attempt-2.json").read_text(encoding="utf-8"))
    assert versions["modules"]["verl"]["imported"] and versions["modules"]["vllm"]["version"]
    assert marked(folder.name) == []


@pytest.mark.full
@pytest.mark.parametrize(
    "titles",
    [
        ("ray::TaskRunner",),
        ("ray::vLLMHttpServer",),
        ("VLLM::EngineCore",),
        ("ray::WorkerDict",),
    ],
    ids=["TaskRunner", "vLLMHttpServer", "EngineCore", "WorkerDict"],
)
def test_a_killed_process(runs: Path, uninterrupted: Path, titles: tuple[str, ...]) -> None:
    command = train(runs).start()
    folder = command.at_step(3)
    kill(titled(folder.name, *titles))
    code, report, err = command.end()
    assert code == 0, (report, err)
    assert_survived(command, uninterrupted)


@pytest.mark.full
def test_a_killed_raylet_of_the_private_ray(runs: Path, uninterrupted: Path) -> None:
    command = train(runs).start()
    folder = command.at_step(3)
    kill(named(folder.name, "raylet", "gcs_server"))
    code, report, err = command.end()
    assert code == 0, (report, err)
    assert_survived(command, uninterrupted)


@pytest.mark.full
def test_a_killed_command_is_attached_to_again(runs: Path, uninterrupted: Path) -> None:
    command = train(runs).start()
    folder = command.at_step(2)
    assert command.process is not None
    command.process.kill()
    command.process.wait()
    assert marked(folder.name), "the job must live on"
    again = Command(runs, ["--resume", folder.name])
    code, report, err = again.run()
    assert code == 0, (report, err)
    assert "attached to" in err
    assert_survived(again, uninterrupted, attempts=1)


@pytest.mark.full
def test_ctrl_c_leaves_the_job_alone(runs: Path, uninterrupted: Path) -> None:
    command = train(runs).start()
    folder = command.at_step(1)
    assert command.process is not None
    command.process.send_signal(signal.SIGINT)
    code, report, _ = command.end()
    assert code == 0 and report["detached"] is True
    assert f"reprise train --resume {folder.name}" in report["findings"][-1]["fix"]
    second = train(runs)
    code, report, _ = second.run()
    assert code == 1
    assert any(finding["rule"] == "train-twice" for finding in report["findings"])
    again = Command(runs, ["--resume", folder.name[-6:]])
    code, report, err = again.run()
    assert code == 0, (report, err)
    assert_survived(again, uninterrupted, attempts=1)


@pytest.mark.full
def test_everything_is_killed_in_the_middle_of_a_checkpoint(
    runs: Path, uninterrupted: Path
) -> None:
    command = train(runs).start()
    folder = command.at_step(3)
    saved = folder.path / "checkpoints" / "global_step_4"
    processes = marked(folder.name)
    wait(saved.exists, 120, command.process, pause=0.001)
    assert command.process is not None
    os.kill(command.process.pid, signal.SIGSTOP)
    kill(processes)
    command.process.kill()
    command.process.wait()
    whole = (saved / "data.pt").exists()
    print("the checkpoint was whole" if whole else "the checkpoint was cut")
    again = Command(runs, ["--resume", folder.name])
    code, report, err = again.run()
    assert code == 0, (report, err)
    assert folder.read().attempts[1].resumed_from == 2
    assert (folder.path / "checkpoints" / "aside" / "attempt-2" / "global_step_4").exists()
    assert_survived(again, uninterrupted)


@pytest.mark.full
def test_no_second_supervisor_from_here_or_from_another_container(
    runs: Path, uninterrupted: Path
) -> None:
    command = train(runs).start()
    folder = command.at_step(2)
    for inside in ((), ("unshare", "--pid", "--fork", "--mount-proc")):
        code, report, _ = Command(runs, ["--resume", folder.name], inside=inside).run()
        assert code == 1
        (finding,) = report["findings"]
        assert finding["rule"] == "train-resume" and "supervises it" in finding["message"]
    command.at_step(3)
    kill(titled(folder.name, "ray::WorkerDict"))
    code, report, err = command.end()
    assert code == 0, (report, err)
    assert_survived(command, uninterrupted)


@pytest.mark.full
def test_a_copied_run_is_refused_and_a_moved_one_goes_on(runs: Path, uninterrupted: Path) -> None:
    command = train(runs).start()
    folder = command.at_step(3)
    stopped = subprocess.run(
        [sys.executable, "-m", "reprise", "stop", folder.name],
        env={**os.environ, "RUNS_DIR": str(runs)},
        check=False,
    )
    assert stopped.returncode == 0
    command.end()
    elsewhere = runs / "elsewhere"
    copy = elsewhere / "rehearsal" / folder.name
    shutil.copytree(folder.path, copy)
    saved = sorted(path.name for path in (folder.path / "checkpoints").iterdir())
    code, report, _ = Command(elsewhere, ["--resume", str(copy)]).run()
    assert code == 1
    (finding,) = report["findings"]
    assert finding["rule"] == "train-resume" and str(folder.path) in finding["message"]
    assert sorted(path.name for path in (folder.path / "checkpoints").iterdir()) == saved
    # Without the original it is the run, which was moved.
    shutil.rmtree(folder.path)
    moved = Command(elsewhere, ["--resume", str(copy)])
    code, report, err = moved.run()
    assert code == 0, (report, err)
    assert_survived(moved, uninterrupted)
