"""One odd line of nvidia-smi makes one value unknown, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reprise.cluster.doctor.context import Expected
from reprise.cluster.doctor.doctor import Look, Scripts, probe_script
from reprise.cluster.doctor.facts import Facts, parse_facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site
from reprise.core.findings import Severity
from reprise.machines.accelerator import Gpu, Reading
from reprise.machines.registry import accelerators, machine_named, machines
from tests.cluster.make import base, judged, of

NVIDIA = machine_named("h20").accelerator
ROOT = Path(__file__).resolve().parents[2]


def facts(*lines: str) -> Facts:
    return parse_facts("n1", "".join(f"{line}\n" for line in [*lines, "= complete yes"]))


@pytest.mark.parametrize(
    ("row", "gpu"),
    [
        (
            "3, NVIDIA H20, [N/A], 0, 570.1, 00000000:18:00.0, GPU-3",
            Gpu(3, "NVIDIA H20", None, 0, "570.1", "00000000:18:00.0", "GPU-3"),
        ),
        (
            "3, NVIDIA H20, 97871, [Unknown Error], 570.1, [N/A], [Not Supported]",
            Gpu(3, "NVIDIA H20", 97871, None, "570.1", None, None),
        ),
        ("3, H20, [N/A]", Gpu(3)),
    ],
)
def test_a_value_that_is_not_reported_is_unknown(row: str, gpu: Gpu) -> None:
    other = "4, NVIDIA H20, 97871, 0, 570.1, 00000000:28:00.0, GPU-4"
    reading = NVIDIA.read(facts(f"= gpu.nvidia {row}", f"= gpu.nvidia {other}"))
    assert reading is not None and next(iter(reading.gpus)) == gpu
    assert list(reading.gpus)[1].total == 97871


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU3: GPU is lost.  Reboot the system",
    ],
)
def test_a_gpu_that_cannot_be_read_is_named(line: str) -> None:
    text = base("n1", 7) + f"= gpu.nvidia {line}\n? gpu.nvidia nvidia-smi failed (15): {line}\n"
    report = judged({"n1": text})
    (finding,) = of(report, "gpu-count")
    assert finding.severity is Severity.ERROR
    assert "7 of 8 GPUs" in finding.message and line.partition("for ")[2] in finding.message
    # The seven others are judged as ever.
    states = {check.rule: check.state.value for check in report.checks}
    assert states["gpu-model"] == states["gpu-memory"] == states["gpu-driver"] == "passed"


def test_a_tool_that_stopped_halfway_leaves_the_count_unknown() -> None:
    text = base("n1", 3) + "? gpu.nvidia nvidia-smi gave no answer within 5 s\n"
    (finding,) = of(judged({"n1": text}), "gpu-count")
    assert finding.severity is Severity.WARNING and "no answer within 5 s" in finding.message


def test_the_value_that_is_missing_is_reported_of_its_gpu_alone() -> None:
    text = base("n1").replace(
        "= gpu.nvidia 3, NVIDIA H20, 97871, 0,", "= gpu.nvidia 3, NVIDIA H20, [N/A], [N/A],"
    )
    report = judged({"n1": text})
    found = {f.rule: f.message for f in report.findings}
    assert set(found) == {"gpu-memory", "gpu-free"}
    assert "GPU 3:" in found["gpu-memory"] and report.exit_code == 2


def test_a_warning_of_the_tool_is_shown_and_hides_nothing() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"
    report = judged({"n1": base("n1") + f"= gpu.nvidia {warning}\n"})
    (finding,) = report.findings
    assert finding.rule == "gpu-tool" and warning in finding.message and report.exit_code == 0


def test_processes_that_were_not_reported_are_not_taken_for_none() -> None:
    text = base("n1") + "? gpu.app nvidia-smi gave no answer within 3 s\n"
    (finding,) = of(judged({"n1": text}), "gpu-free")
    assert "did not report" in finding.message


@pytest.mark.parametrize(
    ("lines", "reading"),
    [
        (["= gpu.nvidia No devices were found", "? gpu.nvidia failed (6): No dev"], Reading()),
        (["? gpu.nvidia nvidia-smi: command not found"], None),
        (["= gpu.nvidia NVIDIA-SMI has failed because", "? gpu.nvidia failed (9): x"], None),
    ],
)
def test_no_gpu_and_no_answer_are_two_things(lines: list[str], reading: Reading | None) -> None:
    found = NVIDIA.read(facts(*lines))
    assert (found is None) == (reading is None)
    assert found is None or not list(found.gpus)


def script(machine: str) -> str:
    what = Look(
        [Host("n1", 8, 1)], machine_named(machine), Site(), Expected(), Scripts(ROOT / "scripts")
    )
    return probe_script(what, None, "0", first=False)


@pytest.mark.parametrize("machine", [machine.name for machine in machines() if machine.trains])
def test_the_question_is_a_script_of_posix_shell(machine: str) -> None:
    subprocess.run(["sh", "-n"], input=script(machine), text=True, check=True)


def test_the_probe_keeps_what_a_failing_tool_printed(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\ncase $* in\n"
        "*compute-apps*) echo GPU-0, $PPID, 300 ;;\n"
        "*remapped*) echo 00000000:08:00.0, 0, 0, 0 ;;\n"
        "*) echo 0, NVIDIA H20, 97871, 0, 570.1, 00000000:08:00.0, GPU-0\n"
        "echo Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n"
        "exit 15 ;;\n"
        "esac\n"
    )
    smi.chmod(0o755)
    done = subprocess.run(
        ["sh", "-s"], input=script("h20"), text=True, capture_output=True, check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    found = parse_facts("n1", done.stdout)
    reading = NVIDIA.read(found)
    assert reading is not None and [gpu.name for gpu in reading.gpus] == ["NVIDIA H20"]
    assert list(reading.lost) == ["GPU 0000:0B:00.0: Unknown Error"]
    assert found.all("gpu.remapped") == ["00000000:08:00.0, 0, 0, 0"]
    uses = NVIDIA.uses(found)
    assert uses is not None and len(uses) == 1 and uses[0].used == 300


def test_the_probe_asks_for_the_variables_of_every_vendor() -> None:
    text = script("cpu")
    for vendor in accelerators():
        assert all(
            name in text for name in (*vendor.visible_variables, *vendor.interface_variables)
        )
