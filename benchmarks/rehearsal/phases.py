"""Where the time of `make reproduce` goes, from nothing to the verdict, phase by phase.

    .venv/bin/python benchmarks/rehearsal/phases.py --clone /tmp/cold --out phases.json
    .venv/bin/python benchmarks/rehearsal/phases.py --run runs/rehearsal/<run>

With --clone the project is cloned there and its environments are made from nothing (what the
package clients have cached on this machine stays: it is printed whether they had anything).
Without it the environments of this checkout are used. --run reads a finished run and measures
nothing: it has no processor seconds.

Three tables: environment and start-up by sub-phase, a step by verl's own timing_s/*, and processor
seconds by whose code runs: verl's and TransferQueue's processes, vLLM's, Ray's, and ours (the
command and the environments' script; the plug-ins run inside verl's and vLLM's processes and count
there). On a loaded machine the wall times say little; the processor seconds say more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from reprise.core.files import dump_json
from reprise.core.project import find_project
from reprise.runs.ray.processes import marked

OWNERS = (
    ("vLLM", re.compile(r"VLLM::|vLLMHttpServer")),
    ("TransferQueue", re.compile(r"ray::(SimpleStorageUnit|TransferQueueController)")),
    (
        "Ray",
        re.compile(
            r"raylet|gcs_server|dashboard|Dashboard|JobSupervisor|RuntimeEnvAgent|ray::IDLE|"
            r"ray start|ray\.util\.client|log_monitor|monitor\.py|runtime_env/agent|forkserver|"
            r"resource_tracker"
        ),
    ),
    ("ours", re.compile(r"\breprise\b.*reproduce|scripts/venv\.sh")),
)
"""Whose code a process runs, by its command line; any other process of a run is verl's."""


def owner_of(command: str) -> str:
    """vLLM, TransferQueue, Ray, ours or verl."""
    return next((name for name, pattern in OWNERS if pattern.search(command)), "verl")


class Sampler:
    """Processor seconds of a run's processes, by phase and owner."""

    def __init__(self) -> None:
        self.spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._seen: dict[tuple[int, float], float] = {}

    def sample(self, phase: str, command: int, mark: str | None) -> None:
        """Add what was used since the last sample to `phase`."""
        processes = [psutil.Process(command)] if psutil.pid_exists(command) else []
        for process in [*processes, *(marked(mark) if mark else [])]:
            with contextlib.suppress(psutil.Error):
                key = process.pid, process.create_time()
                times = process.cpu_times()
                used = times.user + times.system
                name = "ours" if process.pid == command else owner_of(" ".join(process.cmdline()))
                self.spent[phase][name] += used - self._seen.get(key, 0.0)
                self._seen[key] = used


def environments(clone: Path, root: Path) -> list[dict[str, Any]]:
    """Clone the project and make both environments; one row a step of the script."""
    subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
    rows = []
    for kind in ("operator", "rehearsal"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        done = subprocess.run(
            ["scripts/venv.sh", kind], cwd=clone, stderr=subprocess.PIPE, text=True, check=True
        )
        wall = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = re.findall(r"^\S+ +(\d+)s  (?! )(.+)$", done.stderr, re.M)
        starts = [float(seconds) for seconds, _ in said]
        steps = {
            title: later - start
            for (_, title), start, later in zip(said, starts, [*starts[1:], wall], strict=True)
            if title != "ready"
        }
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows.append({"environment": kind, "wall": wall, "cpu": cpu, "steps": steps})
    return rows


def reproduce(folder: Path, steps: int | None) -> tuple[Path, dict[str, Any]]:
    """Run the chain in the checkout `folder`; its run folder, and what was measured."""
    runs = folder / "runs"
    before = set(runs.glob("rehearsal/*"))
    command = [str(folder / ".venv/bin/reprise"), "reproduce", "--seed", "1"]
    command += ["--steps", str(steps)] if steps else []
    sampler, begun = Sampler(), time.time()
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, "RUNS_DIR": str(runs)})
    run: Path | None = None
    while process.poll() is None:
        if run is None:
            run = next(iter(set(runs.glob("rehearsal/*")) - before), None)
        phase = _phase(run) if run else "before Ray"
        with contextlib.suppress(psutil.Error):
            sampler.sample(phase, process.pid, run.name if run else None)
        time.sleep(1.0)
    if run is None:
        raise SystemExit("no run folder was made")
    measured = {"begun": begun, "ended": time.time(), "exit_code": process.returncode}
    return run, {**measured, "cpu": {name: dict(used) for name, used in sampler.spent.items()}}


