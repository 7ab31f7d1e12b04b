"""run.json: files that older versions wrote, damaged ones, and commands that write at once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.errors import OperatorError
from reprise.flows.train.resume import may_resume
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import AttemptOutcome, Launcher, PlaceKind, RunState, RunStatus
from reprise.runs.supervise.resume import resume_point
from tests.states import change, write_raw

ROOT = Path(__file__).resolve().parents[2]
OLD = Path(__file__).parent / "old_runs"
RECORDED = ROOT / "recipes" / "rehearsal" / "reference" / "seed-101.jsonl"
GONE = {"process", "ray_address", "ray_temp_dir"}

# Written by the version before run.json had one: file, then what it says in today's terms.
FILES: dict[str, tuple[Launcher, RunStatus, PlaceKind | None, int]] = {
    "reproduce-running": (Launcher.REPRODUCE, RunStatus.RUNNING, None, 0),
    "reproduce-finished": (Launcher.REPRODUCE, RunStatus.FINISHED, None, 0),
    "reproduce-failed": (Launcher.REPRODUCE, RunStatus.FAILED, None, 0),
    "train-created": (Launcher.TRAIN, RunStatus.CREATED, PlaceKind.PRIVATE, 0),
    "train-private-running": (Launcher.TRAIN, RunStatus.RUNNING, PlaceKind.PRIVATE, 2),
    "train-private-finished": (Launcher.TRAIN, RunStatus.FINISHED, PlaceKind.PRIVATE, 2),
    "train-attached-failed": (Launcher.TRAIN, RunStatus.FAILED, PlaceKind.ATTACHED, 1),
    "train-hostfile-stopped": (Launcher.TRAIN, RunStatus.STOPPED, PlaceKind.HOSTFILE, 1),
}
# Exit code of `status`: 0 over, 1 failed, 2 its Ray is on another machine.
STATUS = {
    "reproduce-running": 2,
    "reproduce-finished": 0,
    "reproduce-failed": 1,
    "train-created": 0,
    "train-private-running": 2,
    "train-private-finished": 0,
    "train-attached-failed": 1,
    "train-hostfile-stopped": 0,
}


def old_run(runs: Path, name: str) -> RunFolder:
    """A run folder with the old file `name` and the metrics of one recorded run."""
    assert {path.stem for path in OLD.iterdir()} == FILES.keys() == STATUS.keys()
    path = runs / "rehearsal" / f"20260102T030405Z-{name}"
    for part in ("metrics", "logs"):
        (path / part).mkdir(parents=True)
    shutil.copy(OLD / f"{name}.json", path / "run.json")
    shutil.copy(RECORDED, path / "metrics" / "attempt-1.jsonl")
    (path / "logs" / "attempt-1.log").write_text("first line\n")
    return RunFolder(path)


def ask(runs: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setenv("RUNS_DIR", str(runs))
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, orjson.loads(done.stdout)


@pytest.mark.parametrize("name", FILES)
def test_an_older_file_is_read_and_written_back_whole(tmp_path: Path, name: str) -> None:
    folder = old_run(tmp_path, name)
    write_raw(folder, noted_by_hand={"why": "kept"})
    before = orjson.loads(folder.state_file.read_bytes())
    state = folder.read()
    found = (state.command, state.status, state.place, len(state.attempts))
    assert found == FILES[name]
    with folder.edit() as state:
        state.label = "looked at"
    after = orjson.loads(folder.state_file.read_bytes())
    assert (after["schema"], after["label"]) == (1, "looked at")
    assert not GONE & after.keys()
    # What had no new name is as it was, keys of others included.
    same = before.keys() - GONE - {"label", "attempts", "address", "token_file", "ray", "watcher"}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert folder.read().to_json() == state.to_json()


def test_the_names_of_reproduce_are_those_of_train(tmp_path: Path) -> None:
    state = old_run(tmp_path, "reproduce-running").read()
    assert state.watcher is not None and state.ray is not None
    assert (state.watcher.pid, state.watcher.host) == (4000001, "desk-7")
    assert (state.ray.temp_dir, state.ray.host) == ("/tmp/reprise-ray-x1y2z3", "desk-7")
    assert state.address == "http://127.0.0.1:34567"
    assert state.token_file == "/tmp/reprise-ray-x1y2z3/token"
    over = old_run(tmp_path, "reproduce-finished").read()
    assert (over.watcher, over.reached) == (None, 40)
    first, second = old_run(tmp_path, "train-private-running").read().attempts
    assert (first.outcome, first.reached, second.resumed_from) == (AttemptOutcome.FAILED, 4, 4)
    assert second.ended is None


def test_two_values_for_one_name_are_both_kept(tmp_path: Path) -> None:
    folder = old_run(tmp_path, "train-attached-failed")
    write_raw(folder, ray_address="http://10.9.9.9:8265")
    with folder.edit() as state:
        state.label = "x"
    after = orjson.loads(folder.state_file.read_bytes())
    assert after["address"] == "http://10.0.0.1:8265"
    assert after["ray_address"] == "http://10.9.9.9:8265"


def test_runs_lists_older_files_and_a_damaged_one_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: old_run(tmp_path, name) for name in FILES}
    damaged = [RunFolder.create(tmp_path, "hy3", {}) for _ in range(3)]
    damaged[0].state_file.write_text('{"state": "finish')
    write_raw(damaged[1], state="paused", steps="40")
    write_raw(damaged[2], schema=2)
    code, report = ask(tmp_path, monkeypatch, "runs")
    assert code == 0
    listed = {run["id"]: run["state"] for run in report["runs"]}
    for name, (_, status, _, _) in FILES.items():
        assert listed[folders[name].name].split(",")[0] == status
    assert [listed[folder.name] for folder in damaged] == ["unreadable"] * 3
    told = {finding["where"].split("/")[-2]: finding for finding in report["findings"]}
    assert told.keys() == {folder.name for folder in damaged}
    assert told[damaged[0].name]["where"].endswith("run.json:1")
    message = told[damaged[1].name]["message"]
    assert 'steps: expected a valid integer, found "40"' in message
    assert "'finished'" in message and 'found "paused"' in message
    assert "schema: expected 1, found 2" in told[damaged[2].name]["message"]
    assert "git pull" in told[damaged[2].name]["fix"]


@pytest.mark.parametrize("name", FILES)
def test_status_of_an_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = old_run(tmp_path, name)
    code, report = ask(tmp_path, monkeypatch, "status", folder.name)
    assert (code, report["state"], report["total"]) == (STATUS[name], FILES[name][1], 40)
    again = [finding["fix"] for finding in report["findings"] if finding["rule"] == "run-state"]
    if name == "reproduce-failed":
        assert "then repeat the command" in again[0]


@pytest.mark.parametrize("name", ["reproduce-finished", "train-private-finished"])
def test_an_older_run_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = old_run(tmp_path, name)
    code, report = ask(tmp_path, monkeypatch, "reproduce", "--run", str(folder.path))
    assert code in (0, 2), report["findings"]
    assert (folder.path / "verdict.json").is_file()
    code, _ = ask(
        tmp_path, monkeypatch, "curves", "compare", folder.name, "--reference", "rehearsal"
    )
    assert code in (0, 2)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("reproduce-failed", "was not started by `reprise train`"),
        ("train-private-finished", "is finished"),
        ("train-private-running", "private Ray is on desk-7"),
        ("train-created", None),
        ("train-attached-failed", None),
        ("train-hostfile-stopped", None),
    ],
)
def test_an_older_run_is_resumed(tmp_path: Path, name: str, refused: str | None) -> None:
    folder = old_run(tmp_path, name)
    if refused is not None:
        with pytest.raises(OperatorError, match=refused):
            may_resume(folder, folder.read())
        return
    may_resume(folder, folder.read())
    change(folder, checkpoints=str(tmp_path / "none"), stop=None)
    before = folder.attempts()
    point = resume_point(folder, folder.read())
    assert point.recorded == (40 if before else 0)
    attempt = folder.begin_attempt(point.step)
    assert (attempt.number, folder.attempts()[:-1]) == (len(before) + 1, before)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "as JSON"),
        ("[]", "one JSON object, found []"),
        ('{"attempts": [{"number": 1}]}', "attempts.0.job: expected a value, found none"),
        (
            '{"watcher": {"pid": "7", "created": 1}}',
            'watcher.pid: expected a valid integer, found "7"',
        ),
        ('{"schema": "1"}', 'schema: expected 1, found "1"'),
        ('{"schema": 1}', "id: expected a value, found none; model: expected a value, found none"),
    ],
)
def test_a_damaged_file_says_what_was_expected_and_found(
    tmp_path: Path, text: str, told: str
) -> None:
    folder = RunFolder.create(tmp_path, "m", {})
    folder.state_file.write_text(text)
    for act in (folder.read, lambda: folder.begin_attempt(None)):
        with pytest.raises(OperatorError) as caught:
            act()
        assert str(folder.state_file) in caught.value.where
        assert told in caught.value.message
        assert "docs/schemas/run.json" in caught.value.fix
    assert folder.state_file.read_text(encoding="utf-8") == text


def test_a_value_of_the_wrong_type_is_never_written(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "m", {"steps": 4})
    wrong: Any = "paused"
    with pytest.raises(ValidationError), folder.edit() as state:
        state.steps = 5
        state.status = wrong
    assert (folder.read().steps, folder.read().status) == (4, RunStatus.CREATED)
    with pytest.raises(TypeError, match="stepps"):
        RunFolder.create(tmp_path, "m", {"stepps": 4})


@pytest.mark.parametrize("first", ["end", "begin"])
def test_an_attempt_that_begins_while_another_is_closed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """`stop` closes attempt 1 while the supervisor begins attempt 2: neither may be lost.

    Whoever is first has read the state, and writes only when the other has ended or has waited for
    a while: without the lock around both the other is done by then, and is overwritten.
    """
    folder = RunFolder.create(tmp_path, "m", {"steps": 4})
    folder.begin_attempt(None)
    has_read, other_is_over = threading.Event(), threading.Event()
    read = RunFolder.read

    def slow_read(self: RunFolder) -> RunState:
        state = read(self)
        if threading.current_thread().name == "first" and not has_read.is_set():
            has_read.set()
            other_is_over.wait(2.0)
        return state

    monkeypatch.setattr(RunFolder, "read", slow_read)
    acts: dict[str, Callable[[], object]] = {
        "end": lambda: folder.end_attempt(1, AttemptOutcome.STOPPED, 2, "stopped on request"),
        "begin": lambda: folder.begin_attempt(2),
    }
    other = acts["begin" if first == "end" else "end"]
    slow = threading.Thread(target=acts[first], name="first")
    slow.start()
    assert has_read.wait(10.0)

    def quick() -> None:
        other()
        other_is_over.set()

    fast = threading.Thread(target=quick, name="second")
    fast.start()
    for thread in (slow, fast):
        thread.join(30.0)
        assert not thread.is_alive()
    one, two = folder.attempts()
    assert (one.number, one.outcome, one.reached) == (1, AttemptOutcome.STOPPED, 2)
    assert (two.number, two.outcome, two.resumed_from) == (2, None, 2)
