#!/usr/bin/env python3
"""Run one command several times at once, as the ranks of one torch.distributed group.

    python3 ranks.py N COMMAND [WORD ...]

Each process gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and one GPU of
CUDA_VISIBLE_DEVICES, as a worker of Ray would: so LOCAL_RANK is 0. When one of them fails, the
others get ten seconds to end by themselves, and are then ended: they would wait for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

GRACE_SECONDS = 10.0


def environments(count: int) -> list[dict[str, str]]:
    """The variables of each rank. Raises ValueError when there are GPUs, but fewer than ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = visible.split(",") if visible else []
    if visible is not None and len(cards) < count:
        raise ValueError(f"{count} ranks, but CUDA_VISIBLE_DEVICES={visible}")
    made = []
    for rank in range(count):
        own = {**os.environ, **shared, "RANK": str(rank)}
        if cards:
            own["CUDA_VISIBLE_DEVICES"] = cards[rank]
        made.append(own)
    return made


def run(command: list[str], count: int) -> int:
    """The first exit code that is not 0, once all have ended; else 0."""
    ranks = [
        subprocess.Popen(command, env=own, start_new_session=True) for own in environments(count)
    ]
    failed_at = 0.0
    first = 0
    try:
        while any(rank.poll() is None for rank in ranks):
            time.sleep(0.1)
            codes = [code for code in (rank.poll() for rank in ranks) if code]
            if codes and not first:
                first, failed_at = codes[0], time.monotonic()
            if first and time.monotonic() - failed_at > GRACE_SECONDS:
                break
    finally:
        for rank in ranks:
            # With all that it started: those would hold this command's output open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
    return first or next((rank.returncode for rank in ranks if rank.returncode), 0)


def main(arguments: list[str]) -> int:
    """Run the ranks; a signal's number comes back as a shell would give it."""
    if len(arguments) < 2 or not arguments[0].isdigit() or int(arguments[0]) < 1:
        print(__doc__, file=sys.stderr)
        return 2
    # A polite end is Ctrl-C: the ranks are ended in `run`.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = run(arguments[1:], int(arguments[0]))
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
