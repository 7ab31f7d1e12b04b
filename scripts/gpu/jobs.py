#!/usr/bin/env python3
"""Run a list of commands on this machine's GPUs, several at once where their memory allows.

    python3 jobs.py jobs.json OUT [--status]

jobs.json is a list of {"name", "command" (words), "gib" (of each GPU), "cards", "host_gib",
"limit_s", "after" (names), "once" (names, however they end), "env"}. Each command gets one GPU or
as many as "cards" says (CUDA_VISIBLE_DEVICES), a log OUT/<name>.log and its time limit; one that
fails takes those "after" it along. OUT/jobs.done.json says how each ended and how long it took,
from the first moment on. --status prints it. A second call takes up what has not ended well. A
command with "first" that may start and finds no room holds back those after it; one with "tries"
that fails is begun anew, so often in all, its log kept on. JOBS_CARD_GIB,
JOBS_HOST_GIB, JOBS_AT_ONCE and JOBS_STAGGER_SECONDS set other limits; JOBS_SECONDS is how long
commands are started at all: what has not begun by then is left for a second call.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def host_memory_gib() -> float:
    """GiB of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


# Of a GPU's 139 GiB, for all commands together; how many at once; seconds between two starts.
CARD_GIB = float(os.environ.get("JOBS_CARD_GIB", "134"))
# Of the machine's memory, less what the system and the page cache need; and how many at once.
HOST_GIB = float(os.environ.get("JOBS_HOST_GIB", "0")) or max(8.0, host_memory_gib() - 16)
AT_ONCE = int(os.environ.get("JOBS_AT_ONCE", "4"))
STAGGER_SECONDS = float(os.environ.get("JOBS_STAGGER_SECONDS", "4"))
SECONDS = float(os.environ.get("JOBS_SECONDS", "inf"))


def cards() -> list[str]:
    """The numbers of this machine's GPUs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given:
        return given.split(",")
    command = ["nvidia-smi", "-L"]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120
    )
    return [str(i) for i, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU")]


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """An interrupt waits for the end of the block: what starts in it is known before."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda one, _: came.append(one))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


class Board:
    """What runs where, and what has ended; written to disk at every change."""

    def __init__(self, jobs: list[dict[str, Any]], out: Path, names: list[str]) -> None:
        self.jobs, self.out, self.cards = jobs, out, names
        self.file = out / "jobs.done.json"
        self.done: dict[str, Any] = {}
        if self.file.is_file():
            old = json.loads(self.file.read_text(encoding="utf-8"))
            self.done = {name: row for name, row in old.items() if row["state"] == "ok"}
        self.running: dict[
            str, tuple[subprocess.Popen[bytes], tuple[str, ...], float, dict[str, Any]]
        ] = {}
        self.began = time.monotonic()
        self.tried: dict[str, int] = {}

    def save(self) -> None:
        """Write the state whole or not at all."""
        now = time.monotonic()
        live = {
            name: {"state": "running", "card": ",".join(there), "seconds": round(now - started, 1)}
            for name, (_, there, started, _) in self.running.items()
        }
        half = self.file.with_suffix(".half")
        half.write_text(json.dumps({**self.done, **live}, indent=1) + "\n")
        half.replace(self.file)

    def load(self, card: str) -> tuple[float, int]:
        """GiB and number of commands on one GPU."""
        there = [job for _, where, _, job in self.running.values() if card in where]
        return sum(job.get("gib", 8) for job in there), len(there)

    def ready(self) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        """The first command that may start now, and the GPUs with most room for it."""
        if time.monotonic() - self.began > SECONDS:
            return None
        for job in self.jobs:
            name = job["name"]
            if name in self.done or name in self.running:
                continue
            before = [self.done.get(other, {}).get("state") for other in job.get("after", [])]
            if any(state not in (None, "ok") for state in before):
                self.done[name] = {"state": "left out: one before it failed"}
                self.save()
                continue
            if None in before or any(other not in self.done for other in job.get("once", [])):
                continue
            wanted = job.get("cards", 1)
            if wanted > len(self.cards):
                state = f"left out: it needs {wanted} GPUs, there are {len(self.cards)}"
                self.done[name] = {"state": state}
                self.save()
                continue
            room = []
            for card in sorted(self.cards, key=self.load):
                gib, count = self.load(card)
                if gib + job.get("gib", 8) <= CARD_GIB and count < AT_ONCE:
                    room.append(card)
            if len(room) >= wanted and self.fits_host(job):
                return job, tuple(sorted(room[:wanted]))
            if job.get("first"):
                return None
        return None

    def fits_host(self, job: dict[str, Any]) -> bool:
        """Whether the host's memory holds one command more; one alone may take what it wants."""
        held = sum(one.get("host_gib", 0) for *_, one in self.running.values())
        return not held or held + job.get("host_gib", 0) <= HOST_GIB

    def start(self, job: dict[str, Any], there: tuple[str, ...]) -> None:
        """Start one command in a session of its own, so that all of it can be ended."""
        self.tried[job["name"]] = self.tried.get(job["name"], 0) + 1
        log = (self.out / f"{job['name']}.log").open("ab")
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(there), **job.get("env", {})}
        with held_back():
            process = subprocess.Popen(
                job["command"],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.running[job["name"]] = (process, there, time.monotonic(), job)
        self.save()

    def reap(self) -> None:
        """Take note of what has ended; end what is over its limit."""
        for name, (process, there, started, job) in list(self.running.items()):
            code = process.poll()
            seconds = time.monotonic() - started
            state = ""
            if code is None and seconds > job.get("limit_s", 600):
                self.end(process)
                state = "over its time limit"
            elif code is not None:
                state = "ok" if code in job.get("good", [0]) else f"exit code {code}"
            if state:
                del self.running[name]
                if state.startswith("exit code") and self.tried[name] < job.get("tries", 1):
                    self.save()
                    continue
                row = {"state": state, "card": ",".join(there), "seconds": round(seconds, 1)}
                self.done[name] = row | {"code": code, "tried": self.tried[name]}
                self.save()

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        """Ask a command to end, as Ctrl-C would; then end whatever is left of its session."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self) -> int:
        """Until nothing runs and nothing can start; what runs is ended with this command."""
        try:
            self.until_done()
        finally:
            for process, *_ in self.running.values():
                self.end(process)
            self.running.clear()
            for job in self.jobs:
                self.done.setdefault(job["name"], {"state": "not run to its end"})
            self.save()
        return 0 if all(row["state"] == "ok" for row in self.done.values()) else 1

    def until_done(self) -> None:
        """Start what may start, and take note of what has ended."""
        last = 0.0
        while True:
            self.reap()
            found = self.ready() if time.monotonic() - last >= STAGGER_SECONDS else None
            if found is not None:
                self.start(*found)
                last = time.monotonic()
            elif not self.running and (self.ready() is None):
                return
            time.sleep(0.5)


def main(arguments: list[str]) -> int:
    """Run the jobs, or print how they stand."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[1])
    if "--status" in arguments:
        print((out / "jobs.done.json").read_text(encoding="utf-8"))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    jobs = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    names = cards()
    if not names:
        print("error: nvidia-smi shows no GPU", file=sys.stderr)
        return 2
    # A polite end is Ctrl-C: the commands have sessions of their own, which no signal reaches.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return Board(jobs, out, names).run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
