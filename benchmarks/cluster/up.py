"""How long `cluster up` takes beside the same Ray commands, run by hand in parallel.

    .venv/bin/python benchmarks/cluster/up.py [--pairs 2] [--out FILE]

Four hosts by namespaces on this machine (root). By hand: one ssh that starts the head, then one ssh
a worker, all at once; the same words and variables; it ends when the last worker's `ray start` has
returned, with no proof that anything joined. `cluster up` here is what follows the doctor: start,
barrier, start, barrier on nodes and GPUs. The order alternates, the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reprise.cluster.commands import node_command  # noqa: E402
from reprise.cluster.doctor.doctor import Scripts  # noqa: E402
from reprise.cluster.record import Node, Record, new_record  # noqa: E402
from reprise.cluster.site import Paths, Site, SshSettings  # noqa: E402
from reprise.cluster.ssh import Ssh  # noqa: E402
from reprise.cluster.start import Starter  # noqa: E402
from reprise.cluster.stop import stop_cluster  # noqa: E402
from reprise.core.progress import Display  # noqa: E402
from reprise.machines.registry import machine_named  # noqa: E402
from tests.cluster.bed import Bed, standing_bed  # noqa: E402

PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"
SCRIPTS = Scripts(ROOT / "scripts")
MACHINE = machine_named("cpu")


def record_of(bed: Bed, site: Site) -> Record:
    """A new cluster on the bed's hosts."""
    nodes = [Node(name=h.name, slots=1, ip=h.ip, interface="eth0") for h in bed.hosts]
    values = {
        "profile": "cpu",
        "python": site.paths.python,
        "engine": "docker",
        "image": None,
        "gcs_port": site.ports.gcs,
        "dashboard_port": site.ports.dashboard,
    }
    return new_record(bed.hostfile(), values, nodes, site.paths.temp)


def by_hand(bed: Bed, site: Site, record: Record) -> float:
    """Seconds for the same commands in a shell's way."""

    def start(node: Node) -> subprocess.Popen[bytes]:
        command = node_command(record, node, MACHINE, site)
        pairs = [f"{name}={shlex.quote(value)}" for name, value in command.variables.items()]
        root, token = record.root, record.token_file.read_text()
        text = (
            f"umask 077; mkdir {root}; printf %s {token} >{root}/token; echo {record.id} "
            f">{root}/.reprise; cd {root}; REPRISE_CLUSTER={record.id} {' '.join(pairs)} "
            f"{shlex.join(command.words)} >{root}/log 2>&1"
        )
        return subprocess.Popen(
            ["ssh", "-F", str(bed.config), node.name, text], stdin=subprocess.DEVNULL
        )

    began = time.monotonic()
    head, *workers = record.nodes
    assert start(head).wait() == 0, "the head did not start"
    assert [process.wait() for process in [start(node) for node in workers]] == [0, 0, 0]
    return time.monotonic() - began


def ours(site: Site, record: Record) -> float:
    """Seconds of the starter, barriers included."""
    began = time.monotonic()
    with Ssh(site.ssh) as ssh, Display() as display:
        report = Starter(record, MACHINE, site, ssh, SCRIPTS, display).start_all()
    assert report.exit_code == 0, report.findings
    return time.monotonic() - began


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"hand": [], "ours": []}
    load = os.getloadavg()[0]
    with standing_bed() as bed:
        os.environ["XDG_STATE_HOME"] = str(bed.folder / "state")
        site = Site(ssh=SshSettings(config=str(bed.config)), paths=Paths(python=str(PYTHON)))
        for pair in range(options.pairs):
            for kind in ("hand", "ours") if pair % 2 == 0 else ("ours", "hand"):
                record = record_of(bed, site)
                taken = by_hand(bed, site, record) if kind == "hand" else ours(site, record)
                seconds[kind].append(round(taken, 1))
                with Ssh(site.ssh) as ssh:
                    stopped = stop_cluster(record, ssh, SCRIPTS)
                assert stopped.exit_code == 0, stopped.findings
    result = {
        "nodes": 4,
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "by_hand_s": seconds["hand"],
        "cluster_up_s": seconds["ours"],
        "ratio_of_medians": round(median(seconds["ours"]) / median(seconds["hand"]), 2),
    }
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
