"""Two trees of verl in the CPU rehearsal: the locked one, then the new one, and a verdict."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report, Severity, State
from reprise.core.project import Project
from reprise.curves.checks.alias import ValidationSet
from reprise.curves.judge import Judgement, JudgeOptions, judge_run
from reprise.curves.reference import MANIFEST, Reference, load_reference
from reprise.curves.result import Outcome
from reprise.flows.judge.judging import open_run
from reprise.flows.preconditions import check_preconditions
from reprise.flows.rehearsal import MODEL, Rehearsal, RehearsalOptions
from reprise.metrics import MetricTable
from reprise.recipe.config.verltree import VerlTree
from reprise.runs.state.folder import APART

__all__ = ["compare_runs", "first_difference", "rehearse_trees"]

COMMAND = "lock upgrade"
RULE = "lock-rehearsal"
# What a step computes; how long it takes and how much memory it holds is another matter.
_OTHER = re.compile(r"^(timing|perf/|actor/perf/|critic/perf/)")
_CHECK_SECONDS = 300
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Differing:
    """The first step at which two runs differ, and the metrics that do, with both values."""

    step: int
    metrics: tuple[tuple[str, float, float], ...]

    def __str__(self) -> str:
        shown = [f"{name} {then:.6g} -> {now:.6g}" for name, then, now in self.metrics[:_SHOWN]]
        more = len(self.metrics) - _SHOWN
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def rehearse_trees(
    project: Project,
    old: VerlTree,
    new: VerlTree,
    options: RehearsalOptions,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """Run the rehearsal of `options` with both trees, and put the verdict into `report`.

    Passed: all metrics of the two runs are equal, or the recorded reference passes the new one.
    Failed: the new tree's run ends early, lacks a judged metric, or fails the reference that the
    locked tree's run does not fail. All else is unknown. `data["rehearsal"]`: `steps`, the run
    folders `old` and `new`, `first_difference`, and `outcome`, None where no run could be judged.
    """
    data: dict[str, object] = {"steps": options.steps, "outcome": None, "first_difference": None}
    report.data["rehearsal"] = data
    if not _possible(project, (old, new), options, report):
        return
    runs: list[Path] = []
    for name, tree in (("old", old), ("new", new)):
        say(f"rehearsal with {tree.label()}")
        run = _run(project, replace(options, verl=tree, label=APART[0]), name, report)
        if run is None:
            return
        data[name] = str(run)
        runs.append(run)
    recorded = options.place.reference(project, MODEL, options.arch)
    reference = load_reference(recorded) if (recorded / MANIFEST).is_file() else None
    compare_runs(runs[0], runs[1], reference, report)


def _possible(
    project: Project, trees: tuple[VerlTree, ...], options: RehearsalOptions, report: Report
) -> bool:
    """Whether both trees can be rehearsed on this machine; what prevents it is unknown, not wrong.

    A bridge that does not know a function of verl ends the process when verl is imported.
    """
    before = check_preconditions(project, options, COMMAND, judged=False)
    states = {check.rule: check.state for check in before.checks}
    for item in before.findings:
        if states.get(item.rule, State.PASSED) is State.PASSED:
            report.findings.append(item)
        else:
            report.unknown(item.rule, item.where, item.message, item.fix)
    if any(state is not State.PASSED for state in states.values()):
        return False
    python = options.place.python(project)
    answers = [(tree, _unfit(python, tree)) for tree in trees]
    for tree, problem in answers:
        if problem:
            shown = shlex.join([str(python), "-m", "reprise_plugins", "--all"])
            report.unknown(
                "lock-rehearsal.bridges",
                tree.origin,
                tree=tree.label(),
                problem=problem,
                command=shown,
            )
    return not any(problem for _, problem in answers)


def _unfit(python: Path, tree: VerlTree) -> str:
    """Why the plug-ins of a CPU do not fit `tree`, or '' when they do."""
    command = [str(python), "-m", "reprise_plugins", "--tree", str(tree.package.parent)]
    known = {key: value for key, value in os.environ.items() if not key.startswith("REPRISE_")}
    try:
        answer = subprocess.run(
            command,
            env=known | {"VERL_PLATFORM": "cpu"},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"the check of the plug-ins did not end within {_CHECK_SECONDS} s"
    if answer.returncode == 0:
        return ""
    lines = [line for line in answer.stdout.splitlines() if re.match(r"P\d*: ", line)]
    last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
    return "; ".join(lines[:2]) or last


def _run(project: Project, options: RehearsalOptions, which: str, report: Report) -> Path | None:
    """The finished run with one tree; None, with a finding, when there is none."""
    try:
        ended = Rehearsal(project, options).run()
    except CannotTell as error:
        report.unknown(error.rule, error.where, error.message, error.fix)
        return None
    except OperatorError as error:
        _not_run(which, options, error.where, error.message, report)
        return None
    if ended.report is None:
        return ended.folder.path
    report.data["rehearsal"][which] = str(ended.folder.path)
    errors = list(ended.report.errors())
    cause = errors[0].message if errors else "the run did not reach its last step"
    _not_run(which, options, str(ended.folder.path), cause, report)
    report.findings += [f for f in ended.report.findings if f.severity is Severity.NOTE]
    return None


def _not_run(which: str, options: RehearsalOptions, where: str, cause: str, report: Report) -> None:
    tree = options.verl.label() if options.verl is not None else ""
    if which == "old":
        report.unknown("lock-rehearsal.old-run", where, tree=tree, cause=cause)
    else:
        report.failed("lock-rehearsal.new-run", where, tree=tree, cause=cause)


def compare_runs(old: Path, new: Path, reference: Reference | None, report: Report) -> None:
    """The verdict on the run `new` beside the run `old` of the same seed and length."""
    data = report.data.setdefault("rehearsal", {})
    then, now = open_run(old), open_run(new)
    judged = reference.metrics.judged if reference is not None else ()
    lost = [name for name in judged if name in then.table and name not in now.table]
    for name in lost:
        report.failed("lock-rehearsal.metric-gone", str(new), metric=name)
    first = first_difference(then.table, now.table)
    if first is not None:
        data["first_difference"] = {
            "step": first.step,
            "metrics": {name: [before, after] for name, before, after in first.metrics},
        }
    if lost:
        data["outcome"] = Outcome.FAIL.value
        return
    steps = len(then.table.training_steps())
    if first is None:
        data["outcome"] = Outcome.PASS.value
        report.passed(RULE)
        count = len(_compared(then.table))
        report.note("lock-rehearsal.same", str(new), steps=steps, count=count)
        return
    report.note("lock-rehearsal.differs", str(new), step=first.step, metrics=first)
    if reference is None:
        report.unknown("lock-rehearsal.no-reference", str(new))
        return
    steps = min(steps, reference.steps)
    cut = replace(reference, steps=steps)
    before, after = _judge(old, cut), _judge(new, cut)
    data["outcome"] = after.outcome.value
    _conclude(before, after, (old, new), reference, report)


def _conclude(
    before: Judgement,
    after: Judgement,
    folders: tuple[Path, Path],
    whole: Reference,
    report: Report,
) -> None:
    old, new = folders
    runs = after.reference_runs
    if after.outcome is Outcome.PASS:
        report.passed(RULE)
        report.note("lock-rehearsal.passed", str(new), runs=runs, smallest=after.smallest)
    elif before.outcome is Outcome.FAIL:
        shown = _reasons(before, State.FAILED)
        report.unknown("lock-rehearsal.reference", str(new), runs=runs, reasons=shown)
    elif after.outcome is Outcome.FAIL:
        shown = _reasons(after, State.FAILED)
        report.failed("lock-rehearsal.failed", str(new), runs=runs, reasons=shown, old=old, new=new)
    else:
        known = {"steps": after.expected_steps, "reasons": _reasons(after, State.UNKNOWN)}
        report.unknown("lock-rehearsal.open", str(new), most=whole.steps, **known)


def _reasons(judgement: Judgement, state: State) -> str:
    shown = [f"{one.rule}: {one.message}" for one in judgement.checks if one.state is state]
    return "; ".join(shown[:3])


def _judge(path: Path, reference: Reference) -> Judgement:
    """The run's curve alone: its verl, and with it its configuration, differ on purpose."""
    run = open_run(path)
    state = run.state
    known = state.validation if state is not None else None
    used = ValidationSet(known.rows, known.prompts, known.samples) if known is not None else None
    options = JudgeOptions(used, state.seed if state is not None else None)
    return judge_run(run.table, reference, reference.steps, options=options)


def _compared(table: MetricTable) -> list[str]:
    return [name for name in table.names if not _OTHER.match(name)]


def first_difference(then: MetricTable, now: MetricTable) -> Differing | None:
    """The first step at which a metric of `then` is another number in `now`, or missing.

    A missing value counts as NaN, and NaN equals NaN; a metric that only `now` has is no
    difference. Times, rates and memory are not compared.
    """
    differing: list[tuple[int, str, float, float]] = []
    for name in _compared(then):
        one, other = then.series(name), now.series(name)
        values = dict(zip(other.steps.tolist(), other.values.tolist(), strict=True))
        for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True):
            found = values.get(step, float("nan"))
            if not np.array_equal(value, found, equal_nan=True):
                differing.append((step, name, value, found))
                break
    if not differing:
        return None
    step = min(item[0] for item in differing)
    at = [(name, value, found) for first, name, value, found in differing if first == step]
    return Differing(step, tuple(at))
