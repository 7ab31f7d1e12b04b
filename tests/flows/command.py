"""`reprise train` as a process of its own, and what its run folder says meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil

from reprise.metrics import read_run
from reprise.runs.ray.processes import alive, marked
from reprise.runs.state.attempt import read_steps
from reprise.runs.state.folder import RunFolder, recent_runs

ROOT = Path(__file__).resolve().parents[2]
MODEL = "rehearsal"
# What a step of training computed; timings and memory are another matter.
COMPARED = (
    "critic/rewards/mean",
    "actor/grad_norm",
    "actor/entropy",
    "training/rollout_probs_diff_mean",
    "response_length/mean",
)


@dataclass
class Command:
    """One `reprise train` with its runs below `runs`."""

    runs: Path
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    inside: Sequence[str] = ()
    """What starts it: the words of `unshare`, for instance."""

    def start(self) -> Command:
        self.process = subprocess.Popen(
            [*self.inside, sys.executable, "-m", "reprise", "train", "--json", *self.words],
            env={**os.environ, "RUNS_DIR": str(self.runs), **self.environment},
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self

    def end(self, timeout: float = 900) -> tuple[int, dict[str, Any], str]:
        """Exit code, the JSON object, standard error."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=timeout)
        assert "Traceback" not in err, err
        return self.process.returncode, orjson.loads(out) if out.strip() else {}, err

    def run(self, timeout: float = 900) -> tuple[int, dict[str, Any], str]:
        return self.start().end(timeout)

    def folder(self, seconds: float = 120) -> RunFolder:
        """The newest run folder, once it is there."""
        return wait(lambda: next(iter(recent_runs(self.runs, MODEL)), None), seconds, self.process)

    def at_step(self, step: int, attempt: int = 1, seconds: float = 400) -> RunFolder:
        """Wait until attempt number `attempt` has recorded `step`."""
        folder = self.folder()

        def reached() -> bool:
            steps = read_steps(folder.metrics_file(attempt))
            return any(item.step >= step for item in steps)

        wait(reached, seconds, self.process)
        return folder


def wait(found: Callable[[], Any], seconds: float, process: Any = None, pause: float = 0.2) -> Any:
    """What `found` gives, once it gives something."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(pause)
    return value


def titled(run: str, *titles: str) -> list[psutil.Process]:
    """The run's processes whose command line begins with one of `titles`."""
    found = []
    for process in marked(run):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if line.startswith(titles):
            found.append(process)
    return found


def named(run: str, *names: str) -> list[psutil.Process]:
    """The run's processes that have one of `names`."""
    found = []
    for process in marked(run):
        with contextlib.suppress(psutil.Error):
            if process.name() in names:
                found.append(process)
    return found


def kill(processes: Sequence[psutil.Process]) -> None:
    assert processes, "there is nothing to kill"
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue


def curve(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The compared metrics of a run, attempts merged."""
    table = read_run(folder)
    return {
        name: list(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        for name in COMPARED
        if len(series := table.series(name))
    }


def largest_difference(first: Path, second: Path) -> dict[str, float]:
    """By metric, the largest difference between two curves over the same steps."""
    one, other = curve(first), curve(second)
    assert one.keys() == other.keys() and one
    found = {}
    for name in one:
        assert [step for step, _ in one[name]] == [step for step, _ in other[name]]
        pairs = zip(one[name], other[name], strict=True)
        found[name] = max(abs(a - b) for (_, a), (_, b) in pairs)
    return found


def assert_every_step_once(folder: RunFolder, total: int) -> None:
    steps = read_run(folder.path).series("critic/rewards/mean").steps.tolist()
    assert steps == list(range(1, total + 1))


def stop_everything(runs: Path) -> None:
    """Whatever a failed test left running of its runs."""
    from reprise.runs.ray.local_ray import remove_leftovers

    for run in recent_runs(runs, MODEL):
        state = run.read()
        if state.watcher is not None and alive(state.watcher.pid, state.watcher.created):
            # It would begin another attempt.
            os.kill(state.watcher.pid, signal.SIGKILL)
        ray = run.read().ray
        remove_leftovers(run.name, Path(ray.temp_dir if ray else "/nonexistent"))
