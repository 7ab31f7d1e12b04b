"""Firmware of GPUs, RDMA adapters and mainboards, compared among parts of one kind."""

from __future__ import annotations

import re

import pytest

from reprise.core.findings import State
from tests.cluster.make import base, judged, of

NAMES = ("node1", "node2", "node3")


def fleet(name: str, *changes: tuple[str, str]) -> dict[str, str]:
    texts = {each: base(each) for each in NAMES}
    for old, new in changes:
        assert old in texts[name]
        texts[name] = texts[name].replace(old, new)
    return texts


def state(texts: dict[str, str]) -> State | None:
    found = {check.rule: check.state for check in judged(texts).checks}
    return found.get("firmware")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("96.00.B3.00.01", "96.00.99.00.01", "VBIOS 96.00.99.00.01 of NVIDIA H20"),
        ("MT_0000000838 28.39.1002", "MT_0000000838 28.36.1010", "firmware 28.36.1010"),
        ("X13DEG-OAD, 1.4", "X13DEG-OAD, 1.2", "BIOS 1.2, most hosts with mainboard X13DEG-OAD"),
    ],
)
def test_an_older_version_on_one_host(old: str, new: str, said: str) -> None:
    report = judged(fleet("node2", (old, new)))
    (finding,) = of(report, "firmware")
    assert finding.where == "node2" and finding.severity == "warning" and said in finding.message


def test_one_gpu_of_eight() -> None:
    texts = fleet("node1")
    texts["node1"] = texts["node1"].replace("5, NVIDIA H20, 96.00.B3", "5, NVIDIA H20, 96.00.99")
    (finding,) = of(judged(texts), "firmware")
    assert finding.where == "node1" and "most GPUs have 96.00.B3.00.01" in finding.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another kind of part is not compared.
        ("MT_0000000838 28.39.1002", "MT_0000000970 20.40.1000"),
        ("X13DEG-OAD, 1.4", "G593-SD0, R05"),
        ("X13DEG-OAD, 1.4", "Default string, "),
        ("NVIDIA H20, 96.00.B3.00.01", "NVIDIA H20-3e, 96.00.D1.00.02"),
    ],
)
def test_other_parts_have_other_firmware(old: str, new: str) -> None:
    assert of(judged(fleet("node2", (old, new))), "firmware") == []


def test_a_version_that_was_not_reported_is_unknown() -> None:
    texts = fleet("node2", ("96.00.B3.00.01", "[N/A]"))
    (finding,) = of(judged(texts), "firmware")
    assert "VBIOS of GPUs 0, 1, 2" in finding.message
    assert state(texts) is State.UNKNOWN


def test_hosts_that_report_nothing_are_not_judged() -> None:
    pattern = r"= (?:gpu\.firmware|rdma\.firmware|bios) .*\n"
    assert state({name: re.sub(pattern, "", base(name)) for name in NAMES}) is None
    assert state({name: base(name) for name in NAMES}) is State.PASSED
