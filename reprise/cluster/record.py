"""The record of a cluster: written before anything starts, removed last.

It is in the operator's state folder, one per hostfile, so that `down` can clean up after a killed
`up`. The token is in the same folder, readable by its owner alone.
"""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_state_path
from pydantic import AliasChoices, Field

from reprise.cluster.hosts.hostfile import Host
from reprise.core.documents import Document, Kind, Part, read_document, write_document
from reprise.core.files import sha256_text, write_text

__all__ = ["Node", "Record", "find_record", "new_record"]


_KIND = Kind(
    rule="cluster-record",
    noun="the record of a cluster",
    version=1,
    fix="correct the file (docs/schemas/cluster.json lists its keys); without it, reprise doctor "
    "HOSTFILE lists the Ray processes on the hosts",
    absent="start the cluster: reprise cluster up HOSTFILE",
)


class Node(Part):
    """A host of the cluster: address, network interface, GPUs offered.

    A spare is known and reached like the others, and Ray is not started on it. An evicted host was
    taken out of the running cluster; `clear` says that nothing of the cluster is left on it.
    """

    name: str
    slots: int
    ip: str
    interface: str = Field(validation_alias=AliasChoices("interface", "card"))
    user: str | None = None
    port: int | None = None
    spare: bool = Field(default=False, description="Kept in reserve: Ray does not run on it.")
    evicted: str | None = Field(default=None, description="Why it was taken out; null: it was not.")
    clear: bool = Field(default=False, description="Nothing of the cluster is left on it.")

    @property
    def active(self) -> bool:
        """Whether Ray is to run on it."""
        return not self.spare and self.evicted is None

    @property
    def host(self) -> Host:
        """The host to reach by SSH."""
        return Host(self.name, self.slots, 0, self.user, self.port, self.ip)


class Record(Document):
    """A cluster that was started: cluster.json in the operator's state folder.

    `id` marks its processes; `nodes[0]` is the head; `root` its folder on the nodes.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    id: str
    hostfile: str
    created: float = Field(description="Seconds since the epoch.")
    root: str
    profile: str
    python: str
    engine: str
    image: str | None
    gcs_port: int
    dashboard_port: int
    tls: bool = Field(default=False, description="Whether Ray encrypts its gRPC connections.")
    nodes: list[Node] = Field(min_length=1)

    @property
    def active(self) -> list[Node]:
        """The nodes on which Ray is to run, the head first: no spare and no evicted host."""
        return [node for node in self.nodes if node.active]

    @property
    def to_stop(self) -> list[Node]:
        """The nodes on which something of the cluster may be."""
        return [node for node in self.nodes if node.active or not (node.spare or node.clear)]

    def node(self, name: str) -> Node | None:
        """The node of a host by its name in the hostfile."""
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def folder(self) -> Path:
        """The folder of the record."""
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

    @property
    def variables(self) -> dict[str, str]:
        """Variables of a shell from which `ray job` and Ray's SDK reach the cluster."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
        }

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_document(self.folder / "cluster.json", self)

    def remove(self) -> None:
        """Remove the record and the token, once the cluster is stopped on all hosts."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def shown(self) -> dict[str, Any]:
        """The record as `--json` prints it: the path of the token, never the token."""
        return {
            "id": self.id,
            "address": self.address,
            "token_file": str(self.token_file),
            "environment": self.variables,
            "nodes": [{"name": n.name, "ip": n.ip, "slots": n.slots} for n in self.nodes],
        }


def bracketed(ip: str) -> str:
    """An address as written in a URL or before a port."""
    return f"[{ip}]" if ":" in ip else ip


def _folder(hostfile: Path) -> Path:
    key = sha256_text(str(hostfile.absolute()))[:12]
    return user_state_path("reprise") / "clusters" / key


def find_record(hostfile: Path) -> Record | None:
    """The cluster that was started from this hostfile; None when it has none.

    Raises OperatorError when the record cannot be read.
    """
    path = _folder(hostfile) / "cluster.json"
    if not path.exists():
        return None
    return read_document(Record, path, _KIND)


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
