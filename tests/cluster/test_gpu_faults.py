"""Faults of GPUs on four hosts: the vendors' tools as they print, the real probe over SSH."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.bed import Bed, BedHost
from tests.cluster.conftest import Done, Operator
from tests.cluster.test_rules import GMI

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

# What the doctor may take on a busy machine; without faults it takes two to four seconds here.
SECONDS = 30.0
ROW = "{n}, NVIDIA H20, 97871, 0, 570.133.20, 00000000:{n}8:00.0, GPU-{n}"
STATE = "Enabled, Disabled, Enabled, 0, 5, 16, 16"
HEALTHY = {
    "query-gpu=index,name,memory": ROW,
    "query-compute-apps": "",
    "query-remapped-rows": "00000000:{n}8:00.0, 0, No, No",
    "query-gpu=index,pci.bus_id": "{n}, 00000000:{n}8:00.0, " + STATE,
    "query-gpu=index,clocks": "{n}, 0x0000000000000001",
    "nvlink": "GPU {n}: NVIDIA H20 (UUID: GPU-{n})\n" + "\t Link 0: 26.562 GB/s\n" * 18,
    "query-gpu=index,name,vbios": "{n}, NVIDIA H20, 96.00.B3.00.01",
}
Change = tuple[str, str]


def smi(host: BedHost, *changes: Change, code: int = 0) -> None:
    """nvidia-smi of eight healthy H20 with texts replaced, and a kernel log without a line."""
    cases = []
    for question, row in HEALTHY.items():
        lines = "\n".join(row.format(n=n) for n in range(8) if row)
        for old, new in changes:
            lines = lines.replace(old, new)
        cases.append(f"*{question}*) printf '%s\\n' {shlex.quote(lines)}; exit {code} ;;")
    host.command("nvidia-smi", 'case "$*" in\n' + "\n".join(cases) + "\nesac")
    host.command("dmesg", "true")
    host.command("systemctl", "echo active")


@pytest.fixture(autouse=True)
def _healthy_again(bed: Bed) -> Iterator[None]:
    yield
    for host in bed.hosts:
        for path in host.bin.iterdir():
            path.unlink()


def doctor(bed: Bed, operator: Operator, *words: str) -> Done:
    began = time.monotonic()
    done = operator.run("doctor", str(bed.hostfile(slots=8)), *words)
    assert time.monotonic() - began < SECONDS
    return done


def only(done: Done, rule: str, where: str) -> str:
    """The message of the one finding of a rule, which is of `where`."""
    found = done.of(rule)
    assert [name for name, _ in found] == [where], (rule, done.json["findings"])
    return found[0][1]


def assert_unfound(done: Done, rules: Sequence[str]) -> None:
    assert not [item for item in done.json["findings"] if item["rule"] in rules]


def test_a_login_nodes_site_file_and_gpus_in_use(bed: Bed, operator: Operator) -> None:
    """The false ok: busy GPUs, Xid 79 and a dead fabric manager under a site file without GPUs."""
    one, two, three, four = bed.hosts
    for host in bed.hosts:
        smi(host)
        host.run("mount", "-t", "tmpfs", "pci", "/sys/bus/pci/devices")
        script = "d=/sys/bus/pci/devices/0000:08:00.0; mkdir $d; echo 0x10de >$d/vendor; "
        host.run("sh", "-c", script + "echo 0x030200 >$d/class")
    pid = two.run("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!").strip()
    smi(two)
    text = (two.bin / "nvidia-smi").read_text(encoding="utf-8")
    app = text.replace(
        "*query-compute-apps*) printf '%s\\n' ''", f"*query-compute-apps*) echo GPU-3, {pid}, 61234"
    )
    (two.bin / "nvidia-smi").write_text(app)
    line = "[12.3] NVRM: Xid (PCI:0000:38:00): 79, pid=1, GPU has fallen off the bus."
    three.command("dmesg", f"echo {shlex.quote(line)}")
    four.command("systemctl", "echo failed; exit 3")
    try:
        # The site file of a login node has no GPUs; the hosts have.
        wrong = doctor(bed, operator)
        assert wrong.code == 1 and "NVIDIA GPU" in only(wrong, "accelerator", "node[1-4]")
        named = doctor(bed, operator, "--machine", "h20")
    finally:
        two.run("kill", pid)
        for host in bed.hosts:
            host.run("umount", "/sys/bus/pci/devices")
    assert named.code == 1
    assert f"pid {pid}" in only(named, "gpu-free", "node2")
    assert "Xid 79" in only(named, "gpu-xid", "node3")
    only(named, "fabric-manager", "node4")
    assert_unfound(named, ["accelerator", "gpu-tool", "gpu-state"])
    assert one.name not in {
        item["where"] for item in named.json["findings"] if "gpu" in item["rule"]
    }


def test_odd_lines_of_nvidia_smi_hide_nothing(bed: Bed, operator: Operator) -> None:
    operator.profile = "h20"
    one, two, three, four = bed.hosts
    smi(one)
    lost = "Unable to determine the device handle for GPU 0000:58:00.0: Unknown Error"
    smi(two, (ROW.format(n=5), lost), code=15)
    smi(
        three,
        (ROW.format(n=0), "WARNING: infoROM is corrupted at gpu 0000:08:00.0\n" + ROW.format(n=0)),
    )
    smi(four, (ROW.format(n=2), ROW.format(n=2).replace("97871", "[N/A]")))
    done = doctor(bed, operator)
    assert done.code == 1
    message = only(done, "gpu-count", "node2")
    assert "7 of 8 GPUs" in message and "0000:58:00.0" in message
    assert "infoROM is corrupted" in only(done, "gpu-tool", "node3")
    assert "GPU 2" in only(done, "gpu-memory", "node4")
    assert_unfound(done, ["gpu-model", "gpu-driver"])


def test_mode_errors_lanes_and_another_model(bed: Bed, operator: Operator) -> None:
    operator.profile = "h20"
    one, two, three, four = bed.hosts
    smi(
        one,
        (
            "1, 00000000:18:00.0, Enabled, Disabled, Enabled, 0, 5, 16",
            "1, 00000000:18:00.0, Enabled, Disabled, Enabled, 0, 5, 4",
        ),
    )
    smi(two, (", Enabled, Disabled, Enabled, 0,", ", Enabled, Enabled, Enabled, 0,"))
    smi(
        three,
        (
            "6, 00000000:68:00.0, Enabled, Disabled, Enabled, 0",
            "6, 00000000:68:00.0, Enabled, Disabled, Enabled, 3",
        ),
    )
    smi(four, ("NVIDIA H20, 97871", "NVIDIA H20-3e, 143771"))
    done = doctor(bed, operator)
    assert done.code == 1
    assert "x4 of x16" in only(done, "gpu-pcie", "node1")
    assert only(done, "gpu-mig", "node2").count("00000000:") == 8
    assert "GPU 6" in only(done, "gpu-ecc", "node3")
    assert "H20-3e (140 GiB)" in only(done, "gpu-model", "node4")


def test_mthreads_without_ecc_and_with_few_lanes(bed: Bed, operator: Operator) -> None:
    operator.profile = "s5000"
    fine = GMI.partition("Processes:")[0]
    lanes = fine.replace("16x(16x)            |51C", "4x(16x)             |51C")
    ecc = fine[::-1].replace("On-die, EDC"[::-1], "Off"[::-1], 1)[::-1]
    for host, text in zip(bed.hosts, (fine, fine, lanes, ecc), strict=True):
        host.command("mthreads-gmi", f"cat <<'END'\n{text}END")
    began = time.monotonic()
    done = operator.run("doctor", str(bed.hostfile(slots=2)))
    assert time.monotonic() - began < SECONDS
    assert "GPU 1 (00000000:3a:00.0): x4 of x16" in only(done, "gpu-pcie", "node3")
    assert "GPU 1 (00000000:3a:00.0)" in only(done, "gpu-ecc", "node4")
    assert_unfound(done, ["gpu-count", "gpu-model", "gpu-memory"])
