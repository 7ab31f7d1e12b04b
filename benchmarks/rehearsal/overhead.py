"""What the chain costs over verl's own command: same config, same machine, alternating.

    .venv/bin/python benchmarks/rehearsal/overhead.py --pairs 3 --steps 40 --out results.json

A: `reprise reproduce` (submit to a private Ray through the Jobs API, watch, collect, stop Ray; the
   verdict that follows has no counterpart by hand and is given apart).
B: `python -m verl.trainer.main_ppo` typed by hand with the same overrides and variables; verl
   starts its own local Ray. Times are of the metrics file that verl itself writes.

After start-up, two figures are compared: what lies outside the steps (from the last step's record
to the end), as seconds, and the median step, as verl itself times it. Their sum over a run is the
overhead. A machine whose speed drifts by more than 2 % shows nothing by wall times; the processor
seconds a step, and the share of them in processes that only the chain has, drift less.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import yaml

from reprise.core.files import dump_json
from reprise.core.project import Project, find_project
from reprise.flows.rehearsal import RECIPE, Rehearsal, RehearsalOptions
from reprise.runs.ray.processes import MARK, marked, stop_all
from reprise.runs.state.attempt import read_steps

OVERHEAD = ("reprise reproduce", "dashboard", "JobSupervisor", "ray start", "ray.util.client")
"""In the command lines of processes that only the chain starts."""


@dataclass(frozen=True)
class Measurement:
    """Seconds from the start of the command; memory in bytes (proportional set size, summed)."""

    arm: str
    first_step: float
    last_step: float
    end: float
    step_seconds: list[float]
    judging: float
    step_cpu_seconds: dict[str, float]
    peak_memory: int
    processes: int
    events: list[dict[str, Any]]

    @property
    def per_step(self) -> float:
        """Median of verl's own step times but the first, which warms up."""
        return statistics.median(self.step_seconds[1:])

    @property
    def cpu_per_step(self) -> float:
        """Processor seconds of all processes of the run in a step."""
        return sum(self.step_cpu_seconds.values())

    @property
    def tail(self) -> float:
        """Seconds from the last step's record to the end of the run, the verdict left out."""
        return self.end - self.judging - self.last_step


Arm = Callable[[Project, int, Path], Measurement]


def measure(arm: str, command: list[str], environment: dict[str, str], find: Any) -> Measurement:
    """Run `command`, watching the metrics file that `find()` names once it exists."""
    begun = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    first = last = 0.0
    steps = peak = most = 0
    sampled = 0.0
    cpu: list[dict[int, tuple[str, float]]] = []
    while process.poll() is None:
        now = time.monotonic() - begun
        path = find()
        count = _training_steps(path) if path else 0
        if count and not first:
            first = now
        if count > steps:
            steps, last = count, now
            cpu.append(_cpu(process.pid, environment[MARK]))
        if now - sampled > 15:
            sampled = now
            memory, number = _memory(environment[MARK])
            peak, most = max(peak, memory), max(most, number)
        time.sleep(0.2)
    end = time.monotonic() - begun
    if not first:
        raise SystemExit(f"{arm}: no training step; command: {command}")
    seconds = [step.seconds for step in read_steps(find()) if step.seconds is not None]
    spent: dict[str, float] = {}
    # At the last step's record the job may already be going: its processes' time is lost then.
    for pid, (name, until) in cpu[-2].items():
        since = cpu[0].get(pid, (name, 0.0))[1]
        spent[name] = spent.get(name, 0.0) + (until - since) / (len(cpu) - 2)
    return Measurement(arm, first, last, end, seconds, 0.0, spent, peak, most, [])


def _cpu(command: int, mark: str) -> dict[int, tuple[str, float]]:
    """Name and processor seconds so far of the command and of each process of the run."""
    found = {}
    for process in [psutil.Process(command), *marked(mark)]:
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            name = next((name for name in OVERHEAD if name in " ".join(words)), "training")
            used = process.cpu_times()
            found[process.pid] = (name, used.user + used.system)
    return found


def _training_steps(path: Path) -> int:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return 0
    return sum(1 for line in lines if b"critic/rewards/mean" in line)


def _memory(mark: str) -> tuple[int, int]:
    total = number = 0
    for process in marked(mark):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
            number += 1
    return total, number


