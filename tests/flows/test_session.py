"""A whole session with a small job: its folder, its end, and what other shells see and do."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psutil
import pytest

from reprise.cluster.site import Site
from reprise.core.errors import CannotTell
from reprise.core.files import try_lock
from reprise.core.findings import Report
from reprise.core.wait import wait_until
from reprise.flows.train.checks import Where, _twice
from reprise.flows.train.place import Attached, Private
from reprise.flows.train.session import run_session
from reprise.metrics import read_run
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.ray.local_ray import LocalRay, free_port, new_temp_dir
from reprise.runs.ray.processes import MARK, marked, stop_all
from reprise.runs.state.folder import RunFolder, StorageFull
from tests.flows.small_session import PROJECT, SmallSession, new_session
from tests.locks import without_locks
from tests.saying import unique
from tests.states import change

pytestmark = pytest.mark.rehearsal


@pytest.fixture
def session(tmp_path: Path, ray: LocalRay) -> SmallSession:
    return new_session(tmp_path, Attached(ray.address, str(ray.token_file), lambda _: None))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes. Needs root, as the bed of hosts does."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def shell(run: RunFolder, *words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "reprise", *words, "--json"],
        env={**os.environ, "RUNS_DIR": str(run.path.parent.parent), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, orjson.loads(done.stdout)


def when(run: RunFolder, event: str, act: Any) -> threading.Thread:
    def wait() -> None:
        deadline = time.monotonic() + 600
        while not any(item["event"] == event for item in run.events()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_to_the_last_step_and_nobody_else_beside_it(session: SmallSession) -> None:
    run = session.folder
    session.variables = {"SECONDS_A_STEP": "4"}
    answers: list[tuple[int, dict[str, Any]]] = []
    other = when(
        run, "first step", lambda: answers.append(shell(run, "train", "--resume", run.name))
    )
    report = run_session(session)
    other.join(60)
    assert report.exit_code == 0, report.findings
    facts = run.read()
    assert (facts.status, facts.watcher, len(facts.attempts)) == ("finished", None, 1)
    ((code, answer),) = answers
    assert code == 1
    assert f"process {os.getpid()} on " in answer["findings"][0]["message"]
    assert "already supervises it" in answer["findings"][0]["message"]


def test_stop_from_another_shell_between_two_attempts(session: SmallSession) -> None:
    run = session.folder
    session.variables = {"FAULT": "die:1", "ALWAYS": "1"}
    answers: list[tuple[int, dict[str, Any]]] = []
    other = when(run, "wait", lambda: answers.append(shell(run, "stop", run.name)))
    report = run_session(session)
    other.join(60)
    ((code, answer),) = answers
    assert (code, answer["state"]) == (0, "stopped")
    assert report.exit_code == 1 and "on request" in next(report.errors()).message
    facts = run.read()
    assert (facts.status, facts.watcher, len(facts.attempts)) == ("stopped", None, 1)


def fill(disk: Path) -> None:
    """Leave no byte of a file system, whoever writes to it meanwhile."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def assert_whole(run: RunFolder) -> None:
    series = read_run(run.path).series("critic/rewards/mean")
    assert series.steps.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_full_disk_names_the_way_on_and_one_resume_is_enough(
    small_disk: Path, ray: LocalRay
) -> None:
    place = Attached(ray.address, str(ray.token_file), lambda _: None)
    session = new_session(small_disk, place)
    run = session.folder
    session.variables = {"SECONDS_A_STEP": "3"}
    other = when(run, "first step", lambda: fill(small_disk))
    with pytest.raises(StorageFull) as caught:
        run_session(session)
    other.join(60)
    assert caught.value.where == str(run.path)
    assert "No space left on device" in caught.value.message
    assert caught.value.fix == f"free space, then: reprise train --resume {run.name}"
    code, answer = shell(run, "stop", run.name)
    assert code == 1
    assert answer["findings"][-1]["fix"] == f"free space, then: reprise stop {run.name}"
    (small_disk / "filler").unlink()
    session.variables = {}
    report = run_session(session)
    assert report.exit_code == 0, report.findings
    assert_whole(run)


