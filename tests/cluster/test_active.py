"""An all-reduce between four real hosts, and the site's own figure to compare with."""

from __future__ import annotations

import orjson
import pytest

from tests.cluster.bed import Bed
from tests.cluster.conftest import Operator

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]


def test_all_reduce_and_its_baseline(bed: Bed, operator: Operator) -> None:
    hostfile = str(bed.hostfile())
    first = operator.run("doctor", hostfile, "--active")
    assert first.code == 0, first.json["findings"]
    figure = first.json["bandwidth_gbit_per_s"]
    assert figure > 0
    assert "recorded as the baseline" in first.of("bandwidth")[0][1]
    (baseline,) = operator.state.rglob("baselines/*.json")
    assert orjson.loads(baseline.read_bytes()) == {"gbit_per_s": figure}

    # A site that was a thousand times faster once: the network is slow now.
    baseline.write_bytes(orjson.dumps({"gbit_per_s": figure * 1000}))
    slow = operator.run("doctor", hostfile, "--active")
    assert slow.code == 1 and "of the baseline" in slow.of("bandwidth")[0][1]

    # A network interface that other hosts cannot reach: every rank reports an error.
    operator.extra = '[variables]\nGLOO_SOCKET_IFNAME = "eth7"\n'
    broken = operator.run("doctor", hostfile, "--active")
    assert broken.code == 1 and "failed" in broken.of("all-reduce")[0][1]
    assert broken.json["bandwidth_gbit_per_s"] is None
    for host in bed.hosts:
        assert not [line for line in host.processes() if "python" in line]