def by_hand(project: Project, steps: int, scratch: Path) -> Measurement:
    """verl's command, as one would type it."""
    options = RehearsalOptions(seed=1, steps=steps, quiet=True)
    rehearsal = Rehearsal(project, options)
    model, data = rehearsal.prepare()
    recipe = yaml.safe_load((project.recipes / "rehearsal" / "runtime_env.yaml").read_text())
    metrics = scratch / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    temp = Path(tempfile.mkdtemp(prefix="hand-", dir="/tmp"))
    mark = f"hand-{os.getpid()}-{time.time_ns()}"
    environment = {
        **os.environ,
        **recipe["env_vars"],
        MARK: mark,
        "REPRISE_RUN_DIR": str(scratch),
        "REPRISE_MODEL_DIR": str(model.path),
        "REPRISE_DATA_DIR": str(data.train.parent),
        "REPRISE_SEED": "1",
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
    }
    command = [
        *(str(project.rehearsal_python), "-m", "verl.trainer.main_ppo"),
        *("--config-path", str(project.recipes), "--config-name", RECIPE),
        *("data.seed=1", f"trainer.total_training_steps={steps}"),
        *("ray_kwargs.ray_init.num_cpus=16", "++ray_kwargs.ray_init.num_gpus=1"),
        *("+ray_kwargs.ray_init.include_dashboard=False", f"+ray_kwargs.ray_init._temp_dir={temp}"),
    ]
    os.chdir(project.root)
    try:
        return measure("by hand", command, environment, lambda: metrics)
    finally:
        stop_all(mark)
        shutil.rmtree(temp, ignore_errors=True)


def chained(project: Project, steps: int, scratch: Path) -> Measurement:
    """The chain, as `make reproduce` runs it."""
    runs = scratch / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    environment = {**os.environ, "RUNS_DIR": str(runs), MARK: "none"}
    command = [sys.executable, "-m", "reprise", "reproduce", "--seed", "1", "--steps", str(steps)]

    def find() -> Path | None:
        found = list(runs.glob("rehearsal/*/metrics/attempt-1.jsonl"))
        if environment[MARK] == "none" and (folders := list(runs.glob("rehearsal/*"))):
            environment[MARK] = folders[0].name
        return found[0] if found else None

    result = measure("chain", command, environment, find)
    ended = time.time()
    events = next(iter(runs.glob("rehearsal/*/events.jsonl")), None)
    if events is None:
        return result
    result.events.extend(json.loads(line) for line in events.read_text().splitlines())
    return replace(result, judging=ended - result.events[-1]["time"])


def summary(results: list[Measurement]) -> dict[str, Any]:
    """Medians of each arm, and the chain's overhead pair by pair."""
    chain = [item for item in results if item.arm == "chain"]
    hand = [item for item in results if item.arm == "by hand"]
    pairs = list(zip(chain, hand, strict=True))
    per_step, tail = (
        [statistics.median(getattr(item, name) for item in items) for items in (chain, hand)]
        for name in ("per_step", "tail")
    )
    steps = len(chain[0].step_seconds)
    return {
        "pairs": len(pairs),
        "after_start_ratio": (steps * per_step[0] + tail[0]) / (steps * per_step[1] + tail[1]),
        "start_up_overhead_s": [a.first_step - b.first_step for a, b in pairs],
        "per_step_ratio": [a.per_step / b.per_step for a, b in pairs],
        "cpu_per_step_ratio": [a.cpu_per_step / b.cpu_per_step for a, b in pairs],
        "chain_only_cpu_share": [
            1 - item.step_cpu_seconds["training"] / item.cpu_per_step for item in chain
        ],
        "tail_overhead_s": [a.tail - b.tail for a, b in pairs],
        "median": {
            arm: {
                "first_step_s": statistics.median(item.first_step for item in items),
                "cpu_per_step_s": statistics.median(item.cpu_per_step for item in items),
                "per_step_s": statistics.median(item.per_step for item in items),
                "tail_s": statistics.median(item.tail for item in items),
                "judging_s": statistics.median(item.judging for item in items),
                "peak_memory_gib": max(item.peak_memory for item in items) / 2**30,
                "processes": max(item.processes for item in items),
            }
            for arm, items in (("chain", chain), ("by hand", hand))
        },
    }


def alternate(text: str, chain: Arm, pairs: int, steps: int) -> None:
    """Measure `chain` and `by_hand` in turn; the command line may change the amounts."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    project = find_project()
    scratch = Path(tempfile.mkdtemp(prefix="reprise-bench-"))
    # by_hand changes the folder.
    out = arguments.out.absolute() if arguments.out else None
    results: list[Measurement] = []
    for number in range(arguments.pairs):
        # A B, then B A: a machine that slows down meanwhile favours neither.
        for arm in (chain, by_hand) if number % 2 == 0 else (by_hand, chain):
            result = arm(project, arguments.steps, scratch)
            results.append(result)
            print(
                f"{result.arm}: first step {result.first_step:.1f} s, "
                f"{result.per_step:.2f} s/step, end {result.end:.1f} s",
                flush=True,
            )
    shutil.rmtree(scratch, ignore_errors=True)
    report = {"steps": arguments.steps, "summary": summary(results)}
    if out is not None:
        dump_json(out, report | {"measurements": [asdict(item) for item in results]})
    print(json.dumps(report["summary"], indent=2))


if __name__ == "__main__":
    alternate(__doc__ or "", chained, pairs=3, steps=40)
