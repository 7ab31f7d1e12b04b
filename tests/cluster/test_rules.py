"""The doctor's rules: what a host printed in, findings out."""

from __future__ import annotations

import re

import pytest

from reprise.cluster.doctor.context import Expected
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.site import Site
from reprise.core.findings import Severity, State, Verdict
from reprise.machines.registry import machine_named, machines
from tests.cluster.make import NOW, base, context, judged, of

NAMES = ["n1", "n2", "n3", "n4"]

GMI = """\
Tue Mar 31 13:39:52 2026
---------------------------------------------------------------------
    mthreads-gmi:2.3.2           Driver Version:3.3.5-server
---------------------------------------------------------------------
ID   Name                 |PCIe                |%GPU  Mem
     Device Type   Perf   |Pcie Lane Width     |Temp  MPC Capable
                                               |      ECC Mode
+-------------------------------------------------------------------+
0    MTT S5000            |00000000:2a:00.0    |0%    66641MiB(81920MiB)
     Physical      P0     |16x(16x)            |52C   YES
                                               |      On-die, EDC
+-------------------------------------------------------------------+
1    MTT S5000            |00000000:3a:00.0    |0%    10MiB(81920MiB)
     Physical      P0     |16x(16x)            |51C   YES
                                               |      On-die, EDC
---------------------------------------------------------------------
Processes:
ID   PID       Process name                         GPU Memory
                                                         Usage
+-------------------------------------------------------------------+
0    48211     /usr/bin/python3                       66600MiB
---------------------------------------------------------------------
"""


def fleet(**changes: tuple[str, str]) -> dict[str, str]:
    """Four healthy hosts, some with one text replaced."""
    texts = {name: base(name) for name in NAMES}
    for name, (old, new) in changes.items():
        assert old in texts[name]
        texts[name] = texts[name].replace(old, new)
    return texts


def test_healthy_hosts_pass() -> None:
    report = judged(fleet())
    assert report.verdict is Verdict.OK, report.findings
    assert report.findings == []
    assert report.data["groups"] == [{"hosts": "n[1-4]", "problems": []}]
    assert report.data["hosts"]["n2"]["ip"] == "10.8.0.12"


def test_versions_that_differ() -> None:
    texts = fleet(
        n2=("torch 2.8.0+cu128", "torch 2.8.0+cu129"),
        n3=("python 3.12.11", "python 3.12.3"),
        n4=("ray 2.49.2", "ray 2.52.1"),
    )
    report = judged(texts)
    told = {(f.where, f.severity): f.message for f in of(report, "versions")}
    assert told == {
        ("n3", Severity.ERROR): "python 3.12.3, the other hosts have 3.12.11",
        ("n4", Severity.ERROR): "ray 2.52.1, the other hosts have 2.49.2",
        ("n2", Severity.WARNING): "torch 2.8.0+cu129, the other hosts have 2.8.0+cu128",
    }
    assert not any("IGNORE_VERSION" in f.fix for f in report.findings)


def test_versions_of_the_lock() -> None:
    locked = Expected({"python": "3.12", "ray": "2.50.0", "torch": "2.8.0"})
    report = judged(fleet(), expected=locked)
    (finding,) = of(report, "versions-lock")
    assert (finding.where, finding.message) == ("n[1-4]", "ray 2.49.2, versions.lock has 2.50.0")


