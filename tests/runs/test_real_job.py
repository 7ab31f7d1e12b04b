"""A private Ray and real jobs on it."""

import os
import shlex
from collections.abc import Callable, Iterator

import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import find_project
from reprise.flows.triage.explain import hosts_folder
from reprise.flows.triage.logs import collect_logs
from reprise.runs.ray.jobs import Jobs
from reprise.runs.ray.local_ray import LocalRay, new_temp_dir, start_local_ray
from reprise.runs.ray.processes import marked
from reprise.runs.state.attempt import AttemptEnd, AttemptOutcome, Job
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import PrivateRay
from reprise.runs.supervise.following import Follower, run_attempt
from reprise.runs.watch.progress import StepLine
from tests.saying import command_lines

pytestmark = pytest.mark.rehearsal

RECORD = '{"step":%d,"data":{"critic/rewards/mean":0.5,"timing_s/step":1.0}}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return RunFolder.create(tmp_path_factory.mktemp("runs"), "trial", {"steps": 2})


@pytest.fixture(scope="module")
def ray(folder: RunFolder) -> Iterator[LocalRay]:
    python = find_project().rehearsal_python
    log = folder.path / "logs" / "ray.log"
    started = start_local_ray(python, folder.name, 1, new_temp_dir(), log)
    yield started
    assert started.stop() == []
    assert marked(folder.name) == []
    assert not started.temp_dir.exists()


def run(
    folder: RunFolder,
    ray: LocalRay,
    number: int,
    command: str,
    stall: float = 300,
    on_stall: Callable[[], None] = lambda: None,
) -> tuple[AttemptEnd, list[StepLine], list[str]]:
    package = folder.path / "package"
    package.mkdir(exist_ok=True)
    (package / "hello.txt").write_text("hello from the package\n")
    variables = {"METRICS": str(folder.metrics_file(number))}
    job = Job(command, {"working_dir": str(package), "env_vars": variables})
    steps: list[StepLine] = []
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    follower = Follower(steps.append, print, stall, on_stall=on_stall)
    attempt = run_attempt(folder, number, jobs, job, follower)
    return attempt, steps, folder.log_file(number).read_text(encoding="utf-8").splitlines()


def test_a_job_that_ends_well_gives_its_steps_and_its_log(folder: RunFolder, ray: LocalRay) -> None:
    records = "; ".join(f"echo '{RECORD % step}' >> \"$METRICS\"" for step in (0, 1, 2))
    attempt, steps, lines = run(folder, ray, 1, f"cat hello.txt; {records}")
    assert (attempt.outcome, attempt.steps) == (AttemptOutcome.SUCCEEDED, 2)
    assert [step.step for step in steps] == [0, 1, 2]
    assert "hello from the package" in lines


HANG = """
import ray, time
@ray.remote
class Stuck:
    def wait_for_ever(self):
        time.sleep(600)
ray.init()
stuck = Stuck.remote()
ray.get(stuck.wait_for_ever.remote())
"""


def test_a_job_that_hangs_is_ended_after_its_stacks_were_taken(
    folder: RunFolder, ray: LocalRay
) -> None:
    with folder.edit() as state:
        state.ray = PrivateRay(temp_dir=str(ray.temp_dir))
    python = find_project().rehearsal_python
    said: list[str] = []
    attempt, _, _ = run(
        folder,
        ray,
        2,
        f"{python} -c {shlex.quote(HANG)}",
        stall=20,
        on_stall=lambda: collect_logs(find_project(), folder, 2, True, None, said.append),
    )
    assert attempt.outcome is AttemptOutcome.STALLED
    assert "20 s" in attempt.message
    stacks = [path.read_text() for path in hosts_folder(folder, 2).glob("localhost/stack-*.log")]
    assert said == [] and any("wait_for_ever" in text for text in stacks), (said, stacks)


def test_a_job_that_only_repeats_itself_is_ended(folder: RunFolder, ray: LocalRay) -> None:
    loop = 'i=0; while true; do i=$((i+1)); echo "waited $i s for the other side"; sleep 1; done'
    attempt, _, _ = run(folder, ray, 5, loop, stall=8)
    assert attempt.outcome is AttemptOutcome.STALLED
    assert "8 s" in attempt.message


def test_a_job_that_fails_says_so(folder: RunFolder, ray: LocalRay) -> None:
    attempt, _, lines = run(folder, ray, 3, "echo about to fail; exit 3")
    assert attempt.outcome is AttemptOutcome.FAILED
    assert "about to fail" in lines


def test_the_log_is_whole_as_soon_as_the_job_has_ended(folder: RunFolder, ray: LocalRay) -> None:
    # More than one chunk of Ray's stream, letters of several bytes, no newline at the end.
    words = (
        'for i in $(seq 3000); do echo "zeile $i: \u00e4\u00f6\u6b65"; done; sleep 2; printf ende'
    )
    _, _, lines = run(folder, ray, 4, words)
    # Ray writes lines of its own into the log, on a busy machine also between the job's.
    own = [line for line in lines if line.startswith(("zeile", "ende"))]
    assert own == [*(f"zeile {number}: äö步" for number in range(1, 3001)), "ende"]
    text = folder.log_file(4).read_text(encoding="utf-8")

    heard: list[str] = []
    part = folder.path / "part.log"
    part.write_text(text[:100])
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    jobs.tail(f"{folder.name}-4", part, heard.append).close(rest=True)
    assert part.read_text(encoding="utf-8") == text
    assert heard == lines


def test_the_token_guards_the_api_and_is_the_owners_alone(ray: LocalRay) -> None:
    assert ray.token_file.stat().st_mode & 0o077 == 0
    token = ray.token_file.read_text(encoding="utf-8")
    lines = command_lines(marked(ray.run_id))
    assert "gcs_server" in lines and token not in lines
    for wrong in ("0" * 64, None):
        with pytest.raises(OperatorError) as caught:
            Jobs(ray.address, wrong)
        assert caught.value.rule == "run-token"
    assert os.environ["NO_PROXY"].split(",").count("127.0.0.1") == 1