@pytest.mark.full
def test_a_full_disk_ends_the_ray_of_the_runs_own(small_disk: Path) -> None:
    place = Private(PROJECT.rehearsal_python, lambda _: None)
    session = new_session(small_disk, place)
    run = session.folder
    session.variables = {"SECONDS_A_STEP": "3"}
    other = when(run, "first step", lambda: fill(small_disk))
    with pytest.raises(StorageFull):
        run_session(session)
    other.join(60)
    assert marked(run.name) == []
    (small_disk / "filler").unlink()
    session.variables = {}
    report = run_session(session)
    assert report.exit_code == 0, report.findings
    assert_whole(run)
    assert marked(run.name) == []


@pytest.mark.full
def test_a_process_that_is_stopped_for_ever_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    session = new_session(tmp_path, Private(PROJECT.rehearsal_python, lambda _: None))
    run = session.folder
    session.options = replace(session.options, stall=6.0)
    session.variables = {"FAULT": "stop:3"}
    report = run_session(session)
    assert report.exit_code == 0, report.findings
    first, second = run.attempts()
    assert (first.outcome, second.outcome) == ("stalled", "succeeded")
    assert re.search(r"stopped by a signal \(state T\): \d+ \(python", str(first.message))
    assert_whole(run)
    assert marked(run.name) == []


@pytest.mark.full
def test_a_pause_longer_than_the_stall_ends_no_job(tmp_path: Path) -> None:
    run = new_session(tmp_path, Private(PROJECT.rehearsal_python, lambda _: None)).folder
    command = [sys.executable, "-m", "tests.flows.small_session", str(run.path), "", "", "1", "12"]
    supervisor = subprocess.Popen(command, cwd=PROJECT.root)
    when(run, "first step", lambda: None).join(300)
    everyone = [psutil.Process(supervisor.pid), *marked(run.name)]
    for process in everyone:
        process.suspend()
    time.sleep(26)
    for process in everyone:
        process.resume()
    assert supervisor.wait(120) == 0
    assert [attempt.outcome for attempt in run.attempts()] == ["succeeded"]
    (paused,) = (item for item in run.events() if item["event"] == "paused")
    assert 20 < paused["seconds"] < 60
    assert_whole(run)
    assert marked(run.name) == []


@pytest.fixture(params=["token", "no token"])
def place(request: pytest.FixtureRequest) -> Attached:
    """A Ray that asks for its token, and one that others started without."""
    if request.param == "no token":
        return Attached(request.getfixturevalue("open_ray"), None, lambda _: None)
    ray = request.getfixturevalue("ray")
    return Attached(ray.address, str(ray.token_file), lambda _: None)


@pytest.fixture
def open_ray(tmp_path: Path) -> Iterator[str]:
    name, temp_dir = unique("open"), new_temp_dir()
    try:
        for attempt in range(3):
            dashboard, *ports = (str(free_port()) for _ in range(4))
            command = [
                *(str(PROJECT.rehearsal_python.parent / "ray"), "start", "--head", "--block"),
                *("--node-ip-address", "127.0.0.1", "--port", ports[0], "--num-gpus", "1"),
                *("--dashboard-host", "127.0.0.1", "--dashboard-port", dashboard),
                *("--ray-client-server-port", ports[1], "--dashboard-agent-listen-port", ports[2]),
                *("--object-store-memory", str(128 * 2**20)),
                *("--temp-dir", str(temp_dir / f"r{attempt}"), "--disable-usage-stats"),
            ]
            address = f"http://127.0.0.1:{dashboard}"
            if stands(command, name, address, tmp_path / f"ray-{attempt}.log"):
                yield address
                return
            # On a busy machine, Ray's client server gives up after 30 s and --block ends all.
            assert stop_all(name) == []
        raise AssertionError((tmp_path / "ray-2.log").read_text())
    finally:
        assert stop_all(name) == []
        shutil.rmtree(temp_dir)


