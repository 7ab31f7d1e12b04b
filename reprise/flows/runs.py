"""Runs seen from outside: the list, the status of a run, its log, its end."""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report, Severity
from reprise.core.project import Project
from reprise.flows.triage.explain import add_triage
from reprise.recipe.folders import recipe_folder
from reprise.runs.ray.contact import GONE, Contact, contact_of, last_attempt
from reprise.runs.ray.jobs import ENDED
from reprise.runs.state.folder import RunFolder, find_run
from reprise.runs.state.listing import closed_folders, list_folder
from reprise.runs.state.pulse import supervised
from reprise.runs.state.state import LIVE, Launcher, PlaceKind, RunState, RunStatus
from reprise.runs.supervise.stopping import stop_run
from reprise.runs.watch.alarms import AlarmSettings, alarm_settings
from reprise.runs.watch.feed import Feed
from reprise.runs.watch.monitor import Monitor
from reprise.runs.watch.seen import Seen
from reprise.runs.watch.view import View, attend

__all__ = ["Status", "list_runs", "run_log", "run_status", "settings_of", "stop"]

STATE = "run-state"
ALARMS = "run-alarms"


@dataclass(frozen=True, slots=True)
class Status:
    """A look at a run, and the report of it."""

    seen: Seen
    report: Report


def settings_of(project: Project, folder: RunFolder) -> AlarmSettings:
    """The alarms' settings: the run's config, and the ceiling of its recipe's reference."""
    config: dict[str, Any] = {}
    ceiling = None
    try:
        loaded = yaml.safe_load((folder.path / "config.yaml").read_text(encoding="utf-8"))
        config = loaded if isinstance(loaded, dict) else {}
        model = folder.read().model
        folder_of = recipe_folder(project.recipes, model)
        manifest = (folder_of / "reference/reference.toml").read_text(encoding="utf-8")
        ceiling = tomllib.loads(manifest)["metrics"]["probs_diff"]["ceiling"]
    except (OSError, yaml.YAMLError, ValueError, KeyError):
        pass  # A recipe without a reference has the general ceiling.
    return alarm_settings(config, ceiling)


def list_runs(project: Project, model: str | None, most: int) -> Report:
    """The newest runs, those of `model` only where given: id, state, steps, age."""
    report = Report("runs")
    rows = []
    listing = list_folder(project.runs, model)
    for path in reversed(listing.runs[-most:]):
        folder = RunFolder(path)
        try:
            rows.append(_row(folder))
        except OperatorError as error:
            report.warn(error.rule, error.where, error.message, error.fix)
            rows.append({"id": folder.name, "model": path.parent.name, "state": "unreadable"})
    if listing.closed:
        where, why = closed_folders(listing)
        report.unknown("run-list.closed", where, reason=why)
    else:
        report.passed("run-list")
    if not rows:
        where, why = str(project.runs), _none(project.runs, model)
        if model in (None, "rehearsal"):
            report.note("run-list.none", where, reason=why)
        else:
            report.note("run-list.none-of-recipe", where, reason=why)
    report.data |= {"folder": str(project.runs), "runs": rows, "known": len(listing.runs)}
    return report


def _none(runs: Path, model: str | None) -> str:
    """Which runs are missing: those of `model`, if others exist, or all."""
    if not runs.exists():
        return "no runs yet: the folder does not exist"
    others = sorted({path.parent.name for path in list_folder(runs).runs})
    return f"no runs of {model}; runs exist of {', '.join(others)}" if others else "no runs yet"


def _row(folder: RunFolder) -> dict[str, Any]:
    state = folder.read()
    last = last_attempt(folder, state)
    attempt = last.number if last else 0
    reached = state.reached
    if reached is None or state.live:
        steps = [record.step for record in Feed(folder).new(attempt)]
        reached = steps[-1] if steps else 0
    shown: str = state.status
    if state.live and state.place is not PlaceKind.ATTACHED and not supervised(folder, state):
        shown += ", unsupervised"
    return {
        "id": folder.name,
        "model": state.model,
        "state": shown,
        "step": reached,
        "steps": state.steps,
        "attempt": attempt,
        "created": state.created,
        "path": str(folder.path),
    }


def _find(project: Project, text: str | None) -> RunFolder:
    """The run that `text` names; the newest of all recipes without it."""
    if text is not None:
        return find_run(project.runs, text)
    listing = list_folder(project.runs)
    if not listing.runs and listing.closed:
        where, why = closed_folders(listing)
        raise CannotTell("run-list.closed", where, reason=why)
    if not listing.runs:
        why = _none(project.runs, None)
        raise OperatorError("run-unknown.none", str(project.runs), reason=why)
    return RunFolder(listing.runs[-1])


