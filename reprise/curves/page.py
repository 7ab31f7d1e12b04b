"""The page of a verdict, and of several runs: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprise.core.findings import State
from reprise.curves.checks.mismatch import valid_probs_diff
from reprise.curves.document import (
    FURTHER,
    document,
    escaped,
    findings_table,
    html_table,
    time_line_table,
)
from reprise.curves.panels import Curve, Panel, panel
from reprise.curves.past import Past, cause_section, flat, moment
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, Difference, Judgement, WindowResult, number
from reprise.metrics import MetricTable, Series

__all__ = ["runs_page", "verdict_page"]

_WORDS = {State.PASSED: "passed", State.FAILED: "failed", State.UNKNOWN: "unknown"}
# Facts of a run that have a section of their own, or are of no use to a reader.
_APART = {"attempts", "given", "forced"}
_NO_PAST = Past()


def verdict_page(
    judgement: Judgement,
    table: MetricTable,
    reference: Reference,
    provenance: Mapping[str, object],
    past: Past = _NO_PAST,
) -> str:
    """The report of one judged run: the verdict first, then its reasons, then what happened."""
    outcome = judgement.outcome.value
    runs = f"{judgement.reference_runs} {reference.kind} reference run"
    runs += "s" * (judgement.reference_runs != 1)
    steps = f"{judgement.compared_steps} of {judgement.expected_steps} expected steps compared"
    odds = f"A correct run fails with a probability of at most {judgement.false_alarms:.2%}."
    body = [
        f'<header><p class="verdict {outcome}">{outcome}</p><h1>{escaped(judgement.run)}</h1>',
        f"<p>Against <strong>{escaped(reference.name)}</strong>: {escaped(runs)}, {steps}.</p>",
        f"<p>{escaped(_sentence(judgement.smallest))}. {odds}</p>{_undecided(judgement)}</header>",
        cause_section(past),
        f"<section><h2>Checks</h2>{_checks(judgement.checks)}</section>",
        f"<section><h2>Curves</h2>{_LEGEND}"
        f'<div class="charts">{_charts(judgement, table, reference)}</div></section>',
        f"<section><h2>Windows</h2>{_windows(judgement.checks)}</section>",
        f"<section><h2>Differences</h2>{_differences(judgement.differences)}</section>",
        f"<section><h2>Findings</h2>{findings_table(judgement.all_notes())}</section>",
        f"<section><h2>Attempts</h2>{_attempts(provenance)}</section>",
        f"<section><h2>Time line</h2>{time_line_table(past)}</section>",
        f"<section><h2>This run</h2>{_facts('This run', provenance)}</section>",
        f"<section><h2>Reference</h2>{_facts('Reference', _origin(reference))}</section>",
    ]
    return document(f"{outcome}: {judgement.run}", "\n".join(body))


_LEGEND = (
    '<p class="legend"><span class="key run"></span> this run <span class="key reference"></span> '
    'reference runs <span class="key bound"></span> bound <span class="key parting"></span> '
    "curves part. Thick bars: this run over a window, in the colour of its state. "
    "Arrow keys read a focused chart, + and - zoom, 0 resets.</p>"
)


def _sentence(text: str) -> str:
    """`text` with a capital first letter; names of metrics in it stay as they are."""
    return text[:1].upper() + text[1:]


def _undecided(judgement: Judgement) -> str:
    open_ = [c for c in judgement.checks if c.state is State.UNKNOWN]
    items = [f"<li><strong>{escaped(c.rule)}</strong>: {escaped(c.message)}</li>" for c in open_]
    items += [
        f"<li><strong>{escaped(c.rule)}</strong>: {escaped(c.message)} "
        "(does not prevent a PASS)</li>"
        for c in judgement.undecided
    ]
    if not items:
        return "<p>Every check could be decided.</p>"
    head = f"<summary>Not decided: {len(items)}</summary>"
    return f"<details open>{head}<ul>{''.join(items)}</ul></details>"


def _checks(checks: Iterable[CheckResult]) -> str:
    rows = []
    for check in checks:
        fix = f'<p class="fix">{escaped(check.fix)}</p>' if check.fix else ""
        state = _WORDS[check.state]
        rows.append(
            [
                escaped(check.rule),
                f'<span class="{state}">{state}</span>',
                f"<code>{escaped(check.where)}</code>",
                escaped(check.message) + fix,
            ]
        )
    return html_table("Checks", ("check", "state", "where", "message"), rows)


def _windows(checks: Iterable[CheckResult]) -> str:
    rows = []
    for window in (window for check in checks for window in check.windows):
        values = (window.run, window.reference, window.deviation, window.bound, window.smallest)
        state = _WORDS[window.state]
        rows.append(
            [
                f"<code>{escaped(window.metric)}</code>",
                f"{window.first}-{window.last}",
                *(number(value) for value in values),
                f'<span class="{state}">{state}</span>',
            ]
        )
    if not rows:
        return "<p>No window could be compared.</p>"
    names = (
        "metric",
        "steps",
        "this run",
        "reference",
        "sd of runs",
        "bound",
        "detectable",
        "state",
    )
    return html_table("Windows", names, rows)


def _charts(judgement: Judgement, table: MetricTable, reference: Reference) -> str:
    metrics = reference.metrics
    judged: dict[str, tuple[WindowResult, ...]] = {}
    parting: dict[str, int] = {}
    for check in judgement.checks:
        for window in check.windows:
            judged.setdefault(window.metric, check.windows)
        if "parting_step" in check.numbers:
            parting[check.where.partition("@")[0]] = int(check.numbers["parting_step"])
    names = [metrics.reward.metric]
    pairs = {}
    if metrics.validation is not None:
        own = next((m for m in judged if m.startswith("val-")), metrics.validation.metric)
        pairs[own] = metrics.validation.metric
        names.append(own)
    names += [spec.metric for spec in (metrics.probs_diff, metrics.kl) if spec is not None]
    figures = []
    for name in dict.fromkeys([*names, *FURTHER]):
        curves = [Curve("this run", _curve(table, reference, name), "run")]
        seeds = zip(reference.runs, reference.seeds, strict=True)
        for index, (run, seed) in enumerate(seeds, start=1):
            label = f"reference {index}" if seed is None else f"seed {seed}"
            curves.append(Curve(label, _curve(run, reference, pairs.get(name, name)), "reference"))
        if name in names or len(curves[0].series) > 1:
            windows = judged.get(name, ())
            figures.append(panel(Panel(name, curves, windows, parting.get(name))))
    return "".join(figures) or "<p>No curve has a finite value.</p>"


def _curve(table: MetricTable, reference: Reference, metric: str) -> Series:
    spec = reference.metrics.probs_diff
    if spec is not None and metric == spec.metric:
        return valid_probs_diff(table, spec)
    return table.series(metric).finite()


def _differences(differences: Sequence[Difference]) -> str:
    if not differences:
        return "<p>No difference is known; what is not recorded of both sides was not compared.</p>"
    rows = [
        [f"<code>{escaped(d.name)}</code>", escaped(d.weight), escaped(d.run), escaped(d.reference)]
        for d in differences
    ]
    return html_table("Differences", ("name", "for the curve", "this run", "reference"), rows)


def _attempts(provenance: Mapping[str, object]) -> str:
    attempts = provenance.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        return "<p>Not recorded.</p>"
    rows = []
    for item in attempts:
        resumed = item.get("resumed_from")
        rows.append(
            [
                escaped(item.get("number", "unknown")),
                moment(item.get("started")),
                moment(item.get("ended")),
                escaped("the start" if resumed is None else f"step {resumed}"),
                escaped(item.get("reached", "unknown")),
                escaped(item.get("outcome", "unknown")),
                escaped(item.get("message", "")),
            ]
        )
    names = ("attempt", "started", "ended", "from", "last step", "outcome", "message")
    return html_table("Attempts", names, rows)


def _facts(caption: str, facts: Mapping[str, object]) -> str:
    rows = [
        [f"<code>{escaped(key)}</code>", escaped(value)]
        for key, value in flat(facts)
        if key.partition(".")[0] not in _APART
    ]
    return html_table(caption, ("name", "value"), rows) if rows else "<p>Nothing is recorded.</p>"


def _origin(reference: Reference) -> dict[str, object]:
    seeds = ["unknown" if seed is None else str(seed) for seed in reference.seeds]
    own = {"recipe": reference.recipe, "steps": reference.steps, "seeds": seeds}
    return own | dict(reference.provenance)


def runs_page(
    names: Sequence[str],
    tables: Sequence[MetricTable],
    differences: Sequence[tuple[str, Sequence[Difference]]] = (),
    pasts: Sequence[Past] = (),
) -> str:
    """Several runs on one page: last values, curves, how the inputs differ, and what happened.

    `differences`: the name of a run, and how it differs from the first one. `pasts`: one a run, or
    none.
    """
    shared = [m for m in tables[0].names if sum(m in table for table in tables) > 1]
    judged = [m for m in shared if m.startswith(("critic/rewards/mean", "val-core/"))]
    extra = (*FURTHER, "training/rollout_probs_diff_mean", "rollout_corr/k3_kl", "actor/loss")
    shown = list(dict.fromkeys([*judged, *(m for m in extra if m in shared)])) or shared[:8]
    figures = []
    for metric in shown:
        curves = [
            Curve(name, table.series(metric).finite(), f"run{index % 6}")
            for index, (name, table) in enumerate(zip(names, tables, strict=True))
        ]
        figures.append(panel(Panel(metric, curves)))
    keys = "".join(
        f'<span class="key run{index % 6}"></span> {escaped(name)} '
        for index, name in enumerate(names)
    )
    rows = []
    for name, table in zip(names, tables, strict=True):
        steps = table.training_steps()
        cells = []
        for metric in shown[:6]:
            values = table.series(metric).finite().values
            tail = values[-max(1, len(values) // 10) :]
            cells.append(number(float(tail.mean())) if len(tail) else "unknown")
        rows.append([escaped(name), str(len(steps)), *cells])
    head = ("run", "steps", *shown[:6])
    body = [
        f"<header><h1>{len(names)} runs</h1></header>",
        "<section><h2>Mean of the last tenth</h2>",
        f"{html_table('Last values', head, rows)}</section>",
        f'<section><h2>Curves</h2><p class="legend">{keys}</p>'
        f'<div class="charts">{"".join(figures)}</div></section>',
    ]
    for name, found in differences:
        title = f"How {name} differs from {names[0]}"
        body.append(f"<section><h2>{escaped(title)}</h2>{_differences(found)}</section>")
    for name, past in zip(names, pasts, strict=False):
        body.append(cause_section(past, f"Failure of {name}"))
        if past.events:
            title = f"Time line of {name}"
            body.append(f"<section><h2>{escaped(title)}</h2>{time_line_table(past)}</section>")
    return document(f"{len(names)} runs", "\n".join(body))
