"""Where a job runs: a private Ray, the cluster of a hostfile, or an existing Ray cluster.

Each place provides a Ray on which a job can run now, and releases it. Only a Ray that was started
here is ever stopped, never an existing one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from reprise.cluster.ray_address import address_of
from reprise.cluster.record import Record, find_record
from reprise.cluster.status import HEAD_RULE
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.flows.cluster.evict import promote
from reprise.flows.cluster.hosts import Selection
from reprise.flows.cluster.up import UpOptions, cluster_up
from reprise.runs.ray.alone import alone_on_this_machine
from reprise.runs.ray.auth_token import TokenError, read_token
from reprise.runs.ray.jobs import Jobs, open_jobs
from reprise.runs.ray.local_ray import new_temp_dir, remove_leftovers, start_local_ray
from reprise.runs.ray.nodes import list_nodes
from reprise.runs.state.folder import RunFolder, progress_of
from reprise.runs.state.state import PlaceKind, PrivateRay
from reprise.runs.supervise.supervise import hear

__all__ = [
    "Attached",
    "HostfileCluster",
    "Need",
    "Place",
    "Private",
    "address_of",
    "place_facts",
]

NODE_SECONDS = 1800.0
"""How long a lost node is waited for."""

HEAD_SECONDS = 900.0
"""How long a cluster's dashboard may be silent before the watch ends: a busy or restarted one takes
minutes, and without a watch no command resumes the run."""

REACH_RULE = "reach"
"""The rule that fails where a host of a running cluster does not answer."""

_ASK_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs at once: nodes, each with `gpus` (logical ones on a CPU)."""

    nodes: int
    gpus: int


class Place(Protocol):
    """A Ray for one run."""

    kind: PlaceKind
    stall_seconds: float
    lost_seconds: float

    def ready(self, folder: RunFolder, need: Need) -> Jobs:
        """Start Ray if this place does so, wait for missing nodes, record the address."""
        ...

    def release(self, folder: RunFolder) -> None:
        """The run has ended for good: stop what was started for it alone."""
        ...


@dataclass(slots=True)
class Private:
    """A Ray of the run's own on this machine. Every attempt gets a fresh one: a killed process
    leaves children behind that only the end of their whole Ray is sure to find.

    It holds the machine while it lives, with this command or without it. Where another run does,
    it is waited for, or refused without `wait`.
    """

    python: Path
    say: Callable[[str], None]
    kind: PlaceKind = PlaceKind.PRIVATE
    stall_seconds: float = 180.0
    lost_seconds: float = 90.0
    wait: bool = True

    def ready(self, folder: RunFolder, need: Need) -> Jobs:
        """Stop an earlier attempt's Ray, start a fresh one. Raises OperatorError, CannotTell."""
        self.release(folder)
        temp_dir = new_temp_dir()
        # Known before anything runs, so that a kill at any moment leaves a trace.
        own = PrivateRay(temp_dir=str(temp_dir), host=socket.gethostname())
        with folder.edit() as state:
            state.ray = own
        log = folder.path / "logs" / "ray.log"
        slots = need.gpus * need.nodes
        with alone_on_this_machine(
            self.say,
            heard=lambda: hear(folder),
            wait=self.wait,
            progress=lambda run: progress_of(folder.path.parent.parent, run),
        ) as handle:
            ray = start_local_ray(self.python, folder.name, slots, temp_dir, log, [handle])
        with folder.edit() as state:
            state.address, state.token_file = ray.address, str(ray.token_file)
            state.ray = own.model_copy(update={"pid": ray.pid, "created": ray.created})
        folder.event("ray ready")
        return open_jobs(folder)

    def release(self, folder: RunFolder) -> None:
        """Stop this run's own processes, by its mark. Raises OperatorError when some stay."""
        known = folder.read().ray
        if known is None:
            return
        left = remove_leftovers(folder.name, Path(known.temp_dir))
        folder.event("ray stopped", left=left)
        if left:
            raise OperatorError("train-leftovers.alive", folder.name, pids=" ".join(map(str, left)))
        with folder.edit() as state:
            state.address = state.token_file = state.ray = None


@dataclass(slots=True)
class Attached:
    """An existing Ray cluster: nothing is started or stopped, only waited for."""

    address: str
    token_file: str | None
    say: Callable[[str], None]
    wait_seconds: float = NODE_SECONDS
    kind: PlaceKind = PlaceKind.ATTACHED
    stall_seconds: float = 3600.0
    lost_seconds: float = HEAD_SECONDS

    def ready(self, folder: RunFolder, need: Need) -> Jobs:
        """Wait until enough nodes are alive. Raises CannotTell when they do not come."""
        with folder.edit() as state:
            state.address, state.token_file = self.address, self.token_file
        wait_for_nodes(self.address, self.token_file, need, self.wait_seconds, self.say)
        return open_jobs(folder)

    def release(self, folder: RunFolder) -> None:
        """An existing Ray cluster is never stopped."""


