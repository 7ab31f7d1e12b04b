"""docs/slurm.md: its commands, as typed, on Debian's own Slurm; a job that is cancelled."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.runs.state.attempt import read_steps
from reprise.runs.state.folder import RunFolder, recent_runs
from reprise.runs.state.state import RunStatus
from tests.cluster.bed import Bed, standing_bed
from tests.cluster.conftest import ROOT, Operator
from tests.cluster.slurm import PACKAGES, Slurm, missing
from tests.cluster.test_cluster import leftovers
from tests.flows.command import assert_every_step_once, wait

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

PAGE = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
SCRIPT, WITH_OPTIONS, SALLOC, BY_HAND, RESUME = BLOCKS
QUICK = "trainer.val_before_train=false trainer.test_freq=-1"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    if absent := missing():
        pytest.skip(f"no {', '.join(absent)} here: apt-get install {PACKAGES}")
    with standing_bed(4) as standing:
        yield standing


@pytest.fixture(scope="module")
def slurm(bed: Bed) -> Iterator[Slurm]:
    slurm = Slurm(bed)
    try:
        slurm.up()
        yield slurm
    finally:
        slurm.down()


class User:
    """Who types in the checkout on the login node."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.operator = Operator(slurm.bed)
        self.folder = slurm.bed.folder / f"job-{time.monotonic_ns()}"
        self.folder.mkdir()
        for name in ("examples", ".venv"):
            (self.folder / name).symlink_to(ROOT / name)

    def types(self, text: str) -> str:
        """Lines of the page; hostfile, output and runs are in a folder of the test's."""
        own = {k: v for k, v in self.operator.environment().items() if os.environ.get(k) != v}
        env = {**own, "RUNS_DIR": str(self.folder / "runs")}
        return self.slurm.run("sh", "-ec", f"cd {shlex.quote(str(self.folder))}\n{text}", env=env)

    def submit(self, text: str) -> str:
        return re.search(r"Submitted batch job (\d+)", self.types(text))[1]  # type: ignore[index]

    def output(self, job: str) -> str:
        return (self.folder / f"slurm-{job}.out").read_text(encoding="utf-8")

    def ended(self, job: str, seconds: float = 900) -> str:
        """Wait for the end of a job; its state."""
        self.slurm.wait(lambda: not self.slurm.run("squeue", "-h", "-j", job).strip(), seconds)
        return self.slurm.state(job)

    def run(self, seconds: float = 120) -> RunFolder:
        return wait(
            lambda: next(iter(recent_runs(self.folder / "runs", "rehearsal")), None), seconds
        )


@pytest.fixture
def user(slurm: Slurm) -> User:
    return User(slurm)


def assert_nothing_left(user: User) -> None:
    """Slurm's own daemons are what the hosts have besides sshd."""
    daemons = ("munged", "slurmd", "slurmctld", "slurmscriptd", "slurmstepd")
    left = {
        host.name: found
        for host in user.slurm.bed.hosts
        if (
            found := [
                line
                for line in leftovers(host)
                if not any(word in line for word in daemons) and ":681" not in line
            ]
        )
    }
    assert left == {}
    assert not list(user.operator.state.rglob("cluster.json"))


def test_by_hand_with_the_gpus_that_slurm_counts(user: User) -> None:
    shell = f"PATH=$PWD/.venv/bin:$PATH\n{BY_HAND}"
    said = user.types(f"{SALLOC.strip()} sh -exc {shlex.quote(shell)} 2>&1")
    assert "node[2-4]: ok" in said and "cluster down: ok" in said, said
    assert (user.folder / "hosts").read_text(encoding="utf-8") == (
        "node2 slots=1\nnode3 slots=1\nnode4 slots=1\n"
    )
    assert_nothing_left(user)
    counted = "srun --ntasks=1 --gpus-per-node=2 --exclusive .venv/bin/reprise hosts --slurm"
    assert user.types(counted) == "node2 slots=2\n"
    assert "SLURM_JOB_NODELIST" in user.types(".venv/bin/reprise hosts --slurm 2>&1 || test $? = 1")


def test_a_job_from_submission_to_nothing_left(user: User) -> None:
    lines = WITH_OPTIONS.strip().splitlines()
    job = user.submit(f"{lines[0]} {QUICK}\n" + "\n".join(lines[1:]))
    assert user.ended(job) == "COMPLETED", user.output(job)
    assert user.run().read().status is RunStatus.FINISHED
    assert_every_step_once(user.run(), 2)
    assert_nothing_left(user)


def test_a_cancelled_job_and_its_run_on_other_hosts(user: User) -> None:
    slurm = user.slurm
    settings = f"{QUICK} trainer.total_training_steps=4 trainer.save_freq=1"
    job = user.submit(f"{SCRIPT.strip()} {settings}")
    metrics = user.run().metrics_file(1)
    wait(lambda: any(item.step >= 2 for item in read_steps(metrics)), 600)
    began = time.monotonic()
    user.types(f"scancel {job}")
    assert user.ended(job, 90) == "CANCELLED"
    print(f"gone {time.monotonic() - began:.1f} s after scancel")
    assert "cluster down: ok" in user.output(job)
    assert_nothing_left(user)

    # Slurm counts the GPUs of an exclusive job even where it did not ask for them.
    hosts = (user.folder / f"hosts.{job}").read_text(encoding="utf-8")
    assert hosts == "node2 slots=2\nnode3 slots=2\n"
    slurm.run("scontrol", "update", "nodename=node2", "state=drain", "reason=test")
    try:
        again = user.submit(RESUME.replace("JOB", job).replace("RUN", user.run().name))
        assert user.ended(again) == "COMPLETED", user.output(again)
    finally:
        slurm.run("scontrol", "update", "nodename=node2", "state=resume")
    assert_every_step_once(user.run(), 4)
    second = user.run().attempts()[1]
    assert second.resumed_from is not None and second.resumed_from >= 1
    hosts = (user.folder / f"hosts.{job}").read_text(encoding="utf-8")
    assert hosts == "node3 slots=2\nnode4 slots=2\n"
    assert_nothing_left(user)


@pytest.mark.parametrize("moment", ["doctor", "start Ray on", "1 of 1 started"])
def test_a_job_that_ends_while_its_cluster_starts(user: User, moment: str) -> None:
    """Only the script hears it, as at the time limit."""
    job = user.submit(SCRIPT)
    out = user.folder / f"slurm-{job}.out"
    wait(lambda: out.exists() and moment in out.read_text(encoding="utf-8"), 120, pause=0.05)
    user.types(f"scancel --batch --signal=TERM {job}")
    assert user.ended(job, 120) == "FAILED"
    said = user.output(job)
    assert "cluster down" in said and "asyncio" not in said and "Task was" not in said, said
    assert not list((user.folder / "runs").glob("*/*")), Path(said)
    assert_nothing_left(user)
