"""`model check` on every host of a hostfile: four real hosts, each with a /tmp of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.bed import Bed, standing_bed
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.findings import Report
from reprise.models.check import judge
from reprise.models.shards import inspect_folder

from .weights import POINTER, model

FOLDER = "/tmp/a model; touch x"
SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    with standing_bed() as standing:
        yield standing


@pytest.fixture
def copies(bed: Bed) -> dict[str, Path]:
    """A whole copy of one model on each host, at the same path."""
    return {host.name: model(host.tmp / Path(FOLDER).name) for host in bed.hosts}


def check(
    bed: Bed, *words: str, hostfile: str | None = None, folder: str = FOLDER
) -> tuple[int, dict[str, Any]]:
    site = bed.folder / "site.toml"
    site.write_text(f'[ssh]\nconfig = "{bed.config}"\nconnect_timeout = 4\n')
    hosts = [] if hostfile == "" else ["--hostfile", hostfile or str(bed.hostfile())]
    command = ["model", "check", folder, *hosts, *words, "--json"]
    done = CliRunner().invoke(app, command, env={"SITE": str(site)})
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.exit_code, json.loads(done.stdout)


def errors(data: dict[str, Any]) -> dict[str, str]:
    return {f["where"]: f["message"] for f in data["findings"] if f["severity"] == "error"}


def test_whole_copies_on_all_hosts(bed: Bed, copies: dict[str, Path]) -> None:
    code, data = check(bed)
    assert (code, data["verdict"]) == (0, "ok"), data["findings"]
    assert [item["host"] for item in data["hosts"]] == ["node1", "node2", "node3", "node4"]
    assert {item["shards"] for item in data["hosts"]} == {3}
    assert not [path for path in bed.folder.rglob("x") if path.is_file()]


def test_each_fault_is_told_with_its_host(bed: Bed, copies: dict[str, Path]) -> None:
    (copies["node2"] / SHARD).unlink()
    short = copies["node3"] / SHARD
    short.write_bytes(short.read_bytes()[:-3])
    (copies["node4"] / SHARD).write_text(POINTER)
    code, data = check(bed)
    assert code == 1
    found = errors(data)
    assert {where.partition(":")[0] for where in found} == {"node2", "node3", "node4"}
    by_host = {
        name: " ".join(text for where, text in found.items() if where.startswith(name))
        for name in copies
    }
    assert "missing" in by_host["node2"]
    assert "bytes" in by_host["node3"]
    assert "git-lfs pointer" in by_host["node4"]
    code, data = check(bed, "--exclude", "node[2-4]")
    assert (code, len(data["hosts"])) == (0, 1)


def test_different_copies_are_told(bed: Bed, copies: dict[str, Path]) -> None:
    model(copies["node4"], num_experts=3)
    code, data = check(bed)
    assert code == 1
    (text,) = [f["message"] for f in data["findings"] if f["rule"] == "model-agreement"]
    assert "node1, node2, node3 | node4" in text


def test_a_host_that_cannot_be_looked_at_hides_no_other(
    bed: Bed, copies: dict[str, Path], tmp_path: Path
) -> None:
    (copies["node2"] / SHARD).unlink()
    bed.cut(bed.host("node3"))
    try:
        hostfile = tmp_path / "hosts"
        hostfile.write_text("node1\nnode2\nnode3\nno-such-host.invalid\n")
        code, data = check(bed, hostfile=str(hostfile))
    finally:
        bed.join(bed.host("node3"))
    assert code == 1
    assert any(where.startswith("node2:") for where in errors(data))
    unseen = {f["where"].partition(":")[0] for f in data["findings"] if f["rule"] == "model-host"}
    assert unseen == {"node3", "no-such-host.invalid"}
    code, data = check(bed, "--host", "node1", "--host", "no-such-host.invalid", hostfile="")
    assert (code, data["verdict"]) == (2, "unknown")


def test_nothing_is_contacted_when_a_name_is_wrong(bed: Bed, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node1\nnode2 slots=x\n")
    code, data = check(bed, hostfile=str(hostfile))
    assert (code, list(errors(data))) == (1, [f"{hostfile}:2"])
    assert "hosts" not in data
    for name in ("-oProxyCommand=x", "node1\nnode2", "$(touch x)", "#"):
        code, data = check(bed, "--host", name, hostfile="")
        assert code == 1 and "hosts" not in data
    code, data = check(bed, "--host", "node1")
    assert code == 1 and "found both" in next(iter(errors(data).values()))


def test_a_folder_that_is_not_there(bed: Bed) -> None:
    code, data = check(bed, "--host", "node1", hostfile="", folder="/tmp/nowhere")
    assert code == 1
    assert all(where.startswith("node1:/tmp/nowhere") for where in errors(data))


def test_copies_are_compared_without_hosts(tmp_path: Path) -> None:
    one, two = model(tmp_path / "1"), model(tmp_path / "2", num_experts=3)
    report = Report("model check")
    judge(report, {"n1": inspect_folder(one), "n2": inspect_folder(two)}, tmp_path)
    assert any(item.rule == "model-agreement" for item in report.errors())
