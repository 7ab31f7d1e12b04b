"""Attempts of a run, one after the other, until it is finished or a further one would fail."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.wait import wait_until
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.state.attempt import AttemptEnd, AttemptOutcome
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import RunStatus
from reprise.runs.supervise.resume import (
    Resume,
    checkpoints_of,
    resume_point,
    set_aside,
    steps_missing,
    steps_recorded,
)
from reprise.runs.supervise.retry import (
    BadHost,
    Failure,
    Policy,
    read_triaged,
    why_not_again,
    why_repeated,
)

__all__ = [
    "GONE_RULE",
    "OUT_OF_SIGHT",
    "Hands",
    "StopRequested",
    "Supervised",
    "hear",
    "supervise",
]

OUT_OF_SIGHT = "the job may still be running"
"""Why a run whose Ray does not answer is neither ended nor restarted."""

GONE_RULE = "train-out-of-sight"
"""If forced, the Ray of the last attempt counts as gone for good, and the job with it."""

_ON_REQUEST = "stopped on request"

_STOP_SECONDS = 60.0
# How soon a stop request takes effect between two attempts.
_HEAR_SECONDS = 2.0


class StopRequested(OperatorError):
    """The run was stopped on request before its job was submitted."""


def hear(folder: RunFolder) -> None:
    """Raise StopRequested when `reprise stop` was called for the run."""
    if _stop_asked(folder):
        raise StopRequested("run-stopped.before-its-job", folder.name)


class Hands(Protocol):
    """What the supervisor needs from its caller: cluster, job, view, cause of a failure."""

    @property
    def alone(self) -> bool:
        """Whether a Ray that does not answer is gone for good (a private one), and its job too."""
        ...

    def ready(self) -> Jobs:
        """A Ray on which the job can run now. Waits for lost nodes; raises OperatorError."""
        ...

    def attach(self) -> Jobs:
        """The Ray of the attempt that runs. Raises CannotTell when it is gone."""
        ...

    def submit(self, jobs: Jobs, number: int, resume: Resume) -> None:
        """Submit attempt `number`."""
        ...

    def watch(self, jobs: Jobs, number: int) -> AttemptEnd:
        """Stay with it until its job ends."""
        ...

    def cause(self, number: int) -> str:
        """The first error in the attempt's log; empty when there is none."""
        ...

    def replace(self, number: int, failure: Failure) -> BadHost | None:
        """The host that the failure of attempt `number` is blamed on, if any.

        Without an obstacle it was taken out, and another host takes its place.
        """
        ...

    def say(self, text: str) -> None:
        """One line for the operator."""
        ...


@dataclass(frozen=True, slots=True)
class Supervised:
    """How the run ended: its last attempt, and why there is no further one."""

    attempt: AttemptEnd
    cause: str
    why: str

    @property
    def finished(self) -> bool:
        """Whether the last step was reached."""
        return self.attempt.outcome is AttemptOutcome.SUCCEEDED and not self.why


@dataclass(slots=True)
class _Failed:
    """The failures of one command: how many, the last one, the host that was replaced after it."""

    policy: Policy
    count: int = 0
    before: Failure | None = None
    bad: BadHost | None = None

    @property
    def wait(self) -> float:
        """Seconds before the next attempt; on other hosts, nothing has to settle first."""
        return self.policy.wait(self.count) if self.bad is None else 0.0

    def add(self, number: int, failure: Failure, hands: Hands) -> str | None:
        """Count one more, and replace a bad host; why there is no further attempt, if so."""
        self.count += 1
        if (why := why_not_again(failure)) is not None:
            return why
        if self.count >= self.policy.attempts:
            return f"{self.count} attempts failed, the maximum (--attempts {self.policy.attempts})"
        self.bad = hands.replace(number, failure)
        if self.bad is None:
            why = why_repeated(failure, self.before)
        elif self.bad.obstacle:
            why = f"{self.bad.reason} on {self.bad.host}: {self.bad.obstacle}"
        # On other hosts, the same failure is another one.
        self.before = failure if self.bad is None else None
        return why


