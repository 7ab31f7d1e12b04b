"""A host goes bad in the middle of a run: another takes its place, and no step is lost.

Also what is known of it afterwards: the logs, the clocks and the stacks of all hosts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.cluster.record import find_record
from reprise.core.findings import Report
from reprise.flows.cluster.hosts import select
from reprise.flows.train.place import HostfileCluster
from reprise.flows.train.session import run_session
from reprise.flows.triage.clocks import read_clocks
from reprise.flows.triage.explain import hosts_folder, read_triage
from reprise.runs.state.folder import RunFolder
from tests.cluster.bed import Bed, BedHost, standing_bed
from tests.cluster.conftest import Operator
from tests.cluster.test_faults import gmi
from tests.flows.command import assert_every_step_once, wait
from tests.flows.small_session import PROJECT, SmallSession, new_session
from tests.states import change

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

TRAINER = Path(__file__).resolve().parents[1] / "runs" / "ranks_trainer.py"
ECC = "uncorrectable GPU memory error (ECC)"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    with standing_bed(4) as standing:
        yield standing


@pytest.fixture(autouse=True)
def _healthy_again(bed: Bed) -> Iterator[None]:
    yield
    for host in bed.hosts:
        (host.tmp / "bad").unlink(missing_ok=True)
        for path in host.bin.iterdir():
            path.unlink()


@pytest.fixture
def session(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Operator, Path], SmallSession]]:
    """A session of three ranks on the bed, driven in this process; its cluster is stopped after."""
    operators = []

    def make(operator: Operator, hostfile: Path) -> SmallSession:
        operators.append(operator)
        for name in ("SITE", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, operator.environment()[name])
        _, selection = select(hostfile, operator.profile)
        assert selection is not None
        said: list[str] = []
        place = HostfileCluster(selection, PROJECT, said.append, wait_seconds=300)
        made = new_session(bed.folder / f"runs-{time.monotonic_ns()}", place)
        made.trainer, made.nodes = TRAINER, 3
        change(made.folder, hostfile=str(hostfile.absolute()))
        made.variables = {"NODES": "3", "SECONDS_A_STEP": "1"}
        return made

    yield make
    for operator in operators:
        assert operator.run("cluster", "down", str(bed.folder / "hostfile")).code == 0


def has_rank(host: BedHost) -> bool:
    return any("ray::Rank" in line for line in host.processes())


def at_step_three(run: RunFolder, act: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        wait(lambda: run.metrics_file(1).exists(), 500)
        wait(lambda: b'"step": 3' in run.metrics_file(1).read_bytes(), 100, pause=0.05)
        run.event("fault")
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def seconds_lost(run: RunFolder) -> dict[str, float]:
    """Seconds from the fault to what followed it, by the events of the run."""
    events = run.events()
    began = next(item["time"] for item in events if item["event"] == "fault")
    found = {}
    for item in events:
        if item["time"] >= began and item["event"] in ("ended", "evicted", "submitted"):
            found.setdefault(item["event"], item["time"] - began)
    steps = [item["time"] for item in events if item["event"] == "first step"]
    found["next step"] = steps[1] - began
    return found


def evicted_of(report: Report) -> list[str]:
    return [item.where for item in report.findings if item.rule == "train-evicted"]


def test_a_gpu_error_in_the_log_of_a_rank(
    bed: Bed, session: Callable[[Operator, Path], SmallSession]
) -> None:
    """Four hosts, three ranks: the fourth host is the spare."""
    operator = Operator(bed)
    made = session(operator, bed.hostfile())
    run = made.folder
    bad: list[BedHost] = []

    def break_one() -> None:
        bad.append(next(host for host in bed.hosts[1:] if has_rank(host)))
        (bad[0].tmp / "bad").write_text("x")

    thread = at_step_three(run, break_one)
    report = run_session(made)
    thread.join(10)
    assert report.exit_code == 0, report.findings
    first, second = run.attempts()
    assert (first.outcome, second.resumed_from) == ("failed", 2)
    assert_every_step_once(run, 6)
    assert evicted_of(report) == [bad[0].name]
    record = find_record(bed.folder / "hostfile")
    assert record is not None
    (node,) = [node for node in record.nodes if not node.active]
    assert (node.name, node.evicted, node.clear) == (bad[0].name, ECC, True)
    assert not [line for line in bad[0].processes() if "raylet" in line]
    print({name: round(value, 1) for name, value in seconds_lost(run).items()})

    # The cluster is fine without the host, which joins again once it is repaired.
    hostfile = str(bed.folder / "hostfile")
    status = operator.run("cluster", "status", hostfile)
    assert status.code == 0 and status.of("node")[0][0] == bad[0].name
    assert operator.run("cluster", "up", hostfile).of("cluster-up")
    assert operator.run("cluster", "up", hostfile, "--readmit", "node1").code == 1
    again = operator.run("cluster", "up", hostfile, "--readmit", bad[0].name)
    assert again.code == 0 and again.json["brought_back"] == [bad[0].name]
    assert operator.run("cluster", "status", hostfile).of("node") == []


def test_a_host_that_the_doctor_finds_broken_and_a_marked_spare(
    bed: Bed, session: Callable[[Operator, Path], SmallSession]
) -> None:
    """A rank dies without a word; the vendor's tool shows that its host lost the GPU."""
    for host in bed.hosts:
        host.command("mthreads-gmi", gmi(1))
    operator = Operator(bed, profile="s5000", home="state-s5000")
    hostfile = bed.hostfile()
    text = hostfile.read_text(encoding="utf-8")
    hostfile.write_text(text.replace("node4 slots=1", "node4 slots=1 spare=yes"))
    made = session(operator, hostfile)
    assert isinstance(made.place, HostfileCluster)
    # What this bed is not: hosts of S5000 with their software.
    found = operator.run("doctor", str(hostfile)).json["findings"]
    ignored = {item["rule"] for item in found if item["severity"] == "error"}
    assert "gpu-count" not in ignored, found
    made.place.ignore = tuple(ignored)
    run, host = made.folder, bed.host("node2")

    def break_it() -> None:
        host.command("mthreads-gmi", gmi(0))
        pids = [line.split()[0] for line in host.processes() if "ray::Rank" in line]
        host.run("kill", "-9", *pids)

    thread = at_step_three(run, break_it)
    report = run_session(made)
    thread.join(10)
    assert report.exit_code == 0, report.findings
    assert_every_step_once(run, 6)
    assert evicted_of(report) == ["node2"]
    (event,) = [item for item in run.events() if item["event"] == "evicted"]
    assert event["spares"] == ["node4"] and "gpu-count" in event["hosts"]["node2"]
    record = find_record(hostfile)
    assert record is not None
    assert [node.name for node in record.active] == ["node1", "node3", "node4"]
    assert has_rank(bed.host("node4")) or "node4" in run.log_file(2).read_text(encoding="utf-8")
    print({name: round(value, 1) for name, value in seconds_lost(run).items()})


