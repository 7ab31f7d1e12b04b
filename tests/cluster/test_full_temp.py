"""A full temp folder: the doctor refuses it, a start leaves nothing, `down` always ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.cluster.record import Node, find_record, new_record
from reprise.cluster.ssh import assignments
from reprise.core.findings import Severity
from tests.cluster.bed import Bed, BedHost
from tests.cluster.conftest import ROOT, Operator
from tests.cluster.make import base, judged, of

ID = "5c0ffee0" + "0" * 24


def node(script: str, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    values = {"N_ID": ID, "N_ROOT": str(root), "N_TOKEN": "secret"}
    text = assignments(values) + "set -- " + " ".join(words) + "\n"
    return subprocess.run(
        ["sh", "-s"], input=text + (ROOT / "scripts" / script).read_text(encoding="utf-8"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("disk", "inodes", "said"),
    [
        ("9000000000 1000 w present /tmp", "500000 /tmp", "0.98 MiB"),
        ("9000000000 8000000000 w present /tmp", "0 /tmp", "0 files free"),
        ("9000000000 8000000000 w present /tmp", "- /tmp", None),
        ("9000000000 8000000000 w present /tmp", "500000 /tmp", None),
    ],
)
def test_the_doctor_refuses_a_full_temp_folder(disk: str, inodes: str, said: str | None) -> None:
    text = base("n1").replace("9000000000 8000000000 w present /tmp", disk)
    found = of(judged({"n1": text + f"= inodes {inodes}\n"}), "disk")
    if said is None:
        assert not found
    else:
        (finding,) = found
        assert finding.severity is Severity.ERROR
        assert said.replace("0.98", "1") in finding.message


def test_a_start_that_ends_leaves_a_folder_that_stop_removes(tmp_path: Path) -> None:
    root = tmp_path / "rp-5c0ffee0"
    done = node("node_start.sh", root, "true")
    assert done.returncode == 0 and (root / ".reprise").read_text(encoding="utf-8").strip() == ID
    assert node("node_start.sh", root, "true").returncode == 1
    stopped = node("node_stop.sh", root)
    assert stopped.stdout == "= stopped yes\n" and not root.exists()


@pytest.mark.parametrize("mark", ["", None])
def test_stop_removes_the_remains_of_a_start_that_could_not_write(
    tmp_path: Path, mark: str | None
) -> None:
    root = tmp_path / "rp-5c0ffee0"
    root.mkdir()
    (root / "token").touch()
    if mark is not None:
        (root / ".reprise").write_text(mark)
    assert node("node_stop.sh", root).stdout == "= stopped yes\n" and not root.exists()


@pytest.mark.parametrize("kind", ["mark", "files", "link"])
def test_stop_names_what_it_may_not_remove(tmp_path: Path, kind: str) -> None:
    root, kept = tmp_path / "rp-5c0ffee0", tmp_path / "mine"
    kept.mkdir()
    (kept / "thesis.tex").write_text("x")
    if kind == "link":
        root.symlink_to(kept)
    else:
        kept.rename(root)
    if kind == "mark":
        (root / ".reprise").write_text("another cluster\n")
    done = node("node_stop.sh", root)
    assert done.stdout == f"= strange {root}\n= stopped yes\n"
    assert (root / "thesis.tex").exists()


@pytest.fixture
def full(bed: Bed) -> Iterator[BedHost]:
    """node2 with a /tmp of 64 KiB that is full."""
    host = bed.host("node2")
    host.run("mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "full", "/tmp")
    host.run("sh", "-c", "cat /dev/zero >/tmp/zeros 2>/dev/null; true")
    yield host
    host.run("umount", "-l", "/tmp")


def record_of(
    bed: Bed, operator: Operator, monkeypatch: pytest.MonkeyPatch, hostfile: Path
) -> Path:
    """A record as `up` writes it before it starts anything; returns the cluster's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(operator.state))
    nodes = [Node(name=h.name, slots=1, ip=h.ip, interface="eth0") for h in bed.hosts]
    values = {
        **{"profile": "cpu", "python": "/usr/bin/python3", "engine": "docker", "image": None},
        **{"gcs_port": 6379, "dashboard_port": 8265},
    }
    return Path(new_record(hostfile, values, nodes, "/tmp").root)


@pytest.mark.rehearsal
def test_nothing_starts_and_down_ends(
    bed: Bed, operator: Operator, full: BedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostfile = bed.hostfile()
    up = operator.run("cluster", "up", str(hostfile))
    assert up.code == 1 and not list(operator.state.rglob("cluster.json"))
    assert [where for where, message in up.of("disk") if "0 MiB" in message] == ["node2"]

    # As if the folder had filled up in between: the start script itself refuses.
    root = record_of(bed, operator, monkeypatch, hostfile)
    script = assignments({"N_ID": "a" * 32, "N_ROOT": str(root), "N_TOKEN": "secret"})
    script += (ROOT / "scripts/node_start.sh").read_text(encoding="utf-8")
    said = full.run("sh", "-c", f"set -- true\n{script}\necho not reached", check=False)
    assert "not reached" not in said and not full.run("sh", "-c", "ls /tmp | grep rp-; true")

    # Remains without a mark, as an earlier version left them; node3 has a stranger's folder.
    full.run("mkdir", str(root))
    theirs = bed.host("node3").tmp / root.name
    theirs.mkdir()
    (theirs / "thesis.tex").touch()
    down = operator.run("cluster", "down", str(hostfile))
    assert down.code == 0, down.json["findings"]
    ((where, message),) = down.of("stop")
    assert where == "node3" and f"{root} is not a folder of this cluster" in message
    fixes = [f["fix"] for f in down.json["findings"]]
    assert fixes == [f"inspect it: ssh -F {bed.config} node3 ls -la {root}"]
    assert not full.run("sh", "-c", "ls /tmp | grep rp-; true") and theirs.exists()
    assert find_record(hostfile) is None
    (theirs / "thesis.tex").unlink()
    theirs.rmdir()


@pytest.mark.rehearsal
def test_down_ends_without_a_host_that_never_answers(
    bed: Bed, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostfile = bed.hostfile()
    record_of(bed, operator, monkeypatch, hostfile)
    bed.cut(bed.host("node4"))
    try:
        unsure = operator.run("cluster", "down", str(hostfile))
        wrong = operator.run("cluster", "down", str(hostfile), "--forget", "node9")
        given = operator.run("cluster", "down", str(hostfile), "--forget", "node4")
    finally:
        bed.join(bed.host("node4"))
    assert unsure.code == 2 and wrong.code == 1
    assert given.code == 0 and [where for where, _ in given.of("stop")] == ["node4"]
    assert find_record(hostfile) is None
