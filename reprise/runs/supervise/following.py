"""Submit the job of an attempt and follow it until it ends: steps, log, stalls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import orjson
import psutil

from reprise.core.errors import CannotTell
from reprise.metrics import parse_console_line
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.ray.processes import marked
from reprise.runs.state.attempt import STALL_SECONDS, AttemptEnd, AttemptOutcome, Job, read_steps
from reprise.runs.state.folder import RunFolder
from reprise.runs.watch.progress import PhaseReader, ProgressWatch, StepLine

__all__ = ["Follower", "StepsOfLog", "follow", "run_attempt"]

LOST_SECONDS = 90.0
"""A Jobs API that does not answer for this long counts as lost."""

_POLL_SECONDS = 2.0
# After the last step: the job's end is near.
_END_SECONDS = 0.25
# A sleep that took so much longer was a pause of the whole machine or container, not load.
_PAUSE_SECONDS = 20.0
_OUTCOMES = {
    "SUCCEEDED": AttemptOutcome.SUCCEEDED,
    "FAILED": AttemptOutcome.FAILED,
    "STOPPED": AttemptOutcome.STOPPED,
}


@dataclass(slots=True)
class StepsOfLog:
    """Writes the steps that verl prints on its console into a metrics file.

    For a run whose storage is not accessible from this machine: the file then holds the same
    steps as the one that the job writes.
    """

    path: Path
    _known: set[int] = field(default_factory=set)

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[str], None]]:
        """Yield what takes the log's lines; steps that the file has are not written twice."""
        self._known |= {step.step for step in read_steps(self.path)}
        with self.path.open("ab") as file:
            yield lambda line: self._take(file, line)

    def _take(self, file: IO[bytes], line: str) -> None:
        parsed = parse_console_line(line)
        if parsed is None or parsed[1] is None or parsed[0] in self._known:
            return
        step, values = parsed
        self._known.add(step)
        file.write(orjson.dumps({"step": step, "data": values}) + b"\n")
        file.flush()


@dataclass(slots=True)
class Follower:
    """Callbacks while a job runs, and when it counts as stalled.

    `on_poll` is called after each look at the job, `on_stall` before a stalled job is stopped.
    """

    on_step: Callable[[StepLine], None]
    on_phase: Callable[[str], None]
    stall_seconds: float = STALL_SECONDS
    lost_seconds: float = LOST_SECONDS
    poll_seconds: float = _POLL_SECONDS
    on_poll: Callable[[], None] = lambda: None
    on_stall: Callable[[], None] = lambda: None


def run_attempt(
    folder: RunFolder, number: int, jobs: Jobs, job: Job, follower: Follower
) -> AttemptEnd:
    """Submit `job` as attempt `number` of `folder` and stay with it until it ends.

    A job that stalls is stopped, and one that Ctrl-C interrupts, which is passed on. Raises
    OperatorError when Ray refuses the job.
    """
    job_id = folder.job(number)
    folder.event("submit", attempt=number, job=job_id)
    jobs.submit(job_id, job.entrypoint, job.runtime_env, {"run": folder.name})
    folder.event("submitted", attempt=number)
    try:
        attempt = follow(folder, number, jobs, follower)
    except KeyboardInterrupt:
        jobs.stop(job_id)
        folder.event("interrupted", attempt=number)
        raise
    if attempt.outcome is AttemptOutcome.STALLED:
        follower.on_stall()
        jobs.stop(job_id)
    folder.event("ended", attempt=number, outcome=attempt.outcome.value, steps=attempt.steps)
    return attempt


def follow(folder: RunFolder, number: int, jobs: Jobs, follower: Follower) -> AttemptEnd:
    """Stay with the job of attempt `number` until it has ended, stalls or cannot be asked.

    Nothing is stopped here, neither a stalled job nor one whose watcher is interrupted.
    """
    watch = ProgressWatch(follower.stall_seconds, time.monotonic())
    reader = PhaseReader()
    state = folder.read()
    with contextlib.ExitStack() as stack:
        steps = None
        if not state.visible:
            steps = stack.enter_context(StepsOfLog(folder.metrics_file(number)).open())

        def take_line(line: str) -> None:
            watch.line(line, time.monotonic())
            if steps is not None:
                steps(line)
            phase = reader.line(line)
            if phase is not None:
                folder.event("phase", attempt=number, name=phase)
                follower.on_phase(phase)

        tail = jobs.tail(folder.job(number), folder.log_file(number), take_line)
        rest = False
        try:
            attempt = _until_ended(folder, number, jobs, follower, watch, state.steps)
            rest = attempt.outcome is not AttemptOutcome.LOST
        finally:
            # After an interrupt the rest of the log is not waited for.
            tail.close(rest)
    return attempt


def _until_ended(
    folder: RunFolder,
    number: int,
    jobs: Jobs,
    follower: Follower,
    watch: ProgressWatch,
    last: int | None,
) -> AttemptEnd:
    shown: int | None = None
    silent_since: float | None = None
    looked = 0.0
    while True:
        now = time.monotonic()
        state, message, lost = "", "", ""
        try:
            state, message = jobs.state(folder.job(number))
            silent_since = None
        except CannotTell as error:
            silent_since = silent_since or now
            lost = error.message if now - silent_since > follower.lost_seconds else ""
        # Read after the state: when the job has ended, these are all the steps there will be.
        found = read_steps(folder.metrics_file(number))
        watch.records(len(found), now)
        for step in found:
            if shown is None or step.step > shown:
                if not shown:
                    folder.event("first step" if step.step else "first validation", attempt=number)
                shown = step.step
                follower.on_step(step)
        reached = max(shown or 0, 0)
        if lost:
            return AttemptEnd(number, AttemptOutcome.LOST, reached, lost)
        if state in ENDED:
            return AttemptEnd(number, _OUTCOMES[state], reached, message)
        if watch.stalled(now):
            text = f"no step and no new kind of log line for {watch.limit:.0f} s"
            text += _stopped_processes(folder.name)
            return AttemptEnd(number, AttemptOutcome.STALLED, reached, text)
        if now - looked >= follower.poll_seconds:
            looked = now
            follower.on_poll()
        over = last is not None and reached >= last
        wait = min(follower.poll_seconds, _END_SECONDS) if over else follower.poll_seconds
        gap = _sleep(wait)
        if gap > _PAUSE_SECONDS:
            folder.event("paused", attempt=number, seconds=gap)
            watch.paused(gap)
            silent_since = None


def _sleep(seconds: float) -> float:
    """Sleep; returns by how much it took longer: the machine, or this container, was paused."""
    begun = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begun - seconds


def _stopped_processes(run: str) -> str:
    """The run's processes on this machine that a signal has stopped, to follow a message."""
    found = []
    for process in marked(run):
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(f"{process.pid} ({process.name()})")
    return f"; stopped by a signal (state T): {', '.join(found[:8])}" if found else ""