def run_status(project: Project, text: str | None, view: View | None = None) -> Status:
    """Look at a run, the newest by default; with a `view`, until it ends.

    Raises OperatorError for an unknown run and for a cluster that asks for another token. If it
    does not answer, the check is unknown; the report still has what the run folder contains.
    """
    folder = _find(project, text)
    state = folder.read()
    contact, silent = _contact(folder, state)
    monitor = Monitor(folder, contact, settings_of(project, folder))
    # Without the cluster's word only a supervisor's shows in the folder that the run has ended.
    blind = silent is not None and not supervised(folder, state)
    if view is None or blind or not state.live:
        seen = monitor.look()
    else:
        if silent is not None:
            view.line(f"{silent.where}: {silent.message}")
        with view:
            seen = _last(attend(monitor, view))
    report = _report(folder, seen, silent or monitor.unanswered)
    for error in monitor.unread:
        report.unknown(error.rule, error.where, error.message, error.fix)
    return Status(seen, report)


def _last(looks: Iterator[Seen]) -> Seen:
    seen = next(looks)
    for later in looks:
        seen = later
    return seen


def _contact(folder: RunFolder, state: RunState) -> tuple[Contact | None, CannotTell | None]:
    if not state.live or last_attempt(folder, state) is None:
        return None, None
    try:
        return contact_of(folder), None
    except CannotTell as error:
        return None, error


def _report(folder: RunFolder, seen: Seen, silent: CannotTell | None) -> Report:
    report = Report("status", data=seen.to_json() | {"path": str(folder.path)})
    _judge_state(report, folder, seen, silent)
    report.findings.extend(seen.standing)
    errors = [finding for finding in seen.standing if finding.severity is Severity.ERROR]
    if not errors:
        report.passed(ALARMS)
    return report


def _judge_state(report: Report, folder: RunFolder, seen: Seen, silent: CannotTell | None) -> None:
    state = folder.read()
    again = f"reprise train --resume {folder.name}"
    if state.command is Launcher.REPRODUCE:
        again = f"read the log: reprise logs {folder.name}; then repeat the command"
    attempt = last_attempt(folder, state)
    log = str(folder.log_file(attempt.number if attempt else 1))
    if seen.state in (RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.DRY_RUN):
        report.passed(STATE)
    elif seen.state not in LIVE:
        known: dict[str, object] = {"status": seen.state, "step": seen.step, "next": again}
        known["cause"] = (attempt.message if attempt else "") or "see the log"
        report.failed("run-state.ended", log, **known)
        add_triage(report, folder, attempt.number if attempt else 1)
    elif silent is not None:
        fix = silent.fix
        if state.place is PlaceKind.PRIVATE:
            fix = f"if the machine was restarted or this Ray was killed: {again}"
        report.unknown(silent.rule, silent.where, silent.message, fix)
    elif seen.job == GONE and not supervised(folder, state):
        report.failed("run-state.unknown-job", log, next=again)
    elif seen.job in ENDED and not supervised(folder, state):
        report.failed("run-state.not-closed", log, job=seen.job, next=again)
    else:
        report.passed(STATE)
        if attempt and not supervised(folder, state):
            report.note("run-state.unsupervised", folder.name, next=again)


def run_log(
    project: Project,
    text: str | None,
    attempt: int | None,
    follow: bool,
    write: Callable[[str], None],
) -> Report:
    """Give the log of an attempt (the newest by default) to `write`, line by line.

    While the job runs the log comes from Ray, else from the run folder. With `follow`, until the
    job has ended. Raises OperatorError for an unknown run or attempt.
    """
    folder = _find(project, text)
    state = folder.read()
    newest = last_attempt(folder, state)
    number = attempt or (newest.number if newest else 0)
    file = folder.log_file(number)
    report = Report("logs", data={"run": str(folder.path), "attempt": number, "log": str(file)})
    running = state.live and newest is not None and number == newest.number
    contact, silent = _contact(folder, state) if running else (None, None)
    if contact is not None and newest is not None:
        job = newest.job
        if follow:
            _follow_log(contact, job, write)
        else:
            for line in contact.jobs.log(job).splitlines():
                write(line)
        report.passed("run-log")
        return report
    if not file.is_file():
        if silent is not None:
            raise silent
        if number:
            raise OperatorError("run-log.no-attempt", str(file), number=number, run=folder.name)
        raise OperatorError("run-log.not-started", str(file), run=folder.name)
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            write(line.rstrip("\n"))
    report.passed("run-log")
    if silent is not None:
        report.unknown(
            silent.rule,
            silent.where,
            f"{silent.message}; the log shown is the copy in the run folder",
            silent.fix,
        )
    return report


def _follow_log(contact: Contact, job: str, write: Callable[[str], None]) -> None:
    """Stream a job's log until it has ended; nothing is written to the run folder."""
    broken = threading.Event()

    def give(line: str) -> None:
        try:
            write(line)
        except OSError:
            broken.set()  # The reader has ended: `| head`.

    tail = contact.jobs.tail(job, Path(os.devnull), give)
    try:
        while not broken.is_set() and contact.jobs.state(job)[0] not in ENDED:
            time.sleep(1.0)
        tail.close(rest=not broken.is_set())
    except BaseException:
        tail.close(rest=False)
        raise


def stop(project: Project, text: str, say: Callable[[str], None]) -> Report:
    """Stop a run: its job, and where it has a Ray of its own, that."""
    return stop_run(find_run(project.runs, text), say)
