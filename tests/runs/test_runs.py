"""`reprise runs`, `status`, `logs` and `stop` on run folders that no cluster answers for."""

import errno
import fcntl
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from click.testing import Result
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.errors import OperatorError
from reprise.core.findings import Severity
from reprise.core.project import find_project
from reprise.flows.runs import settings_of
from reprise.flows.train.resume import may_resume, place_of, without_its_ray
from reprise.runs.ray.processes import MARK, marked
from reprise.runs.state import pulse
from reprise.runs.state.folder import RunFolder, newest_finished
from reprise.runs.state.pulse import QUIET_SECONDS, here, supervised, supervising
from reprise.runs.state.state import AttemptOutcome, Process, RunState
from reprise.runs.supervise.supervise import StopRequested, hear
from reprise.runs.watch.alarms import AlarmSettings
from tests.saying import started
from tests.states import change, write_raw

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    return lambda *words: CliRunner().invoke(app, list(words))


def made(tmp_path: Path, **facts: Any) -> RunFolder:
    folder = RunFolder.create(tmp_path / "runs", "rehearsal", {"steps": 4, "attempts": []})
    folder.begin_attempt(None)
    lines = [b'{"step": %d, "data": {"critic/rewards/mean": 0.5}}\n' % step for step in (1, 2)]
    folder.metrics_file(1).write_bytes(b"".join(lines))
    folder.log_file(1).write_text("first line\nlast line\n")
    change(folder, **facts)
    return folder


ENDS = {
    "finished": AttemptOutcome.SUCCEEDED,
    "failed": AttemptOutcome.FAILED,
    "interrupted": AttemptOutcome.INTERRUPTED,
}


def report(result: Result) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(result.stdout)
    return value


