#!/usr/bin/env python3
"""Run a rehearsal, kill one of its training ranks in the middle of a step, and note what follows.

    python kill_rank.py --step N --rank R --out FILE -- COMMAND [WORD ...]

COMMAND is a `reprise reproduce` that prints its run folder. When step N is in its metrics, the
process that is rank R of the trainer gets SIGKILL, as from the kernel when memory runs out. FILE
gets the process that was killed, the seconds until the command had ended, and what
`reprise triage` says of the run. Run by the operator's Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from reprise.runs.ray.processes import MARK

FOLDER = "run folder: "
START_SECONDS = 900.0


def follow(stream: IO[str], seen: list[str]) -> None:
    """Pass on what the command prints, and keep it."""
    for line in stream:
        seen.append(line.rstrip())
        print(line, end="", flush=True)


def run_folder(seen: list[str]) -> Path | None:
    """The run folder, once the command has printed it."""
    for line in list(seen):
        if FOLDER in line:
            return Path(line.partition(FOLDER)[2].strip())
    return None


def reached(folder: Path) -> int:
    """The last step in the metrics; 0 before the first."""
    last = 0
    for file in (folder / "metrics").glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                last = max(last, int(json.loads(line).get("step", 0)))
            except (ValueError, AttributeError):
                continue
    return last


def ranks(run: str) -> dict[int, psutil.Process]:
    """The processes of the trainer's ranks, by rank: verl gives each RANK and WORLD_SIZE."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            own = process.environ()
            title = " ".join(process.cmdline())
        except (psutil.Error, OSError):
            continue
        if own.get(MARK) == run and "WORLD_SIZE" in own and title.startswith("ray::"):
            found[int(own["RANK"])] = process
    return found


def wait_for_step(command: subprocess.Popen[str], seen: list[str], step: int) -> Path:
    """The run folder, once `step` is in its metrics. Raises SystemExit when it never is."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if command.poll() is not None:
            raise SystemExit(f"the command ended with {command.returncode} before step {step}")
        folder = run_folder(seen)
        if folder is not None and reached(folder) >= step:
            return folder
        time.sleep(0.2)
    raise SystemExit(f"step {step} was not reached within {START_SECONDS:.0f} s")


def kill(folder: Path, rank: int, found: dict[str, Any]) -> None:
    """Send SIGKILL to `rank` of the run in `folder`. Raises SystemExit when it is not there."""
    there = ranks(folder.name)
    titles = {number: " ".join(one.cmdline()).strip() for number, one in sorted(there.items())}
    found["ranks"] = titles
    if rank not in there:
        raise SystemExit(f"no process is rank {rank} of {folder.name}: {found['ranks']}")
    found["pid"] = there[rank].pid
    found["killed_at"] = time.time()
    there[rank].kill()
    found["step"] = reached(folder)


def main() -> int:
    """Run, kill, wait, ask triage; 0 when all of it could be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    command = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    assert command.stdout is not None
    seen: list[str] = []
    threading.Thread(target=follow, args=(command.stdout, seen), daemon=True).start()
    found: dict[str, Any] = {}
    try:
        folder = wait_for_step(command, seen, options.step)
        # Into the next step.
        time.sleep(1.0)
        kill(folder, options.rank, found)
        began = time.monotonic()
        found["exit_code"] = command.wait()
        found["seconds_until_it_ended"] = round(time.monotonic() - began, 1)
    finally:
        if command.poll() is None:
            command.terminate()
            command.wait()
    triage = [sys.executable, "-m", "reprise", "triage", str(folder)]
    said = subprocess.run(
        triage, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    found |= {"run": folder.name, "triage_code": said.returncode, "triage": said.stdout}
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    found["events"] = [json.loads(line) for line in lines[-12:]]
    for event in found["events"]:
        if event.get("event") == "ended":
            found["seconds_until_known"] = round(event["time"] - found["killed_at"], 1)
    half = options.out.with_name(options.out.name + ".half")
    half.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    half.replace(options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
