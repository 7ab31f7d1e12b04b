"""Attempts on a real Ray: killed, cut in a checkpoint, hung, refused, attached to, stopped."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from saved import saved_step

from reprise.core.errors import CannotTell
from reprise.core.findings import Report
from reprise.core.project import find_project
from reprise.flows.train.spare import no_other_host
from reprise.metrics import read_run
from reprise.runs.ray.jobs import Jobs, open_jobs
from reprise.runs.ray.local_ray import LocalRay, new_temp_dir, start_local_ray
from reprise.runs.state.attempt import AttemptEnd
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.pulse import supervising
from reprise.runs.supervise import supervise as supervise_module
from reprise.runs.supervise.following import Follower, follow
from reprise.runs.supervise.resume import Resume, begins_after
from reprise.runs.supervise.retry import BadHost, Failure, Policy
from reprise.runs.supervise.stopping import stop_run
from reprise.runs.supervise.supervise import GONE_RULE, OUT_OF_SIGHT, Supervised, supervise
from reprise.triage.engine import examine
from reprise.triage.report import summary
from tests.states import change

pytestmark = pytest.mark.rehearsal

HERE = Path(__file__).resolve().parent
TOTAL = 6


@dataclass
class SmallHands:
    """Submits tests/runs/small_trainer.py where a recipe would submit verl."""

    folder: RunFolder
    ray: LocalRay
    variables: dict[str, str]
    # Of the first attempt; a later one may take its time to begin.
    stall: float = 300.0
    alone: bool = True
    recipe: str = ""
    said: list[str] = field(default_factory=list)

    def ready(self) -> Jobs:
        change(self.folder, address=self.ray.address, token_file=str(self.ray.token_file))
        return self.attach()

    def attach(self) -> Jobs:
        return open_jobs(self.folder)

    def submit(self, jobs: Jobs, number: int, resume: Resume) -> None:
        variables = {
            "CHECKPOINTS": self.folder.read().checkpoints,
            "VERL_FILE_LOGGER_PATH": str(self.folder.metrics_file(number)),
            "REPRISE_ATTEMPT": str(number),
            **self.variables,
        }
        python = find_project().rehearsal_python
        command = f"{python} {HERE / 'small_trainer.py'} {self.recipe} "
        command += " ".join(resume.overrides)
        jobs.submit(f"{self.folder.name}-{number}", command, {"env_vars": variables}, {})

    def watch(self, jobs: Jobs, number: int) -> AttemptEnd:
        stall = self.stall if number == 1 else 300.0
        follower = Follower(lambda _: None, lambda _: None, stall, 5.0, 0.3)
        return follow(self.folder, number, jobs, follower)

    def cause(self, number: int) -> str:
        return summary(examine([self.folder.log_file(number)]))

    def replace(self, number: int, failure: Failure) -> BadHost | None:
        return no_other_host(failure.triaged)

    def say(self, text: str) -> None:
        self.said.append(text)


def new_run(path: Path) -> RunFolder:
    run = RunFolder.create(path, "small", {"steps": TOTAL, "visible": True, "world_size": 1})
    change(run, checkpoints=str(run.path / "checkpoints"), attempts=[])
    (run.path / "checkpoints").mkdir()
    return run


def go(run: RunFolder, hands: SmallHands, attempts: int = 3) -> Supervised:
    return supervise(run, hands, Policy(attempts, first_wait=0.1))


def assert_whole(run: RunFolder) -> None:
    """Every step has its metrics once, and its value is the one that step has."""
    series = read_run(run.path).series("critic/rewards/mean")
    assert series.steps.tolist() == list(range(1, TOTAL + 1))
    assert series.values.tolist() == pytest.approx([n / 10 for n in range(1, TOTAL + 1)])


FAULTS = {
    # fault: where the second attempt begins, and what is moved out of its way.
    "die:4": (2, []),
    "die:1": (None, []),
    "die:5": (4, []),
    "die-in-save:4": (2, ["global_step_4"]),
    "die-after-save:4": (2, ["global_step_4"]),
    "die-after-save:2": (None, ["global_step_2"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_killed_job_goes_on_from_where_no_hole_is(
    tmp_path: Path, ray: LocalRay, fault: str
) -> None:
    run = new_run(tmp_path)
    hands = SmallHands(run, ray, {"FAULT": fault})
    ended = go(run, hands)
    assert ended.finished, ended
    first, second = run.attempts()
    resumed, moved = FAULTS[fault]
    assert (first.outcome, second.outcome) == ("failed", "succeeded")
    assert second.resumed_from == resumed
    aside = run.path / "checkpoints" / "aside" / "attempt-2"
    assert [path.name for path in sorted(aside.glob("*"))] == moved
    assert_whole(run)
    assert run.read().status == "finished"


def test_a_job_that_hangs_is_stopped_and_taken_up(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)
    ended = go(run, SmallHands(run, ray, {"FAULT": "hang:3"}, stall=5))
    assert ended.finished
    assert [item.outcome for item in run.attempts()] == ["stalled", "succeeded"]
    assert_whole(run)


class DeafHands(SmallHands):
    """A Ray that ends no job: a node of it does not answer."""

    def attach(self) -> Jobs:
        jobs = super().attach()
        jobs.stop = lambda _: None  # type: ignore[method-assign]
        return jobs


def test_a_job_that_cannot_be_ended_gets_no_second_one_beside_it(
    tmp_path: Path, ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise_module, "_STOP_SECONDS", 3.0)
    run = new_run(tmp_path)
    ended = go(run, DeafHands(run, ray, {"FAULT": "hang:1"}, stall=3, alone=False))
    assert ended.why == OUT_OF_SIGHT and "did not end it" in ended.cause
    assert [item.ended for item in run.attempts()] == [None]
    open_jobs(run).stop(f"{run.name}-1")


@pytest.mark.parametrize(
    ("variables", "attempts", "why"),
    [
        ({"FAULT": "error:1", "ALWAYS": "1"}, 1, "is invalid"),
        ({"FAULT": "full:4", "ALWAYS": "1"}, 1, "storage is full"),
        ({"FAULT": "error:3", "ALWAYS": "1"}, 2, "failed the same way at the same step"),
        ({"FAULT": "die:3", "ALWAYS": "1"}, 3, "the maximum (--attempts 3)"),
    ],
)
def test_what_repeats_is_given_up(
    tmp_path: Path, ray: LocalRay, variables: dict[str, str], attempts: int, why: str
) -> None:
    run = new_run(tmp_path)
    ended = go(run, SmallHands(run, ray, variables))
    assert not ended.finished
    assert why in ended.why
    assert len(run.attempts()) == attempts
    assert run.read().status == "failed"


def test_a_later_command_goes_on_where_an_earlier_one_gave_up(
    tmp_path: Path, ray: LocalRay
) -> None:
    run = new_run(tmp_path)
    assert not go(run, SmallHands(run, ray, {"FAULT": "full:5", "ALWAYS": "1"})).finished
    ended = go(run, SmallHands(run, ray, {}))
    assert ended.finished
    assert [item.resumed_from for item in run.attempts()] == [None, 4]
    assert_whole(run)


def test_a_run_that_began_from_another_runs_checkpoint(tmp_path: Path, ray: LocalRay) -> None:
    old = saved_step(tmp_path / "old", 2, ranks=1)
    run = new_run(tmp_path)
    given = {"resume_mode": "resume_path", "resume_from_path": str(old)}
    change(run, begins_after=begins_after(given, run.path / "checkpoints"))
    words = " ".join(f"trainer.{name}={value}" for name, value in given.items())
    ended = go(run, SmallHands(run, ray, {"FAULT": "die:4"}, recipe=words))
    assert ended.finished, ended
    assert [item.resumed_from for item in run.attempts()] == [None, 2]
    assert read_run(run.path).training_steps().tolist() == [3, 4, 5, 6]


class Cut(Exception):
    """The operator's command is gone."""


