"""The real rehearsal is resumed from its newest checkpoint, whatever else is in the folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.models.checkpoints.find import newest_complete
from reprise.runs.ray.processes import marked
from reprise.runs.supervise.resume import steps_recorded
from tests.flows.command import (
    Command,
    assert_every_step_once,
    kill,
    stop_everything,
    titled,
    wait,
)

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

TOTAL = 4
# Saved after each step: an older checkpoint is there to go back to by mistake.
SETTINGS = (
    "trainer.save_freq=1",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
    f"trainer.total_training_steps={TOTAL}",
)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_everything(tmp_path)


def add_extra_folders(checkpoints: Path, newest: int) -> list[Path]:
    """What people and tools leave in a folder of checkpoints, on both of its levels."""
    step = checkpoints / f"global_step_{newest}"
    hugging = step / "actor" / "huggingface"
    added = [step / "merged_hf", step / "actor_hf", checkpoints / "merged_hf"]
    for path in added:
        shutil.copytree(hugging, path)
    notebook = [folder / ".ipynb_checkpoints" for folder in (checkpoints, step, step / "actor")]
    for path in notebook:
        path.mkdir()
        (path / "config-checkpoint.json").write_text("{}")
    # Copies of whole and of half a step, with a greater number: none is a checkpoint of the run.
    copies = [checkpoints / f"global_step_{newest + 5}{end}" for end in (".tmp", "_old", " (copy)")]
    for path in copies:
        shutil.copytree(step, path)
    next((copies[0] / "actor").glob("model_*.pt")).unlink()
    return [*added, *notebook, *copies]


@pytest.mark.timeout(3600)
def test_extra_folders_do_not_hold_a_resume_back(runs: Path) -> None:
    command = Command(runs, ["--attempts", "1", "--", "rehearsal", *SETTINGS]).start()
    folder = command.at_step(2, seconds=1800)
    kill(titled(folder.name, "ray::WorkerDict"))
    code, report, err = command.end()
    assert code == 1, (report, err)
    (first,) = folder.read().attempts
    assert first.outcome == "failed"
    wait(lambda: not marked(folder.name), 120)
    checkpoints = folder.path / "checkpoints"
    recorded = max(steps_recorded(folder))
    newest = newest_complete(checkpoints, 1, at_most=recorded)
    assert newest.step is not None and newest.step >= 2
    assert (checkpoints / "global_step_1").is_dir()
    added = add_extra_folders(checkpoints, newest.step)
    assert newest_complete(checkpoints, 1, at_most=recorded) == newest

    code, report, err = Command(runs, ["--resume", folder.name]).run()
    assert code == 0, (report, err)
    state = folder.read()
    assert (state.status, len(state.attempts)) == ("finished", 2)
    assert state.attempts[1].resumed_from == newest.step
    assert_every_step_once(folder, TOTAL)
    # Nothing of what was added is moved or deleted.
    assert [path for path in added if not path.is_dir()] == []
