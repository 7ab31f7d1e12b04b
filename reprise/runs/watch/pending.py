"""Pending work of a Ray cluster, from its State API: why no step comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.runs.ray.nodes import ask_dashboard, list_nodes

__all__ = ["Waits", "pending"]

_SECONDS = 10.0
_WAITING_GROUPS = frozenset({"PENDING", "RESCHEDULING", "PREPARED"})
_WAITING_ACTORS = frozenset({"DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING"})
_MOST = 5


@dataclass(frozen=True, slots=True)
class Waits:
    """Placement groups that are not placed, dead nodes, actors not created: one text each."""

    groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()

    @property
    def stuck(self) -> bool:
        """Whether a group is not placed or a node is dead, which a normal start does not have."""
        return bool(self.groups or self.dead)

    @property
    def lines(self) -> list[str]:
        """All of them, at most five."""
        found = [*self.groups, *self.dead, *self.actors]
        more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
        return found[:_MOST] + more


def pending(address: str, token: str | None, job: str | None = None) -> Waits:
    """What the cluster at the dashboard's `address` waits for.

    With `job`, a submission's id, other jobs' groups and actors are left out as soon as Ray knows
    which driver is this job's.

    Raises CannotTell when the dashboard does not answer, OperatorError when it asks for another
    token.
    """
    nodes = list_nodes(address, token)
    driver = _driver(address, token, job) if job is not None else None
    groups = _of(driver, "creator_job_id", _ask(address, token, "placement_groups"))
    actors = _of(driver, "job_id", _ask(address, token, "actors"))
    alive = [node for node in nodes if node.alive]
    offered = f"{len(alive)} nodes are alive, with {sum(node.gpus for node in alive):g} GPUs"
    waiting = Counter(
        str(item.get("class_name")) for item in actors if item.get("state") in _WAITING_ACTORS
    )
    return Waits(
        groups=tuple(
            f"{_group(item)}; {offered}" for item in groups if item.get("state") in _WAITING_GROUPS
        ),
        dead=tuple(
            f"node {node.name} ({node.ip}) is {node.state}: {node.reason or 'no reason given'}"
            for node in nodes
            if not node.alive
        ),
        actors=tuple(f"{count} {name} not created yet" for name, count in sorted(waiting.items())),
    )


def _of(
    driver: str | None, key: str, items: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [item for item in items if driver is None or item.get(key) == driver]


def _driver(address: str, token: str | None, job: str) -> str | None:
    """Ray's own number of the job `job`; None before its driver has connected."""
    return ask_dashboard(
        *(address, f"api/jobs/{job}", token, {}),
        *("run-pending.job", {"job": job}),
        lambda answer: answer["job_id"] or None,
        seconds=_SECONDS + 5,
    )


def _ask(address: str, token: str | None, what: str) -> list[Mapping[str, Any]]:
    """A list of the State API (ray: dashboard/modules/state/state_head.py)."""
    query = {"detail": "1", "limit": "10000", "timeout": f"{_SECONDS:g}"}
    return ask_dashboard(
        *(address, f"api/v0/{what}", token, query),
        *("run-pending.list", {"kind": what}),
        lambda answer: [
            item for item in answer["data"]["result"]["result"] if isinstance(item, dict)
        ],
        seconds=_SECONDS + 5,
    )


def _group(item: Mapping[str, Any]) -> str:
    asked: Counter[str] = Counter()
    for bundle in item.get("bundles") or ():
        resources = bundle.get("unit_resources") or {}
        asked[_resources(resources)] += 1
    bundles = " + ".join(f"{count} x {{{text}}}" for text, count in sorted(asked.items()))
    stats = item.get("stats") or {}
    state = stats.get("scheduling_state") or item.get("state")
    name = item.get("name") or str(item.get("placement_group_id"))[:12]
    return f"placement group {name} needs {bundles or 'resources'} and is not placed ({state})"


def _resources(resources: Mapping[str, Any]) -> str:
    pairs: Iterable[tuple[str, Any]] = sorted(resources.items())
    return ", ".join(f"{name} {float(value):g}" for name, value in pairs)
