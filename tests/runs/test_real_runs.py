"""Looking at a run, its log and its end, on a private Ray with real jobs."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import find_project
from reprise.flows.triage.explain import hosts_folder
from reprise.flows.triage.logs import collect_logs
from reprise.runs.ray.contact import contact_of
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.ray.local_ray import LocalRay, new_temp_dir, start_local_ray
from reprise.runs.ray.nodes import list_nodes
from reprise.runs.state.attempt import AttemptOutcome
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import PlaceKind, PrivateRay
from reprise.runs.watch.monitor import Monitor
from reprise.runs.watch.pending import pending
from reprise.runs.watch.view import Limits, View, attend, watch
from tests.saying import unique, until_said
from tests.states import change

pytestmark = pytest.mark.rehearsal

PYTHON = find_project().rehearsal_python
STEP = '{\\"step\\":%d,\\"data\\":{\\"critic/rewards/mean\\":0.5,\\"timing_s/step\\":1.0}}'
# As verl's console logger prints it, with the prefix of a Ray worker.
CONSOLE = "(TaskRunner pid=7) step:%d - critic/rewards/mean:np.float64(0.5) - timing_s/step:1.0"


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRay]:
    log = tmp_path_factory.mktemp("ray") / "ray.log"
    started = start_local_ray(PYTHON, unique("looked-at"), 1, new_temp_dir(), log)
    yield started
    assert started.stop() == []


@pytest.fixture
def begin(tmp_path: Path, ray: LocalRay) -> Iterator[Callable[..., RunFolder]]:
    """Submit a shell command as the first attempt of a new run."""
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    begun: list[str] = []

    def submit(command: str, steps: int = 9, **facts: Any) -> RunFolder:
        folder = RunFolder.create(tmp_path / "runs", "trial", {"steps": steps, "attempts": []})
        begun.append(str(folder.begin_attempt(None).job))
        access = {"address": ray.address, "token_file": str(ray.token_file), "visible": True}
        change(
            folder, **access | {"state": "running", "watcher": None, "place": "attached"} | facts
        )
        variables = {"METRICS": str(folder.metrics_file(1)), "PYTHON": str(PYTHON)}
        jobs.submit(begun[-1], command, {"env_vars": variables}, {})
        return folder

    yield submit
    for job in begun:
        jobs.stop(job)
        until(lambda: jobs.find(job) in (None, *ENDED))  # noqa: B023 (called at once)


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.3)


def reprise(folder: RunFolder, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "reprise", *words],
        env={**os.environ, "RUNS_DIR": str(folder.path.parent.parent), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(folder: RunFolder, *words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    process = reprise(folder, *words, "--json", **variables)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    value: dict[str, Any] = orjson.loads(out)
    return process.returncode, value


def state(folder: RunFolder) -> str:
    return contact_of(folder).jobs.state(f"{folder.name}-1")[0]


def test_status_of_a_running_job(begin: Callable[..., RunFolder]) -> None:
    folder = begin(f'echo "{STEP % 1}" >> "$METRICS"; echo "{STEP % 2}" >> "$METRICS"; sleep 300')
    until(lambda: state(folder) == "RUNNING" and folder.metrics_file(1).exists())
    until(lambda: Monitor(folder).look().step == 2)
    code, data = answer(folder, "status", folder.name)
    assert code == 0
    assert (data["state"], data["job"], data["step"], data["total"]) == ("running", "RUNNING", 2, 9)
    assert data["nodes"] == {"alive": 1, "known": 1, "gpus": 1.0}
    # Nobody supervises it: said, and no fault.
    assert any("no further attempt" in finding["message"] for finding in data["findings"])


def test_the_logs_of_a_private_ray_are_collected(
    begin: Callable[..., RunFolder], ray: LocalRay
) -> None:
    own = PrivateRay(temp_dir=str(ray.temp_dir))
    folder = begin("echo started; exit 3", place=PlaceKind.PRIVATE, ray=own)
    until(lambda: state(folder) == "FAILED")
    said: list[str] = []
    collect_logs(find_project(), folder, 1, True, None, said.append)
    # No worker of Ray's runs whose stacks could be read, or nothing to read them with.
    assert len(said) == 1 and said[0].startswith(
        "not collected on localhost: stacks of the workers: "
    ), said
    hosts = hosts_folder(folder, 1)
    names = {path.name for path in (hosts / "localhost").iterdir()}
    assert {"raylet.out", "gcs_server.out", f"job-driver-{folder.name}-1.log"} <= names
    assert (hosts / "clocks.json").is_file()


def test_steps_come_from_the_log_where_the_storage_is_not_seen(
    begin: Callable[..., RunFolder],
) -> None:
    lines = "; ".join(f'echo "{CONSOLE % step}"' for step in (1, 2, 3))
    folder = begin(f"{lines}; sleep 300", visible=False)
    until(lambda: state(folder) == "RUNNING")
    monitor = Monitor(folder, contact_of(folder))
    until(lambda: monitor.look().step == 3)
    seen = monitor.look()
    assert (seen.values["reward"], seen.step_seconds) == (0.5, 1.0)
    assert not folder.metrics_file(1).exists()


def test_another_token_is_an_error_and_a_copy_of_the_right_one_helps(
    begin: Callable[..., RunFolder], ray: LocalRay, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    folder = begin("sleep 300", token_file=str(wrong))
    code, data = answer(folder, "status", folder.name)
    assert code == 1
    (finding,) = data["findings"]
    assert finding["rule"] == "run-token" and "RAY_AUTH_TOKEN_PATH" in finding["fix"]
    assert "0" * 64 not in str(data)
    code, data = answer(folder, "status", folder.name, RAY_AUTH_TOKEN_PATH=str(ray.token_file))
    assert (code, data["run"]) == (0, folder.name)
    for question in (list_nodes, pending):
        with pytest.raises(OperatorError, match="token"):
            question(ray.address, None)


GROUP = (
    "import ray; from ray.util.placement_group import placement_group; "
    "ray.init(log_to_driver=False); "
    "ray.get(placement_group([{'GPU': 8, 'CPU': 1}] * 2, name='wanted').ready())"
)


def test_a_placement_group_that_fits_nowhere_is_told(
    begin: Callable[..., RunFolder], ray: LocalRay
) -> None:
    token = ray.token_file.read_text(encoding="utf-8")
    assert not pending(ray.address, token).stuck
    folder = begin(f'"$PYTHON" -c "{GROUP}"')
    until(lambda: bool(pending(ray.address, token).groups))
    (text,) = pending(ray.address, token).groups
    assert "placement group wanted needs 2 x {CPU 1, GPU 8} and is not placed" in text
    assert "INFEASIBLE" in text and "1 nodes are alive, with 1 GPUs" in text
    other = begin('"$PYTHON" -c "import ray, time; ray.init(); time.sleep(300)"')
    jobs = [f"{run.name}-1" for run in (folder, other)]
    until(lambda: not pending(ray.address, token, jobs[1]).groups)
    assert pending(ray.address, token, jobs[0]).groups == (text,)
    with folder.edit() as state:
        state.attempts[0].started = time.time() - 600
    (alarm,) = Monitor(folder, contact_of(folder)).look().standing
    assert alarm.rule == "run-alarm-silence" and "placement group wanted" in alarm.message


def test_silence_after_steps_is_an_alarm_with_nothing_pending(
    begin: Callable[..., RunFolder], ray: LocalRay
) -> None:
    token = ray.token_file.read_text(encoding="utf-8")
    until(lambda: not pending(ray.address, token).stuck)
    folder = begin(f'echo "{STEP % 1}" >> "$METRICS"; sleep 300')
    until(lambda: folder.metrics_file(1).exists() and bool(folder.metrics_file(1).read_bytes()))
    assert Monitor(folder, contact_of(folder)).look().standing == []
    seen = Monitor(folder, contact_of(folder)).look(now=time.time() + 90)
    (alarm,) = seen.standing
    assert re.search(r"no step for 9\d s, 9\d times the median step", alarm.message)
    assert "nothing is pending" in alarm.message


def test_watching_tells_steps_and_alarms_and_ends_with_the_job(
    begin: Callable[..., RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = STEP.replace("0.5", "NaN") % 2
    folder = begin(
        f'echo hello; echo "{STEP % 1}" >> "$METRICS"; echo "{bad}" >> "$METRICS"; sleep 5'
    )
    with View() as view:
        attempt = watch(folder, 1, contact_of(folder).jobs, Limits(60.0), view)
    assert (attempt.outcome, attempt.steps) == (AttemptOutcome.SUCCEEDED, 2)
    shown = capsys.readouterr().err
    assert "step 2/9" in shown and "error critic/rewards/mean@2: NaN" in shown
    assert "hello" in folder.log_file(1).read_text(encoding="utf-8")
    alarms = [event for event in folder.events() if event["event"] == "alarm"]
    assert [alarm["where"] for alarm in alarms] == ["critic/rewards/mean@2"]


def test_ctrl_c_leaves_the_job_and_the_log_can_be_followed(begin: Callable[..., RunFolder]) -> None:
    loop = 'i=0; while true; do i=$((i+1)); echo "line $i"; sleep 0.5; done'
    folder = begin(loop)
    until(lambda: state(folder) == "RUNNING")
    following = reprise(folder, "logs", "--follow", folder.name)
    until_said(following.stdout, "line ", 5)
    watching = reprise(folder, "status", "--watch", folder.name)
    assert watching.stderr is not None
    assert "step 0/9" in watching.stderr.readline()
    for process in (following, watching):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in out + err
    assert state(folder) == "RUNNING"
    code, data = answer(folder, "logs", folder.name)
    assert code == 0 and "line 5" in data["lines"]
    assert not folder.log_file(1).exists()


def test_stop_ends_this_job_alone(begin: Callable[..., RunFolder]) -> None:
    # It ignores the polite signal: Ray's firm one must end it.
    stubborn = begin("trap '' TERM; while true; do sleep 1; done")
    other = begin("sleep 300")
    until(lambda: state(stubborn) == "RUNNING" and state(other) == "RUNNING")
    code, data = answer(stubborn, "stop", stubborn.name)
    assert (code, data["state"]) == (0, "stopped")
    assert state(stubborn) == "STOPPED"
    assert state(other) == "RUNNING"
    facts = stubborn.read()
    assert facts.attempts[0].outcome == "stopped" and facts.stop
    assert answer(stubborn, "status", stubborn.name)[0] == 0


def test_a_job_that_ray_does_not_know_is_a_problem(begin: Callable[..., RunFolder]) -> None:
    folder = begin("sleep 300")
    with folder.edit() as state:
        state.attempts[0].job = "never-submitted"
    code, data = answer(folder, "status", folder.name)
    assert code == 1
    assert "does not know the job" in data["findings"][0]["message"]


def test_a_job_that_ended_unwatched_is_a_problem(begin: Callable[..., RunFolder]) -> None:
    folder = begin("exit 3")
    until(lambda: state(folder) == "FAILED")
    code, data = answer(folder, "status", folder.name)
    assert code == 1
    assert "no command supervises" in data["findings"][0]["message"]
    assert f"--resume {folder.name}" in data["findings"][0]["fix"]


@pytest.mark.full
def test_a_node_that_dies_is_told(ray: LocalRay) -> None:
    token = ray.token_file.read_text(encoding="utf-8")
    head = (ray.temp_dir / "r" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(ray.token_file)}
    second = subprocess.Popen(
        [str(PYTHON.parent / "ray"), "start", "--address", head, "--block", "--num-gpus", "2"],
        env={**os.environ, **variables, "REPRISE_RUN_ID": ray.run_id},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: sum(node.alive for node in list_nodes(ray.address, token)) == 2)
        family = psutil.Process(second.pid).children(recursive=True)
        raylet = next(process for process in family if process.name() == "raylet")
        raylet.kill()
        until(lambda: bool(pending(ray.address, token).dead))
        (text,) = pending(ray.address, token).dead
        assert "is DEAD: " in text and "Ray gives no reason" not in text
    finally:
        second.kill()
        second.wait()


@pytest.mark.full
def test_a_head_that_vanishes_while_it_is_watched_and_another_that_takes_over(
    begin: Callable[..., RunFolder],
    ray: LocalRay,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = start_local_ray(PYTHON, unique("vanishes"), 1, new_temp_dir(), tmp_path / "own.log")
    try:
        folder = begin("sleep 300")
        change(folder, address=own.address, token_file=str(own.token_file))
        Jobs(own.address, own.token_file.read_text(encoding="utf-8")).submit(
            f"{folder.name}-1", "sleep 300", {}, {}
        )
        monitor = Monitor(folder, contact_of(folder))
        with View() as view:
            looks = attend(monitor, view, patience=4.0)
            assert next(looks).job in ("PENDING", "RUNNING")
            assert own.stop() == []
            assert [seen.job for seen in looks][-1] is None
        assert monitor.unanswered is not None
        assert f"{own.address}: the state of job" in capsys.readouterr().err
    finally:
        own.stop()
    assert answer(folder, "status", folder.name)[0] == 2
    # The next attempt has a Ray of its own: who still looks finds it there.
    second = str(folder.begin_attempt(None).job)
    change(folder, address=ray.address, token_file=str(ray.token_file))
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    jobs.submit(second, "sleep 300", {}, {})
    try:
        until(lambda: monitor.look().job == "RUNNING")
        assert monitor.unanswered is None
    finally:
        jobs.stop(second)