def _phase(run: Path) -> str:
    names = [event["event"] for event in _events(run)]
    if "first validation" not in names and "first step" not in names:
        return "start-up"
    return "end" if "ended" in names else "steps"


def _events(run: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        lines = (run / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]
    return []


def start_up(run: Path, begun: float | None) -> dict[str, float]:
    """Seconds from the end of each phase's predecessor to its own, in order."""
    rows: dict[str, float] = {}
    last = begun
    label = "recipe, data, private Ray"
    for event in _events(run):
        if last is not None:
            rows[label] = rows.get(label, 0.0) + event["time"] - last
        last = event["time"]
        name = event.get("name", event["event"])
        label = {
            "ray ready": "Jobs client",
            "submit": "package and upload",
            "submitted": "job process",
            "agent loop and reward workers": "agent loop, reward workers, first validation",
            "first validation": "first step",
            "first step": "other steps",
            "ended": "stopping Ray",
        }.get(name, name)
        if event["event"] == "ray stopped":
            break
    return rows


def steps_of(run: Path) -> dict[str, float]:
    """Median seconds of each part of a step, from verl's own timing_s/*; the first left out."""
    parts: dict[str, list[float]] = defaultdict(list)
    for line in (run / "metrics" / "attempt-1.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["step"] > 1:
            for key, value in record["data"].items():
                if key.startswith("timing_s/"):
                    parts[key.removeprefix("timing_s/")].append(value)
    return {name: statistics.median(values) for name, values in parts.items()}


def table(title: str, rows: dict[str, float], unit: str = "s") -> None:
    """Print one table, the greatest share last seen at a glance."""
    total = sum(rows.values())
    print(f"\n| {title} | {unit} | share |\n|---|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value:.1f} | {100 * value / total if total else 0:.0f} % |")
    print(f"| **sum** | {total:.1f} | |")


def show(result: dict[str, Any]) -> None:
    """Print what was measured as tables."""
    for row in result["environments"]:
        title = f"{row['environment']} environment ({row['cpu']:.0f} processor seconds)"
        table(title, row["steps"])
    table("from the command to the end of the run", result["start_up"])
    step = dict(result["step"])
    whole = step.pop("step", sum(step.values()))
    timed = {name: value for name, value in step.items() if "testing" not in name}
    inner = {name: value for name, value in timed.items() if "/" not in name}
    rest = whole - sum(value for name, value in inner.items() if name in _PARTS)
    table(
        "a step (median)",
        {**{name: value for name, value in inner.items() if name in _PARTS}, "rest": rest},
    )
    for phase, used in result["cpu"].items():
        table(f"{phase}: whose processes", used, "processor s")
    if result["wall"]:
        print(f"\nfrom nothing to the verdict: {result['wall']:.0f} s")


_PARTS = ("gen", "reward", "old_log_prob", "ref", "values", "adv", "update_actor", "update_weights")
"""The parts of a step that do not overlap, as verl 0.9.1 names them."""


def main() -> None:
    """Measure or read, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clone", type=Path, help="clone the project here and begin from nothing")
    parser.add_argument("--run", type=Path, help="read this finished run instead of making one")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    root = find_project().root
    begun = time.time()
    made: list[dict[str, Any]] = []
    if arguments.clone is not None:
        made = environments(arguments.clone, root)
    measured: dict[str, Any] = {"begun": None, "cpu": {}}
    run = arguments.run
    if run is None:
        run, measured = reproduce(arguments.clone or root, arguments.steps)
    result = {
        "environments": made,
        "start_up": start_up(run, measured["begun"]),
        "step": steps_of(run),
        "cpu": measured["cpu"],
        "wall": measured["ended"] - begun if "ended" in measured else None,
        "load": os.getloadavg(),
        "cores": os.cpu_count(),
    }
    show(result)
    if arguments.out is not None:
        dump_json(arguments.out, result)
    sys.exit(measured.get("exit_code", 0))


if __name__ == "__main__":
    main()
