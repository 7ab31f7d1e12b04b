"""Health of NVIDIA and Moore Threads GPUs, from outputs in their tools' public formats."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reprise.core.findings import Report, Severity, State
from tests.cluster.make import base, judged, of
from tests.cluster.test_rules import GMI

STATE = "= gpu.state {n}, 00000000:{n}8:00.0, {values}\n"
FINE = "Enabled, Disabled, Enabled, 0, 5, 16, 16"
RULES = (
    "gpu-state",
    "gpu-mig",
    "gpu-ecc",
    "gpu-persistence",
    "gpu-pcie",
    "gpu-clocks",
    "gpu-nvlink",
)


def changed(*changes: tuple[str, str]) -> Report:
    """The doctor's report on one host of eight GPUs, with lines of its answer replaced."""
    text = base("n1")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return judged({"n1": text})


def states(report: Report) -> Mapping[str, State]:
    return {check.rule: check.state for check in report.checks}


def row(gpu: int, values: str = FINE) -> str:
    return STATE.format(n=gpu, values=values)


def test_a_healthy_host_passes_every_rule() -> None:
    report = changed()
    assert report.findings == [] and {states(report)[rule] for rule in RULES} == {State.PASSED}


@pytest.mark.parametrize(
    ("values", "rule", "severity", "said"),
    [
        ("Enabled, Enabled, Enabled, 0, 5, 16, 16", "gpu-mig", "error", "MIG is enabled on"),
        ("Enabled, Disabled, Enabled, 3, 5, 16, 16", "gpu-ecc", "error", "(00000000:28:00.0): 3"),
        ("Enabled, Disabled, Disabled, [N/A], 5, 16, 16", "gpu-ecc", "warning", "ECC is off on"),
        ("Disabled, Disabled, Enabled, 0, 5, 16, 16", "gpu-persistence", "warning", "is off on"),
        ("Enabled, Disabled, Enabled, 0, 5, 4, 16", "gpu-pcie", "warning", "x4 of x16"),
        ("Enabled, Disabled, Enabled, 0, 4, 16, 16", "gpu-pcie", "warning", "generation 4, the"),
        ("Enabled, [N/A], Enabled, 0, 5, 16, 16", "gpu-mig", None, ""),
        ("Enabled, Disabled, [N/A], [N/A], 5, 16, 16", "gpu-state", "unknown", "ecc.mode"),
        ("[Unknown Error], Disabled, Enabled, 0, 5, 16, 16", "gpu-state", "unknown", "persis"),
    ],
)
def test_one_gpu_of_eight(values: str, rule: str, severity: str | None, said: str) -> None:
    report = changed((row(2), row(2, values)))
    found = of(report, rule)
    if severity is None:
        assert not report.findings
        return
    (finding,) = report.findings
    assert finding.rule == rule and said in finding.message and "GPU 2" in finding.message
    if severity == "unknown":
        assert states(report)[rule] is State.UNKNOWN and report.exit_code == 2
    else:
        assert found[0].severity == severity


def test_gpus_with_the_same_fault_share_a_finding() -> None:
    (finding,) = changed((", Disabled, Enabled, 0,", ", Enabled, Enabled, 0,")).findings
    assert finding.message.count("(00000000:") == 8 and finding.message.startswith("MIG is enabled")
    remapped = "".join(f"= gpu.remapped 00000000:{n}8:00.0, 0, Yes, No\n" for n in range(3))
    (finding,) = judged({"n1": base("n1") + remapped}).findings
    assert finding.fix.endswith(
        "nvidia-smi -r -i 00000000:08:00.0,00000000:18:00.0,00000000:28:00.0"
    )


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("0x0000000000000000", None),
        ("0x0000000000000004", None),  # the software's power cap
        ("0x0000000000000040", "3 (hardware thermal slowdown)"),
        ("0x0000000000000088", "3 (hardware slowdown, power brake)"),
    ],
)
def test_clocks(mask: str, said: str | None) -> None:
    report = changed(("= gpu.clocks 3, 0x0000000000000001", f"= gpu.clocks 3, {mask}"))
    assert [f.message for f in report.findings] == (
        [] if said is None else [f"clocks are reduced on GPU {said}"]
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("\t Link 4: <inactive>", "5 (links 4)"),
        ("\t Link 4: some later word", "5 (links 4)"),
    ],
)
def test_nvlink(line: str, said: str) -> None:
    head, tail = base("n1").split("= gpu.nvlink GPU 5:")
    tail = tail.replace("\t Link 4: 26.562 GB/s", line, 1)
    (finding,) = judged({"n1": f"{head}= gpu.nvlink GPU 5:{tail}"}).findings
    assert finding.severity is Severity.ERROR
    assert finding.message == f"NVLink is not complete: GPU {said}"


def test_nvlink_that_a_gpu_lacks() -> None:
    head, tail = base("n1").split("= gpu.nvlink GPU 7:")
    first, *_, rest = tail.partition("\n")
    kept = [line for line in rest.splitlines(keepends=True) if "Link" not in line]
    text = f"{head}= gpu.nvlink GPU 7:{first}\n{''.join(kept)}"
    assert "7 (no links)" in judged({"n1": text}).findings[0].message


