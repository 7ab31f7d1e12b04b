"""Faults that the doctor must name, each on real hosts, and nothing left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import IP, Bed, sh
from tests.cluster.conftest import Operator

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

SMI = """case "$*" in
*query-gpu*) n=0; while [ $n -lt COUNT ]; do
  echo "$n, NVIDIA H20, 97871, 0, 570.133.20, 00000000:${n}8:00.0, GPU-$n"; n=$((n+1)); done ;;
*query-compute-apps*) ;;
*query-remapped-rows*) n=0; while [ $n -lt COUNT ]; do
  echo "00000000:${n}8:00.0, 0, No, No"; n=$((n+1)); done ;;
esac"""

GMI_GPU = """0    MTT S5000            |00000000:NN:00.0    |0%    10MiB(81920MiB)
     Physical      P0     |16x(16x)            |52C   YES
                                               |      On-die, EDC
+-------------------------------------------------------------------+"""


def gmi(count: int) -> str:
    head = "    mthreads-gmi:2.4.1           Driver Version:5.1.0-server\n"
    rows = [f"{n}{GMI_GPU[1:].replace('NN', f'{n}8')}" for n in range(count)]
    return "cat <<'END'\n" + head + "\n".join(rows) + "\nEND"


@pytest.fixture(autouse=True)
def _healthy_again(bed: Bed) -> Iterator[None]:
    """Every test leaves the bed as it found it."""
    known = bed.known_hosts.read_text(encoding="utf-8")
    yield
    bed.known_hosts.write_text(known)
    for host in bed.hosts:
        for path in host.bin.iterdir():
            path.unlink()
        if host.env or host.shm != "1g":
            host.env, host.shm = {}, "1g"
            bed.restart(host)


def nothing_stayed(bed: Bed) -> None:
    for host in bed.hosts:
        assert not list(host.tmp.glob("rp-*"))
        assert not [line for line in host.processes() if "raylet" in line]


def test_unreachable_hanging_unknown_and_changed(bed: Bed, operator: Operator) -> None:
    bed.cut(bed.host("node1"))
    lines = bed.known_hosts.read_text(encoding="utf-8").splitlines()
    key = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    kept = [f"node1 {key['node1']}", f"node4 {key['node1']}", f"node2 {key['node2']}"]
    bed.known_hosts.write_text("\n".join(kept) + "\n")
    # `id` is what the probe calls first besides uname: here it never ends.
    bed.host("node2").command("id", "exec sleep 600")
    try:
        done = operator.run("cluster", "up", str(bed.hostfile()))
    finally:
        bed.join(bed.host("node1"))
    for line in bed.host("node2").processes():
        if "sleep 600" in line or "sh -s" in line:
            bed.host("node2").run("kill", line.split()[0], check=False)
    told = dict(done.of("reach")) | dict(done.of("probe"))
    assert done.code == 1
    assert "could not connect" in told["node1"]
    assert "no answer" in told["node2"]
    assert "key of this host is unknown" in told["node3"]
    assert "differs from the known one" in told["node4"]
    nothing_stayed(bed)


def test_a_wrong_key(bed: Bed, operator: Operator) -> None:
    keys = bed.folder / "authorized_keys"
    text = keys.read_text(encoding="utf-8")
    keys.write_text("")
    try:
        done = operator.run("doctor", str(bed.hostfile()))
    finally:
        keys.write_text(text)
    assert done.code == 1 and "SSH authentication failed" in done.of("reach")[0][1]


@pytest.mark.parametrize("profile", ["h20", "s5000"])
def test_gpu_count_short(bed: Bed, operator: Operator, profile: str) -> None:
    operator.profile = profile
    for host in bed.hosts:
        count = 7 if host.name == "node3" else 8
        host.command("nvidia-smi", SMI.replace("COUNT", str(count)))
        host.command("mthreads-gmi", gmi(count))
    done = operator.run("cluster", "up", str(bed.hostfile(slots=8)))
    assert done.code == 1
    assert done.of("gpu-count") == [("node3", "7 of 8 GPUs (slots=8)")]
    assert not done.of("gpu-model") and not done.of("gpu-memory")
    nothing_stayed(bed)


def test_a_version_that_differs(bed: Bed, operator: Operator, tmp_path: Path) -> None:
    # Another interpreter of the same name: its Ray is one that the others do not have.
    link = "/tmp/python"
    for host in bed.hosts:
        version = "2.59.0" if host.name == "node2" else "2.60.0"
        (host.tmp / "python").write_text(f"#!/bin/sh\nprintf 'python 3.11.7\\nray {version}\\n'\n")
        (host.tmp / "python").chmod(0o755)
    environment = operator.environment()
    site = Path(environment["SITE"])
    text = site.read_text(encoding="utf-8")
    operator.extra = ""
    try:
        patched = text.replace(text.split('python = "')[1].split('"')[0], link)
        site.write_text(patched)
        operator.environment = lambda: environment  # type: ignore[method-assign]
        done = operator.run("doctor", str(bed.hostfile()))
    finally:
        for host in bed.hosts:
            (host.tmp / "python").unlink()
    assert done.code == 1
    assert ("node2", "ray 2.59.0, the other hosts have 2.60.0") in done.of("versions")


def test_the_default_route_on_the_wrong_interface(bed: Bed, operator: Operator) -> None:
    host = bed.host("node2")
    for words in (
        ("link", "add", "eth9", "type", "veth", "peer", "name", "eth8"),
        ("link", "set", "eth8", "up"),
        ("addr", "add", "172.31.99.2/24", "dev", "eth9"),
        ("link", "set", "eth9", "up"),
        ("route", "add", "default", "via", "172.31.99.1", "dev", "eth9"),
    ):
        sh(IP, "-n", host.namespace, *words)
    try:
        done = operator.run("doctor", str(bed.hostfile()))
        operator.extra = '[network]\ninterface = "eth9"\n'
        wrong = operator.run("doctor", str(bed.hostfile()))
        operator.extra = '[variables]\nGLOO_SOCKET_IFNAME = "lo"\n'
        loopback = operator.run("doctor", str(bed.hostfile()))
    finally:
        sh(IP, "-n", host.namespace, "link", "del", "eth9")
    assert done.json["hosts"]["node2"]["ip"] == host.ip
    assert done.json["hosts"]["node2"]["interface"] == "eth0"
    assert {where for where, _ in wrong.of("address")} >= {"node[1,3-4]"}
    assert wrong.code == 1 and loopback.code == 1
    assert "other hosts cannot reach" in loopback.of("interface")[0][1]


def test_shared_memory_of_a_container(bed: Bed, operator: Operator) -> None:
    host = bed.host("node4")
    host.shm = "64m"
    bed.restart(host)
    done = operator.run("cluster", "up", str(bed.hostfile()))
    assert done.code == 1
    assert done.of("shm") == [("node4", "/dev/shm has 64 MiB, a container's default")]
    nothing_stayed(bed)


def test_a_clock_five_minutes_off(bed: Bed, operator: Operator) -> None:
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    host = bed.host("node3")
    host.env = {"LD_PRELOAD": str(library), "FAKETIME": "+300s"}
    bed.restart(host)
    done = operator.run("doctor", str(bed.hostfile()))
    ((where, message),) = done.of("clock")
    assert where == "node3" and "ahead" in message and done.code == 1
    assert 290 <= int(message.split()[4]) <= 310


def test_a_shared_folder_that_is_not_shared(bed: Bed, operator: Operator) -> None:
    share = bed.folder / "share"
    share.mkdir()
    for host in bed.hosts:
        (host.tmp / "own").mkdir()
    operator.extra = f'data = "{share}"\nmodel = "/tmp/own"\n'
    done = operator.run("doctor", str(bed.hostfile()))
    assert done.code == 1
    told = done.of("shared")
    assert [where for where, _ in told] == ["node[2-4]"]
    assert "model: /tmp/own is not the folder that node1 sees" in told[0][1]
    assert list(share.iterdir()) == []
    for host in bed.hosts:
        assert list((host.tmp / "own").iterdir()) == []
        (host.tmp / "own").rmdir()


def test_a_stale_session_of_another_user(bed: Bed, operator: Operator) -> None:
    host = bed.host("node1")
    # A real process with a name and arguments as Ray's own, of another user.
    fake = host.root / "gcs_server"
    subprocess.run(["cp", "/bin/sleep", str(fake)], check=True)
    old = host.spawn(*("setpriv", "--reuid=33", "--regid=33", "--clear-groups"), str(fake), "600")
    try:
        deadline = time.monotonic() + 90
        while not any(str(fake) in line for line in host.processes()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        done = operator.run("doctor", str(bed.hostfile()))
        alive = any(str(fake) in line for line in host.processes())
    finally:
        for line in host.processes():
            if str(fake) in line:
                host.run("kill", line.split()[0])
        old.wait()
    ((where, message),) = done.of("sessions")
    assert where == "node1" and "gcs_server, pid" in message and "of www-data" in message
    assert alive


def test_names_that_would_be_commands(bed: Bed, operator: Operator) -> None:
    mark = bed.folder / "made"
    nasty = f"$(touch {mark})'; touch {mark}; '`touch {mark}`\n-x"
    operator.extra = "[variables]\nGREETING = '''" + nasty.replace("'", '"') + "'''\n"
    for host in bed.hosts:
        host.env = {"no_proxy": f"$(touch {mark})"}
        bed.restart(host)
    done = operator.run("cluster", "up", str(bed.hostfile()), "--dry-run")
    assert done.code == 0, done.json["findings"]
    bad = bed.folder / "bad hostfile"
    bad.write_text(f"-oProxyCommand=touch${{IFS}}{mark}\n$(touch {mark})\n'; touch {mark}'\n")
    assert operator.run("doctor", str(bad)).code == 1
    assert not mark.exists()
