"""One attempt of a run: submit the job, watch it, end it when it gets nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from reprise.errors import CannotTell
from reprise.run.folder import RunFolder
from reprise.run.jobs import ENDED, Jobs
from reprise.run.progress import PhaseReader, ProgressWatch, StepLine

__all__ = ["STALL_SECONDS", "Attempt", "Job", "Outcome", "read_steps", "run_attempt"]

STALL_SECONDS = 180.0
"""A job that shows nothing new for this long is ended as failed."""

_POLL_SECONDS = 2.0
_LOG_SECONDS = 10.0


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Job:
    """What is submitted: the command line, its runtime environment and the expected steps."""

    job_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any]
    steps: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt ended, and after how many steps."""

    number: int
    outcome: Outcome
    steps: int
    message: str


def run_attempt(
    folder: RunFolder,
    number: int,
    jobs: Jobs,
    job: Job,
    on_step: Callable[[StepLine], None],
    on_phase: Callable[[str], None],
    stall_seconds: float = STALL_SECONDS,
) -> Attempt:
    """Submit `job` as attempt `number` of `folder` and stay with it until it ends.

    `on_step` gets each new step; `on_phase` each phase of the start. Ctrl-C stops the
    job and is passed on. Raises OperatorError when Ray refuses the job.
    """
    folder.event("submit", attempt=number, job=job.job_id)
    jobs.submit(job.job_id, job.entrypoint, job.runtime_env, {"run": folder.name})
    folder.event("submitted", attempt=number)
    watch = ProgressWatch(stall_seconds, time.monotonic())

    reader = PhaseReader()

    def take_line(line: str) -> None:
        watch.line(line, time.monotonic())
        phase = reader.line(line)
        if phase is not None:
            folder.event("phase", attempt=number, name=phase)
            on_phase(phase)

    tail = jobs.tail(job.job_id, folder.log_file(number), take_line)
    patience = _LOG_SECONDS
    try:
        attempt = _watch(folder, number, jobs, job, watch, on_step)
    except KeyboardInterrupt:
        # Who interrupts does not wait for the rest of the log.
        patience = 0.0
        jobs.stop(job.job_id)
        folder.event("interrupted", attempt=number)
        raise
    finally:
        tail.close(patience)
    folder.event("ended", attempt=number, outcome=attempt.outcome.value, steps=attempt.steps)
    return attempt


def _watch(
    folder: RunFolder,
    number: int,
    jobs: Jobs,
    job: Job,
    watch: ProgressWatch,
    on_step: Callable[[StepLine], None],
) -> Attempt:
    shown = -1
    unreachable_since: float | None = None
    while True:
        now = time.monotonic()
        lost = ""
        try:
            state, message = jobs.state(job.job_id)
            unreachable_since = None
        except CannotTell as error:
            state, message = "", ""
            unreachable_since = unreachable_since or now
            lost = error.message if now - unreachable_since > watch.limit else ""
        # Read after the state: when the job has ended, these are all the steps there will be.
        steps = read_steps(folder.metrics_file(number))
        watch.records(len(steps), now)
        for step in steps:
            if step.step > shown:
                shown = step.step
                if shown <= 1:
                    folder.event("first step" if shown else "first validation", attempt=number)
                on_step(step)
        if lost:
            return Attempt(number, Outcome.LOST, max(shown, 0), lost)
        if state in ENDED:
            outcome = Outcome.SUCCEEDED if state == "SUCCEEDED" else Outcome.FAILED
            return Attempt(number, outcome, max(shown, 0), message)
        if watch.stalled(now):
            jobs.stop(job.job_id)
            text = f"no step and no new kind of log line for {watch.limit:.0f} s"
            return Attempt(number, Outcome.STALLED, max(shown, 0), text)
        time.sleep(_POLL_SECONDS)


def read_steps(metrics: Path) -> list[StepLine]:
    """The steps in a metrics file of verl's `file` logger, as far as it is written.

    A last line that is still being written is left out; NaN and Infinity are accepted.
    """
    try:
        lines = metrics.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    steps = []
    for line in lines:
        try:
            record = orjson.loads(line.replace(b"NaN", b"null").replace(b"Infinity", b"null"))
            data = record["data"]
            validation = next((data[key] for key in data if key.startswith("val-core/")), None)
            steps.append(
                StepLine(
                    step=int(record["step"]),
                    seconds=data.get("timing_s/step"),
                    reward=data.get("critic/rewards/mean"),
                    validation=validation,
                )
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            continue
    return steps
