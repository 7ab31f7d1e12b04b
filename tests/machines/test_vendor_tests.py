"""dcgmi diag and nccl-tests: outputs in their public formats, through scripts/active.sh."""

# ruff: noqa: E501 (lines as the tools print them)

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.cluster.doctor.active import Figures, _vendor_tests
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import Facts, parse_facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.ssh import run_here
from reprise.core.findings import Severity, State
from reprise.machines.collective import read_collective
from reprise.machines.dcgm import diagnosis
from tests.cluster.make import base, context

SCRIPTS = Scripts(Path(__file__).resolve().parents[2] / "scripts")

# As all_reduce_perf 2.13 prints it (nccl-tests' README and issues 71, 131, 249).
PERF = """\
# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 3 iters: 10
#
# Using devices
#  Rank  0 Group  0 Pid   8756 on     node1 device  0 [0x01] NVIDIA H20
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   4674.1  229.72  402.01      0   4671.0  229.87  402.28      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 402.145
#
"""


def v4(*tests: dict[str, Any]) -> str:
    """A document of DCGM 4: entities, and objects with codes as warnings."""
    category = {"category": "Hardware", "tests": list(tests)}
    value = {"DCGM Diagnostic": {"test_categories": [category]}, "metadata": {"version": "4.2.3"}}
    return json.dumps(value, indent=2)


def entity(status: str, *warnings: dict[str, Any], gpu: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"entity_group": "GPU", "entity_id": gpu, "status": status}
    return {**found, "warnings": list(warnings)} if warnings else found


def v3(name: str, status: str, **more: Any) -> str:
    """A document of DCGM 3: gpu_id, and plain texts as warnings."""
    test = {"name": name, "results": [{"gpu_id": "0", "status": status, **more}]}
    root = {"test_categories": [{"category": "Integration", "tests": [test]}], "version": "3.3.7"}
    return json.dumps({"DCGM GPU Diagnostic": root}, indent=8)


PERSISTENCE = {
    "error_category": 8,
    "error_id": 29,
    "error_severity": 5,
    "warning": "Persistence mode for GPU 0 is disabled.",
}
MEMORY = {"error_id": 6, "error_severity": 2, "warning": "GPU 3 has uncorrectable memory errors"}


def facts(key: str, text: str, why: str = "") -> Facts:
    lines = [f"= {key}.ran tool", *(f"= {key} {line}" for line in text.splitlines())]
    return parse_facts("node1", "\n".join([*lines, *([f"? {key} {why}"] if why else [])]))


@pytest.mark.parametrize(
    ("text", "why", "level", "said"),
    [
        (v4({"name": "memory", "results": [entity("Pass"), entity("Pass", gpu=1)]}), "", "good", ""),
        (v4({"name": "memory", "results": [entity("Fail", MEMORY, gpu=3)]}), "ended with 226",
         "error", "memory on GPU 3: GPU 3 has uncorrectable"),
        # A setting of the host is not a broken GPU.
        (v4({"name": "software", "results": [entity("Fail", PERSISTENCE)]}), "ended with 226",
         "warning", "Persistence mode"),
        (v4({"name": "memory", "results": [entity("Fail")]}), "", "error", "memory on GPU 0"),
        (v4({"name": "pcie", "results": [entity("Skip")]},
            {"name": "memory", "results": [entity("Skip")]}), "", "unknown", "pcie on GPU 0; memory"),
        (v4({"name": "pcie", "results": [entity("Skip")]},
            {"name": "memory", "results": [entity("Pass")]}), "", "warning", "pcie on GPU 0"),
        (v4({"name": "memory", "test_summary": {"status": "Fail"}}), "", "error", "memory"),
        (v4({"name": "memory", "results": [entity("Not Run")]}), "", "unknown", "(not run)"),
        (v4(), "", "unknown", "names no test"),
        (json.dumps({"DCGM Diagnostic": {"runtime_error": "no GPU in the group"}}), "", "unknown",
         "no GPU in the group"),
        (v3("GPU Memory", "Pass"), "", "good", ""),
        (v3("PCIe", "Fail", warnings=["link at x8"]), "ended with 226", "error", "PCIe on GPU 0: link"),
        (v3("PCIe", "Warn", warnings="slow"), "", "warning", "PCIe on GPU 0: slow"),
        (v3("PCIe", "Skip"), "", "unknown", "PCIe"),
        ("a line of a driver\n" + v3("GPU Memory", "Pass") + "\nbye", "", "good", ""),
        ("Error: unable to establish a connection to the specified host: localhost",
         "dcgmi ended with 1", "unknown", "unable to establish"),
        ('{"DCGM Diagnostic": {', "dcgmi gave no result within 420 s", "unknown", "Diagnostic"),
        ("", "dcgmi gave no result within 420 s", "unknown", "within 420 s"),
        ('{"else": 1}', "", "unknown", "unknown output"),
        # Every test that was printed passed, and the tool itself failed.
        (v3("GPU Memory", "Pass"), "dcgmi ended with 1: x", "unknown", "ended with 1"),
    ],
)  # fmt: skip
def test_dcgm(text: str, why: str, level: str, said: str) -> None:
    (found,) = diagnosis(facts("dcgm", text, why))
    assert (found.level, found.rule) == (level, "gpu-diag")
    assert said in found.message


