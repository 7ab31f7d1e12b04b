"""Run the rehearsal and judge finished runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.curves.judge import Judgement
from reprise.curves.reference import Reference, load_reference
from reprise.flows.judge.judging import AnyRun, judge_any, open_run, write_any
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.target import Target
from reprise.recipe.folders import recipe_folder
from reprise.rehearsal.shapes import DEFAULT_ARCH
from reprise.runs.state.folder import RunFolder, find_run, newest_finished
from reprise.runs.state.state import RunState, RunStatus
from reprise.runs.supervise.resume import steps_missing

__all__ = ["Judged", "Judging", "judge_folder", "reproduce_rehearsal"]

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


@dataclass(frozen=True, slots=True)
class Judging:
    """How a finished run is judged: margin, accepted differences, and what to read and write.

    `series` names one run of an export that has several; `out` is where the report of a metrics
    file goes (a run folder keeps its own).
    """

    margin: float | None = None
    accepted: tuple[str, ...] = ()
    series: str | None = None
    out: Path | None = None


def judge_folder(
    project: Project, model: str, run: Path | None, how: Judging | None = None
) -> Judged:
    """Judge a finished run of `model` (the newest when `run` is None) against its reference.

    `run` may also be a metrics file, or a folder of files, of any origin. Writes verdict.json,
    curves.png and report.html into the run folder, or into `how.out`.
    Raises CannotTell when no run is finished, OperatorError when there is nothing to read.
    """
    how = how or Judging()
    if run is not None and run.exists() and not (run / "run.json").is_file():
        return _judge_files(project, model, run, how)
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
    place = Target(state.platform or "cpu", state.engine or "fsdp", rollout=state.rollout or "vllm")
    arch = state.arch or DEFAULT_ARCH
    recorded = place.reference(project, model, arch)
    _comparable(folder, state, recorded)
    reference = load_reference(_recorded(folder, recorded, place, arch))
    # Another layout computes the same thing on other GPUs: that is what the verdict is to say.
    laid_out = state.recipe_one_gpu is not None
    if laid_out and state.recipe_one_gpu == reference.provenance.get("recipe"):
        how = replace(how, accepted=(*how.accepted, "recipe"))
    judged = _judged(open_run(folder.path), reference, how, folder.path)
    if laid_out:
        judged.report.note("rehearsal-layout.judged", str(folder.path), layout=state.layout)
    _history(judged.report, folder, state)
    return judged


def _history(report: Report, folder: RunFolder, state: RunState) -> None:
    """Say what the curve alone does not: how the run ended, and where its inputs changed."""
    if state.status is not RunStatus.FINISHED:
        report.warn("run-state.judged", str(folder.path), status=state.status, steps=state.steps)
    for event in folder.events():
        if event.get("event") == "changed":
            names = [str(name) for name in event.get("inputs", [])]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            report.warn(
                "run-state.changed",
                str(folder.path),
                after=event.get("after"),
                names=", ".join(names[:3]) + more,
            )


def _judge_files(project: Project, model: str, run: Path, how: Judging) -> Judged:
    """Judge metrics without a run's record by the recipe's reference."""
    reference = load_reference(recipe_folder(project.recipes, model) / "reference")
    return _judged(open_run(run, how.series), reference, how, how.out)


def _judged(run: AnyRun, reference: Reference, how: Judging, out: Path | None) -> Judged:
    judgement = judge_any(run, reference, None, how.margin, how.accepted)
    report = judgement.report(COMMAND)
    report.data["run"] = str(run.path)
    if out is not None:
        write_any(out, run, judgement, reference)
        report.data["report"] = str(out / "report.html")
    return Judged(RunFolder(run.path), judgement, report)


def _finished(project: Project, model: str, run: Path | None) -> RunFolder:
    if run is not None:
        folder = RunFolder(run.absolute()) if run.exists() else find_run(project.runs, str(run))
        state = folder.read()
        if state.status is not RunStatus.FINISHED and not _whole(folder, state):
            raise OperatorError("run-state.not-finished", str(folder.path), status=state.status)
        return folder
    newest = newest_finished(project.runs, model)
    if newest is None:
        raise CannotTell("run-missing.none", str(project.runs / model), model=model)
    return newest


def _whole(folder: RunFolder, state: RunState) -> bool:
    """Whether every step has its metrics, whatever became of the command or the job."""
    return state.steps is not None and not steps_missing(folder, state)


def _comparable(folder: RunFolder, state: RunState, reference: Path) -> None:
    """Refuse a run without a reference: of another algorithm, or an architecture without one."""
    named = (("arch", state.arch), ("algo", state.algo))
    other = [f"{name}={value}" for name, value in named if value]
    if other in ([], [f"arch={DEFAULT_ARCH}"]):
        return
    if not state.algo and (reference / "reference.toml").is_file():
        return
    raise CannotTell("reference-missing.other-settings", str(folder.path), settings=" ".join(other))


def _recorded(folder: RunFolder, reference: Path, place: Target, arch: str) -> Path:
    if place.default or (reference / "reference.toml").is_file():
        return reference
    raise CannotTell(
        "reference-missing.other-place",
        str(folder.path),
        place=place.name,
        options=place.recording(arch),
    )
