"""The Jobs API behind a bad network: what is not known is not taken for an answer."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from relay import Relay

from reprise.core.errors import CannotTell, OperatorError
from reprise.flows.train import place as place_module
from reprise.flows.train.place import Need, wait_for_nodes
from reprise.runs.ray import jobs as jobs_module
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.ray.local_ray import LocalRay
from reprise.runs.state.attempt import AttemptOutcome
from reprise.runs.state.folder import RunFolder
from reprise.runs.watch.view import Limits, View, watch
from tests.states import change

pytestmark = pytest.mark.rehearsal


@pytest.fixture
def relay(ray: LocalRay) -> Iterator[Relay]:
    port = urlsplit(ray.address).port
    assert port is not None
    made = Relay(port)
    yield made
    made.close()


@pytest.fixture
def jobs(relay: Relay, ray: LocalRay) -> Jobs:
    return Jobs(relay.address, ray.token_file.read_text(encoding="utf-8"))


def test_only_rays_own_word_says_that_a_job_is_unknown(relay: Relay, jobs: Jobs) -> None:
    # A run that began at 14:04: its id, and with it every error of a connection, holds a 404.
    job = "20260101T140400Z-aaaaaa-1"
    assert jobs.find(job) is None
    relay.close()
    with pytest.raises(CannotTell):
        jobs.find(job)


def test_a_job_whose_submission_was_not_answered_is_not_submitted_twice(
    relay: Relay, jobs: Jobs
) -> None:
    cut: list[bytes] = []

    def lose_the_first_answer(request: bytes) -> str:
        if not request.startswith(b"POST /api/jobs/") or cut:
            return ""
        cut.append(request)
        return "lost"

    relay.fault = lose_the_first_answer
    jobs.submit("lost-answer-1", "sleep 1", {}, {})
    assert cut
    assert jobs.find("lost-answer-1") is not None


def test_a_submission_that_never_arrives_leaves_the_question_open(
    relay: Relay, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "_AGENT_SECONDS", 2.0)
    relay.close()
    with pytest.raises(CannotTell, match="during the submission of job never-1"):
        jobs.submit("never-1", "true", {}, {})


def test_a_dashboard_that_hangs_is_not_waited_for_without_end(
    relay: Relay, jobs: Jobs, ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "_READ_SECONDS", 1.0)
    relay.fault = lambda _: "deaf"
    began = time.monotonic()
    for ask in (
        lambda: jobs.state("any-1"),
        lambda: jobs.log("any-1"),
        lambda: Jobs(relay.address, ray.token_file.read_text(encoding="utf-8")),
    ):
        with pytest.raises(CannotTell):
            ask()
    assert time.monotonic() - began < 20


def test_a_token_that_is_no_longer_taken_is_said(ray: LocalRay) -> None:
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    jobs.submit("old-token-1", "true", {}, {})
    while jobs.state("old-token-1")[0] not in ENDED:
        time.sleep(0.3)
    jobs._client._headers["Authorization"] = "Bearer of-yesterday"
    for ask in (
        lambda: jobs.state("old-token-1"),
        lambda: jobs.log("old-token-1"),
        lambda: jobs.submit("old-token-2", "true", {}, {}),
    ):
        with pytest.raises(OperatorError) as caught:
            ask()
        assert caught.value.rule == "run-token"
        assert "rejected the one that was sent" in caught.value.message
    jobs.stop("old-token-1")


def test_a_head_that_is_away_for_a_while_is_waited_for(
    relay: Relay, ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place_module, "_ASK_SECONDS", 0.2)
    token, need, said = str(ray.token_file), Need(1, 1), []
    relay.fault = lambda _: "lost"
    back = threading.Timer(3.0, lambda: setattr(relay, "fault", lambda _: ""))
    back.start()
    wait_for_nodes(relay.address, token, need, 60.0, said.append)
    back.join()
    assert len(said) == 1 and "the list of nodes could not be read" in said[0]
    relay.fault = lambda _: "lost"
    with pytest.raises(CannotTell, match="could not be read"):
        wait_for_nodes(relay.address, token, need, 1.0, said.append)
    with pytest.raises(CannotTell, match="token"):
        wait_for_nodes(relay.address, "/no/token", need, 60.0, said.append)


def test_a_head_that_is_silent_for_a_while_does_not_end_the_watch(
    relay: Relay, ray: LocalRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, "trial", {"steps": 1, "attempts": []})
    job = str(folder.begin_attempt(None).job)
    access = {"address": relay.address, "token_file": str(ray.token_file), "place": "attached"}
    change(folder, state="running", **access)
    straight = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    straight.submit(job, "sleep 12", {}, {})
    jobs = Jobs(relay.address, ray.token_file.read_text(encoding="utf-8"))
    timers = [
        threading.Timer(2.0, lambda: setattr(relay, "fault", lambda _: "lost")),
        threading.Timer(9.0, lambda: setattr(relay, "fault", lambda _: "")),
    ]
    for timer in timers:
        timer.start()
    with View(plain=True) as view:
        attempt = watch(folder, 1, jobs, Limits(60.0, 60.0), view)
    for timer in timers:
        timer.join()
    assert attempt.outcome is AttemptOutcome.SUCCEEDED
    told = [
        line for line in capsys.readouterr().err.splitlines() if "waiting up to 1.0 min" in line
    ]
    assert len(told) == 1
