"""End the job of a run: SIGTERM, then SIGKILL, and check that no process of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.wait import wait_until
from reprise.runs.ray.contact import Contact, contact_of, last_attempt, private_elsewhere
from reprise.runs.ray.jobs import ENDED
from reprise.runs.ray.local_ray import remove_leftovers
from reprise.runs.ray.processes import alive, marked
from reprise.runs.state.folder import RunFolder, StorageFull
from reprise.runs.state.pulse import supervised
from reprise.runs.state.state import Attempt, AttemptOutcome, RunState, RunStatus

__all__ = ["stop_run"]

JOB_SECONDS = 60.0
"""Ray sends SIGTERM and, three seconds later, SIGKILL to a job's own processes; its actors go with
it. Longer than a minute it takes only where a node does not answer."""
_SUPERVISOR_SECONDS = 30.0
RULE = "run-stop"


def stop_run(folder: RunFolder, say: Callable[[str], None], seconds: float = JOB_SECONDS) -> Report:
    """Stop the job of `folder`, wait until it has ended, close the run; nothing else is touched.

    Raises CannotTell when the cluster does not answer, OperatorError when it asks for a token or
    the run's private Ray is on another machine.
    """
    report = Report("stop", data={"run": str(folder.path), "id": folder.name})
    state = folder.read()
    if not state.live:
        report.note("run-stop.not-running", folder.name, status=state.status)
        _stop_orphans(report, folder, state)
        report.settle(RULE)
        return report
    if (host := private_elsewhere(state)) is not None:
        raise OperatorError("run-stop.private-elsewhere", folder.name, host=host, run=folder.name)
    # Known to the supervisor before its job ends, so that it begins no further attempt.
    full = _request(folder)
    attempt = last_attempt(folder, state)
    private = _private(state)
    if attempt is None and supervised(folder, state):
        if full is not None:
            raise full  # its command could not hear the request
        return _before_its_job(report, folder, state)
    try:
        ended = attempt is None or attempt.ended is not None
        if attempt is not None and not ended:
            ended = _stop_job(contact_of(folder), attempt.job, say, seconds)
    except CannotTell:
        if private is None:
            raise
        ended = False  # The private Ray does not answer: its processes are stopped below.
    if not ended and private is None:
        report.failed(
            "run-stop.job-alive", attempt.job if attempt else folder.name, seconds=seconds
        )
        return report
    if supervised(folder, state) and ended:
        say("waiting for the supervising command to close the run")
        _await_supervisor(folder)
    full = _close(folder, attempt, asked=full is None)
    left = remove_leftovers(folder.name, private) if private is not None else []
    ray = folder.read().ray
    if not left and ray is not None and ray.pid and ray.created and alive(ray.pid, ray.created):
        left = [ray.pid]  # Another user's process: its mark cannot be read.
    _tell_left(report, folder, left)
    if full is not None:
        report.failed("run-stop.not-recorded", full.where, reason=full.message, run=folder.name)
    report.settle(RULE)
    report.data["state"] = folder.read().status
    return report


def _request(folder: RunFolder) -> StorageFull | None:
    """Record that the run is to end; the error where the storage is full: the job ends anyway."""
    try:
        with folder.edit() as state:
            state.stop = time.time()
    except StorageFull as error:
        return error
    folder.event("stop requested")
    return None


def _stop_orphans(report: Report, folder: RunFolder, state: RunState) -> None:
    """Stop the rest of the private Ray of a run that has ended: other runs wait for it."""
    private = _private(state)
    found = marked(folder.name) if private is not None else []
    # Another user's, or the run's own command is stopping it.
    if private is None or not found or supervised(folder, state):
        return
    left = remove_leftovers(folder.name, private)
    report.note("run-stop.leftovers", folder.name, count=len(found))
    _tell_left(report, folder, left)


def _tell_left(report: Report, folder: RunFolder, left: list[int]) -> None:
    if left:
        pids = " ".join(map(str, left))
        report.failed("run-stop.processes-alive", folder.name, pids=pids)


def _before_its_job(report: Report, folder: RunFolder, state: RunState) -> Report:
    """A command prepares the run's first job: it sees the request before it submits."""
    watcher = state.watcher
    host = (watcher and watcher.host) or "this machine"
    owner = f"process {watcher.pid} on {host}" if watcher else "another command"
    report.data["state"] = state.status
    report.passed(RULE)
    report.note("run-stop.ends-before-submission", folder.name, owner=owner)
    return report


def _private(state: RunState) -> Path | None:
    """The temp dir of the run's own Ray; None when its Ray is shared."""
    return Path(state.ray.temp_dir) if state.ray is not None else None


def _stop_job(contact: Contact, job: str, say: Callable[[str], None], seconds: float) -> bool:
    """Ask until Ray says that the job has ended; False when it has not after `seconds`."""
    state = contact.jobs.find(job)
    if state is None or state in ENDED:
        return True
    say(f"stopping {job}")
    asked = 0.0

    def has_ended() -> bool:
        nonlocal asked
        if time.monotonic() - asked > 10.0:
            asked = time.monotonic()
            contact.jobs.stop(job)
        return contact.jobs.state(job)[0] in ENDED

    return wait_until(has_ended, seconds, every=0.5)


def _await_supervisor(folder: RunFolder) -> None:
    def closed() -> bool:
        state = folder.read()
        return not state.live or not supervised(folder, state)

    wait_until(closed, _SUPERVISOR_SECONDS, every=0.5)


def _close(folder: RunFolder, attempt: Attempt | None, asked: bool) -> StorageFull | None:
    """Write what a supervisor would have, unless it has: the attempt's end and the run's state.

    `asked`: the request stands in run.json. Returns the error of full storage, where nothing could
    be written.
    """
    try:
        with folder.edit() as state:
            # Who resumed the run meanwhile has withdrawn the request: it is not ours to close.
            closed = state.live and (state.stop is not None or not asked)
            if closed:
                left = state.open_attempt()
                if left is not None:
                    state.end(
                        left.number, AttemptOutcome.STOPPED, left.reached, "stopped on request"
                    )
                state.status = RunStatus.STOPPED
                state.watcher = None
    except StorageFull as error:
        return error
    if closed:
        number = attempt.number if attempt else None
        folder.event("ended", attempt=number, outcome=AttemptOutcome.STOPPED)
    return None