def supervise(
    folder: RunFolder,
    hands: Hands,
    policy: Policy,
    sleep: Callable[[float], None] = time.sleep,
) -> Supervised:
    """Attach to the attempt that runs, or begin one; try again as long as it makes sense.

    run.json has each attempt before its job is submitted, so that a kill at any moment leaves
    what `--resume` needs. An interrupt passes through; the job keeps running.
    """
    failed = _Failed(policy)
    while True:
        jobs, number, past = _running(folder, hands)
        if jobs is None:
            jobs, number = _begin(folder, hands)
        if jobs is None:
            return _not_begun(folder)
        attempt = hands.watch(jobs, number)
        if attempt.outcome is AttemptOutcome.LOST and not hands.alone:
            # The job may still be running: a second one would write into the same folders.
            folder.event("out of sight", attempt=number, message=attempt.message)
            return Supervised(attempt, attempt.message, OUT_OF_SIGHT)
        if attempt.outcome is AttemptOutcome.STALLED:
            hands.say(f"attempt {number}: {attempt.message}; stopping its job")
            if not _stop(jobs, folder.job(number)) and not hands.alone:
                folder.event("out of sight", attempt=number, message=attempt.message)
                said = f"{attempt.message}, and Ray did not end it within {_STOP_SECONDS:.0f} s"
                return Supervised(attempt, said, OUT_OF_SIGHT)
        cause = hands.cause(number) or attempt.message.partition("\n")[0].rstrip(":")
        _record(folder, attempt, cause)
        if attempt.outcome is AttemptOutcome.SUCCEEDED:
            return _succeeded(folder, attempt)
        if attempt.outcome is AttemptOutcome.STOPPED or _stop_asked(folder):
            folder.set_status(RunStatus.STOPPED)
            return Supervised(attempt, cause, _ON_REQUEST)
        if past:
            # It failed before this command, which is the operator's word to try again.
            hands.say(f"attempt {number} {attempt.outcome.value} before: {cause}")
            _ = hands.replace(number, _failure(folder, number, cause))
            continue
        why = failed.add(number, _failure(folder, number, cause), hands)
        if why is not None:
            folder.set_status(RunStatus.FAILED)
            return Supervised(attempt, cause, why)
        folder.event("wait", seconds=failed.wait, after=number)
        place = f"in {failed.wait:.0f} s" if failed.bad is None else f"without {failed.bad.host}"
        hands.say(
            f"attempt {number} {attempt.outcome.value} after step {attempt.steps}: {cause}; "
            f"next attempt {place}"
        )
        _pause(folder, failed.wait, sleep)


def _running(folder: RunFolder, hands: Hands) -> tuple[Jobs | None, int, bool]:
    """The Jobs API and the number of an attempt whose end is not recorded, if its job is known.

    The last value says whether that job has ended already.
    """
    attempt = folder.read().open_attempt()
    if attempt is None:
        return None, 0, False
    number, job = attempt.number, attempt.job
    try:
        jobs = hands.attach()
        state = jobs.find(job)
    except CannotTell as error:
        if not hands.alone:
            fix = f"{error.fix}; if that Ray is gone for good, and the job with it, add: "
            fix += f"--force {GONE_RULE}"
            raise CannotTell(error.rule, error.where, error.message, fix) from None
        folder.end_attempt(number, AttemptOutcome.LOST, _reached(folder), error.message)
        folder.event("ended", attempt=number, outcome=AttemptOutcome.LOST.value)
        hands.say(f"attempt {number} is lost: {error.message}")
        return None, 0, False
    if state is None:
        message = "the job was never submitted"
        folder.end_attempt(number, AttemptOutcome.INTERRUPTED, _reached(folder), message)
        return None, 0, False
    word = "has ended in the meantime" if state in ENDED else f"is {state}"
    hands.say(f"attached to {job}, which {word}")
    folder.event("attached", attempt=number, state=state)
    folder.set_status(RunStatus.RUNNING)
    return jobs, number, state in ENDED


def _stop_asked(folder: RunFolder) -> bool:
    return folder.read().stop is not None


def _pause(folder: RunFolder, seconds: float, sleep: Callable[[float], None]) -> None:
    """Wait before the next attempt, or until the run is stopped."""
    while seconds > 0 and not _stop_asked(folder):
        sleep(min(seconds, _HEAR_SECONDS))
        seconds -= _HEAR_SECONDS