def test_the_address_is_the_one_that_routes_to_the_head() -> None:
    n2 = """= address 2: eth1    inet 172.16.89.194/20 brd 172.16.95.255 scope global eth1
= address 5: ib0    inet 192.168.50.7/24 scope global ib0
= address 4: docker0    inet 172.17.0.1/16 scope global docker0
= hostname-i 172.16.89.194 10.8.0.12 172.17.0.1 192.168.50.7
"""
    texts = fleet()
    texts["n2"] = texts["n2"].replace("= hostname-i 10.8.0.12\n", "") + n2
    look = context(texts)
    address = look.address(look.hosts[1])
    assert address is not None and (address.ip, address.interface) == ("10.8.0.12", "eth0")
    (finding,) = of(judged(texts), "address")
    assert finding.severity is Severity.WARNING and "172.16.89.194" in finding.message


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("= route 10.8.0.11 dev docker0 src 172.17.0.1 uid 0", "docker0 cannot be reached"),
        ("= route local 10.8.0.11 dev lo src 127.0.0.1 uid 0", "lo cannot be reached"),
        ("? route ip failed (2): RTNETLINK answers: Network is unreachable", "no route to"),
        ("= route 10.8.0.11 dev eth0", "no route to the head"),
    ],
)
def test_an_address_that_others_cannot_reach_is_an_error(route: str, said: str) -> None:
    texts = fleet(n2=("= route 10.8.0.11 dev eth0 src 10.8.0.12 uid 0", route))
    texts["n2"] += "= address 4: docker0    inet 172.17.0.1/16 scope global docker0\n"
    report = judged(texts)
    assert [said in f.message and f.where == "n2" for f in of(report, "address")] == [True]
    assert report.exit_code == 1


def test_two_names_of_one_machine() -> None:
    texts = {"n1": base("n1"), "n2": base("n2"), "n3": base("n2")}
    (finding,) = of(judged(texts), "address")
    assert finding.where == "n3" and "10.8.0.12 is also the address of n2" in finding.message


@pytest.mark.parametrize(
    ("value", "severity"),
    [("docker0", "error"), ("ib7", "error"), ("eth1", "warning"), ("eth0", None), ("=eth0", None)],
)
def test_interface_variables(value: str, severity: str | None) -> None:
    texts = fleet()
    texts["n2"] += f"= env NCCL_SOCKET_IFNAME {value}\n"
    for name in ("docker0", "eth1"):
        texts["n2"] += f"= address 7: {name}    inet 172.18.0.1/16 scope global {name}\n"
    assert [f.severity.value for f in of(judged(texts), "interface")] == (
        [severity] if severity else []
    )


def test_shared_memory() -> None:
    shm = "= shm 1073741824 1073741000"
    texts = fleet(
        n1=(shm, "= shm 65536 65536"),
        n2=(shm, "= shm 1073741824 5242880\n= shm.file /dev/shm/plasma123"),
        n3=(shm, "= shm 536870912 536870912"),
    )
    found = {f.where: f for f in of(judged(texts), "shm")}
    assert found["n1"].severity is Severity.ERROR and "64 MiB" in found["n1"].message
    assert "--ipc=host" in found["n1"].fix and "--shm-size" in found["n1"].fix
    assert found["n2"].severity is Severity.WARNING and "5.0 GiB free" in found["n2"].message
    assert "/dev/shm/plasma123" in found["n2"].message
    assert "25%" in found["n3"].message and "614 GiB" in found["n3"].message
    assert "--shm-size=614g" in found["n3"].fix and set(found) == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("= pids.max 32768\n= pids.limit 4096\n", "control group is 4096"),
        ("= pids.max 9000\n= pids.limit max\n", "kernel.pid_max is 9000"),
        ("= pids.max 4194304\n", ""),
    ],
)
def test_every_thread_counts_as_a_process(lines: str, said: str) -> None:
    found = of(judged({"node1": base("node1") + lines}), "limits")
    assert [said in finding.message for finding in found] == ([True] if said else [])


def test_no_limit_of_processes_was_read() -> None:
    text = re.sub("= limit Max processes.*\n", "", base("node1"))
    (finding,) = of(judged({"node1": text}), "limits")
    assert "processes not read" in finding.message


def test_an_earlier_session_is_listed_and_left_alone() -> None:
    texts = fleet()
    texts["n1"] += (
        "= ray 4101 alice Sat_Aug_1_22:10:00_2026 gcs_server session_2026-08-01_22-10-00_111_4001\n"
        "= ray 4188 alice Sat_Aug_1_22:10:02_2026 raylet session_2026-08-01_22-10-00_111_4001\n"
        '= listen LISTEN 0 128 *:6379 *:* users:(("gcs_server",pid=4101,fd=100))\n'
    )
    report = judged(texts)
    (session,) = of(report, "sessions")
    assert "gcs_server, pid 4101 of alice" in session.message and "Aug 1" in session.message
    assert "ask alice" in session.fix and "kill" not in session.fix
    (port,) = of(report, "ports")
    assert port.where == "n1" and "6379 (gcs) is held by gcs_server, pid 4101" in port.message


