"""End a run's job: ask Ray politely, then firmly, and prove that nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reprise.errors import CannotTell
from reprise.findings import Report
from reprise.run.contact import LIVE, Contact, contact_of, last_attempt, supervised
from reprise.run.folder import RunFolder
from reprise.run.jobs import ENDED
from reprise.run.local_ray import remove_leftovers

__all__ = ["stop_run"]

JOB_SECONDS = 60.0
"""Ray sends SIGTERM and, three seconds later, SIGKILL to a job's own processes; its actors go with
it. Longer than a minute it takes only where a node does not answer."""
_SUPERVISOR_SECONDS = 30.0
RULE = "run-stop"


def stop_run(folder: RunFolder, say: Callable[[str], None], seconds: float = JOB_SECONDS) -> Report:
    """Stop the job of `folder`, wait until it has ended, close the run; nothing else is touched.

    Raises CannotTell when the cluster does not answer, OperatorError when it asks for a token.
    """
    report = Report("stop", data={"run": str(folder.path), "id": folder.name})
    facts = folder.read()
    if facts.get("state") not in LIVE:
        report.passed(RULE)
        report.note(RULE, folder.name, f"is not running: {facts.get('state')}")
        return report
    # Known to the supervisor before its job ends, so that it begins no further attempt.
    folder.update(stop=time.time())
    folder.event("stop requested")
    attempt = last_attempt(folder, facts)
    private = _private(facts)
    if not attempt and supervised(facts):
        watcher = facts.get("watcher") or facts.get("process") or {}
        report.failed(
            RULE,
            folder.name,
            "its job is not submitted yet: the command that prepares it still runs",
            f"end that command: Ctrl-C, or kill {watcher.get('pid')}",
        )
        return report
    try:
        ended = not attempt or _stop_job(contact_of(folder), str(attempt["job"]), say, seconds)
    except CannotTell:
        if private is None:
            raise
        ended = False  # The private Ray is gone or deaf: its processes are stopped below.
    if not ended and private is None:
        report.failed(
            RULE,
            str(attempt.get("job")),
            f"Ray has not ended the job within {seconds:.0f} s",
            "look for nodes that do not answer: reprise cluster status HOSTFILE; repeat the "
            "command, or stop the cluster: reprise cluster down HOSTFILE",
        )
        return report
    if supervised(facts) and ended:
        say("the command that supervises the run closes it")
        _await_supervisor(folder)
    facts = folder.read()
    if facts.get("state") in LIVE:
        _close(folder, facts, attempt)
    left = remove_leftovers(folder.name, private) if private is not None else []
    if left:
        report.failed(RULE, folder.name, f"processes {left} would not end", f"kill -9 {left}")
    report.settle(RULE)
    report.data["state"] = folder.read().get("state")
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
        if facts.get("state") not in LIVE or not supervised(facts):
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