@dataclass
class CutHands(SmallHands):
    """Loses its operator right after the job was submitted."""

    def watch(self, jobs: Jobs, number: int) -> AttemptEnd:
        raise Cut


def test_a_command_that_is_gone_leaves_a_job_to_attach_to(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)
    slow = {"SECONDS_A_STEP": "0.7"}
    with pytest.raises(Cut):
        go(run, CutHands(run, ray, slow))
    hands = SmallHands(run, ray, slow)
    assert go(run, hands).finished
    assert len(run.attempts()) == 1
    assert "attached to" in hands.said[0]
    assert_whole(run)
    # A second attach continues the log instead of appending all of it again.
    lines = run.log_file(1).read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.startswith("step:3 ")]) == 1


def test_a_command_that_is_gone_before_it_submitted(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)
    hands = SmallHands(run, ray, {})
    hands.ready()
    run.begin_attempt(None)
    assert go(run, hands).finished
    assert [item.outcome for item in run.attempts()] == ["interrupted", "succeeded"]
    assert_whole(run)


@dataclass
class MeanwhileHands(SmallHands):
    """Something happens once, while the first attempt's job is watched."""

    meanwhile: Callable[[], object] | None = None

    def watch(self, jobs: Jobs, number: int) -> AttemptEnd:
        if number > 1 or self.meanwhile is None:
            return super().watch(jobs, number)
        timer = threading.Timer(2, self.meanwhile)
        timer.start()
        attempt = super().watch(jobs, number)
        timer.join()
        return attempt


