"""Seconds until Ray lists a lost node as dead: with its default time-outs and with tuned ones.

    .venv/bin/python benchmarks/cluster/lost_node.py [--out FILE]

Two hosts by namespaces on this machine (root). `vanished`: the host's packets are dropped, as after
a power loss. `killed`: all of its processes end, and its kernel closes their connections. For how
long Reprise takes from a fault to the next step, see docs/train.md (tests/flows/test_evict.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reprise.runs.ray.nodes import list_nodes  # noqa: E402
from tests.cluster.bed import Bed, standing_bed  # noqa: E402
from tests.cluster.conftest import Operator  # noqa: E402

# Ray's own (ray_config_def.h, 2.60); the profile `cpu` sets shorter ones.
DEFAULTS = """[variables]
RAY_health_check_initial_delay_ms = "5000"
RAY_health_check_period_ms = "3000"
RAY_health_check_timeout_ms = "10000"
RAY_health_check_failure_threshold = "5"
"""


def seconds_to_dead(bed: Bed, extra: str, kind: str) -> float:
    """Start a cluster, lose its second host, and wait until the dashboard lists it as dead."""
    operator = Operator(bed, extra=extra)
    hostfile, worker = str(bed.hostfile()), bed.hosts[1]
    up = operator.run("cluster", "up", hostfile)
    assert up.code == 0, up.json["findings"]
    cluster = up.json["cluster"]
    token = Path(cluster["token_file"]).read_text(encoding="utf-8")
    # The first checks of a node that has just joined come later.
    time.sleep(15)
    began = time.monotonic()
    bed.cut(worker) if kind == "vanished" else bed.stop(worker)
    try:
        while all(node.alive for node in list_nodes(cluster["address"], token)):
            assert time.monotonic() - began < 300, "it is not listed as dead"
            time.sleep(0.5)
        return round(time.monotonic() - began, 1)
    finally:
        if kind == "vanished":
            bed.join(worker)
        else:
            bed.start(worker)
            bed.wait(worker)
        assert operator.run("cluster", "down", hostfile).code == 0


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, object] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with standing_bed(2) as bed:
        for name, extra in (("defaults", DEFAULTS), ("tuned", "")):
            for kind in ("vanished", "killed"):
                result[f"{name}_{kind}_s"] = seconds_to_dead(bed, extra, kind)
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
