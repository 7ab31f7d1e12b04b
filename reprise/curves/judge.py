"""The verdict: every check of one run against a reference, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprise.core.errors import OperatorError
from reprise.core.findings import Finding, State
from reprise.curves.checks.alias import ValidationSet, find_metric
from reprise.curves.checks.assertions import try_assertion
from reprise.curves.checks.ceiling import ceiling
from reprise.curves.checks.comparable import Difference, Origin, comparable, same_run
from reprise.curves.checks.guards import guards
from reprise.curves.checks.mismatch import against_seeds, valid_probs_diff
from reprise.curves.checks.resolution import resolution
from reprise.curves.checks.reward import reward_windows
from reprise.curves.checks.soundness import complete, finite
from reprise.curves.checks.validation import validation
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, Judgement, Outcome, found, note, number, outcome_of
from reprise.curves.spread import ALPHA
from reprise.metrics import MetricTable

__all__ = ["CheckResult", "JudgeOptions", "Judgement", "Outcome", "ValidationSet", "judge_run"]


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What a comparison may be given besides run and reference.

    `validation_set` describes the run's validation set and is needed only to pair mean@1 with
    mean@n. `seed` is the run's own. `margin` is the drop of the reward (and of the validation,
    in its own unit) that a PASS has to exclude. `origin` is the run's, to compare with the
    reference's. `accepted` names differences and guards that do not prevent a PASS.
    """

    validation_set: ValidationSet | None = None
    seed: int | None = None
    margin: float | None = None
    origin: Origin | None = None
    accepted: Sequence[str] = ()


def judge_run(
    table: MetricTable,
    reference: Reference,
    expected_steps: int,
    validation_set: ValidationSet | None = None,
    seed: int | None = None,
    options: JudgeOptions | None = None,
) -> Judgement:
    """Compare a run with a reference.

    `expected_steps` is what the run was to train; steps 1..min(expected, reference) are compared.
    `validation_set` and `seed` are those of `options`, for callers that have no more.
    PASS: every check passed. FAIL: at least one found evidence against the run.
    INCONCLUSIVE: no evidence, and something could not be answered. A run that is one of the
    reference runs is judged by the others. Raises OperatorError when `expected_steps` is not
    positive.
    """
    if expected_steps < 1:
        raise OperatorError("steps.not-positive", table.run, steps=expected_steps)
    options = options or JudgeOptions(validation_set, seed)
    notes: list[Finding] = list(table.findings)
    checks: list[CheckResult] = []
    reference = _with_margin(reference, options.margin)
    if (index := same_run(table, reference)) is not None:
        name = reference.runs[index].run
        if len(reference.runs) == 1:
            checks.append(found("same-run.only-one", table.run, {}, name=name))
        else:
            reference = reference.without(index)
            known = {"name": name, "others": len(reference.runs)}
            notes.append(note("same-run.left-out", table.run, **known))
    elif options.seed is not None and options.seed in reference.seeds:
        notes.append(note("seed.repeated", reference.name, seed=options.seed))
    steps = min(expected_steps, reference.steps)
    alike, differences = comparable(options.origin, reference, expected_steps, options.accepted)
    metrics = reference.metrics
    checks += [
        alike,
        complete(table, metrics.reward.metric, expected_steps),
        finite(table, metrics.judged),
        reward_windows(table, reference, steps),
        resolution(table, reference, steps),
    ]
    for run in reference.runs:
        notes += [finding for finding in run.findings if finding.rule != "metrics-history"]
    checks += _validation(table, reference, steps, options.validation_set, notes)
    checks += _mismatch(table, reference, steps, expected_steps)
    checks += [try_assertion(table, text) for text in metrics.assertions]
    decided, undecided = _sort(list(guards(table, reference, steps)), options.accepted)
    checks += decided
    notes += _notes(differences, reference, undecided)
    return Judgement(
        outcome_of(checks),
        table.run,
        reference.name,
        len(reference.runs),
        expected_steps,
        _present(table, metrics.reward.metric, steps),
        tuple(checks),
        tuple(notes),
        _smallest(checks, metrics.reward.metric),
        tuple(undecided),
        tuple(differences),
        _false_alarms(checks),
    )


def _present(table: MetricTable, metric: str, steps: int) -> int:
    """How many of the steps 1..`steps` the run has a value of `metric` for."""
    found = table.series(metric).steps
    return int(((found >= 1) & (found <= steps)).sum())


