#!/usr/bin/env python3
"""Run a command and note once a second what it holds: GPU memory, host memory, disk.

    python3 watch.py OUT.json [--disk FOLDER] -- command ...

OUT.json gets columns of equal length ("seconds", "gpu_mib" of the first visible GPU, "host_gib" in
use, "shm_gib", "disk_gib" below FOLDER's file system) and the command's exit code; it is written
every ten seconds, so that a lost machine leaves most of it. Exit code: the command's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def gpu_mib() -> int | None:
    """MiB in use on the first visible GPU, None where nvidia-smi does not say."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = ["nvidia-smi", f"--id={first}", "--query-gpu=memory.used"]
    command.append("--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=9
        )
        return int(done.stdout.split()[0])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def host_gib() -> float:
    """GiB of the machine's memory that programs hold, without the page cache."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    kib = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    return round((kib["MemTotal"] - kib["MemAvailable"]) / 2**20, 2)


def used_gib(folder: str) -> float | None:
    """GiB in use of a folder's file system."""
    try:
        return round(shutil.disk_usage(folder).used / 2**30, 2)
    except OSError:
        return None


def main(arguments: list[str]) -> int:
    """Run, sample and write."""
    if "--" not in arguments or not arguments[0].endswith(".json"):
        print(__doc__, file=sys.stderr)
        return 2
    split = arguments.index("--")
    out, command = Path(arguments[0]), arguments[split + 1 :]
    options = arguments[1:split]
    disk = options[options.index("--disk") + 1] if "--disk" in options else "/"
    columns: dict[str, list[Any]] = {
        name: [] for name in ("seconds", "gpu_mib", "host_gib", "shm_gib", "disk_gib")
    }
    started = time.monotonic()
    process = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda one, _: process.send_signal(one))

    def write(code: int | None) -> None:
        found = {"exit_code": code, "began": began, "columns": columns}
        half = out.with_name(out.name + ".half")
        half.write_text(json.dumps(found) + "\n")
        half.replace(out)

    began = time.time()
    while process.poll() is None:
        row = (time.monotonic() - started, gpu_mib(), host_gib(), used_gib("/dev/shm"))  # noqa: S108
        for name, value in zip(columns, (round(row[0], 1), *row[1:], used_gib(disk)), strict=True):
            columns[name].append(value)
        if len(columns["seconds"]) % 10 == 1:
            write(None)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - started - row[0])))
    write(process.returncode)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
