"""What is known of a cluster that was started: written before anything starts, removed last.

It lies in the operator's state folder, one a hostfile, so that `down` finds what an `up` that was
killed has left. The token lies beside it, for its owner's eyes alone.
"""

from __future__ import annotations

import secrets
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from platformdirs import user_state_path

from reprise.cluster.hosts.hostfile import Host
from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, sha256_text, write_text

__all__ = ["Node", "Record", "find_record", "new_record"]


@dataclass(slots=True)
class Node:
    """A host of the cluster as it was started: address, card of the network, GPUs offered."""

    name: str
    slots: int
    ip: str
    interface: str
    user: str | None = None
    port: int | None = None

    @property
    def host(self) -> Host:
        """The host to reach by SSH."""
        return Host(self.name, self.slots, 0, self.user, self.port, self.ip)


@dataclass(slots=True)
class Record:
    """One cluster. `id` marks its processes; `nodes[0]` is the head; `root` its folder on nodes."""

    id: str
    hostfile: str
    created: float
    root: str
    profile: str
    python: str
    engine: str
    image: str | None
    gcs_port: int
    dashboard_port: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where the record lies."""
        return _folder(Path(self.hostfile))

    @property
    def token_file(self) -> Path:
        """The token that opens the cluster; readable by its owner alone."""
        return self.folder / "token"

    @property
    def address(self) -> str:
        """The address of the dashboard and the Jobs API."""
        return f"http://{bracketed(self.nodes[0].ip)}:{self.dashboard_port}"

    @property
    def container(self) -> str:
        """The container's name on every node; empty without containers."""
        return f"reprise-{self.id[:8]}" if self.image else ""

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        dump_json(self.folder / "cluster.json", asdict(self))

    def remove(self) -> None:
        """Forget the cluster, token included: when nothing of it is left."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints of it; the token is named, never shown."""
        return {
            "id": self.id,
            "address": self.address,
            "token_file": str(self.token_file),
            "nodes": [{"name": n.name, "ip": n.ip, "slots": n.slots} for n in self.nodes],
        }


def bracketed(ip: str) -> str:
    """An address as it stands in a URL or before a port."""
    return f"[{ip}]" if ":" in ip else ip


def _folder(hostfile: Path) -> Path:
    key = sha256_text(str(hostfile.absolute()))[:12]
    return user_state_path("reprise") / "clusters" / key


def find_record(hostfile: Path) -> Record | None:
    """The cluster that was started from this hostfile; None when none is known.

    Raises OperatorError when the record cannot be read.
    """
    path = _folder(hostfile) / "cluster.json"
    if not path.exists():
        return None
    try:
        values = orjson.loads(path.read_bytes())
        nodes = [Node(**node) for node in values.pop("nodes")]
        return Record(**values, nodes=nodes)
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise OperatorError("cluster-record.record-cluster", str(path), error=error) from None


def new_record(hostfile: Path, values: dict[str, Any], nodes: list[Node], temp: str) -> Record:
    """A record with a new id and a new token, both written before anything is started."""
    mark = secrets.token_hex(16)
    record = Record(
        id=mark,
        hostfile=str(hostfile.absolute()),
        created=time.time(),
        root=f"{temp.rstrip('/')}/rp-{mark[:8]}",
        nodes=nodes,
        **values,
    )
    record.save()
    write_text(record.token_file, secrets.token_hex(32), mode=0o600)
    return record
