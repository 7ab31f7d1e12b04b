"""The verdict: every check of one run against a reference, and what they add up to."""

from __future__ import annotations

from reprise.core.errors import OperatorError
from reprise.core.findings import Finding, State
from reprise.curves.alias import ValidationSet, find_metric
from reprise.curves.ceiling import ceiling
from reprise.curves.mismatch import against_seeds, valid_probs_diff
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, Judgement, Outcome, note, number, outcome_of
from reprise.curves.reward import resolution, reward_windows
from reprise.curves.soundness import complete, finite
from reprise.curves.validation import validation
from reprise.metrics import MetricTable

__all__ = ["CheckResult", "Judgement", "Outcome", "ValidationSet", "judge_run"]


def judge_run(
    table: MetricTable,
    reference: Reference,
    expected_steps: int,
    validation_set: ValidationSet | None = None,
    seed: int | None = None,
) -> Judgement:
    """Compare a run with a reference.

    `expected_steps` is what the run was to train; steps 1..min(expected, reference) are compared.
    `validation_set` tells what the run validated on and is needed only to pair mean@1 with
    mean@n; `seed` is the run's own, so that a repetition of a reference run is not taken for a
    new sample. PASS: every check passed. FAIL: at least one found evidence against the run.
    INCONCLUSIVE: no evidence, and something could not be answered. Raises OperatorError when
    `expected_steps` is not positive.
    """
    if expected_steps < 1:
        raise OperatorError(
            "steps.expected-positive-number", table.run, expected_steps=expected_steps
        )
    steps = min(expected_steps, reference.steps)
    metrics = reference.metrics
    specs = (metrics.reward, metrics.validation, metrics.probs_diff, metrics.kl)
    judged = [spec.metric for spec in specs if spec is not None]
    checks = [
        complete(table, metrics.reward.metric, expected_steps),
        finite(table, tuple(judged)),
        reward_windows(table, reference, steps),
        resolution(table, reference, steps),
    ]
    notes: list[Finding] = list(table.findings)
    for run in reference.runs:
        notes += [finding for finding in run.findings if finding.rule != "metrics-history"]
    if metrics.validation is not None:
        alias = find_metric(table, metrics.validation, validation_set)
        if alias.metric is None:
            fix = (
                "validate on the recipe's set; give its rows and prompts to pair mean@1 and mean@n"
            )
            where = metrics.validation.metric
            checks.append(CheckResult("validation", State.UNKNOWN, where, alias.reason, fix, {}))
        else:
            if alias.metric != metrics.validation.metric:
                notes.append(note("validation", alias.metric, alias.reason))
            checks.append(validation(table, reference, metrics.validation, alias.metric, steps))
    checks += _mismatch(table, reference, steps, expected_steps)
    if seed is not None and seed in reference.seeds:
        text = f"seed {seed} is among the reference runs: this run repeats one of them"
        text += ", so its agreement says less than that of a new seed"
        notes.append(note("seed", reference.name, text))
    left_out = [
        name
        for name, spec in (
            ("validation", metrics.validation),
            ("probs_diff", metrics.probs_diff),
            ("kl", metrics.kl),
        )
        if spec is None
    ]
    if left_out:
        notes.append(
            note("judged", reference.name, f"not declared, so not judged: {', '.join(left_out)}")
        )
    return Judgement(
        outcome_of(checks),
        table.run,
        reference.name,
        len(reference.runs),
        expected_steps,
        steps,
        tuple(checks),
        tuple(notes),
        _smallest(checks, metrics.reward.metric),
    )


def _mismatch(
    table: MetricTable, reference: Reference, steps: int, expected: int
) -> list[CheckResult]:
    checks = []
    if spec := reference.metrics.probs_diff:
        if spec.ceiling is not None:
            checks.append(ceiling(table, spec, spec.ceiling, expected))
        run = valid_probs_diff(table, spec)
        seeds = [valid_probs_diff(one, spec) for one in reference.runs]
        checks.append(against_seeds("probs-diff", run, seeds, steps))
    if kl := reference.metrics.kl:
        run = table.series(kl.metric).finite()
        seeds = [one.series(kl.metric).finite() for one in reference.runs]
        checks.append(against_seeds("kl", run, seeds, steps))
    return checks


def _smallest(checks: list[CheckResult], metric: str) -> str:
    """What the comparison could have seen, in one sentence."""
    for check in checks:
        if check.rule == "resolution" and "smallest" in check.numbers:
            size = number(float(check.numbers["smallest"]))
            return f"smallest loss of {metric} that it sees nine times in ten: {size}"
    return "smallest regression that it could have seen: unknown (one reference run)"