def stands(command: list[str], name: str, address: str, log: Path) -> bool:
    """Start a Ray; whether it answers, and its `--block` finds all its processes alive."""
    variables = {**os.environ, MARK: name, "RAY_AUTH_MODE": "disabled"}
    variables["RAY_enable_worker_prestart"] = "0"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=variables, stdout=file, stderr=file)

    def answers() -> bool:
        if process.poll() is not None:
            return True
        with contextlib.suppress(CannotTell):
            found = Jobs(address, None).find("nothing") is None
            return found and "block forever" in log.read_text(errors="replace")
        return False

    assert wait_until(answers, 240), log.read_text()
    time.sleep(3)  # It looks at them once a second.
    return process.poll() is None


def in_container(
    run: RunFolder, place: Attached, pace: str, **variables: str
) -> "subprocess.Popen[bytes]":
    """The session in a namespace of pids of its own, where those of run.json mean nothing."""
    here = [sys.executable, "-m", "tests.flows.small_session", str(run.path), place.address]
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *here]
    command = [*words, place.token_file or "", pace]
    return subprocess.Popen(command, cwd=PROJECT.root, env={**os.environ, **variables})


def test_killed_resumed_and_stopped_in_containers(tmp_path: Path, place: Attached) -> None:
    session = new_session(tmp_path, place)
    run = session.folder
    change(run, address=place.address, token_file=place.token_file)
    first = in_container(run, place, "20")
    when(run, "first step", first.kill).join(300)
    first.wait(60)
    assert run.read().open_attempt() is not None
    second = in_container(run, place, "20")
    when(run, "attached", lambda: None).join(300)
    code, answer = shell(run, "stop", run.name)
    assert (code, answer.get("state")) == (0, "stopped"), answer
    assert second.wait(120) == 1
    (attempt,) = run.attempts()
    assert attempt.outcome == "stopped"
    session.variables = {}
    # The operator's word again: a run that was stopped goes on from its last checkpoint.
    change(run, stop=None)
    assert run_session(session).exit_code == 0
    assert_whole(run)


def test_a_second_supervisor_is_refused_on_storage_without_locks(
    tmp_path: Path, ray: LocalRay
) -> None:
    place = Attached(ray.address, str(ray.token_file), lambda _: None)
    run = new_session(tmp_path, place).folder
    change(run, address=place.address, token_file=place.token_file)
    variables = without_locks(tmp_path)
    first = in_container(run, place, "2", **variables)
    when(run, "first step", lambda: None).join(300)
    with (run.path / ".supervisor").open("ab") as file:
        assert try_lock(file.fileno()), "the stand-in for such storage had a lock"
    code, answer = shell(run, "train", "--resume", run.name, **variables)
    assert code == 1
    assert "already supervises it" in answer["findings"][0]["message"]
    assert first.wait(120) == 0
    assert (run.read().status, len(run.attempts())) == ("finished", 1)
    assert_whole(run)


def test_the_same_recipe_is_not_submitted_there_twice(session: SmallSession, ray: LocalRay) -> None:
    run = session.folder
    job = str(run.begin_attempt(None).job)
    # As a command leaves it that is killed between the submission and its note of it.
    change(run, address=ray.address, token_file=str(ray.token_file), state="created")
    damaged = RunFolder.create(run.path.parent.parent, "rehearsal", {})
    damaged.state_file.write_text("{")
    project: Any = SimpleNamespace(runs=run.path.parent.parent)
    task: Any = SimpleNamespace(name="rehearsal")

    def told(address: str) -> list[str]:
        report = Report("train")
        _twice(report, project, task, Where("attached", address, "rehearsal", Site()))
        return [finding.where for finding in report.errors()]

    assert told(ray.address) == []
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    jobs.submit(job, "sleep 300", {}, {})
    assert told(ray.address) == [run.name]
    assert told("http://elsewhere:8265") == []
    jobs.stop(job)
    deadline = time.monotonic() + 60
    while jobs.state(job)[0] not in ENDED:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert told(ray.address) == []
