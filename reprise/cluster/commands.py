"""The exact command that starts Ray on each node, and its environment variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from reprise.cluster.doctor.rules_network import covering
from reprise.cluster.record import Node, Record, bracketed
from reprise.cluster.site import Site
from reprise.cluster.tls import tls_variables
from reprise.machines.registry import Machine

__all__ = ["NodeCommand", "node_command"]

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS", re.IGNORECASE)
_NO_PROXY = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """The command of `node`: arguments `words`, with `variables` in its environment."""

    node: Node
    words: tuple[str, ...]
    variables: Mapping[str, str]

    def shown(self) -> str:
        """The command as one line of shell; values that may be secrets are masked."""
        pairs = [
            f"{name}={'***' if _SECRET.search(name) and '/' not in value else shlex.quote(value)}"
            for name, value in self.variables.items()
        ]
        return " ".join([*pairs, shlex.join(self.words)])


def node_command(record: Record, node: Node, machine: Machine, site: Site) -> NodeCommand:
    """The command of one node; the first node of the record is the head."""
    variables = _variables(record, node, machine, site)
    ray = [
        record.python,
        "-m",
        "ray.scripts.scripts",
        "start",
        *_flags(record, node, machine, site),
    ]
    if record.image is None:
        return NodeCommand(node, tuple(ray), variables)
    return NodeCommand(node, (*_container(record, machine, site, variables), *ray), variables)


def _flags(record: Record, node: Node, machine: Machine, site: Site) -> list[str]:
    """Flags of `ray start`: every address and port is explicit."""
    ports = site.ports
    head = node is record.nodes[0]
    flags = [f"--node-ip-address={node.ip}", f"--node-name={node.name}"]
    if head:
        flags += [
            "--head",
            f"--port={ports.gcs}",
            f"--dashboard-host={node.ip}",
            f"--dashboard-port={ports.dashboard}",
            f"--ray-client-server-port={ports.client}",
            f"--temp-dir={record.root}/r",
        ]
    else:
        flags.append(f"--address={bracketed(record.nodes[0].ip)}:{ports.gcs}")
    flags += [
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--dashboard-agent-grpc-port={ports.agent_grpc}",
        f"--dashboard-agent-listen-port={ports.agent_http}",
        f"--metrics-export-port={ports.metrics}",
        f"--min-worker-port={ports.worker_low}",
        f"--max-worker-port={ports.worker_high}",
        "--disable-usage-stats",
        *machine.profile.ray_flags,
    ]
    if not machine.accelerator.ray_counts:
        flags.append(f"--num-gpus={node.slots}")
    if record.image is not None:
        flags.append("--block")
    return flags


def _variables(record: Record, node: Node, machine: Machine, site: Site) -> dict[str, str]:
    """The site's variables override the machine's; those of the cluster itself override both."""
    names = [value for other in record.nodes for value in (other.name, other.ip)]
    interfaces = dict.fromkeys(machine.accelerator.interface_variables, node.interface)
    given = {**interfaces, **site.variables}
    existing = given.get("no_proxy") or given.get("NO_PROXY") or ""
    return {
        **machine.profile.ray_variables,
        **given,
        **{name: covering(existing, names) for name in _NO_PROXY},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{record.root}/token",
        **tls_variables(record, f"{record.root}/tls"),
        # Two listeners of the head that have no flag; by default their ports are ephemeral ones.
        "AUTOSCALER_METRIC_PORT": str(site.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(site.ports.dashboard_metrics),
        "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
        # Scratch files of killed processes are removed with the cluster's folder.
        "TMPDIR": given.get("TMPDIR", record.root),
    }


def _container(
    record: Record, machine: Machine, site: Site, variables: Mapping[str, str]
) -> list[str]:
    """The engine's arguments up to the image; `-e NAME` takes the value from the environment."""
    words = [record.engine, "run", "-d", "--name", record.container]
    words += ["--label", f"reprise.cluster={record.id}", "--network=host", "--ipc=host"]
    words += [*machine.profile.container_flags, *site.container.flags]
    words += ["-v", f"{record.root}:{record.root}"]
    for path in dict.fromkeys([*site.container.mounts, *site.paths.shared().values()]):
        words += ["-v", path if ":" in path else f"{path}:{path}"]
    for name, value in machine.profile.container_variables.items():
        words += ["-e", f"{name}={value}"]
    for name in ("REPRISE_CLUSTER", *variables):
        words += ["-e", name]
    return [*words, "--entrypoint=", record.image or ""]
