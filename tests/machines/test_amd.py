"""An MI300X host as amd-smi and rocm-smi describe it: healthy, and with one fault at a time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.cluster.commands import node_command
from reprise.cluster.doctor.context import Expected
from reprise.cluster.doctor.doctor import Look, Scripts, probe_script
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.record import Node
from reprise.cluster.site import Site
from reprise.core.findings import Finding, Report, Severity
from reprise.machines.accelerator import Gpu
from reprise.machines.registry import guess_machine, machine_named
from tests.cluster.make import BASE, judged, of
from tests.cluster.make import record as made_record

ROOT = Path(__file__).resolve().parents[2]
MI300X = machine_named("mi300x")


def recorded() -> Any:
    return json.loads((Path(__file__).parent / "amd_smi.json").read_text(encoding="utf-8"))


def facts(key: str, value: object) -> str:
    """A JSON value as the tool prints it, each line a fact."""
    return "".join(f"= {key} {line}\n" for line in json.dumps(value, indent=4).splitlines())


def host(said: Any) -> str:
    """A host that has amd-smi."""
    text = BASE.replace("HOST", "n1").replace(".N", ".11")
    text += facts("gpu.amd", said["static"]) + facts("gpu.amd.metric", said["metric"])
    return text + facts("gpu.app", said["process"])


def report(said: Any, more: str = "") -> Report:
    return judged({"n1": host(said) + more}, machine="mi300x")


def only(told: Report, rule: str) -> Finding:
    """The finding of `rule`, when there is no other."""
    assert {finding.rule for finding in told.findings} == {rule}, told.findings
    (finding,) = of(told, rule)
    return finding


def test_a_healthy_host() -> None:
    told = report(recorded())
    assert told.findings == [] and told.exit_code == 0
    rules = {check.rule for check in told.checks}
    assert {"gpu-count", "gpu-model", "gpu-memory", "gpu-driver", "gpu-free", "gpu-ecc"} <= rules
    reading = MI300X.accelerator.read(parse_facts("n1", host(recorded())))
    assert reading is not None and len(reading.gpus) == 8
    assert reading.gpus[0] == Gpu(
        0, "AMD Instinct MI300X", 196592, 283, "6.14.14", "0000:05:00.0", "0x6F1F0A2B3C4D5E00"
    )


def test_older_versions_print_a_list_and_other_forms_of_amounts() -> None:
    said = recorded()
    said["static"], said["metric"] = said["static"]["gpu_data"], said["metric"]["gpu_data"]
    for entry in said["static"]:
        entry["vram"] = {"type": "HBM", "size_mb": 196592}
    for entry in said["metric"]:
        entry["mem_usage"]["used_vram"] = "283 MB"
    assert report(said).findings == []


def test_one_gpu_is_missing() -> None:
    said = recorded()
    del said["static"]["gpu_data"][5], said["metric"]["gpu_data"][5], said["process"][5]
    finding = only(report(said), "gpu-count")
    assert finding.severity is Severity.ERROR and "7 of 8 GPUs" in finding.message


def test_a_gpu_that_is_listed_and_not_readable_is_named() -> None:
    said = recorded()
    said["static"]["gpu_data"][5] |= {"asic": "N/A", "vram": "N/A", "driver": "N/A"}
    finding = only(report(said), "gpu-count")
    assert "GPU 5 (0000:a6:00.0)" in finding.message


def test_uncorrectable_memory_errors() -> None:
    said = recorded()
    said["metric"]["gpu_data"][3]["ecc"] |= {
        "total_correctable_count": 12,
        "total_uncorrectable_count": 2,
    }
    finding = only(report(said), "gpu-ecc")
    assert finding.severity is Severity.ERROR and "GPU 3: 2 uncorrectable" in finding.message
    assert "--gpu 3" in finding.fix


def test_corrected_errors_are_no_fault_and_deferred_ones_a_warning() -> None:
    said = recorded()
    said["metric"]["gpu_data"][3]["ecc"]["total_correctable_count"] = 12
    assert report(said).findings == []
    said["metric"]["gpu_data"][3]["ecc"]["total_deferred_count"] = 1
    assert only(report(said), "gpu-ecc").severity is Severity.WARNING


def test_counters_that_are_not_reported_are_unknown() -> None:
    said = recorded()
    said["metric"]["gpu_data"][3]["ecc"] = "N/A"
    told = report(said)
    assert "GPU 3" in only(told, "gpu-ecc").message and told.exit_code == 2
    said["metric"] = []
    assert {finding.rule for finding in report(said).findings} == {"gpu-ecc", "gpu-free"}


def test_another_users_process() -> None:
    said = recorded()
    said["process"][2]["process_list"] = [said["busy"]]
    finding = only(report(said, "= owner 48211 dave\n"), "gpu-free")
    assert finding.severity is Severity.ERROR and "dave (pid 48211)" in finding.message
    # A process of the cluster's own Ray, or one without memory of a GPU, is none.
    assert report(said, "= own 48211 raylet\n").findings == []
    said["busy"]["process_info"]["memory_usage"]["vram_mem"]["value"] = 0
    assert report(said).findings == []


def test_memory_in_use_without_a_process() -> None:
    said = recorded()
    said["metric"]["gpu_data"][2]["mem_usage"]["used_vram"]["value"] = 64000
    finding = only(report(said), "gpu-free")
    assert finding.severity is Severity.WARNING and "2 (64000 MiB)" in finding.message


def test_warnings_before_the_json_are_shown() -> None:
    warning = "= gpu.amd WARNING: User is missing the following required groups: render, video\n"
    text = host(recorded()).replace("= gpu.amd {", f"{warning}= gpu.amd {{", 1)
    finding = only(judged({"n1": text}, machine="mi300x"), "gpu-tool")
    assert "render, video" in finding.message


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("? gpu.amd amd-smi: command not found\n", "command not found"),
        ('= gpu.amd {\n= gpu.amd   "gpu_data": [\n', "unknown output"),
    ],
)
def test_no_answer_is_unknown(lines: str, said: str) -> None:
    text = BASE.replace("HOST", "n1").replace(".N", ".11") + lines
    told = judged({"n1": text}, machine="mi300x")
    assert said in of(told, "gpu-count")[0].message and told.exit_code == 2


def test_rocm_smi_where_amd_smi_is_missing() -> None:
    said = recorded()
    text = BASE.replace("HOST", "n1").replace(".N", ".11") + facts("gpu.amd.rocm", said["rocm"])
    text += facts("gpu.app", said["pids"]) + "= owner 48211 dave\n"
    told = judged({"n1": text}, machine="mi300x")
    assert {finding.rule for finding in told.findings} == {"gpu-free", "gpu-ecc"}
    assert "dave (pid 48211)" in of(told, "gpu-free")[0].message
    reading = MI300X.accelerator.read(parse_facts("n1", text))
    assert reading is not None
    assert (reading.gpus[7].total, reading.gpus[7].used) == (196592, 283)


def test_the_probe_asks_amd_smi_and_finds_the_owner(tmp_path: Path) -> None:
    said = recorded()
    process = [{"gpu": 0, "process_list": [said["busy"]]}]
    answers = {"static": said["static"], "metric": said["metric"], "process": process}
    smi = tmp_path / "amd-smi"
    cases = "".join(f"{name}) cat {tmp_path}/{name} ;;\n" for name in answers)
    smi.write_text(f"#!/bin/sh\ncase $1 in\n{cases}esac\n")
    smi.chmod(0o755)
    own = os.getpid()
    said["busy"]["process_info"]["pid"] = own
    for name, value in answers.items():
        (tmp_path / name).write_text(json.dumps(value, indent=4))
    what = Look([Host("n1", 8, 1)], MI300X, Site(), Expected(), Scripts(ROOT / "scripts"))
    done = subprocess.run(
        ["sh", "-s"], input=probe_script(what, None, "0", first=False), text=True, check=True,
        capture_output=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    found = parse_facts("n1", done.stdout)
    reading = MI300X.accelerator.read(found)
    assert reading is not None and len(reading.gpus) == 8 and not reading.said
    user = subprocess.check_output(["id", "-un"], text=True).strip()
    uses: Sequence[Any] = MI300X.accelerator.uses(found) or ()
    assert [(use.pid, use.owner) for use in uses] == [(own, user)]


@pytest.mark.parametrize(("version", "name"), [(90402, "mi300x"), (110003, "cpu"), (0, "cpu")])
def test_an_mi300x_is_detected_by_the_kernels_list_of_devices(
    tmp_path: Path, version: int, name: str
) -> None:
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/2"
    node.mkdir(parents=True)
    (node / "properties").write_text(f"simd_count 1216\ngfx_target_version {version}\n")
    assert guess_machine(tmp_path)[0].name == name


def test_ray_counts_these_gpus_itself_and_rccl_gets_its_interface() -> None:
    node = Node(name="n1", slots=8, ip="10.8.0.11", interface="eth0")
    record = made_record(
        "mi300x", [node], root="/tmp/r", python="/usr/bin/python3", image="rocm/image:tag"
    )
    command = node_command(record, node, MI300X, Site())
    assert command.variables["RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"] == "1"
    assert command.variables["NCCL_SOCKET_IFNAME"] == "eth0"
    assert not any(word.startswith("--num-gpus") for word in command.words)
    assert {"/dev/kfd", "/dev/dri"} <= set(command.words)


def test_a_login_that_hides_gpus() -> None:
    finding = only(report(recorded(), "= env HIP_VISIBLE_DEVICES 0,1\n"), "gpu-count")
    assert "HIP_VISIBLE_DEVICES=0,1 hides GPUs" in finding.message


@pytest.mark.parametrize("value", ["0,1,2,3,4,5,6,7", "0", ""])
def test_a_variable_that_ray_or_verl_refuses_is_an_error_whatever_its_value(value: str) -> None:
    finding = only(report(recorded(), f"= env ROCR_VISIBLE_DEVICES {value}\n"), "gpu-count")
    assert f"ROCR_VISIBLE_DEVICES={value} is set in every login" in finding.message
    assert finding.fix == "remove ROCR_VISIBLE_DEVICES from the shell's start-up files"
