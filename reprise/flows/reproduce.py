"""Run the rehearsal and judge finished runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.curves.judge import Judgement, judge_run
from reprise.curves.reference import Reference, load_reference
from reprise.curves.report import write_report
from reprise.flows.key import KEYS
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.target import Target
from reprise.metrics import MetricTable, read_run
from reprise.runs.state.folder import RunFolder, find_run, newest_finished
from reprise.runs.state.state import RunState, RunStatus

__all__ = ["Judged", "judge_folder", "reproduce_rehearsal"]

COMMAND = "reproduce"


@dataclass(frozen=True, slots=True)
class Judged:
    """A finished run, its judgement, and the report for the command line."""

    folder: RunFolder
    judgement: Judgement | None
    report: Report


def reproduce_rehearsal(project: Project, options: RehearsalOptions) -> Judged:
    """Run the rehearsal from the model to the verdict.

    The run folder keeps everything, also when a step fails. Raises OperatorError when the run
    cannot be started; a job that fails is a report with its first error.
    """
    rehearsal = Rehearsal(project, options)
    outcome = rehearsal.run()
    if outcome.report is not None:
        return Judged(outcome.folder, None, outcome.report)
    return judge_folder(project, "rehearsal", outcome.folder.path)


def judge_folder(project: Project, model: str, run: Path | None) -> Judged:
    """Judge a finished run of `model` (the newest when `run` is None) against its reference.

    Writes verdict.json, curves.png and report.html into the run folder.
    Raises CannotTell when no run is finished, OperatorError when the folder is not a run.
    """
    folder = _finished(project, model, run)
    state = folder.read()
    if state.model != model:
        raise OperatorError(
            "run-model.other-recipe",
            str(folder.path),
            expected=model,
            found=state.model,
            folder=shlex.quote(str(folder.path)),
        )
    _comparable(folder, state)
    place = Target(state.platform or "cpu", state.engine or "fsdp")
    reference = load_reference(_recorded(folder, place.reference(project, model), place))
    table = read_run(folder.path)
    steps = state.steps or reference.steps
    judgement = judge_run(table, reference, steps, seed=state.seed)
    report = judgement.report(COMMAND)
    _compare_origin(report, state, reference, place)
    _write(folder, judgement, table, reference, state)
    report.data |= {"run": str(folder.path), "report": str(folder.path / "report.html")}
    return Judged(folder, judgement, report)


def _finished(project: Project, model: str, run: Path | None) -> RunFolder:
    if run is not None:
        folder = RunFolder(run.absolute()) if run.exists() else find_run(project.runs, str(run))
        status = folder.read().status
        if status is not RunStatus.FINISHED:
            raise OperatorError("run-state.not-finished", str(folder.path), status=status)
        return folder
    newest = newest_finished(project.runs, model)
    if newest is None:
        raise CannotTell("run-missing.none", str(project.runs / model), model=model)
    return newest


def _comparable(folder: RunFolder, state: RunState) -> None:
    """Refuse a run without a reference: of another architecture or algorithm."""
    named = (("arch", state.arch), ("algo", state.algo))
    other = [f"{name}={value}" for name, value in named if value]
    if other in ([], ["arch=hy3"]):
        return
    raise CannotTell("reference-missing.other-settings", str(folder.path), settings=" ".join(other))


def _recorded(folder: RunFolder, reference: Path, place: Target) -> Path:
    if place.default or (reference / "reference.toml").is_file():
        return reference
    raise CannotTell(
        "reference-missing.other-place",
        str(folder.path),
        place=place.name,
        platform=place.platform,
        engine=place.engine,
    )


def _compare_origin(report: Report, state: RunState, reference: Reference, place: Target) -> None:
    """Warn when the reference was recorded with other inputs than the run used."""
    rule = "reference-origin"
    recorded = reference.provenance
    differing = [
        name
        for name in KEYS
        if name != "steps" and name in recorded and recorded[name] != getattr(state, name)
    ]
    report.passed(rule)
    where, keys = f"recipes/{state.model}/reference", ", ".join(differing)
    if differing and state.model == "rehearsal":
        report.warn(
            "reference-origin.rehearsal",
            where,
            keys=keys,
            platform=place.platform,
            engine=place.engine,
        )
    elif differing:
        report.warn("reference-origin.cluster", where, keys=keys)


def _write(
    folder: RunFolder,
    judgement: Judgement,
    table: MetricTable,
    reference: Reference,
    state: RunState,
) -> None:
    apart = {"watcher", "status", "schema_version"}
    shown = state.model_dump(mode="json", exclude=apart, exclude_none=True)
    write_report(folder.path, judgement, table, reference, shown)
