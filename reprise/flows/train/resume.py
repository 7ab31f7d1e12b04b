"""Can a run be resumed, and is it still the run that was started?"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path

import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.nested import flatten
from reprise.core.project import Project
from reprise.flows.train.fingerprint import MOST_SHOWN, Change, same_inputs
from reprise.flows.train.job import TrainJob
from reprise.runs.ray.contact import contact_of, private_elsewhere
from reprise.runs.ray.jobs import ENDED
from reprise.runs.ray.working_dir import Upload
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.pulse import QUIET_SECONDS, pulse_age, supervised
from reprise.runs.state.state import AttemptOutcome, Launcher, PlaceKind, RunState, RunStatus
from reprise.runs.supervise.resume import RESUME_RULE, steps_recorded
from reprise.runs.supervise.supervise import GONE_RULE

__all__ = ["EARLY", "may_resume", "place_of", "unchanged", "without_its_ray"]

RULE = "train-changed"
EARLY = frozenset({GONE_RULE, RESUME_RULE})
"""Rules that no check before the attempt has: they are decided before it, or as it begins."""


def unchanged(
    report: Report, project: Project, folder: RunFolder, task: TrainJob, package: Upload
) -> list[Change]:
    """A later attempt with another recipe, lock or data set would continue another run's curve.

    Reports what differs; returns the inputs of the job among it.
    """
    state = folder.read()
    storage = str(state.storage)
    pairs = (
        ("config.yaml", task.config(folder.name, storage), "train-changed.recipe"),
        ("versions.lock", project.lock.read_text(encoding="utf-8"), "train-changed.lock"),
    )
    for name, now, text in pairs:
        path = folder.path / name
        try:
            then = path.read_text(encoding="utf-8")
        except OSError as error:
            known = {"reason": error.strerror, "run": folder.name}
            report.unknown("train-changed.unreadable", str(path), **known)
            continue
        if then != now:
            _tell_changed(report, path, then, now, text)
    _same_rows(report, state.rows, task)
    differing = same_inputs(report, folder, task, package)
    report.settle(RULE)
    return differing


def _tell_changed(report: Report, path: Path, then: str, now: str, text: str) -> None:
    """Report each value of a YAML or TOML file that differs; where none does, nothing."""
    read = yaml.safe_load if path.suffix == ".yaml" else tomllib.loads
    try:
        before, after = flatten(read(then)), flatten(read(now))
    except (yaml.YAMLError, ValueError, AttributeError):
        report.failed(text, str(path))  # damaged, or not of this form
        return
    differing = [
        key
        for key in sorted({*before, *after})
        if (key in before, before.get(key)) != (key in after, after.get(key))
    ]
    for key in differing[:MOST_SHOWN]:
        known = {"now": after.get(key, "absent"), "then": before.get(key, "absent")}
        report.failed("train-changed.setting", str(path), key=key, **known)
    if len(differing) > MOST_SHOWN:
        report.failed("train-changed.more", str(path), count=len(differing) - MOST_SHOWN)


def _same_rows(report: Report, then: int | None, task: TrainJob) -> None:
    """verl's data.pt holds how far an order of samples was followed, not of how many.

    A sampler of another length silently produces another order.
    """
    now = task.loaded.known.rows
    if then is None or now is None or then == now:
        return
    report.failed(
        "train-changed.rows",
        str((task.values.get("data") or {}).get("train_files")),
        now=now,
        then=then,
    )


def may_resume(folder: RunFolder, state: RunState) -> None:
    """Raises OperatorError for a run that is finished, another command's, or supervised now."""
    if state.status is RunStatus.FINISHED:
        raise OperatorError(
            "train-resume.finished",
            folder.name,
            model=state.model,
            folder=shlex.quote(str(folder.path)),
        )
    if state.command is not Launcher.TRAIN or state.place is None:
        raise OperatorError("train-resume.not-train", folder.name, model=state.model)
    if (host := private_elsewhere(state)) is not None:
        raise OperatorError(
            "train-resume.private-elsewhere", folder.name, host=host, run=folder.name
        )
    if not supervised(folder, state, exact=True):
        _was_written(folder, state)
        return
    watcher = state.watcher
    if watcher is None:
        raise OperatorError("train-resume.supervised-now", folder.name, run=folder.name)
    age = pulse_age(folder, exact=True)
    seen = "" if age is None else f", seen {age:.0f} s ago"
    raise OperatorError(
        "train-resume.supervised",
        folder.name,
        pid=watcher.pid,
        host=watcher.host,
        seen=seen,
        run=folder.name,
        seconds=QUIET_SECONDS,
    )


def _was_written(folder: RunFolder, state: RunState) -> None:
    if not state.storage or not state.checkpoints:
        raise OperatorError("train-resume.incomplete-folder", folder.name, model=state.model)


def place_of(folder: RunFolder, state: RunState, given: str | None) -> str | None:
    """The address where an attached run continues: its own, or the one `given` instead.

    Raises OperatorError for a run that was not started on an existing Ray cluster.
    """
    if state.place is PlaceKind.ATTACHED:
        return given or state.address
    if given is not None:
        raise OperatorError("train-resume.not-attached", "--address", run=folder.name)
    return None


def without_its_ray(folder: RunFolder, address: str | None, force: Sequence[str]) -> None:
    """Check an attempt whose end is not recorded, if its Ray may have moved or ended.

    With the rule GONE_RULE forced, a Ray that does not answer counts as gone, with its job. Raises
    OperatorError when the job may still run elsewhere than at `address`.
    """
    state = folder.read()
    left = state.open_attempt()
    if left is None:
        return
    moved = address is not None and address != state.address
    if not moved and GONE_RULE not in force:
        return
    job = left.job
    try:
        said = contact_of(folder).jobs.find(job)
    except CannotTell as error:
        if GONE_RULE in force:
            message = f"its Ray is gone for good (--force {GONE_RULE}): {error.message}"
            reached = max(steps_recorded(folder), default=None)
            folder.end_attempt(left.number, AttemptOutcome.LOST, reached, message)
            folder.event(
                "ended", attempt=left.number, outcome=AttemptOutcome.LOST, forced=GONE_RULE
            )
            return
        raise OperatorError("train-out-of-sight.job-unknown", str(state.address), job=job) from None
    if moved and said is not None and said not in ENDED:
        raise OperatorError(
            "train-out-of-sight.job-alive",
            str(state.address),
            job=job,
            state=said,
            run=folder.name,
        )
