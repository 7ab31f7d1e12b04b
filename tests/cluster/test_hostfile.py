"""The hostfile: every form, every error at once, nothing for a shell to trip over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from reprise.cli import app
from reprise.cluster.hosts.hostfile import Hostfile, read_hostfile
from reprise.cluster.hosts.names import fold, unfold
from reprise.core.errors import OperatorError
from reprise.core.findings import Report


def read(tmp_path: Path, text: str | bytes, **options: list[str]) -> tuple[Report, Hostfile | None]:
    path = tmp_path / "hostfile"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_hostfile(path, **options)


def hosts(found: Hostfile | None) -> list[tuple[str, int]]:
    assert found is not None
    return [(host.name, host.slots) for host in found.hosts]


def test_a_file_from_windows_reads_like_any_other(tmp_path: Path) -> None:
    text = (
        b"\xef\xbb\xbf# production, keep\r\n\r\nnode-a slots=8\r\n   \t \r\n"
        b"node-b\tslots=8   # rack 2\r\n#node-x slots=8\r\nnode-c:4\r\nnode-d\r\n"
    )
    report, found = read(tmp_path, text)
    assert hosts(found) == [("node-a", 8), ("node-b", 8), ("node-c", 4), ("node-d", 8)]
    assert found is not None and found.head.name == "node-a" and found.slots == 28
    assert [finding.message for finding in report.findings] == [
        "Windows line ends (CRLF) are accepted"
    ]
    assert not any("\r" in str(host) or "\ufeff" in str(host) for host in found.hosts)


def test_every_bad_line_is_told_in_one_pass(tmp_path: Path) -> None:
    lines = [
        "node-a slots=8",
        "node-b lots=8",
        "node-c slots=",
        "node-d slots=eight",
        "node-e slots=0",
        "node-f slots=-2",
        "node-g slots=8 max_slots=16",
    ]
    report, found = read(tmp_path, "\n".join(lines))
    assert found is None and report.exit_code == 1
    told = {finding.where.rsplit(":", 1)[1]: finding.message for finding in report.errors()}
    assert set(told) == {"2", "3", "4", "5", "6"}
    assert told["2"].startswith("node-b lots=8: unknown key 'lots', did you mean slots")
    assert "slots has no value" in told["3"] and "not an integer" in told["4"]
    assert "slots=0, expected 1 to 1024" in told["5"] and "slots=-2, expected 1" in told["6"]
    assert any("max_slots" in f.message and f.severity == "note" for f in report.findings)


def test_a_missing_file_is_an_error_with_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "hostfile").write_text("node-a\n")
    for name in (folder / " hostfile", folder / "hostfile.job123"):
        report, found = read_hostfile(name)
        (finding,) = report.findings
        assert found is None and report.exit_code == 1
        assert finding.where == str(name) and str(folder / "hostfile") in finding.message
    report, _ = read_hostfile(folder)
    assert "not a regular file" in report.findings[0].message


def test_users_ports_addresses(tmp_path: Path) -> None:
    text = "alice@a port=2222 ip=10.0.0.1\nb user=bob slots=2\n[FD00::12]:4\n[fd00::13] slots=3\n"
    report, found = read(tmp_path, text)
    assert found is not None, report.findings
    first, second, third, fourth = found.hosts
    assert (first.user, first.port, first.ip, first.slots) == ("alice", 2222, "10.0.0.1", 8)
    assert (second.user, second.slots) == ("bob", 2)
    assert (third.name, third.slots, fourth.name, fourth.slots) == ("fd00::12", 4, "fd00::13", 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fd00::12", "needs brackets"),
        ("[fd00::12", "in brackets"),
        ("[10.0.0.1]:8", "in brackets"),
        ("[fd00::1]8", "in brackets"),
        ("a slots=8 slots=8", "slots= is given twice"),
        ("a:8 slots=8", "slots are given twice"),
        ("a:", "slots has no value"),
        ("a ip=10.0.0.300", "is not a valid IP address"),
        ("a ip=127.0.0.1", "cannot be reached"),
        ("a port=70000", "port=70000, expected 1 to 65535"),
        ("a 8", "expected key=value"),
        ("a slots=²", "not an integer"),
        ("-oProxyCommand=x", "is not a valid host name"),
        ("a;touch${IFS}x", "is not a valid host name"),
        ("$(touch", "is not a valid host name"),
        ("'a'", "is not a valid host name"),
        ("a user=-oX", "is not a valid user name"),
        ("a user=$(id)", "is not a valid user name"),
        ("a spare=1", "spare='1', expected yes or no"),
        ("a spare=", "spare has no value"),
        ("a\rb", "is not a valid host name"),
        ("a\x00", "is not a valid host name"),
    ],
)
def test_what_is_no_host_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    report, found = read(tmp_path, f"ok slots=1\n{text}\n")
    assert found is None
    assert any(reason in f.message and f.where.endswith(":2") for f in report.errors()), (
        report.findings
    )
    assert all(finding.message.isprintable() for finding in report.findings)


def test_spare_hosts(tmp_path: Path) -> None:
    report, found = read(tmp_path, "a slots=8\nb spare=no\nc[1-2] slots=4 spare=yes\n")
    assert found is not None, report.findings
    assert [host.name for host in found.hosts if host.spare] == ["c1", "c2"]
    assert found.slots == 16
    report, found = read(tmp_path, "a spare=yes\nb\n")
    assert found is None and "cannot be the head" in next(iter(report.errors())).message
    report, found = read(tmp_path, "a\nb spare=yes\n", exclude=["a"])
    assert found is None and "cannot be the head" in next(iter(report.errors())).message


def test_duplicates_and_loopback(tmp_path: Path) -> None:
    report, _ = read(tmp_path, "a\nb ip=10.0.0.1\nA slots=4\nc ip=10.0.0.1\nlocalhost\n")
    told = [(f.where.rsplit(":", 1)[1], f.message) for f in report.errors()]
    assert [line for line, _ in told] == ["3", "4", "5"]
    assert "duplicate of line 1" in told[0][1] and "duplicate of line 2" in told[1][1]
    assert read(tmp_path, "localhost slots=1\n")[1] is not None


@pytest.mark.parametrize("text", [b"", b"# nothing\n\n", b"\xff\xfea\x00", b"ok\n\xe9 slots=8\n"])
def test_nothing_usable(tmp_path: Path, text: bytes) -> None:
    report, found = read(tmp_path, text)
    assert found is None and report.exit_code == 1


def test_include_and_exclude(tmp_path: Path) -> None:
    text = "\n".join(f"node{n:02d}" for n in range(1, 9))
    _, found = read(tmp_path, text, include=["node[02-04],node08"], exclude=["node03"])
    assert hosts(found) == [("node02", 8), ("node04", 8), ("node08", 8)]
    report, found = read(tmp_path, text, exclude=["node09"])
    assert found is None and "node09" in report.findings[0].message


@given(st.sets(st.integers(0, 120)), st.sampled_from(["", "node", "gpu-a", "n1-"]))
def test_folding_and_back(numbers: set[int], head: str) -> None:
    names = [f"{head}{n:03d}.x" for n in numbers]
    assert sorted(unfold([fold(names)])) == sorted(names)


def test_folding() -> None:
    assert fold(["node01", "node02", "node03", "node16", "head"]) == "node[01-03,16],head"
    assert fold(["10.0.0.1", "10.0.0.2"]) == "10.0.0.1,10.0.0.2"
    assert fold(["n9", "n10", "n11"]) == "n[9-11]"


@given(st.binary(max_size=200))
def test_no_bytes_bring_it_down(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("h") / "hostfile"
    path.write_bytes(raw)
    report, found = read_hostfile(path)
    assert (found is None) == (report.exit_code == 1)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("node1 slots=8\nnode2:4 \n")
    result = CliRunner().invoke(app, ["hosts", str(path)])
    assert result.exit_code == 0
    assert result.output.splitlines()[:3] == [
        "node1 slots=8  # head",
        "node2 slots=4",
        "2 hosts, 12 slots",
    ]
    missing = CliRunner().invoke(app, ["hosts", str(tmp_path / "none"), "--json"])
    assert missing.exit_code == 1 and '"verdict":"problem"' in missing.output


def test_a_group_is_its_hosts(tmp_path: Path) -> None:
    _report, found = read(
        tmp_path, "node[01-03,07] slots=4\nalice@gpu-[9-10] port=2222\nw[1-2].x:2\n"
    )
    assert hosts(found) == [
        *((f"node{n}", 4) for n in ("01", "02", "03", "07")),
        *(("gpu-9", 8), ("gpu-10", 8), ("w1.x", 2), ("w2.x", 2)),
    ]
    assert found is not None and {h.user for h in found.hosts if h.port == 2222} == {"alice"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node[16-01] slots=8", "not a valid group of hosts"),
        ("node[a-c]", "not a valid group of hosts"),
        ("node[01-", "not a valid group of hosts"),
        ("node[01-02] ip=10.0.0.1", "ip= is one address, and the line names 2 hosts"),
        ("node[01-02] lots=8", "unknown key 'lots'"),
        ("node[0-1];x slots=8", "is not a valid host name"),
        ("node1:22", "22 may be the number of slots or the port"),
        ("node1:2222", "2222 may be the number of slots or the port"),
        ("alice@node1:4", "4 may be the number of slots or the port"),
        ("root@node1:2222 port=22", "the port is given twice"),
    ],
)
def test_what_may_mean_two_things_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    report, found = read(tmp_path, f"ok slots=1\n{text}\n")
    assert found is None
    (error,) = report.errors()
    assert reason in error.message and error.where.endswith(":2")


def test_a_number_behind_a_login_is_a_port(tmp_path: Path) -> None:
    _, found = read(tmp_path, "root@node1:22\nroot@node2:2222 slots=4\n")
    assert found is not None
    assert [(h.name, h.port, h.slots) for h in found.hosts] == [
        ("node1", 22, 8),
        ("node2", 2222, 4),
    ]


def test_a_dot_at_the_end_is_the_same_host(tmp_path: Path) -> None:
    report, _ = read(tmp_path, "node1\nnode2\nNODE2.\n")
    assert "duplicate of line 2" in next(iter(report.errors())).message
    _, found = read(tmp_path, "node1\nnode2.\n", include=["node2"])
    assert hosts(found) == [("node2.", 8)]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reprise", "hosts", name],
        input="node[1-2] slots=4\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[:2] == ["node1 slots=4  # head", "node2 slots=4"]
    started = subprocess.run(
        [sys.executable, "-m", "reprise", "cluster", "down", name],
        input="node1\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert started.returncode == 1 and "this one is not a file" in started.stdout


def test_groups_of_groups() -> None:
    assert unfold(["r[1-2]n[01-02],x"]) == ["r1n01", "r1n02", "r2n01", "r2n02", "x"]
    with pytest.raises(OperatorError):
        unfold(["a[0-9999]b[0-9999]"])


@pytest.mark.parametrize(
    ("gpus", "slots"),
    [
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "h20:8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "0", "SLURM_GPUS_PER_NODE": "2"}, 2),
        ({}, 8),
    ],
)
def test_the_nodes_of_a_slurm_job(
    gpus: dict[str, str], slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in gpus.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[01-02,05],big7")
    done = CliRunner().invoke(app, ["hosts", "--slurm"])
    assert done.exit_code == 0
    _, found = read(tmp_path, done.stdout)
    assert hosts(found) == [(name, slots) for name in ("gpu01", "gpu02", "gpu05", "big7")]
    assert ("is the default" in done.stderr) is (not gpus)
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    assert CliRunner().invoke(app, ["hosts", "--slurm"]).exit_code == 1
    assert CliRunner().invoke(app, ["hosts"]).exit_code == 1
