"""Compare two groups of runs of any origin: what is known of each, and what the change was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.nested import flatten
from reprise.core.project import Project
from reprise.curves.checks.alias import ValidationSet
from reprise.curves.checks.comparable import Difference, Origin, config_differences, same_run
from reprise.curves.groups import Comparison, GroupOptions, compare_groups
from reprise.curves.groups.columns import Member
from reprise.curves.groups.welch import ENOUGH
from reprise.curves.reference import (
    JUDGE,
    MANIFEST,
    Metrics,
    Reference,
    load_reference,
    read_judge,
    usual_metrics,
)
from reprise.curves.result import CheckResult, found
from reprise.flows.judge.judging import AnyRun, open_run, origin_of
from reprise.recipe.folders import recipe_folder
from reprise.runs.state.state import RunStatus

__all__ = ["GroupsOptions", "compare_sides"]

COMMAND = "compare"
# What the reward is computed by; settings of its processes are not part of it.
_REWARD = re.compile(r"^(reward|custom_reward_function)")
_PROCESSES = re.compile(r"(num_workers|num_gpus|n_gpus|nnodes|timeout|memory|resource_pool|port)")
_SHOWN = 8
# Of a run that is longer by this much, the end would be left out in silence.
_SHORT = 0.5


@dataclass(frozen=True, slots=True)
class GroupsOptions:
    """`judge`: a judge.toml instead of the recipe's. `steps`: compare no later ones.

    `margin`: the smallest difference that counts. `accepted`: settings in which runs of one group
    may differ, and metrics to compare without.
    """

    judge: Path | None = None
    steps: int | None = None
    margin: float | None = None
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """A run with what is known of its inputs."""

    run: AnyRun
    origin: Origin
    seed: int | None
    name: str

    def member(self) -> Member:
        state = self.run.state
        if state is None or state.validation is None:
            return Member(self.run.table)
        known = state.validation
        return Member(self.run.table, ValidationSet(known.rows, known.prompts, known.samples))


def compare_sides(
    project: Project, a: Sequence[Path], b: Sequence[Path], options: GroupsOptions
) -> tuple[Comparison | None, Report]:
    """Whether the runs of `b` are better than those of `a`: the comparison and its report.

    A folder with reference.toml stands for all its runs. No comparison is made where a run is
    counted twice. Raises OperatorError for what cannot be read.
    """
    sides = {"A": list(_opened(a)), "B": list(_opened(b))}
    metrics = _metrics(project, a[0], sides["A"][0], options.judge)
    report = Report(COMMAND)
    _copies(sides, metrics, report)
    if any(report.errors()):
        return None, report
    mixed = [check for side in sides.items() for check in _mixed(*side, options.accepted)]
    _notes(sides, report)
    steps, short = _steps(sides, options.steps, report)
    unlike = tuple(_unlike(sides, metrics, options.accepted))
    for metric, reason in unlike:
        report.note("compare-runs.unlike", metric, metric=metric, reason=reason)
    first, second = ([run.member() for run in runs] for runs in sides.values())
    made = compare_groups(first, second, metrics, steps, GroupOptions(options.margin, unlike))
    made = made.after([*mixed, *short])
    found_ = made.report(COMMAND)
    report.absorb(found_)
    report.settle("compare-runs")
    named = {
        s.lower(): [{"run": r.name, "seed": r.seed} for r in runs] for s, runs in sides.items()
    }
    report.data["comparison"] = found_.data["comparison"] | {"groups": named}
    return made, report


def _opened(paths: Sequence[Path]) -> Iterator[_Run]:
    """The runs of one side; a reference stands for all of its runs."""
    for path in paths:
        if (path / MANIFEST).is_file() or path.name == MANIFEST:
            reference = load_reference(path)
            facts = {key: reference.provenance.get(key) for key in ("model_sha256", "data_sha256")}
            origin = Origin({k: v for k, v in facts.items() if v}, reference.config)
            for table, seed in zip(reference.runs, reference.seeds, strict=True):
                run = AnyRun(path, table, None, dict(reference.config))
                yield _Run(run, origin, seed, f"{path.name}/{Path(table.run).name}")
            continue
        run = open_run(path)
        yield _Run(run, origin_of(run), run.state.seed if run.state else None, path.name)


def _metrics(project: Project, path: Path, first: _Run, judge: Path | None) -> Metrics:
    """What is compared: the stated judge.toml, else what the reference, recipe or run of A has."""
    state = first.run.state
    if judge is None and ((path / MANIFEST).is_file() or path.name == MANIFEST):
        return load_reference(path).metrics
    if judge is None and state is not None:
        of_recipe = recipe_folder(project.recipes, state.model) / JUDGE
        judge = of_recipe if of_recipe.is_file() else None
    if judge is None:
        return usual_metrics(first.run.table)
    problems = Report(COMMAND)
    stated = read_judge(judge, problems) if judge.is_file() else None
    if stated is None:
        wrong = next(iter(problems.errors()), None)
        message = wrong.message if wrong else "no such file"
        raise OperatorError("reference-judge.unreadable", str(judge), problem=message)
    return stated


def _copies(sides: Mapping[str, Sequence[_Run]], metrics: Metrics, report: Report) -> None:
    """A run that is counted twice makes the spread smaller than it is."""
    seen: list[tuple[str, str, Reference]] = []
    for side, runs in sides.items():
        for run in runs:
            table, label = run.run.table, f"{run.name} ({side})"
            for other, name, one in seen:
                if same_run(table, one) is not None:
                    known = {"first": name, "second": label}
                    if other == side:
                        report.failed("compare-runs.copies", label, **known)
                    else:
                        report.failed("compare-runs.both-sides", label, **known)
                    break
            single = Reference(run.name, "", "recorded", 1, metrics, (table,), (None,), {})
            seen.append((side, label, single))


def _mixed(side: str, runs: Sequence[_Run], accepted: Sequence[str]) -> Iterator[CheckResult]:
    """Whether the runs of one side differ in what matters."""
    first = runs[0]
    differing: dict[str, Difference] = {}
    for run in runs[1:]:
        for one in _differences(run, first):
            if one.weight == "matters" and one.name not in accepted:
                differing.setdefault(one.name, one)
    if differing:
        shown = _listed(list(differing.values()), "others")
        flags = " ".join(f"--accept {name}" for name in differing)
        known = {"side": side, "differences": shown, "flags": flags}
        yield found("compare-runs.mixed", side, {}, **known)


def _differences(run: _Run, other: _Run) -> list[Difference]:
    """What differs between the recorded inputs of two runs, but for paths and lengths."""
    differing: list[Difference] = []
    for name in ("model_sha256", "data_sha256"):
        ours, theirs = run.origin.facts.get(name), other.origin.facts.get(name)
        if ours is not None and theirs is not None and ours != theirs:
            differing.append(Difference(name, "matters", str(ours), str(theirs)))
    if run.origin.config and other.origin.config:
        differing += config_differences(run.origin.config, other.origin.config)
    return [one for one in differing if one.name != "trainer.total_training_steps"]


def _listed(differing: Sequence[Difference], other: str) -> str:
    shown = "; ".join(f"{d.name}: {d.run} ({other}: {d.reference})" for d in differing[:_SHOWN])
    more = len(differing) - _SHOWN
    return shown + (f"; and {more} more" if more > 0 else "")


def _notes(sides: Mapping[str, Sequence[_Run]], report: Report) -> None:
    """What the change was, as far as it is recorded, and what the intervals assume."""
    for runs in sides.values():
        for run in runs:
            report.findings.extend(run.run.table.findings)
    a, b = sides["A"], sides["B"]
    bare = [side for side, runs in sides.items() if not all(run.origin.config for run in runs)]
    if bare:
        report.note("compare-runs.not-recorded", "A and B", sides=" and ".join(bare))
    changed = [d for d in _differences(b[0], a[0]) if d.weight != "no effect"]
    if changed:
        report.note("compare-runs.change", "A and B", differences=_listed(changed, "A"))
    ours, theirs = _answers(a[0].origin.config), _answers(b[0].origin.config)
    if ours is not None and theirs is not None and ours != theirs:
        report.note("compare-runs.step-size", "A and B", a=ours, b=theirs)
    if max(len(a), len(b)) > 1 and min(len(a), len(b)) < ENOUGH:
        report.note("compare-runs.one-spread", "A and B", a=len(a), b=len(b))
    shared = {run.seed for run in a} & {run.seed for run in b} - {None}
    if shared:
        seeds = ", ".join(map(str, sorted(seed for seed in shared if seed is not None)))
        report.note("compare-runs.same-seeds", "A and B", seeds=seeds)
    for side, runs in sides.items():
        states = [run.run.state for run in runs if run.run.state is not None]
        open_ = sum(state.status is not RunStatus.FINISHED for state in states)
        if open_:
            report.note("compare-runs.unfinished", side, runs=f"{open_} of {len(runs)} runs are")


def _answers(config: Mapping[str, Any]) -> int | None:
    """Answers a training step; None where the configuration does not have both numbers."""
    flat = flatten(config)
    prompts, each = flat.get("data.train_batch_size"), flat.get("actor_rollout_ref.rollout.n")
    return prompts * each if isinstance(prompts, int) and isinstance(each, int) else None


def _steps(
    sides: Mapping[str, Sequence[_Run]], asked: int | None, report: Report
) -> tuple[int, list[CheckResult]]:
    """The last step that all runs have, or the one that was asked for; and what is open then."""
    lasts = []
    for runs in sides.values():
        for run in runs:
            steps = run.run.table.training_steps()
            if not len(steps):
                raise OperatorError("reference-runs.no-steps", str(run.run.path))
            lasts.append(int(steps[-1]))
    if asked is not None:
        return asked, []
    least, most = min(lasts), max(lasts)
    if least < _SHORT * most:
        return least, [found("compare-runs.short", "A and B", {}, steps=least, most=most)]
    if least < most:
        report.note("compare-runs.steps", "A and B", lengths=f"{least} to {most}", steps=least)
    return least, []


def _unlike(
    sides: Mapping[str, Sequence[_Run]], metrics: Metrics, accepted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Metrics that A and B do not measure alike, and those that the user leaves out."""
    a, b = sides["A"][0], sides["B"][0]
    reward = metrics.reward.metric
    validation = metrics.validation.metric if metrics.validation is not None else None
    names = [name for name in (reward, validation) if name is not None]
    yield from ((name, "left out by --accept") for name in names if name in accepted)
    left = [name for name in names if name not in accepted]
    rewards = [
        d.name
        for d in _differences(b, a)
        if _REWARD.match(d.name)
        and not _PROCESSES.search(d.name)
        and not _same_file(d)
        and d.name not in accepted
    ]
    if rewards:
        reason = f"A and B have different rewards ({', '.join(rewards[:3])})"
        yield from ((name, reason) for name in left)
        return
    for name, key, kind in ((reward, "train", "training"), (validation, "val", "validation")):
        if name in left and name is not None and _other_data(a, b, key, accepted):
            yield name, f"A and B have different {kind} data"


def _same_file(difference: Difference) -> bool:
    """Whether two paths name a file of one name: folders differ between machines."""
    names = [PurePath(value).name for value in (difference.run, difference.reference)]
    return difference.name.endswith("path") and names[0] == names[1]


def _other_data(a: _Run, b: _Run, key: str, accepted: Sequence[str]) -> bool:
    """Whether two runs had other data; False where one does not record it."""
    if f"data.{key}_files" in accepted:
        return False
    ours, theirs = (run.origin.facts.get("data_sha256") for run in (a, b))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and key in ours and key in theirs:
        return bool(ours[key] != theirs[key])
    files = [_files(run.origin.config, key) for run in (a, b)]
    return all(files) and files[0] != files[1]


def _files(config: Mapping[str, Any], key: str) -> list[str]:
    named = config.get("data", {}).get(f"{key}_files") or []
    return [PurePath(str(file)).name for file in ([named] if isinstance(named, str) else named)]
