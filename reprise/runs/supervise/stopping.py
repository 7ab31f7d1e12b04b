"""End a run's job: ask Ray politely, then firmly, and prove that nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.runs.ray.contact import LIVE, Contact, contact_of, last_attempt, private_elsewhere
from reprise.runs.state.folder import RunFolder
from reprise.runs.ray.jobs import ENDED
from reprise.runs.ray.local_ray import remove_leftovers
from reprise.runs.ray.processes import alive, marked
from reprise.runs.state.pulse import supervised, watcher_of

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
    facts = folder.read()
    if facts.get("state") not in LIVE:
        report.note('run-stop.running', folder.name, get=facts.get('state'))
        _stop_orphans(report, folder, facts)
        report.settle(RULE)
        return report
    if (host := private_elsewhere(facts)) is not None:
        fix = f"on {host}: reprise stop {folder.name}"
        raise OperatorError(RULE, folder.name, f"its Ray is private to {host}", fix)
    # Known to the supervisor before its job ends, so that it begins no further attempt.
    folder.update(stop=time.time())
    folder.event("stop requested")
    attempt = last_attempt(folder, facts)
    private = _private(facts)
    if not attempt and supervised(folder, facts):
        return _before_its_job(report, folder, facts)
    try:
        ended = not attempt or attempt.get("ended") is not None
        ended = ended or _stop_job(contact_of(folder), str(attempt["job"]), say, seconds)
    except CannotTell:
        if private is None:
            raise
        ended = False  # The private Ray is gone or deaf: its processes are stopped below.
    if not ended and private is None:
        report.failed('run-stop.ray-ended-job', str(attempt.get('job')), seconds=seconds)
        return report
    if supervised(folder, facts) and ended:
        say("the command that supervises the run closes it")
        _await_supervisor(folder)
    facts = folder.read()
    if facts.get("state") in LIVE:
        _close(folder, facts, attempt)
    left = remove_leftovers(folder.name, private) if private is not None else []
    ray = facts.get("ray") or {}
    if not left and ray.get("pid") and alive(int(ray["pid"]), float(ray["created"])):
        left = [int(ray["pid"])]  # Another user's, whose mark cannot be read.
    _tell_left(report, folder, left)
    report.settle(RULE)
    report.data["state"] = folder.read().get("state")
    return report


def _stop_orphans(report: Report, folder: RunFolder, facts: Mapping[str, Any]) -> None:
    """What is left of the private Ray of a run that is over: it keeps other runs waiting."""
    private = _private(facts)
    found = marked(folder.name) if private is not None else []
    # Of another user, or while the run's own command ends it.
    if private is None or not found or supervised(folder, facts):
        return
    left = remove_leftovers(folder.name, private)
    report.note('run-stop.processes-had-left', folder.name, found_count=len(found))
    _tell_left(report, folder, left)


def _tell_left(report: Report, folder: RunFolder, left: list[int]) -> None:
    if left:
        report.failed('run-stop.processes-would-end', folder.name, left=left)


def _before_its_job(report: Report, folder: RunFolder, facts: Mapping[str, Any]) -> Report:
    """A command prepares the run's first job: `train` sees the request before it submits."""
    watcher = watcher_of(facts)
    owner = f"process {watcher.get('pid')} on {watcher.get('host') or 'this machine'}"
    report.data["state"] = facts.get("state")
    if facts.get("watcher"):
        report.passed(RULE)
        text = f"its job is not submitted yet: {owner}, which prepares it, ends before it submits"
        report.note(RULE, folder.name, text)
        return report
    report.failed('run-stop.job-submitted-yet', folder.name, owner=owner, get=watcher.get('pid'))
    return report


def _private(facts: Mapping[str, Any]) -> Path | None:
    """The temp dir of the run's own Ray; None when its Ray is shared."""
    ray = facts.get("ray") or {}
    temp_dir = ray.get("temp_dir") or facts.get("ray_temp_dir")
    return Path(str(temp_dir)) if temp_dir else None


def _stop_job(contact: Contact, job: str, say: Callable[[str], None], seconds: float) -> bool:
    """Ask until Ray says that the job has ended; False when it has not after `seconds`."""
    state = contact.jobs.find(job)
    if state is None or state in ENDED:
        return True
    say(f"stopping {job}")
    deadline = time.monotonic() + seconds
    asked = 0.0
    while time.monotonic() < deadline:
        if time.monotonic() - asked > 10.0:
            asked = time.monotonic()
            contact.jobs.stop(job)
        if contact.jobs.state(job)[0] in ENDED:
            return True
        time.sleep(0.5)
    return False


def _await_supervisor(folder: RunFolder) -> None:
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    while time.monotonic() < deadline:
        facts = folder.read()
        if facts.get("state") not in LIVE or not supervised(folder, facts):
            return
        time.sleep(0.5)


def _close(folder: RunFolder, facts: Mapping[str, Any], attempt: Mapping[str, Any]) -> None:
    """Write what a supervisor would have: the attempt's end and the run's state."""
    attempts = list(facts.get("attempts") or [])
    if attempts and attempts[-1].get("ended") is None:
        reached = attempts[-1].get("reached")
        folder.end_attempt(int(attempt["number"]), "stopped", reached, "stopped on request")
    folder.update(state="stopped", watcher=None)
    folder.event("ended", attempt=attempt.get("number"), outcome="stopped")
