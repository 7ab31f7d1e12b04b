"""What is collected from hosts by SSH: their logs and their clocks, without any Ray."""

import os
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from reprise.cluster.record import Node, Record, new_record
from reprise.cluster.site import SshSettings
from reprise.core.project import find_project
from reprise.flows.triage.clocks import CLOCKS
from reprise.flows.triage.explain import hosts_folder, triage_attempt, triage_paths
from reprise.flows.triage.logs import collect_logs
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import PlaceKind
from reprise.triage.model import Clock
from tests.cluster.bed import Bed, BedHost, standing_bed

DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
FULL = "OSError: [Errno 28] No space left on device"
STALE = "OSError: [Errno 116] Stale file handle"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Two hosts, the clock of the second one five minutes ahead."""
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    with standing_bed(2) as standing:
        host = standing.host("node2")
        host.env = {"LD_PRELOAD": str(library), "FAKETIME": "+300s"}
        standing.restart(host)
        yield standing


@pytest.fixture
def record(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Record:
    """A cluster that was started from the hostfile, as far as the operator's records say."""
    monkeypatch.setenv("XDG_STATE_HOME", str(bed.folder / "state"))
    nodes = [Node(name=host.name, slots=1, ip=host.ip, interface="eth0") for host in bed.hosts]
    values = {"profile": "cpu", "python": "/usr/bin/python3", "engine": "", "image": None}
    ports = {"gcs_port": 6379, "dashboard_port": 8265}
    return new_record(bed.hostfile(), values | ports, nodes, "/tmp")


def fail(bed: Bed, record: Record, name: str, error: str) -> None:
    """Write a line into a worker's log with the host's own clock, logged in as Ray's start is."""
    logs = f"{record.root}/r/session_latest/logs"
    line = f'printf "%s ERROR {error}\\n" "$(date "+%Y-%m-%d %H:%M:%S,%3N")"'
    host: BedHost = bed.host(name)
    environment = [f"{key}={value}" for key, value in host.env.items()]
    script = f"mkdir -p {logs}; {line} >{logs}/worker-{name}-01000000-7.err; sleep 0.7"
    host.run("env", *environment, "sh", "-c", script)


@pytest.fixture
def run(bed: Bed, record: Record, tmp_path: Path) -> RunFolder:
    facts = {"steps": 3, "place": PlaceKind.HOSTFILE, "hostfile": record.hostfile}
    run = RunFolder.create(tmp_path / "runs", "small", facts)
    run.begin_attempt(None)
    run.log_file(1).write_text(DIED)
    return run


@pytest.mark.parametrize(
    ("order", "category"),
    [
        ((("node2", FULL), ("node1", STALE)), "disk_full"),
        ((("node1", STALE), ("node2", FULL)), "io_error"),
    ],
    ids=["the-host-ahead-first", "the-host-ahead-last"],
)
def test_the_order_across_hosts_is_by_their_measured_clocks(
    bed: Bed, record: Record, run: RunFolder, order: tuple[tuple[str, str], ...], category: str
) -> None:
    for name, error in order:
        fail(bed, record, name, error)
    said: list[str] = []
    settings = SshSettings(config=str(bed.config))
    collect_logs(find_project(), run, 1, False, settings, said.append)
    assert said == []
    hosts = orjson.loads((hosts_folder(run, 1) / CLOCKS).read_bytes())["hosts"]
    ahead = {host["name"]: (host["ahead"], host["within"]) for host in hosts}
    print(ahead)
    for name, real in (("node1", 0.0), ("node2", 300.0)):
        assert abs(ahead[name][0] - real) <= ahead[name][1] + 0.01 < 1, ahead
    found = triage_attempt(find_project(), run, 1).diagnosis
    assert found.root is not None
    assert (found.category, found.root.first.host) == (category, order[0][0])
    # The command reads the same; a clock that is given counts more.
    _, again = triage_paths(find_project(), [str(run.path)])
    assert again.diagnosis.category == category
    _, given = triage_paths(
        find_project(), [str(run.path)], clocks={bed.host("node2").ip: Clock(0.0)}
    )
    assert given.diagnosis.category == "io_error"


def test_a_host_that_does_not_answer_is_named(bed: Bed, record: Record, run: RunFolder) -> None:
    fail(bed, record, "node1", FULL)
    bed.cut(bed.host("node2"))
    try:
        said: list[str] = []
        settings = SshSettings(config=str(bed.config), connect_timeout=2)
        collect_logs(find_project(), run, 1, False, settings, said.append)
    finally:
        bed.join(bed.host("node2"))
    assert len(said) == 1 and said[0].startswith("logs of node2 were not collected: "), said
    assert [path.name for path in sorted(hosts_folder(run, 1).iterdir())] == [CLOCKS, "node1"]
    found = triage_attempt(find_project(), run, 1).diagnosis
    assert found.category == "disk_full"


def test_a_host_without_logs_and_one_without_a_clock(
    bed: Bed, record: Record, run: RunFolder
) -> None:
    fail(bed, record, "node1", FULL)
    host = bed.host("node1")
    host.command("date", "exit 1")
    try:
        said: list[str] = []
        collect_logs(find_project(), run, 1, True, SshSettings(config=str(bed.config)), said.append)
    finally:
        (host.bin / "date").unlink()
    assert any(line.startswith("the clock of node1 was not measured") for line in said), said
    assert any(f"{record.root}/r/session_latest/logs cannot be read" in line for line in said), said
    stacks = [line for line in said if "py-spy is not installed" in line]
    assert len(stacks) == 2, said
    names = [
        host["name"] for host in orjson.loads((hosts_folder(run, 1) / CLOCKS).read_bytes())["hosts"]
    ]
    assert names == ["node2"]