@pytest.mark.parametrize(
    ("state", "exit_code"),
    [("finished", 0), ("stopped", 0), ("dry-run", 0), ("failed", 1), ("interrupted", 1)],
)
def test_a_run_that_is_over(tmp_path: Path, call: Call, state: str, exit_code: int) -> None:
    folder = made(tmp_path, state=state)
    folder.end_attempt(1, ENDS.get(state, AttemptOutcome.STOPPED), 2, "out of memory")
    result = call("status", folder.name, "--json")
    assert result.exit_code == exit_code
    data = report(result)
    assert (data["step"], data["total"], data["state"]) == (2, 4, state)
    if exit_code:
        (finding,) = data["findings"]
        assert finding["where"] == str(folder.log_file(1))
        assert "out of memory" in finding["message"] and folder.name in finding["fix"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_cluster_that_does_not_answer_is_unknown_and_the_folder_speaks(
    tmp_path: Path, call: Call
) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    folder = made(tmp_path, state="running", address=address, token_file=None)
    result = call("status", folder.name[-6:], "--json")
    assert result.exit_code == 2
    data = report(result)
    assert (data["step"], data["verdict"]) == (2, "unknown")
    assert data["findings"][0]["where"] == address
    assert call("status", folder.name, "--watch", "--json").exit_code == 2
    logs = call("logs", folder.name)
    assert logs.exit_code == 2
    assert logs.stdout.startswith("first line\nlast line\n")
    stopped = call("stop", folder.name, "--json")
    assert stopped.exit_code == 2
    assert folder.read().status == "running"


def test_a_token_that_cannot_be_read_is_said(tmp_path: Path, call: Call) -> None:
    folder = made(tmp_path, state="running", address="http://127.0.0.1:1", token_file="/no/token")
    result = call("status", folder.name, "--json")
    assert result.exit_code == 2
    (finding,) = report(result)["findings"][:1]
    assert finding["rule"] == "run-token" and "RAY_AUTH_TOKEN_PATH" in finding["fix"]


def test_a_private_ray_that_is_gone_names_the_way_back(tmp_path: Path, call: Call) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    folder = made(tmp_path, state="running", address=address, place="private")
    result = call("status", folder.name, "--json")
    assert result.exit_code == 2
    assert f"reprise train --resume {folder.name}" in report(result)["findings"][0]["fix"]


def test_an_alarm_makes_the_status_a_problem(tmp_path: Path, call: Call) -> None:
    folder = made(tmp_path, state="finished")
    with folder.metrics_file(1).open("ab") as file:
        file.write(b'{"step": 3, "data": {"critic/rewards/mean": NaN}}\n')
    result = call("status", folder.name)
    assert result.exit_code == 1
    assert "error critic/rewards/mean@3: NaN or Inf" in result.stdout
    assert "Traceback" not in result.output


def test_the_list_has_the_newest_first_and_names_what_is_damaged(
    tmp_path: Path, call: Call
) -> None:
    for name, state in (
        ("20260101T000000Z-aaaaaa", "finished"),
        ("20260102T000000Z-bbbbbb", "running"),
    ):
        path = tmp_path / "runs" / "hy3" / name
        path.mkdir(parents=True)
        (path / "run.json").write_bytes(orjson.dumps({"state": state, "model": "hy3", "steps": 9}))
    folder = made(tmp_path, state="failed", reached=2)
    (tmp_path / "runs" / "hy3" / "20260101T000000Z-aaaaaa" / "run.json").write_text("{")
    data = report(call("runs", "--json"))
    assert [(run["id"], run["state"]) for run in data["runs"]] == [
        (folder.name, "failed"),
        ("20260102T000000Z-bbbbbb", "running, unsupervised"),
        ("20260101T000000Z-aaaaaa", "unreadable"),
    ]
    assert data["runs"][0]["step"] == 2
    assert [finding["severity"] for finding in data["findings"]] == [Severity.WARNING]
    assert len(report(call("runs", "hy3", "--json"))["runs"]) == 2
    assert len(report(call("runs", "--most", "1", "--json"))["runs"]) == 1
    shown = call("runs")
    assert f"{folder.name}" in shown.stdout and "2/4" in shown.stdout


def test_no_run_yet(call: Call) -> None:
    result = call("runs", "--json")
    assert result.exit_code == 0
    assert report(result)["runs"] == []


@pytest.mark.parametrize("command", ["status", "logs", "stop"])
def test_a_run_that_is_not_there(tmp_path: Path, call: Call, command: str) -> None:
    made(tmp_path)
    result = call(command, "nothing", "--json")
    assert result.exit_code == 1
    assert report(result)["findings"][0]["rule"] == "run-unknown"


def test_the_log_of_an_attempt(tmp_path: Path, call: Call) -> None:
    folder = made(tmp_path, state="finished")
    assert call("logs", folder.name).stdout == "first line\nlast line\n"
    assert report(call("logs", folder.name, "--json"))["lines"] == ["first line", "last line"]
    missing = call("logs", folder.name, "--attempt", "3")
    assert missing.exit_code == 1
    assert "no attempt 3" in missing.stdout


def test_without_a_name_the_newest_run_is_meant(tmp_path: Path, call: Call) -> None:
    assert call("status").exit_code == 1
    folder = made(tmp_path, state="finished")
    assert report(call("status", "--json"))["run"] == folder.name
    assert call("logs").stdout == "first line\nlast line\n"
    assert call("stop").exit_code == 2  # wrong usage: what ends a run must be named


def test_what_is_over_is_not_stopped_again(tmp_path: Path, call: Call) -> None:
    folder = made(tmp_path, state="finished")
    result = call("stop", folder.name)
    assert (result.exit_code, folder.read().status) == (0, "finished")
    assert "not running" in result.stdout


def test_what_a_run_that_is_over_has_left_is_stopped(tmp_path: Path, call: Call) -> None:
    """It holds the machine: others wait for it, and are told to stop it by this command."""
    temp_dir = tmp_path / "reprise-ray-x"
    temp_dir.mkdir()
    folder = made(tmp_path, state="interrupted", ray={"temp_dir": str(temp_dir)}, watcher=None)
    with started(["sleep", "300"], env={**os.environ, MARK: folder.name}):
        result = call("stop", folder.name)
        assert marked(folder.name) == []
    assert (result.exit_code, folder.read().status) == (0, "interrupted")
    assert "1 processes of the run were still running and have been stopped" in result.stdout
    assert not temp_dir.exists()


def test_a_private_ray_that_is_gone_does_not_hinder_the_stop(tmp_path: Path, call: Call) -> None:
    temp_dir = tmp_path / "reprise-ray-x"
    temp_dir.mkdir()
    address = f"http://127.0.0.1:{free_port()}"
    folder = made(tmp_path, state="running", address=address, ray={"temp_dir": str(temp_dir)})
    result = call("stop", folder.name)
    assert result.exit_code == 0
    facts = folder.read()
    assert facts.status == "stopped" and facts.stop
    assert facts.attempts[0].outcome == "stopped"
    assert not temp_dir.exists()


def test_a_run_whose_job_is_not_submitted_yet_is_ended_by_its_command(
    tmp_path: Path, call: Call
) -> None:
    me = psutil.Process()
    mine = {"pid": me.pid, "created": me.create_time(), "host": socket.gethostname()}
    folder = made(tmp_path, state="created", attempts=[], watcher=mine)
    result = call("stop", folder.name, "--json")
    assert result.exit_code == 0
    assert "ends before it submits" in report(result)["findings"][0]["message"]
    assert folder.read().stop
    other = made(tmp_path, state="created", attempts=[], command="reproduce", watcher=mine)
    other.log_file(1).unlink()
    assert call("stop", other.name, "--json").exit_code == 0
    with pytest.raises(StopRequested):
        hear(other)


def test_a_watch_without_the_cluster_ends_with_the_supervisor(tmp_path: Path, call: Call) -> None:
    importlib.import_module("ray.job_submission")  # takes seconds when it is first asked for
    supervisor = subprocess.Popen(["sleep", "300"])
    created = psutil.Process(supervisor.pid).create_time()
    watcher = {"pid": supervisor.pid, "created": created, "host": socket.gethostname()}
    address = f"http://127.0.0.1:{free_port()}"
    folder = made(tmp_path, state="running", address=address, watcher=watcher)
    ending = threading.Timer(3.0, supervisor.kill)
    ending.start()
    try:
        result = call("status", folder.name, "--watch")
    finally:
        ending.join()
        supervisor.wait()
    assert result.exit_code == 2
    assert "step 2/4" in result.stderr and "did not answer" in result.stderr


def test_who_supervises(tmp_path: Path) -> None:
    me = psutil.Process()
    mine = Process(pid=me.pid, created=me.create_time(), host=socket.gethostname())
    folder = made(tmp_path)
    state = folder.read()
    now = here()
    assert (now.pid, now.created, now.host) == (mine.pid, mine.created, mine.host)

    def watched(watcher: Process | None) -> RunState:
        return state.model_copy(update={"watcher": watcher})

    assert supervised(folder, watched(mine))
    assert not supervised(folder, watched(mine.model_copy(update={"created": 1.0})))
    assert not supervised(folder, watched(None))
    # One on another machine is believed as long as it has a pulse.
    elsewhere = watched(Process(pid=me.pid, created=1.0, host="elsewhere"))
    assert supervised(folder, elsewhere)
    with supervising(folder):
        assert folder.read().watcher == now
        assert supervised(folder, elsewhere, exact=True)
    assert folder.read().watcher is None
    long_ago = time.time() - QUIET_SECONDS - 60
    os.utime(folder.path / ".pulse", (long_ago, long_ago))
    assert not supervised(folder, elsewhere)
    assert not supervised(folder, elsewhere, exact=True)


def test_a_step_of_the_clock_ends_no_supervisor(tmp_path: Path) -> None:
    """Its start counts in ticks since the boot: NTP may set the clock, not those."""
    folder = made(tmp_path)
    moved = here().model_copy(update={"created": here().created - 5.0})
    state = folder.read().model_copy(update={"watcher": moved})
    assert supervised(folder, state)
    recycled = moved.model_copy(update={"ticks": (moved.ticks or 0) - 100})
    assert not supervised(folder, state.model_copy(update={"watcher": recycled}))


ASK = """
import sys
from pathlib import Path
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.pulse import supervised
folder = RunFolder(Path(sys.argv[1]))
print(supervised(folder, folder.read()))
"""
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--map-root-user")


@pytest.mark.parametrize("locks", [True, False], ids=["lock", "no lock"])
def test_another_container_on_the_host_sees_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    """Same host name, same kernel, another namespace of pids: there this pid means nothing."""
    folder = made(tmp_path)

    def asked() -> str:
        command = [*CONTAINER, sys.executable, "-c", ASK, str(folder.path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    if not locks:
        monkeypatch.setattr(pulse, "_take", lambda *_: None)
    with supervising(folder):
        assert asked() == "True"
    assert asked() == "False"


def test_only_one_command_becomes_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "_TURN_SECONDS", 0.2)
    folder = made(tmp_path)
    with supervising(folder):
        with (
            pytest.raises(OperatorError, match="another command has just begun"),
            supervising(folder),
        ):
            raise AssertionError
        assert folder.read().watcher == here()


def test_a_storage_without_locks_leaves_the_pulse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = made(tmp_path)
    with supervising(folder):
        assert supervised(folder, folder.read())
        other_boot = here().model_copy(update={"boot": "another kernel"})
        assert supervised(folder, folder.read().model_copy(update={"watcher": other_boot}))
    assert not supervised(folder, folder.read())


def test_a_pulse_goes_on_and_who_took_over_keeps_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "_BEAT_SECONDS", 0.05)
    folder = made(tmp_path)
    with supervising(folder):
        os.utime(folder.path / ".pulse", (1.0, 1.0))
        deadline = time.monotonic() + 10
        while (age := pulse.pulse_age(folder)) is None or age > 60:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        change(folder, watcher={"pid": 1, "created": 1.0, "host": "elsewhere"})
    assert folder.read().watcher.host == "elsewhere"


@pytest.mark.parametrize(("age", "exit_code"), [(0, 1), (QUIET_SECONDS + 60, 0)])
def test_a_run_that_another_machine_supervises_is_not_taken_up_beside_it(
    tmp_path: Path, age: float, exit_code: int
) -> None:
    folder = made(tmp_path, state="running", place="attached", address="http://127.0.0.1:1")
    change(folder, watcher={"pid": 1, "created": 1.0, "host": "login-2"})
    (folder.path / ".pulse").touch()
    beaten = time.time() - age
    os.utime(folder.path / ".pulse", (beaten, beaten))
    if not exit_code:
        change(folder, storage=str(folder.path), checkpoints=str(folder.path / "checkpoints"))
        may_resume(folder, folder.read())
        return
    with pytest.raises(OperatorError, match="process 1 on login-2 already supervises it"):
        may_resume(folder, folder.read())


def test_a_private_ray_of_another_machine_is_neither_stopped_nor_taken_up_here(
    tmp_path: Path, call: Call
) -> None:
    ray = {"temp_dir": "/tmp/reprise-ray-x", "host": "desk-7"}
    folder = made(tmp_path, state="running", place="private", ray=ray, address="http://127.0.0.1:1")
    for words in (("stop", folder.name), ("train", "--resume", folder.name)):
        result = call(*words, "--json")
        assert result.exit_code == 1
        (finding,) = report(result)["findings"]
        assert "private Ray is on desk-7" in finding["message"] and "on desk-7" in finding["fix"]
    assert folder.read().status == "running" and folder.read().stop is None
    looked = call("status", folder.name, "--json")
    assert looked.exit_code == 2
    assert report(looked)["step"] == 2
    assert "private Ray is on desk-7" in report(looked)["findings"][0]["message"]


def test_a_ray_that_moved_or_is_gone_for_good(tmp_path: Path) -> None:
    """The last attempt may still be running as long as its Ray does not say otherwise."""
    folder = made(tmp_path, state="running", place="attached", address="http://127.0.0.1:1")
    assert place_of(folder, folder.read(), None) == "http://127.0.0.1:1"
    address = place_of(folder, folder.read(), "http://127.0.0.1:2")
    assert address == "http://127.0.0.1:2"
    with pytest.raises(OperatorError) as caught:
        without_its_ray(folder, address, ())
    assert caught.value.rule in caught.value.fix and "--force" in caught.value.fix
    assert folder.attempts()[0].ended is None
    without_its_ray(folder, "http://127.0.0.1:1", ())
    assert folder.attempts()[0].ended is None
    without_its_ray(folder, "http://127.0.0.1:1", (caught.value.rule,))
    (attempt,) = folder.attempts()
    assert (attempt.outcome, attempt.reached) == ("lost", 2)
    with pytest.raises(OperatorError, match="existing Ray cluster"):
        other = made(tmp_path, place="hostfile")
        place_of(other, other.read(), address)


@pytest.mark.parametrize(
    "facts",
    [{"attempts": [{}]}, {"attempts": {}}, {"steps": "4"}, {"watcher": {"pid": 1}}, {"address": 7}],
)
def test_a_state_that_no_run_writes_is_said(
    tmp_path: Path, call: Call, facts: dict[str, Any]
) -> None:
    folder = made(tmp_path, state="running")
    write_raw(folder, **facts)
    for words in (("status",), ("logs",), ("stop",), ("train", "--resume")):
        result = call(*words, folder.name, "--json")
        assert result.exit_code == 1
        (finding,) = report(result)["findings"]
        assert finding["rule"] == "run-folder" and next(iter(facts)) in finding["message"]


@pytest.fixture
def other_user() -> Iterator[Callable[[], None]]:
    """Become a user who owns nothing here. Needs root, as the bed of hosts does."""
    yield lambda: os.seteuid(65534)
    os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_run_of_another_user(
    tmp_path: Path, call: Call, other_user: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path, *tmp_path.parents):
        if path == Path(tempfile.gettempdir()):
            break
        path.chmod(0o755)
    folder = made(tmp_path, state="finished", checkpoints=str(tmp_path / "saved"))
    open_to_all = made(tmp_path, state="running", address="http://127.0.0.1:1")
    (tmp_path / "saved").mkdir()
    folder.metrics_file(1).parent.chmod(0o700)
    (tmp_path / "saved").chmod(0o700)
    other_user()
    result = call("status", folder.name, "--json")
    told = {item["where"]: item["message"] for item in report(result)["findings"]}
    assert result.exit_code == 2
    assert "Permission denied" in told[str(folder.metrics_file(1))]
    assert "Permission denied" in told[str(tmp_path / "saved")]
    result = call("stop", open_to_all.name, "--json")
    assert result.exit_code == 1
    (finding,) = report(result)["findings"]
    assert finding["where"] == str(open_to_all.path) and "the owner is root" in finding["message"]


def test_a_damaged_config_hides_nothing(tmp_path: Path, call: Call) -> None:
    folder = made(tmp_path, state="finished")
    (folder.path / "config.yaml").write_bytes(b"\xff\xfe\x00{[")
    (folder.path / "events.jsonl").write_bytes(b"\xff{")
    result = call("status", folder.name, "--json")
    assert (result.exit_code, report(result)["step"]) == (0, 2)
    (folder.path / "config.yaml").write_text("data: 7\n")
    assert call("status", folder.name).exit_code == 0


def test_a_run_that_was_cut_off_while_it_was_made_is_not_taken_up(
    tmp_path: Path, call: Call
) -> None:
    folder = made(tmp_path, state="created", place="private", attempts=[])
    result = call("train", "--resume", folder.name, "--json")
    assert result.exit_code == 1
    assert "nothing was submitted" in report(result)["findings"][0]["message"]


def test_a_damaged_run_does_not_hinder_the_others(tmp_path: Path) -> None:
    whole, damaged = made(tmp_path, state="finished"), made(tmp_path, state="finished")
    damaged.state_file.write_text("{")
    assert newest_finished(tmp_path / "runs", "rehearsal") == whole


def test_the_ceiling_of_a_recipe_is_its_references(tmp_path: Path) -> None:
    folder = made(tmp_path)
    (folder.path / "config.yaml").write_text("data: {max_response_length: 8}\n")
    assert settings_of(find_project(), folder) == AlarmSettings(8, 0.015)
    change(folder, model="none")
    (folder.path / "config.yaml").write_text("- broken\n  x: [")
    assert settings_of(find_project(), folder) == AlarmSettings()