def test_a_cluster_of_reprise_is_recognised_and_never_to_be_killed() -> None:
    text = (
        "= ray 4101 bob Sat_Aug_1_22:10:00_2026 gcs_server session_2026-08-01 /tmp/rp-5c0ffee0\n"
        "= reprise 4101 gcs_server\n= reprise 4150 python\n"
        '= listen LISTEN 0 128 *:6379 *:* users:(("gcs_server",pid=4101,fd=100))\n'
        '= listen LISTEN 0 128 *:8265 *:* users:(("python",pid=4150,fd=100))\n'
    )
    report = judged({"n1": base("n1") + text})
    (session,) = of(report, "sessions")
    assert session.message.startswith("another cluster of reprise runs in /tmp/rp-5c0ffee0: gcs_")
    assert "reprise cluster down HOSTFILE, as bob" in session.fix
    assert len(of(report, "ports")) == 2
    assert all("of another cluster of reprise" in f.message for f in of(report, "ports"))
    assert not any("kill" in f.fix or "end that process" in f.fix for f in report.findings)


def test_own_processes_are_not_reported() -> None:
    texts = fleet()
    texts["n1"] += (
        "= own 4101 gcs_server\n= ray 4101 bob Sat_Aug_1_22:10:00_2026 gcs_server s\n"
        '= listen LISTEN 0 128 *:6379 *:* users:(("gcs_server",pid=4101,fd=100))\n'
    )
    report = judged(texts)
    assert not of(report, "sessions") and not of(report, "ports")


def test_proxies_must_name_every_host() -> None:
    texts = fleet()
    texts["n1"] += (
        "= env http_proxy http://***@proxy.example:3128\n"
        "= env no_proxy localhost,127.0.0.1,10.8.0.0/24\n"
    )
    (finding,) = of(judged(texts), "proxy")
    assert finding.severity is Severity.WARNING and finding.where == "n1"
    value = re.search(r"no_proxy=(\S+)", finding.fix)
    assert value is not None
    entries = value[1].split(",")
    assert entries[:3] == ["localhost", "127.0.0.1", "10.8.0.0/24"]
    assert {"n1", "n4", "10.8.0.11", "10.8.0.14"} <= set(entries)
    texts["n1"] = texts["n1"].replace("10.8.0.0/24", value[1])
    assert not of(judged(texts), "proxy")


def test_clocks() -> None:
    late = base("n3").replace(f"begin {NOW}", f"begin {NOW + 300}")
    late = late.replace(f"end {NOW + 1}", f"end {NOW + 301}")
    report = judged({"n1": base("n1"), "n2": base("n2"), "n3": late})
    (finding,) = of(report, "clock")
    assert finding.where == "n3" and "300 s ahead" in finding.message


def test_gpus_that_are_missing_or_in_use() -> None:
    texts = fleet()
    texts["n2"] = base("n2", gpus=7)
    texts["n3"] += "= gpu.app GPU-3, 777, 61234\n= owner 777 carol\n"
    texts["n4"] = base("n4", gpus=0) + "? gpu.nvidia nvidia-smi gave no answer within 5 s\n"
    report = judged(texts)
    told = {f.where: f for f in of(report, "gpu-count")}
    assert "7 of 8 GPUs" in told["n2"].message and told["n2"].severity is Severity.ERROR
    assert "no answer" in told["n4"].message and report.verdict is Verdict.PROBLEM
    (free,) = of(report, "gpu-free")
    assert "carol (pid 777)" in free.message and "n3" in free.where


def test_what_cannot_be_read_is_unknown_and_never_fine() -> None:
    texts = {"n1": base("n1").replace("= xid.read yes", "? xid.read dmesg cannot be read")}
    report = judged(texts)
    assert report.verdict is Verdict.UNKNOWN and report.exit_code == 2
    assert {c.rule for c in report.checks if c.state is State.UNKNOWN} == {"gpu-xid"}
    cut = {"n1": base("n1").replace("= complete yes\n", "")}
    assert judged(cut).exit_code == 2


