"""One run under one command: its submission, its watch, the report of its end."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from typing import Any

import orjson

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, write_text
from reprise.core.findings import Report
from reprise.flows.runs import settings_of
from reprise.flows.train.checks import need_of
from reprise.flows.train.job import SECRETS, TrainJob, TrainOptions
from reprise.flows.train.place import HostfileCluster, Need, Place
from reprise.flows.train.spare import no_other_host, replace_host
from reprise.flows.triage.explain import FAILED, add_triage, explain_attempt, hosts_folder
from reprise.flows.triage.logs import collect_logs
from reprise.runs.ray.contact import contact_of
from reprise.runs.ray.jobs import Jobs
from reprise.runs.state.attempt import AttemptEnd
from reprise.runs.state.folder import RunFolder, StorageFull
from reprise.runs.state.pulse import supervising
from reprise.runs.state.state import AttemptOutcome, PlaceKind, RunStatus
from reprise.runs.supervise.resume import Resume
from reprise.runs.supervise.retry import BadHost, Failure, Policy
from reprise.runs.supervise.supervise import OUT_OF_SIGHT, Supervised, supervise
from reprise.runs.watch.display import RunDisplay
from reprise.runs.watch.summary import summary_lines
from reprise.runs.watch.view import Limits, View, watch

__all__ = ["Session", "check_secrets", "run_session", "secret_file", "write_job"]

COMMAND = "train"
_ENDED = {
    AttemptOutcome.SUCCEEDED: "train-succeeded.ended",
    AttemptOutcome.FAILED: "train-failed.ended",
    AttemptOutcome.STALLED: "train-stalled.ended",
    AttemptOutcome.LOST: "train-lost.ended",
    AttemptOutcome.STOPPED: "train-stopped.ended",
    AttemptOutcome.INTERRUPTED: "train-interrupted.ended",
}


@dataclass(slots=True)
class Session:
    """One run under one command: what the supervisor works with."""

    folder: RunFolder
    task: TrainJob
    place: Place
    options: TrainOptions
    console: RunDisplay
    ended: AttemptEnd | None = None

    @property
    def alone(self) -> bool:
        """A private Ray that does not answer has ended, and its job with it."""
        return self.place.kind is PlaceKind.PRIVATE

    def say(self, text: str) -> None:
        """One line on standard error."""
        self.console.line(text)

    def ready(self) -> Jobs:
        """The place's Ray."""
        with self.console.phase("Ray"):
            return self.place.ready(self.folder, self.need)

    def attach(self) -> Jobs:
        """The Ray that the run's last attempt was submitted to."""
        return contact_of(self.folder).jobs

    def submit(self, jobs: Jobs, number: int, resume: Resume) -> None:
        """Write what is submitted, then submit it."""
        job = write_job(self.folder, self.task, number, resume, secret_file(self.folder))
        with self.console.phase("submit"):
            jobs.submit(
                self.folder.job(number),
                job["entrypoint"],
                job["runtime_env"],
                {"run": self.folder.name, "attempt": str(number)},
            )

    def watch(self, jobs: Jobs, number: int) -> AttemptEnd:
        """Show the attempt's steps until its job ends."""
        if self.options.detach:
            # The same as Ctrl-C right after the submission.
            raise KeyboardInterrupt
        stall = self.options.stall or self.place.stall_seconds
        settings = settings_of(self.task.project, self.folder)
        with View(quiet=self.options.quiet) as view:
            limits = Limits(stall, self.place.lost_seconds)
            self.ended = watch(self.folder, number, jobs, limits, view, settings)
        if self.ended.outcome is AttemptOutcome.STALLED:
            # Its workers still hang: their stacks are gone once the job is stopped.
            self._collect(number, stacks=True)
        return self.ended

    def cause(self, number: int) -> str:
        """The root cause of an attempt's failure, by the logs of all hosts."""
        if self.ended is not None and self.ended.outcome is AttemptOutcome.SUCCEEDED:
            return ""
        if not hosts_folder(self.folder, number).exists():
            self._collect(number, stacks=False)
        failed = self.ended is not None and self.ended.outcome in FAILED
        return explain_attempt(self.task.project, self.folder, number, failed)

    @property
    def need(self) -> Need:
        """What the job needs at once."""
        return need_of(self.task)

    def replace(self, number: int, failure: Failure) -> BadHost | None:
        """Take the hosts out that the failure is blamed on, if others can take their place."""
        if not isinstance(self.place, HostfileCluster):
            return no_other_host(failure.triaged)
        with self.console.phase("hosts"):
            return replace_host(
                self.place, self.folder, number, self.need, failure.triaged, self.say
            )

    def _collect(self, number: int, stacks: bool) -> None:
        ssh = self.place.selection.site.ssh if isinstance(self.place, HostfileCluster) else None
        collect_logs(self.task.project, self.folder, number, stacks, ssh, self.say)


