"""Tests under load between four real hosts: all GPUs of a host, floors of the site, storage."""

from __future__ import annotations

import pytest

from tests.cluster.bed import Bed
from tests.cluster.conftest import Operator

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]


def floors(**values: float) -> str:
    return "[floors]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def test_all_reduces_within_and_between_hosts(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile(slots=2))
    first = operator.run("doctor", hostfile, "--active")
    # Measured, and judged against nothing: unknown, not fine.
    assert first.code == 2, first.json["findings"]
    figures = first.json["bandwidth"]
    assert set(figures["intra_host"]) == {host.name for host in bed.hosts}
    assert figures["inter_host"] > 0 and min(figures["intra_host"].values()) > 0
    assert "has no floor" in first.of("bandwidth-inter")[0][1]
    assert "has no floor" in first.of("bandwidth-intra")[0][1]
    assert not list(operator.state.rglob("baselines/*.json"))

    operator.extra = floors(intra_host=0.0001, inter_host=0.0001)
    fine = operator.run("doctor", hostfile, "--active")
    assert fine.code == 0, fine.json["findings"]
    assert "expected at least 0.0001 (site file)" in fine.of("bandwidth-inter")[0][1]

    operator.extra = floors(intra_host=0.0001, inter_host=1000)
    slow = operator.run("doctor", hostfile, "--active")
    assert slow.code == 1 and "expected at least 1000" in slow.of("bandwidth-inter")[0][1]

    # A network interface that other hosts cannot reach: every rank reports an error.
    operator.extra = '[variables]\nGLOO_SOCKET_IFNAME = "eth7"\n'
    broken = operator.run("doctor", hostfile, "--active")
    assert broken.code == 1 and "failed" in broken.of("all-reduce")[0][1]
    assert broken.json["bandwidth"]["inter_host"] is None
    for host in bed.hosts:
        assert not [line for line in host.processes() if "python" in line]
