"""Several seeds of one recipe, one run after another; the same command goes on after an end.

A finished run with the same inputs is used, one that was interrupted is resumed. Never side by
side: a bad host is not evicted while other jobs run, and the checks are those of one job.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Verdict
from reprise.core.project import Project
from reprise.flows.train.job import TrainOptions
from reprise.flows.train.train import changed_inputs, resume_run, train
from reprise.recipe.folders import recipe_folder
from reprise.runs.state.folder import RunFolder, find_run, readable_runs
from reprise.runs.state.state import Launcher, RunState, RunStatus
from reprise.runs.watch.display import RunDisplay

__all__ = ["train_seeds"]

COMMAND = "train"


@dataclass(frozen=True, slots=True)
class _Seed:
    """A seed, and the run of it that counts: finished, or to be resumed; None: none yet."""

    number: int
    run: RunFolder | None
    finished: bool


def train_seeds(project: Project, options: TrainOptions, count: int) -> Report:
    """Train `count` seeds from `options.seed` (default 1) on, until all are finished.

    Ends at the first run that does not finish. With `dry_run` the first seed alone is checked.
    Raises OperatorError for what keeps a run from going on at all.
    """
    first = options.seed if options.seed is not None else 1
    if first < 1:
        # The rehearsal takes 0 for its default, 1.
        raise OperatorError("train-seeds.first", "--seed", found=first)
    if options.dry_run:
        return train(project, replace(options, seed=first))
    report = Report(COMMAND, data={"seeds": []})
    console = RunDisplay(options.quiet)
    for seed in range(first, first + count):
        chosen = replace(options, seed=seed)
        known = _known(project, chosen, report)
        if known.run is None or not known.finished:
            doing = "train" if known.run is None else f"resume {known.run.name}"
            console.line(f"seed {seed} ({seed - first + 1} of {count}): {doing}")
            ended = _run(project, chosen, known)
            run = find_run(project.runs, ended.data["id"]) if "id" in ended.data else None
            if run is None or run.read().status is not RunStatus.FINISHED:
                report.absorb(ended)
                return _stopped(report, ended, options, seed, count)
            report.findings.extend(ended.findings)
            known = _Seed(seed, run, finished=True)
        else:
            console.line(f"seed {seed} ({seed - first + 1} of {count}): finished, {known.run.name}")
        assert known.run is not None
        report.data["seeds"].append({"seed": seed, "run": str(known.run.path)})
    report.passed("train-seeds")
    runs = [str(item["run"]) for item in report.data["seeds"]]
    _next(project, options, runs, report)
    return report


def _run(project: Project, options: TrainOptions, known: _Seed) -> Report:
    if known.run is None:
        return train(project, options)
    return resume_run(project, known.run, options)


def _known(project: Project, options: TrainOptions, report: Report) -> _Seed:
    """The newest run of this seed with the inputs that a run would have now."""
    number = options.seed or 0
    for run, state in _candidates(project, options):
        differing = changed_inputs(project, run, options)
        if differing:
            known = {"run": run.name, "difference": differing[0]}
            report.note("train-seeds.other-inputs", f"seed {number}", **known)
            continue
        return _Seed(number, run, state.status is RunStatus.FINISHED)
    return _Seed(number, None, finished=False)


def _candidates(project: Project, options: TrainOptions) -> Iterator[tuple[RunFolder, RunState]]:
    """Runs of the same command but for the place, newest first; finished ones before others."""
    found = [
        (run, state)
        for run, state in readable_runs(project.runs, options.model)
        if state.command is Launcher.TRAIN
        and state.status is not RunStatus.DRY_RUN
        and state.storage
        and state.checkpoints
        and state.seed == options.seed
        and (state.algo, tuple(state.given)) == (options.algo, options.overrides)
    ]
    yield from sorted(found, key=lambda item: item[1].status is not RunStatus.FINISHED)


def _stopped(report: Report, ended: Report, options: TrainOptions, seed: int, count: int) -> Report:
    """The report of a series in which `seed` did not finish."""
    report.data |= {key: value for key, value in ended.data.items() if key != "seeds"}
    done = len(report.data["seeds"])
    known = {"seed": seed, "done": done, "count": count, "command": _typed(options, count)}
    if ended.verdict is Verdict.PROBLEM:
        report.failed("train-seeds.failed", options.model, **known)
    else:
        report.unknown("train-seeds.open", options.model, **known)
    return report


def _typed(options: TrainOptions, count: int) -> str:
    """The command that goes on, as it is typed."""
    words = ["reprise", "train", options.model]
    words += [str(options.hostfile)] if options.hostfile is not None else []
    words += ["--seeds", str(count)]
    for name in ("seed", "address", "machine", "storage", "algo"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value not in (None, "") else []
    for rule in options.force:
        words += ["--force", rule]
    words += ["--", *options.overrides] if options.overrides else []
    return shlex.join(words)


def _next(project: Project, options: TrainOptions, runs: list[str], report: Report) -> None:
    """What to do with the runs: a reference, unless the recipe has one."""
    name, named = options.model, shlex.join(runs)
    known = {"count": len(runs), "model": name, "runs": named}
    if (recipe_folder(project.recipes, name) / "reference").is_dir():
        report.note("train-seeds.finished-again", name, **known)
    else:
        report.note("train-seeds.finished", name, **known)
