"""The nodes of a Ray cluster, by the dashboard's own list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from reprise.core.errors import CannotTell
from reprise.runs.ray.auth_token import token_refused

__all__ = ["Node", "ask_dashboard", "list_nodes"]

_SECONDS = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the head lists it: `state` is ALIVE or DEAD, `reason` why a node is dead."""

    node_id: str
    name: str
    ip: str
    state: str
    gpus: float
    reason: str = ""

    @property
    def alive(self) -> bool:
        """Whether work can be placed on it."""
        return self.state == "ALIVE"


def list_nodes(address: str, token: str | None) -> list[Node]:
    """All nodes that the head knows, dead ones too; `address` is the dashboard's.

    The list is `/nodes?view=summary` (ray/dashboard/modules/node, 2.60): unlike `ray status` it
    shows dead nodes at once. Raises CannotTell when it does not answer, OperatorError when it asks
    for another token.
    """
    return ask_dashboard(
        *(address, "nodes", token, {"view": "summary"}),
        *("run-nodes.unreadable", {}),
        lambda answer: [_node(item) for item in answer["data"]["summary"]],
    )


def ask_dashboard(
    address: str,
    path: str,
    token: str | None,
    query: Mapping[str, str],
    text: str,
    values: Mapping[str, object],
    take: Callable[[Any], T],
    seconds: float = _SECONDS,
) -> T:
    """What `take` makes of the JSON at `path` of the dashboard at `address`.

    Raises CannotTell (`text` of the registry with `values` and a `reason`) when it does not answer,
    or not as `take` expects, and OperatorError when it asks for another token.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        # trust_env would send the cluster's own address through a site's proxy.
        with httpx2.Client(trust_env=False, headers=headers, timeout=seconds) as client:
            answer = client.get(f"{address}/{path}", params=query)
        if answer.status_code in (401, 403):
            raise token_refused(address, "the dashboard", token)
        answer.raise_for_status()
        return take(answer.json())
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CannotTell(text, address, **values, reason=reason) from None


def _node(item: dict[str, object]) -> Node:
    raylet = item.get("raylet")
    raylet = raylet if isinstance(raylet, dict) else {}
    resources = raylet.get("resourcesTotal") or {}
    ip = str(item.get("ip") or raylet.get("nodeManagerAddress") or "?")
    return Node(
        node_id=str(raylet.get("nodeId") or ""),
        name=str(item.get("hostname") or raylet.get("nodeName") or ip),
        ip=ip,
        state=str(raylet.get("state") or "UNKNOWN"),
        gpus=float(resources.get("GPU", 0)),
        reason=str(raylet.get("stateMessage") or ""),
    )