def test_a_host_that_vanishes_and_a_marked_spare(
    bed: Bed, session: Callable[[Operator, Path], SmallSession]
) -> None:
    """It is not evicted, as it may come back: the spare joins because a host does not answer."""
    operator = Operator(bed, home="state-lost")
    hostfile = bed.hostfile()
    text = hostfile.read_text(encoding="utf-8")
    hostfile.write_text(text.replace("node4 slots=1", "node4 slots=1 spare=yes"))
    made = session(operator, hostfile)
    run, host = made.folder, bed.host("node2")
    thread = at_step_three(run, lambda: bed.stop(host))
    try:
        report = run_session(made)
        thread.join(10)
    finally:
        bed.start(host)
        bed.wait(host)
    assert report.exit_code == 0, report.findings
    assert_every_step_once(run, 6)
    assert evicted_of(report) == []
    record = find_record(hostfile)
    assert record is not None and [node.name for node in record.nodes if node.spare] == []
    print({name: round(value, 1) for name, value in seconds_lost(run).items()})


def hosts_of(run: RunFolder) -> dict[str, set[str]]:
    """The files that were collected, by host."""
    folders = [path for path in hosts_folder(run, 1).iterdir() if path.is_dir()]
    return {path.name: {file.name for file in path.iterdir()} for path in folders}


@pytest.mark.parametrize(
    ("fault", "category"),
    [("path", "path_missing"), ("stop", "ray_node_death"), ("cut", "ray_node_death")],
)
def test_the_logs_of_all_hosts_after_a_failure(
    bed: Bed, session: Callable[[Operator, Path], SmallSession], fault: str, category: str
) -> None:
    """One attempt on four hosts: a file that one lacks, a host that is gone or cut off."""
    made = session(Operator(bed, home=f"state-{fault}"), bed.hostfile())
    made.nodes, made.options = 4, replace(made.options, attempts=1)
    made.variables = {"NODES": "4", "SECONDS_A_STEP": "1"}
    run, host = made.folder, bed.host("node3")

    def break_it() -> None:
        if fault == "path":
            (host.tmp / "bad").write_text("path")
        elif fault == "stop":
            bed.stop(host)
        else:
            bed.cut(host)

    thread = at_step_three(run, break_it)
    try:
        report = run_session(made)
        thread.join(10)
    finally:
        if fault == "stop":
            bed.start(host)
        bed.join(host)
        bed.wait(host)
    assert report.exit_code != 0
    files = hosts_of(run)
    here = {one.name for one in bed.hosts} - ({"node3"} if fault != "path" else set())
    assert set(files) == here, files
    assert all("raylet.out" in names for names in files.values())
    clocks = read_clocks([hosts_folder(run, 1)])
    assert here | {""} <= set(clocks)
    assert all(abs(clock.ahead) <= clock.within + 0.01 for clock in clocks.values()), clocks
    found = read_triage(run)
    assert found["category"] == category, found
    # The host is the one that failed, not the one that says so.
    assert found["root"]["host"] in ("node3", host.ip)


def test_the_stacks_of_all_hosts_after_a_hang(
    bed: Bed, session: Callable[[Operator, Path], SmallSession]
) -> None:
    made = session(Operator(bed, home="state-hang"), bed.hostfile())
    made.options = replace(made.options, attempts=1, stall=20.0)
    run = made.folder
    bad: list[BedHost] = []

    def hang_one() -> None:
        bad.append(next(host for host in bed.hosts[1:] if has_rank(host)))
        (bad[0].tmp / "bad").write_text("hang")

    thread = at_step_three(run, hang_one)
    report = run_session(made)
    thread.join(10)
    assert report.exit_code != 0
    (attempt,) = run.attempts()
    assert attempt.outcome == "stalled"
    folder = hosts_folder(run, 1)
    stacks = {
        path.parent.name: path.read_text(encoding="utf-8") for path in folder.glob("*/stack-*.log")
    }
    assert len(stacks) >= 3, hosts_of(run)
    assert "step (" in stacks[bad[0].name] and "ranks_trainer.py" in stacks[bad[0].name]