def write_job(
    folder: RunFolder, task: TrainJob, number: int, resume: Resume, secrets: str | None
) -> dict[str, Any]:
    """The command and the runtime environment of an attempt, written before they are used."""
    state = folder.read()
    storage, visible = str(state.storage), state.visible
    entrypoint = task.entrypoint(resume, storage, number)
    runtime_env = task.runtime_env(folder.name, storage, number, visible, secrets)
    suffix = "" if number == 1 else f"-{number}"
    write_text(folder.path / f"command{suffix}.txt", entrypoint + "\n")
    dump_json(folder.path / f"runtime_env{suffix}.json", runtime_env)
    return {"entrypoint": entrypoint, "runtime_env": runtime_env}


def check_secrets(report: Report, visible: bool) -> None:
    """Whether the operator's secrets can reach the job: only through storage that both access."""
    rule = "train-secret"
    names = [name for name in SECRETS if os.environ.get(name)]
    if names and not visible:
        report.failed("train-secret.no-shared-storage", ", ".join(names), names=" ".join(names))
    report.settle(rule)


def secret_file(folder: RunFolder, write: bool = True) -> str | None:
    """The file with the secrets of the job: in the folder of runs, readable by its owner only.

    None when the operator's environment has none of them, or the job could not read the file.
    """
    values = {name: os.environ[name] for name in SECRETS if os.environ.get(name)}
    if not values or not folder.read().visible:
        return None
    place = folder.path.parent.parent / ".secrets"
    path = place / f"{folder.name}.json"
    if write:
        place.mkdir(mode=0o700, exist_ok=True)
        write_text(path, orjson.dumps(values).decode(), mode=0o600)
    return str(path)


def run_session(session: Session) -> Report:
    """Supervise until the end; Ctrl-C leaves the job running and shows how to attach again."""
    with supervising(session.folder):
        return _supervised(session)


def _supervised(session: Session) -> Report:
    folder, options = session.folder, session.options
    try:
        ended = supervise(folder, session, Policy(attempts=options.attempts))
    except KeyboardInterrupt:
        if folder.read().open_attempt() is not None:
            return _detached(folder)
        _give_up(session, RunStatus.INTERRUPTED)
        session.say(f"nothing is running; to resume: reprise train --resume {folder.name}")
        raise
    except StorageFull:
        # Nothing can be recorded. A Ray of the run's own would keep the machine for nothing.
        with contextlib.suppress(StorageFull):
            session.place.release(folder)
        raise
    except OperatorError:
        state = folder.read()
        if state.open_attempt() is None:
            stopped = state.stop is not None
            _give_up(session, RunStatus.STOPPED if stopped else RunStatus.FAILED)
        raise
    if ended.why == OUT_OF_SIGHT:
        return _out_of_sight(folder, ended)
    _forget_secrets(folder)
    session.place.release(folder)
    for line in summary_lines(folder):
        session.say(line)
    return _report(folder, ended)


def _out_of_sight(folder: RunFolder, ended: Supervised) -> Report:
    report = Report(COMMAND, data={"run": str(folder.path), "id": folder.name})
    report.unknown(
        "train-out-of-sight.no-answer",
        str(folder.read().address),
        cause=ended.cause,
        reason=ended.why,
        step=ended.attempt.steps,
        run=folder.name,
    )
    return report


def _give_up(session: Session, status: RunStatus) -> None:
    """Nothing of the run is running: record it, and stop what was started for the run."""
    _forget_secrets(session.folder)
    session.folder.set_status(status)
    session.place.release(session.folder)


def _forget_secrets(folder: RunFolder) -> None:
    (folder.path.parent.parent / ".secrets" / f"{folder.name}.json").unlink(missing_ok=True)


def _detached(folder: RunFolder) -> Report:
    report = Report(COMMAND, data={"run": str(folder.path), "id": folder.name, "detached": True})
    folder.event("detached")
    report.passed("train-submitted")
    report.note("train-detached.running", folder.name, run=folder.name)
    return report


def _report(folder: RunFolder, ended: Supervised) -> Report:
    state = folder.read()
    report = Report(
        COMMAND,
        data={
            "run": str(folder.path),
            "id": folder.name,
            "state": state.status,
            "attempts": [attempt.to_json() for attempt in state.attempts],
        },
    )
    total, number = state.steps, ended.attempt.number
    _add_evicted(report, folder)
    if ended.finished:
        report.passed("train-finished")
        report.note(
            "train-finished.steps",
            folder.name,
            steps=total,
            attempts=number,
            s="s" if number > 1 else "",
            model=state.model,
            folder=folder.path,
        )
        return report
    reached = (state.attempt(number).reached if number else None) or 0
    report.failed(
        _ENDED[ended.attempt.outcome],
        str(folder.log_file(number) if number else folder.path),
        number=number,
        step=reached,
        steps=total,
        cause=f": {ended.cause}" if ended.cause else "",
        reason=ended.why,
        run=folder.name,
    )
    add_triage(report, folder, number)
    return report


def _add_evicted(report: Report, folder: RunFolder) -> None:
    """Hosts that were taken out during the run: each waits for its repair."""
    hostfile = shlex.quote(str(folder.read().hostfile))
    for event in folder.events():
        for host, reason in event.get("hosts", {}).items() if event["event"] == "evicted" else ():
            number = event["attempt"]
            values = {"number": number, "reason": reason, "hostfile": hostfile, "host": host}
            report.warn("train-evicted.host", host, **values)
