"""Poll the dashboard's node list until all expected nodes are alive.

Runs on the head, without other files.
N_URL, N_TOKEN_FILE, N_SECONDS, N_EXPECT ("ADDRESS GPUS" per line).
`ray status` counts dead nodes as active for a while; this list does not.
"""

import contextlib
import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

URL = os.environ["N_URL"] + "/nodes?view=summary"
EXPECT = [line.split() for line in os.environ.get("N_EXPECT", "").splitlines() if line]
DEADLINE = time.monotonic() + float(os.environ.get("N_SECONDS", "0"))


def ask() -> list[dict[str, Any]]:
    """All nodes that the head knows, newest state of each address."""
    request = urllib.request.Request(URL)  # noqa: S310  # an address of the cluster's own
    with contextlib.suppress(OSError):
        token = Path(os.environ["N_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
        request.add_header("Authorization", f"Bearer {token}")
    # A site's proxy cannot reach the cluster's own addresses.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as answer:
        summary: list[dict[str, Any]] = json.load(answer)["data"]["summary"]
        return summary


def rows(summary: list[dict[str, Any]]) -> dict[str, tuple[str, float, str]]:
    """Address, state, GPUs and reason of each node; an alive one replaces earlier dead ones."""
    found: dict[str, tuple[str, float, str]] = {}
    for node in summary:
        raylet = node.get("raylet", {})
        address = node.get("ip") or raylet.get("nodeManagerAddress", "?")
        state = raylet.get("state", "UNKNOWN")
        total = raylet.get("resourcesTotal") or {}
        row = (state, float(total.get("GPU", 0)), raylet.get("stateMessage") or "")
        if found.get(address, ("DEAD",))[0] != "ALIVE":
            found[address] = row
    return found


def main() -> None:
    """Poll until all expected nodes are alive with their GPUs, then print every row."""
    while True:
        reason = ""
        found: dict[str, tuple[str, float, str]] = {}
        try:
            found = rows(ask())
        except Exception as error:  # the API starts after the head: reported at the end
            reason = f"{type(error).__name__}: {error}"
        ready = bool(found) and all(
            found.get(address, ("",))[0] == "ALIVE" and found[address][1] >= float(gpus)
            for address, gpus in EXPECT
        )
        if ready or time.monotonic() >= DEADLINE:
            break
        time.sleep(0.3)
    if reason:
        print("? api", " ".join(reason.split()))
        return
    for address, (state, gpus, message) in sorted(found.items()):
        print("= node", address, state, f"{gpus:g}", " ".join(message.split()))
    print("= api yes")


main()
