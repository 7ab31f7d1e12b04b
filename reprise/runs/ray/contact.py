"""Who can be asked about a run's job: its Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.runs.state.folder import RunFolder
from reprise.runs.ray.jobs import Jobs, read_token

__all__ = ["GONE", "LIVE", "Contact", "contact_of", "last_attempt", "private_elsewhere"]

LIVE = frozenset({"created", "submitted", "running"})
"""States of run.json in which a job may be running."""

GONE = "UNKNOWN"
"""In place of Ray's word on a job that it does not know: never submitted, or Ray began anew."""


@dataclass(frozen=True, slots=True)
class Contact:
    """Where the run's job can be asked about."""

    jobs: Jobs
    address: str
    token: str | None


def contact_of(folder: RunFolder) -> Contact:
    """The Jobs API that the run's job runs under.

    The token is the one that run.json names; where that cannot be read or is refused, that of
    RAY_AUTH_TOKEN_PATH.

    Raises CannotTell when run.json names none or it does not answer, OperatorError when it asks
    for another token.
    """
    facts = folder.read()
    if (host := private_elsewhere(facts)) is not None:
        raise CannotTell('run-address.ray-private-cannot', folder.name, hostname=host)
    # A run of `reproduce` has a private Ray only, whose temp dir holds the token.
    address = facts.get("address") or facts.get("ray_address")
    named = facts.get("token_file")
    if not named and facts.get("ray_temp_dir"):
        named = str(Path(str(facts["ray_temp_dir"])) / "token")
    if not address:
        raise CannotTell('run-address.run-json-names', folder.name, get=facts.get('state'), folder_name=folder.name)
    own = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return _reach(str(address), named)
    except OperatorError as error:
        if own in (None, "", named) or error.rule != "run-token":
            raise
    return _reach(str(address), own)


def _reach(address: str, token_file: str | None) -> Contact:
    token = read_token(token_file)
    return Contact(Jobs(address, token), address, token)


def private_elsewhere(facts: Mapping[str, Any]) -> str | None:
    """The other machine that the run's private Ray is on; None where it is here, or has none."""
    ray = facts.get("ray")
    owner = (facts.get("process") or {}) if facts.get("ray_temp_dir") else {}
    host = (ray or owner).get("host")
    return str(host) if host not in (None, socket.gethostname()) else None


def last_attempt(folder: RunFolder, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The newest attempt of run.json, {} before there is one. `reproduce` lists none of its one."""
    attempts = facts.get("attempts")
    if attempts:
        return dict(attempts[-1])
    if attempts is None and folder.log_file(1).exists():
        return {"number": 1, "job": folder.job(1), "resumed_from": None}
    return {}