def _not_begun(folder: RunFolder) -> Supervised:
    """The run was stopped between two attempts, or before the first."""
    folder.set_status(RunStatus.STOPPED)
    attempts = folder.attempts()
    number = attempts[-1].number if attempts else 0
    folder.event("ended", attempt=number or None, outcome=AttemptOutcome.STOPPED.value)
    return Supervised(
        AttemptEnd(number, AttemptOutcome.STOPPED, _reached(folder) or 0, ""), "", _ON_REQUEST
    )


def _begin(folder: RunFolder, hands: Hands) -> tuple[Jobs | None, int]:
    """Submit the next attempt; no Jobs when the run was stopped before."""
    if _stop_asked(folder):
        return None, 0
    resume = resume_point(folder, folder.read())
    for note in resume.notes:
        hands.say(note)
    try:
        jobs = hands.ready()
    except StopRequested:
        return None, 0
    with folder.edit() as state:
        if state.stop is None:
            state.begin(folder.name, resume.step)
    if state.stop is not None:
        return None, 0
    attempt = state.attempts[-1]
    number = attempt.number
    if number > 1 and state.visible:
        moved = set_aside(folder, checkpoints_of(folder, state), resume.step, number)
        for path in moved:
            hands.say(f"{path.name} was moved to {path.parent}")
    if number > 1:
        place = f"from step {resume.step}" if resume.step is not None else "from the start"
        if resume.step is None and not state.visible:
            place = "from the step in verl's tracker"
        first = state.begins_after + 1
        known = resume.recorded >= first
        said = f"steps {first}-{resume.recorded} are recorded" if known else "no step is recorded"
        hands.say(f"attempt {number} starts {place}; {said}")
    folder.event("submit", attempt=number, job=attempt.job, resumed_from=resume.step)
    try:
        hands.submit(jobs, number, resume)
    except CannotTell:
        # It is unknown whether the job runs: the attempt stays open, and a resume asks Ray first.
        folder.set_status(RunStatus.SUBMITTED)
        raise
    except OperatorError as error:
        with folder.edit() as state:
            state.end(number, AttemptOutcome.FAILED, None, error.message)
            state.status = RunStatus.FAILED
        raise
    folder.event("submitted", attempt=number)
    folder.set_status(RunStatus.RUNNING)
    if _stop_asked(folder):
        # Asked while it was submitted, when Ray did not know the job yet.
        jobs.stop(folder.job(number))
    return jobs, number


def _record(folder: RunFolder, attempt: AttemptEnd, cause: str) -> None:
    reached = _reached(folder)
    message = "" if attempt.outcome is AttemptOutcome.SUCCEEDED else cause
    folder.end_attempt(attempt.number, attempt.outcome, reached, message)
    folder.event(
        "ended", attempt=attempt.number, outcome=attempt.outcome.value, steps=attempt.steps
    )


def _succeeded(folder: RunFolder, attempt: AttemptEnd) -> Supervised:
    """Finished means: every step has its metrics, once."""
    state = folder.read()
    missing = steps_missing(folder, state)
    if missing:
        folder.set_status(RunStatus.FAILED, _reached(folder))
        shown = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
        return Supervised(attempt, "", f"the job succeeded, but steps {shown} have no metrics")
    folder.set_status(RunStatus.FINISHED, state.steps or 0)
    return Supervised(attempt, "", "")


def _reached(folder: RunFolder) -> int | None:
    steps = steps_recorded(folder)
    return max(steps) if steps else None


def _failure(folder: RunFolder, number: int, cause: str) -> Failure:
    attempt = folder.read().attempt(number)
    triaged = read_triaged(folder.path / "triage.json", number)
    lost = attempt.outcome is AttemptOutcome.LOST
    return Failure(cause, _reached(folder), attempt.resumed_from, triaged, lost)


def _stop(jobs: Jobs, job: str) -> bool:
    """Ask Ray to stop a job (SIGTERM, then SIGKILL); whether Ray reports its end in time."""
    jobs.stop(job)

    def has_ended() -> bool:
        with contextlib.suppress(CannotTell):
            return jobs.state(job)[0] in ENDED
        return False

    return wait_until(has_ended, _STOP_SECONDS, every=1.0)
