"""An existing Ray cluster by its address: its token, and whether it answers."""

from __future__ import annotations

import os
from pathlib import Path

from reprise.cluster.address import jobs_address
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.runs.ray.auth_token import read_token
from reprise.runs.ray.nodes import list_nodes

__all__ = ["address_of", "ask_ray"]


def address_of(text: str) -> tuple[str, str | None, str | None]:
    """The Jobs API's address, the file of its token, and a note on how the address was completed.

    The token's file is RAY_AUTH_TOKEN_PATH, else Ray's own ~/.ray/auth_token when it is there.
    """
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    usual = Path.home() / ".ray" / "auth_token"
    token_file = named or (str(usual) if usual.is_file() else None)
    # Whoever types a loopback address on purpose has a tunnel, or is on the head.
    address, note = jobs_address(text, on_head=True)
    return address, token_file, note


def ask_ray(text: str, token_file: str | None = None) -> Report:
    """Whether the Ray cluster at `text` answers and accepts the token; submits nothing.

    `token_file` None: the one of the environment, as `address_of` finds it.
    """
    report = Report("doctor")
    try:
        address, found, _ = address_of(text)
        nodes = list_nodes(address, read_token(token_file or found))
    except OperatorError as error:
        report.absorb(error.report("doctor"))
        return report
    report.passed("ray-address")
    alive = [node for node in nodes if node.alive]
    gpus = sum(node.gpus for node in alive)
    report.note(
        "ray-address.answers", address, alive=len(alive), dead=len(nodes) - len(alive), gpus=gpus
    )
    return report