def _with_margin(reference: Reference, margin: float | None) -> Reference:
    """The reference with the margin that the user states, for reward and validation."""
    if margin is None:
        return reference
    metrics = reference.metrics
    stated = {"reward": metrics.reward.model_copy(update={"margin": margin})}
    changed = metrics.model_copy(update=stated)
    if metrics.validation is not None:
        validated = metrics.validation.model_copy(update={"margin": margin})
        changed = changed.model_copy(update={"validation": validated})
    return replace(reference, metrics=changed)


def _validation(
    table: MetricTable,
    reference: Reference,
    steps: int,
    used: ValidationSet | None,
    notes: list[Finding],
) -> list[CheckResult]:
    spec = reference.metrics.validation
    if spec is None:
        return []
    alias = find_metric(table, spec, used)
    if alias.metric is None:
        return [found("validation.unpaired", spec.metric, {}, reason=alias.reason)]
    if alias.metric != spec.metric:
        notes.append(note("validation.paired", alias.metric, reason=alias.reason))
    return [validation(table, reference, spec, alias.metric, steps)]


def _mismatch(
    table: MetricTable, reference: Reference, steps: int, expected: int
) -> list[CheckResult]:
    checks = []
    if spec := reference.metrics.probs_diff:
        if spec.ceiling is not None:
            checks.append(ceiling(table, spec, spec.ceiling, expected))
        run = valid_probs_diff(table, spec)
        seeds = [valid_probs_diff(one, spec) for one in reference.runs]
        checks.append(against_seeds("probs-diff", run, seeds, steps, spec.factor))
    if kl := reference.metrics.kl:
        run = table.series(kl.metric).finite()
        seeds = [one.series(kl.metric).finite() for one in reference.runs]
        checks.append(against_seeds("kl", run, seeds, steps, kl.factor))
    return checks


def _sort(
    checks: list[CheckResult], accepted: Sequence[str]
) -> tuple[list[CheckResult], list[CheckResult]]:
    """The guards that count, and those that the reference cannot decide or the user accepted.

    A guard that found evidence counts even when its name was accepted.
    """

    def undecided(check: CheckResult) -> bool:
        listed = check.numbers.get("resolved") is False or check.rule in accepted
        return check.state is State.UNKNOWN and listed

    return [c for c in checks if not undecided(c)], [c for c in checks if undecided(c)]


def _notes(
    differences: Sequence[Difference], reference: Reference, undecided: Sequence[CheckResult]
) -> list[Finding]:
    notes = []
    for weight in ("may matter", "no effect"):
        named = [str(d) for d in differences if d.weight == weight]
        if named and weight == "may matter":
            shown = "; ".join(named[:8]) + (f"; and {len(named) - 8} more" * (len(named) > 8))
            notes.append(note("comparable.may-matter", reference.name, differences=shown))
    metrics = reference.metrics
    optional = (
        ("validation", metrics.validation),
        ("probs_diff", metrics.probs_diff),
        ("kl", metrics.kl),
    )
    if left_out := [name for name, spec in optional if spec is None]:
        notes.append(note("judged.left-out", reference.name, metrics=", ".join(left_out)))
    if undecided:
        shown = "; ".join(f"{check.rule} ({check.message})" for check in undecided)
        notes.append(note("judged.not-decided", reference.name, checks=shown))
    return notes


def _smallest(checks: list[CheckResult], metric: str) -> str:
    """The minimum detectable drop, in one sentence."""
    for check in checks:
        if check.rule == "resolution" and "smallest" in check.numbers:
            size = number(float(check.numbers["smallest"]))
            whole = number(float(check.numbers["smallest_whole"]))
            margin = number(float(check.numbers["margin"]))
            return (
                f"minimum detectable drop of {metric} (90 % power): {size} in the last window, "
                f"{whole} over the whole run; margin {margin}"
            )
    return f"minimum detectable drop of {metric}: unknown"


def _false_alarms(checks: Sequence[CheckResult]) -> float:
    """By construction, at most this share of correct runs fails one of these checks."""
    judged = {check.rule for check in checks}
    rates = [rate for rule, rate in ALPHA.items() if rule in judged]
    if any(check.rule.startswith("guard-") for check in checks):
        rates.append(ALPHA["guards"])
    return float(sum(rates))