def test_an_old_driver_without_a_field() -> None:
    text = "".join(line for line in base("n1").splitlines(keepends=True) if "gpu.state" not in line)
    said = 'Field "pcie.link.gen.max" is not a valid field to query.'
    report = judged(
        {"n1": f"{text}= gpu.state {said}\n? gpu.state nvidia-smi failed (2): {said}\n"}
    )
    (finding,) = report.findings
    assert finding.rule == "gpu-state" and said in finding.message and report.exit_code == 2


@pytest.mark.parametrize(
    ("line", "severity", "said"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "error", "Xid 79"),
        ("48, pid=1, An uncorrectable double bit error (DBE)", "error", "Xid 48"),
        ("119, pid=4, Timeout waiting for RPC from GSP!", "error", "Xid 119"),
        ("31, pid=4, name=python, Ch 00000008", "warning", "): 31"),
        ("63, pid=1, Row Remapper: New row marked", "warning", "): 63"),
    ],
)
def test_xid(line: str, severity: str, said: str) -> None:
    line = f"NVRM: Xid (PCI:0000:38:00): {line}"
    for text in (base("n1"), base("n1", 0) + "? gpu.nvidia nvidia-smi gave no answer within 5 s\n"):
        found = of(judged({"n1": f"{text}= xid [ 9.1] {line}\n= xid [ 9.2] {line}\n"}), "gpu-xid")
        assert [f.severity for f in found] == [severity] and said in found[0].message


@pytest.mark.parametrize("value", ["[GPU is lost]", "[GPU requires reset]"])
def test_a_dead_gpu_is_named(value: str) -> None:
    dead = f"3, NVIDIA H20, {value}, {value}, 570.133.20, 00000000:38:00.0, GPU-3"
    report = changed(("3, NVIDIA H20, 97871, 0, 570.133.20, 00000000:38:00.0, GPU-3", dead))
    (finding,) = report.findings
    assert finding.rule == "gpu-count" and finding.severity is Severity.ERROR
    assert f"GPU 3 (00000000:38:00.0): {value[1:-1]}" in finding.message
    assert states(report)["gpu-memory"] is State.PASSED


def test_hosts_of_two_models() -> None:
    other = base("n3").replace("NVIDIA H20, 97871", "NVIDIA H20-3e, 143771")
    report = judged({"n1": base("n1"), "n2": base("n2"), "n3": other})
    (finding,) = report.findings
    assert (finding.where, finding.severity) == ("n3", Severity.WARNING)
    assert finding.message == (
        "GPU model NVIDIA H20-3e (140 GiB), the other hosts have NVIDIA H20 (96 GiB)"
    )


# -- Moore Threads --------------------------------------------------------------------------------


def gmi(text: str) -> Report:
    lines = "".join(f"= gpu.mthreads {line}\n" for line in text.splitlines())
    return judged({"n1": base("n1", 0) + lines}, machine="s5000")


def test_mthreads_healthy() -> None:
    found = states(gmi(GMI))
    assert found["gpu-pcie"] is found["gpu-ecc"] is State.PASSED


@pytest.mark.parametrize(
    ("old", "new", "rule", "said"),
    [
        ("16x(16x)            |51C", "4x(16x)             |51C", "gpu-pcie", ": x4 of x16"),
        ("|16x(16x)            |51C", "|N/A                 |51C", "gpu-pcie", "did not report"),
        ("On-die, EDC\n---", "Off\n---", "gpu-ecc", "ECC is off on"),
        ("On-die, EDC\n---", "N/A\n---", "gpu-ecc", "did not report the ECC mode of"),
    ],
)
def test_mthreads_lanes_and_ecc(old: str, new: str, rule: str, said: str) -> None:
    assert old in GMI
    (finding,) = of(gmi(GMI.replace(old, new)), rule)
    assert said in finding.message and finding.severity is Severity.WARNING
    assert "GPU 1 (00000000:3a:00.0)" in finding.message


# -- the host -------------------------------------------------------------------------------------


def test_error_counters_of_rdma_ports() -> None:
    texts = {}
    for name in ("n1", "n2", "n3"):
        lines = "".join(
            f"= rdma.errors mlx5_{n}:1 symbol_error=0 link_downed={n} port_rcv_errors=7\n"
            for n in range(8)
        )
        texts[name] = base(name) + lines
    assert not judged(texts).findings
    texts["n2"] = texts["n2"].replace("mlx5_3:1 symbol_error=0", "mlx5_3:1 symbol_error=48211")
    (finding,) = judged(texts).findings
    assert finding.where == "n2" and "mlx5_3:1 symbol_error 48211 (median 0)" in finding.message


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("= init systemd\n= timesync chronyd\n", False),
        ("= init systemd\n", True),
        ("= init sshd\n", False),  # a container: the host's daemon is not visible
    ],
)
def test_time_synchronisation(lines: str, said: bool) -> None:
    assert bool(of(judged({"n1": base("n1") + lines}), "time-sync")) is said