@dataclass(slots=True)
class HostfileCluster:
    """The cluster of a hostfile: started, completed, left running at the end.

    `on_up` is given the report of each `cluster up`; `ignore` names the doctor's rules that are
    overridden.
    """

    selection: Selection
    project: Project
    say: Callable[[str], None]
    ignore: tuple[str, ...] = ()
    wait_seconds: float = NODE_SECONDS
    kind: PlaceKind = PlaceKind.HOSTFILE
    stall_seconds: float = 3600.0
    lost_seconds: float = HEAD_SECONDS
    reports: list[Report] = field(default_factory=list)

    @property
    def hostfile(self) -> Path:
        """The hostfile."""
        if self.selection.hostfile is None:
            raise OperatorError("hostfile.required", "HOSTFILE")
        return self.selection.hostfile.path

    def ready(self, folder: RunFolder, need: Need) -> Jobs:
        """Start the cluster or complete it; a host that stays away is replaced by a spare one.

        Raises OperatorError with the first reason when too few nodes come.
        """
        deadline = time.monotonic() + self.wait_seconds
        while True:
            report = cluster_up(self.selection, self.project, UpOptions(ignore=self.ignore))
            self.reports.append(report)
            record = find_record(self.hostfile)
            if record is not None and _enough(record.address, str(record.token_file), need):
                self._note(folder, record, report)
                return open_jobs(folder)
            error = next(iter(report.errors()), None)
            headless = error is not None and error.rule == HEAD_RULE
            away = error is not None and error.rule == REACH_RULE and record is not None
            if away and not headless and (spare := promote(self.hostfile, need.gpus)):
                self.say(f"a host does not answer; spare {spare} takes its place")
                continue
            if record is None or headless or time.monotonic() >= deadline:
                if error is not None:
                    raise OperatorError(error.rule, error.where, error.message, error.fix)
                file = self.hostfile
                raise OperatorError(
                    "train-nodes.too-few", str(file), nodes=need.nodes, hostfile=file
                )
            said = f"{error.where}: {error.message}" if error else "nodes are missing"
            self.say(f"waiting for the cluster ({said})")
            time.sleep(_ASK_SECONDS)

    def _note(self, folder: RunFolder, record: Record, report: Report) -> None:
        with folder.edit() as state:
            state.address, state.token_file = record.address, str(record.token_file)
        folder.event("cluster", id=record.id, hosts=[node.name for node in record.active])
        for error in report.errors():
            self.say(f"{error.where}: {error.message}; the other hosts are sufficient")

    def release(self, folder: RunFolder) -> None:
        """A cluster outlives its runs: `reprise cluster down` stops it."""


def _enough(address: str, token_file: str | None, need: Need) -> bool:
    """Whether enough nodes with enough GPUs each are alive now."""
    try:
        nodes = list_nodes(address, read_token(token_file))
    except CannotTell:
        return False
    return sum(node.alive and node.gpus >= need.gpus for node in nodes) >= need.nodes


def wait_for_nodes(
    address: str, token_file: str | None, need: Need, seconds: float, say: Callable[[str], None]
) -> None:
    """Wait until `need` is met, also for a dashboard that does not answer.

    Raises CannotTell with the state of the nodes when the time is over.
    """
    deadline = time.monotonic() + seconds
    shown = ""
    while True:
        try:
            nodes = list_nodes(address, read_token(token_file))
        except TokenError:
            raise
        except CannotTell as error:
            # A head that went away may come back.
            said = error.message
        else:
            alive = [node for node in nodes if node.alive and node.gpus >= need.gpus]
            if len(alive) >= need.nodes:
                return
            dead = (node for node in nodes if not node.alive)
            lost = [f"{node.name} is {node.state} ({node.reason})" for node in dead]
            said = f"{len(alive)} of {need.nodes} nodes with {need.gpus} GPUs are alive"
            said = "; ".join([said, *lost[:4]])
        if time.monotonic() >= deadline:
            raise CannotTell("train-nodes.waited", address, state=said, seconds=seconds)
        if said != shown:
            say(f"waiting: {said}")
            shown = said
        time.sleep(_ASK_SECONDS)


def place_facts(place: Place) -> dict[str, Any]:
    """What run.json says of a place."""
    facts: dict[str, Any] = {"place": place.kind}
    if isinstance(place, HostfileCluster):
        facts["hostfile"] = str(place.hostfile.absolute())
        facts["hosts"] = [host.to_json() for host in place.selection.hosts]
    return facts