def test_what_fails_most_on_h20() -> None:
    texts = fleet(
        n1=("fabricmanager active", "fabricmanager failed"), n2=("peermem yes", "peermem no")
    )
    texts["n3"] += "= gpu.remapped 00000000:38:00.0, 1, No, Yes\n"
    texts["n4"] += (
        "= xid [12.3] NVRM: Xid (PCI:0000:38:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    report = judged(texts)
    assert "start nvidia-fabricmanager" in of(report, "fabric-manager")[0].fix
    assert "modprobe nvidia_peermem" in of(report, "gpu-peermem")[0].fix
    assert "row remapping failed on GPU 00000000:38:00.0" in of(report, "gpu-rows")[0].message
    (xid,) = of(report, "gpu-xid")
    assert xid.severity is Severity.ERROR
    assert "Xid 79 (GPU has fallen off the bus) of GPU PCI:0000:38:00" in xid.message


def test_rdma() -> None:
    texts = fleet(n2=("4:_ACTIVE 400_Gb", "4:_ACTIVE 200_Gb"), n3=("4:_ACTIVE", "1:_DOWN"))
    found = {f.where for f in of(judged(texts), "rdma") if f.severity is Severity.ERROR}
    assert found == {"n2", "n3"}
    site = Site(variables={"NCCL_IB_GID_INDEX": "5"})
    assert "no port has this GID" in of(judged(fleet(), site=site), "gid")[0].message


def test_shared_folders() -> None:
    site = Site.model_validate({"paths": {"data": "/data"}})
    texts = {name: base(name) + "= share data here\n" for name in NAMES}
    texts["n1"] += "= share data written\n"
    texts["n1"] = texts["n1"].replace("= share data here\n", "")
    texts["n3"] = texts["n3"].replace("share data here", "share data missing")
    seen = {
        "n1": {"data": "yes"},
        "n2": {"data": "yes"},
        "n3": {"data": "no"},
        "n4": {"data": "no"},
    }
    found = {f.where: f.message for f in of(judged(texts, site=site, seen=seen), "shared")}
    assert "is missing" in found["n3"] and "not the folder that n1 sees" in found["n4"]
    assert set(found) == {"n3", "n4"}


def test_mthreads_gmi_is_read() -> None:
    mthreads = machine_named("s5000").accelerator
    printed = "".join(f"= gpu.mthreads {line}\n" for line in GMI.splitlines())
    facts = parse_facts("n1", printed + "= owner 48211 dave\n= complete yes\n")
    found = mthreads.read(facts)
    assert found is not None
    assert [(g.index, g.name, g.used, g.total, g.driver) for g in found.gpus] == [
        (0, "MTT S5000", 66641, 81920, "3.3.5-server"),
        (1, "MTT S5000", 10, 81920, "3.3.5-server"),
    ]
    used = mthreads.uses(facts)
    assert used is not None
    assert [(u.pid, u.owner, u.used) for u in used] == [(48211, "dave", 66600)]
    broken = parse_facts("n1", "= gpu.mthreads cannot open device\n= complete yes\n")
    assert mthreads.read(broken) is None


def test_a_temp_dir_that_is_too_long() -> None:
    site = Site.model_validate({"paths": {"temp": "/shared/users/someone/tmp/of/mine"}})
    assert "107" in of(judged(fleet(), site=site), "temp-path")[0].message


def test_findings_are_folded() -> None:
    texts = {f"node{n}": base(f"n{n}") for n in range(1, 5)}
    texts["node4"] = texts["node4"].replace("fabricmanager active", "fabricmanager inactive")
    report = judged(texts)
    assert report.data["groups"][0]["hosts"] == "node[1-3]"
    assert report.data["groups"][1]["hosts"] == "node4"


@pytest.mark.parametrize("name", [machine.name for machine in machines() if machine.trains])
def test_profiles(name: str) -> None:
    profile = machine_named(name).profile
    assert profile.name == name
    detection = [key for key in profile.ray_variables if "health_check" in key]
    assert bool(detection) == (name == "cpu")


def test_profiles_are_there() -> None:
    assert {"cpu", "h20", "s5000"} <= {machine.name for machine in machines() if machine.trains}
