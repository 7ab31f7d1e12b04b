"""The Ray cluster that can be queried about the job of a run."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from reprise.core.errors import CannotTell
from reprise.runs.ray.auth_token import TokenError, read_token
from reprise.runs.ray.jobs import Jobs
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import Attempt, Launcher, RunState

__all__ = ["GONE", "Contact", "contact_of", "last_attempt", "private_elsewhere"]

GONE = "UNKNOWN"
"""State of a job that Ray does not know: it was never submitted, or Ray was restarted."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The Jobs API of a run's job."""

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
    state = folder.read()
    if (host := private_elsewhere(state)) is not None:
        raise CannotTell("run-address.private-elsewhere", folder.name, host=host)
    if not state.address:
        raise CannotTell(
            "run-address.not-recorded", folder.name, status=state.status, run=folder.name
        )
    own = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return _reach(state.address, state.token_file)
    except TokenError:
        if own in (None, "", state.token_file):
            raise
    return _reach(state.address, own)


def _reach(address: str, token_file: str | None) -> Contact:
    token = read_token(token_file)
    return Contact(Jobs(address, token), address, token)


def private_elsewhere(state: RunState) -> str | None:
    """The other machine that the run's private Ray is on; None where it is here, or has none."""
    host = state.ray.host if state.ray is not None else None
    return host if host not in (None, socket.gethostname()) else None


def last_attempt(folder: RunFolder, state: RunState) -> Attempt | None:
    """The newest attempt; None before there is one. Older runs of `reproduce` list none of theirs:
    its log shows that there was one."""
    if state.attempts:
        return state.attempts[-1]
    if state.command is Launcher.REPRODUCE and folder.log_file(1).exists():
        return Attempt(number=1, job=folder.job(1))
    return None