def test_a_head_that_vanishes_leaves_the_run_open(tmp_path: Path) -> None:
    """On a cluster the job may go on out of sight: no second one is begun beside it."""
    run = new_run(tmp_path)
    python = find_project().rehearsal_python
    log = tmp_path / "ray.log"
    vanishing = start_local_ray(python, run.name, 1, new_temp_dir(), log)
    slow = {"SECONDS_A_STEP": "30"}
    hands = MeanwhileHands(run, vanishing, slow, alone=False, meanwhile=vanishing.stop)
    ended = go(run, hands)
    assert ended.why == OUT_OF_SIGHT and not ended.finished
    assert [item.ended for item in run.attempts()] == [None]
    with pytest.raises(CannotTell) as caught:
        go(run, hands)
    assert f"--force {GONE_RULE}" in caught.value.fix
    assert len(run.attempts()) == 1
    # A private Ray that is gone took its job with it.
    hands.alone = True
    hands.ray = fresh = start_local_ray(python, run.name, 1, new_temp_dir(), log)
    hands.variables = {}
    assert go(run, hands).finished
    assert fresh.stop() == []
    assert [item.outcome for item in run.attempts()] == ["lost", "succeeded"]
    assert_whole(run)


def test_a_job_that_is_stopped_is_not_taken_up(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)

    def stop() -> None:
        change(run, stop=1.0)
        open_jobs(run).stop(f"{run.name}-1")

    hands = MeanwhileHands(run, ray, {"SECONDS_A_STEP": "30"}, meanwhile=stop)
    ended = go(run, hands)
    assert not ended.finished and "on request" in ended.why
    assert run.read().status == "stopped"
    assert len(run.attempts()) == 1


def test_a_run_that_is_stopped_between_two_attempts_stays_stopped(
    tmp_path: Path, ray: LocalRay
) -> None:
    run = new_run(tmp_path)
    hands = SmallHands(run, ray, {"FAULT": "die:1"})
    reports: list[Report] = []

    def stop() -> None:
        while not any(event["event"] == "wait" for event in run.events()):
            time.sleep(0.1)
        reports.append(stop_run(run, lambda _: None))

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    began = time.monotonic()
    with supervising(run):
        ended = supervise(run, hands, Policy(3, first_wait=120))
    stopping.join(60)
    assert time.monotonic() - began < 100, "the wait was slept to its end"
    assert not ended.finished and "on request" in ended.why
    assert len(run.attempts()) == 1
    assert run.read().status == "stopped"
    assert [item.exit_code for item in reports] == [0]


@dataclass
class LateHands(SmallHands):
    """Is asked to stop at the moment `at`; `lost`: nobody knows whether the first job arrived."""

    at: str = ""
    lost: bool = False

    def ready(self) -> Jobs:
        if self.at == "ready":
            change(self.folder, stop=1.0)
        return super().ready()

    def submit(self, jobs: Jobs, number: int, resume: Resume) -> None:
        if self.at == "submit":
            change(self.folder, stop=1.0)
        if self.lost and number == 1:
            raise CannotTell("run-jobs", "here", "the connection broke", "repeat")
        super().submit(jobs, number, resume)


@pytest.mark.parametrize(("at", "attempts"), [("ready", 0), ("submit", 1)])
def test_a_stop_before_the_job_is_there_is_heard(
    tmp_path: Path, ray: LocalRay, at: str, attempts: int
) -> None:
    run = new_run(tmp_path)
    ended = go(run, LateHands(run, ray, {"SECONDS_A_STEP": "5"}, at=at))
    assert not ended.finished and "on request" in ended.why
    assert len(run.attempts()) == attempts
    assert run.read().status == "stopped"


def test_a_submission_that_nobody_answered_stays_open(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)
    with pytest.raises(CannotTell):
        go(run, LateHands(run, ray, {}, lost=True))
    assert [item.ended for item in run.attempts()] == [None]
    assert run.read().live
    assert go(run, LateHands(run, ray, {}, lost=True)).finished
    assert [item.outcome for item in run.attempts()] == ["interrupted", "succeeded"]
    assert_whole(run)


def test_a_job_that_ends_well_without_its_steps_is_not_finished(
    tmp_path: Path, ray: LocalRay
) -> None:
    run = new_run(tmp_path)
    change(run, steps=TOTAL + 2)
    ended = go(run, SmallHands(run, ray, {}))
    assert not ended.finished
    assert "steps 7, 8 have no metrics" in ended.why


def test_steps_come_from_the_log_where_the_storage_is_not_seen(
    tmp_path: Path, ray: LocalRay
) -> None:
    run = new_run(tmp_path)
    change(run, visible=False)
    elsewhere: dict[str, Any] = {"VERL_FILE_LOGGER_PATH": str(tmp_path / "elsewhere.jsonl")}
    ended = go(run, SmallHands(run, ray, elsewhere))
    assert ended.finished, ended
    assert run.metrics_file(1).read_text(encoding="utf-8").count("\n") == TOTAL
    assert_whole(run)


def test_no_hole_where_the_storage_is_not_seen(tmp_path: Path, ray: LocalRay) -> None:
    run = new_run(tmp_path)
    change(run, visible=False, save_freq=2)
    variables = {"VERL_FILE_LOGGER_PATH": str(tmp_path / "elsewhere.jsonl")}
    ended = go(run, SmallHands(run, ray, variables | {"FAULT": "die-after-save:4"}))
    assert ended.finished, ended
    assert [item.resumed_from for item in run.attempts()] == [None, 2]
    assert_whole(run)