def test_what_is_not_installed_gives_no_result() -> None:
    assert list(diagnosis(parse_facts("node1", ""))) == []
    assert read_collective(parse_facts("node1", "")) is None


def test_the_average_bus_bandwidth() -> None:
    found = read_collective(facts("collective", PERF))
    assert found is not None and (found.bus, found.wrong, found.why) == (402.145, 0, None)
    # Another program's prefix, as mpirun and srun write it.
    prefixed = "".join(f"[1,0]<stdout>:{line}\n" for line in PERF.splitlines())
    again = read_collective(facts("collective", prefixed))
    assert again is not None and again.bus == 402.145
    for text in ("0", "nan", "-nan", "inf", "x"):
        odd = read_collective(facts("collective", PERF.replace("402.145", text)))
        assert odd is not None and odd.bus is None


def command(folder: Path, name: str, text: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    path.chmod(0o755)


def outcome(bin: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Marks, Figures, Sequence[str]]:
    monkeypatch.setenv("PATH", f"{bin}:/usr/bin:/bin")
    marks, figures = Marks(), Figures()
    it = context({"node1": base("node1")})
    _vendor_tests(
        *(it, it.hosts, lambda jobs, limit: [run_here(h.name, s, limit) for h, s in jobs]),
        *(SCRIPTS, marks, figures),
    )
    return marks, figures, [mark.rule for mark in marks.marks if mark.severity is Severity.ERROR]


def test_on_a_host_that_has_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tmp_path, "dcgmi", v4({"name": "memory", "results": [entity("Pass")]}) + "\n")
    command(tmp_path, "all_reduce_perf", PERF)
    marks, figures, errors = outcome(tmp_path, monkeypatch)
    assert errors == [] and figures.tests == {"node1": 402.145}
    assert {mark.rule: mark.state for mark in marks.marks} == {
        "gpu-diag": State.PASSED,
        "all-reduce": State.PASSED,
    }


def test_on_a_host_where_both_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = v4({"name": "memory", "results": [entity("Fail", MEMORY, gpu=3)]})
    command(tmp_path, "dcgmi", failed + "\n", 226)
    wrong = PERF.replace("values : 0 OK", "values : 8 FAILED")
    command(tmp_path, "all_reduce_perf", wrong, 1)
    _, figures, errors = outcome(tmp_path, monkeypatch)
    assert sorted(errors) == ["all-reduce", "gpu-diag"] and figures.tests == {}


def test_on_a_host_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, figures, _ = outcome(tmp_path, monkeypatch)
    assert marks.marks == [] and figures.tests == {}
