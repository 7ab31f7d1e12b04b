import math
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.runs.state.attempt import read_steps
from reprise.runs.state.folder import FINISHED, RunFolder, newest_finished
from tests.states import change


def test_state_survives_updates_and_events_keep_their_order(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "rehearsal", {"seed": 3})
    change(run, state="running")
    run.event("a", n=1)
    run.event("b")
    facts = run.read()
    assert (facts.seed, facts.status, facts.id) == (3, "running", run.name)
    assert [event["event"] for event in run.events()] == ["a", "b"]


def test_a_cut_last_event_is_left_out(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "rehearsal", {})
    run.event("whole")
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(b'{"time": 1, "ev')
    assert [event["event"] for event in run.events()] == ["whole"]
    # The command that takes the run up again writes on.
    for kind in ("resume", "ended"):
        run.event(kind)
    assert [event["event"] for event in run.events()] == ["whole", "resume", "ended"]


def test_newest_finished_skips_failed_runs(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, "m", {})
    change(first, state=FINISHED)
    later = RunFolder(first.path.with_name("29990101T000000Z-abcdef"))
    RunFolder.create(tmp_path, "m", {"state": "failed"}).path.rename(later.path)
    assert newest_finished(tmp_path, "m") == first
    assert newest_finished(tmp_path, "other") is None


def test_a_folder_that_is_no_run_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        RunFolder(tmp_path).read()
    assert str(tmp_path / "run.json") in caught.value.where
    assert "runs/<model>/" in caught.value.fix


def test_steps_are_read_from_a_file_that_is_still_written(tmp_path: Path) -> None:
    metrics = tmp_path / "m.jsonl"
    metrics.write_text(
        '{"step":0,"data":{"val-core/x/acc/mean@1":0.25}}\n'
        '{"step":1,"data":{"critic/rewards/mean":NaN,"timing_s/step":4.5}}\n'
        # Python writes it so; a step that is not counted is no progress, and a stall after a while.
        '{"step":2,"data":{"critic/rewards/min":-Infinity,"critic/rewards/mean":0.5}}\n'
        '{"step":3,"data":{"critic/rew'
    )
    steps = read_steps(metrics)
    assert [step.step for step in steps] == [0, 1, 2]
    assert (steps[0].validation, steps[1].seconds, steps[2].reward) == (0.25, 4.5, 0.5)
    assert steps[1].reward is not None and math.isnan(steps[1].reward)


def test_two_commands_that_change_a_run_at_once_lose_nothing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "tiny", {"steps": 3})
    code = (
        "import sys; from pathlib import Path; from reprise.runs.state.folder import RunFolder\n"
        "run = RunFolder(Path(sys.argv[1]))\n"
        "for n in range(80):\n"
        "    with run.edit() as state: state.forced = [*state.forced, f'{sys.argv[2]}{n}']\n"
    )
    at_work = [
        subprocess.Popen([sys.executable, "-c", code, str(folder.path), name]) for name in "ab"
    ]
    assert [process.wait(120) for process in at_work] == [0, 0]
    assert sorted(folder.read().forced) == sorted(f"{name}{n}" for name in "ab" for n in range(80))
