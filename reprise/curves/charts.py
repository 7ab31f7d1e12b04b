"""The curves as a picture: the run over the reference runs, with the bounds that judged it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from reprise.core.findings import State
from reprise.curves.checks.mismatch import valid_probs_diff
from reprise.curves.reference import Reference
from reprise.curves.result import Judgement, Outcome, WindowResult, drawn_windows
from reprise.metrics import MetricTable, Series

__all__ = ["draw", "to_png"]

_RUN, _REFERENCE, _BOUND = "this run", "reference runs", "bound"
_COLOURS = {_RUN: "#1f5fb4", _REFERENCE: "#9a9a9a", _BOUND: "#c23b22"}
_STATES = {State.PASSED: "#2e7d32", State.FAILED: "#c62828", State.UNKNOWN: "#9e7700"}
_OUTCOMES = {Outcome.PASS: "#2e7d32", Outcome.FAIL: "#c62828", Outcome.INCONCLUSIVE: "#9e7700"}
_WIDE, _NARROW, _TALL, _LOW = 940, 435, 260, 170
_MOST_POINTS = 600
# Shown with the judged metrics when a run has them; they explain, and are not judged.
_FURTHER = (
    "actor/entropy",
    "response_length/mean",
    "response_length/clip_ratio",
    "actor/grad_norm",
)

Chart = alt.VConcatChart


def draw(judgement: Judgement, table: MetricTable, reference: Reference) -> Chart:
    """The whole figure: reward across the top, everything else in two columns below."""
    metrics = reference.metrics
    reward = metrics.reward.metric
    top = _panel(reward, table, reference, _windows(judgement, "reward"), (_WIDE, _TALL))
    small: list[alt.LayerChart] = []
    if metrics.validation is not None:
        windows = _windows(judgement, "validation")
        own = windows[0].metric if windows else metrics.validation.metric
        small.append(_panel(own, table, reference, windows, _SMALL, metrics.validation.metric))
    if metrics.probs_diff is not None:
        windows = _windows(judgement, "probs-diff")
        ceiling = metrics.probs_diff.ceiling
        small.append(
            _panel(metrics.probs_diff.metric, table, reference, windows, _SMALL, ceiling=ceiling)
        )
    if metrics.kl is not None:
        small.append(_panel(metrics.kl.metric, table, reference, _windows(judgement, "kl"), _SMALL))
    for name in _FURTHER:
        if len(table.series(name).finite()) > 1:
            small.append(_panel(name, table, reference, (), _SMALL))
    rows = [alt.hconcat(*small[i : i + 2], spacing=24) for i in range(0, len(small), 2)]
    title = alt.Title(
        f"{judgement.outcome.value}: {judgement.run}",
        subtitle=[
            f"against {judgement.reference} ({judgement.reference_runs} reference "
            f"run{'s' if judgement.reference_runs != 1 else ''}); {judgement.smallest}",
            "thick bars: this run over a window, green within its bound, red beyond it, "
            "amber inconclusive; grey area: lowest to highest reference run",
        ],
        color=_OUTCOMES[judgement.outcome],
        anchor="start",
        fontSize=18,
        subtitleFontSize=12,
        offset=14,
    )
    config = alt.Config(
        view=alt.ViewConfig(stroke="#dddddd"), axis=alt.AxisConfig(gridColor="#eeeeee")
    )
    return Chart(vconcat=[top, *rows], title=title, spacing=22, padding=16, config=config)


_SMALL = (_NARROW, _LOW)


def _windows(judgement: Judgement, rule: str) -> tuple[WindowResult, ...]:
    return next((check.windows for check in judgement.checks if check.rule == rule), ())


def _curve(table: MetricTable, reference: Reference, metric: str) -> Series:
    spec = reference.metrics.probs_diff
    if spec is not None and metric == spec.metric:
        return valid_probs_diff(table, spec)
    return table.series(metric).finite()


def _stride(points: int) -> int:
    """How many points one of the picture stands for: more than _MOST_POINTS are not to be seen."""
    return max(1, -(-points // _MOST_POINTS))


def _records(series: Series, name: str, kind: str) -> list[dict[str, Any]]:
    stride = _stride(len(series))
    pairs = zip(series.steps[::stride], series.values[::stride], strict=True)
    return [{"step": int(s), "value": float(v), "run": name, "kind": kind} for s, v in pairs]


def _panel(
    metric: str,
    table: MetricTable,
    reference: Reference,
    windows: tuple[WindowResult, ...],
    size: tuple[int, int],
    reference_metric: str | None = None,
    ceiling: float | None = None,
) -> alt.LayerChart:
    own = _curve(table, reference, metric)
    seeds = [_curve(run, reference, reference_metric or metric) for run in reference.runs]
    records = [r for i, s in enumerate(seeds) for r in _records(s, f"reference {i}", _REFERENCE)]
    records += _records(own, _RUN, _RUN)
    scale = _scale(metric, [record["value"] for record in records])
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".3~g"))
    base = alt.Chart(alt.InlineData(values=records)).encode(
        x=x, y=y, color=_colour(), detail="run:N"
    )
    many = len(own) > 60
    layers: list[alt.Chart] = [
        *_band(seeds, scale),
        base.transform_filter(alt.datum.kind == _REFERENCE).mark_line(
            strokeWidth=1, opacity=0.45 if many else 0.75
        ),
        base.transform_filter(alt.datum.kind == _RUN).mark_line(
            strokeWidth=1 if many else 2, opacity=0.4 if many else 1, point=len(own) < 25
        ),
    ]
    if many:
        layers += _smooth([*zip(seeds, [_REFERENCE] * len(seeds), strict=True), (own, _RUN)], y)
    layers += _window_layers(drawn_windows(windows, metric), scale)
    if ceiling is not None:
        layers += _ceiling(ceiling, records, scale)
    title = alt.Title(metric, fontSize=13, anchor="start", frame="group")
    return alt.LayerChart(layer=layers, width=size[0], height=size[1], title=title)


def _band(seeds: list[Series], scale: alt.Scale) -> list[alt.Chart]:
    """From the lowest to the highest of three or more reference runs, at the steps of all."""
    if len(seeds) < 3:
        return []
    common = seeds[0].steps
    for series in seeds[1:]:
        common = np.intersect1d(common, series.steps)
    if not len(common):
        return []
    values = np.array([series.values[np.isin(series.steps, common)] for series in seeds])
    # The extremes of what one point stands for, so that no spike is lost.
    first = np.arange(0, len(common), _stride(len(common)))
    low = np.minimum.reduceat(values.min(axis=0), first)
    high = np.maximum.reduceat(values.max(axis=0), first)
    edges = zip(common[first], low, high, strict=True)
    records = [{"step": int(s), "low": float(a), "high": float(b)} for s, a, b in edges]
    area = alt.Chart(alt.InlineData(values=records)).mark_area(color="#bdbdbd", opacity=0.35)
    return [area.encode(x="step:Q", y=alt.Y("low:Q", scale=scale), y2="high:Q")]


def _colour() -> alt.Color:
    scale = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", symbolOpacity=1, offset=4)
    return alt.Color("kind:N", scale=scale, legend=legend)


def _scale(metric: str, values: list[float]) -> alt.Scale:
    """Logarithmic where positive values span more than a factor of 20, else linear."""
    wide = bool(values) and min(values) > 0 and max(values) > 20 * min(values)
    if wide and not metric.endswith("clip_ratio"):
        return alt.Scale(type="log", nice=False, padding=4)
    return alt.Scale(zero=False, padding=6)


def _smooth(curves: Iterable[tuple[Series, str]], y: alt.Y) -> list[alt.Chart]:
    """A running mean over about a fifteenth of a long run, drawn over the noisy line."""
    records = []
    for number, (series, kind) in enumerate(curves):
        width = max(3, len(series) // 15)
        if len(series) <= width:
            continue
        mean = np.convolve(series.values, np.ones(width) / width, mode="valid")
        steps = series.steps[width // 2 : width // 2 + len(mean)]
        smooth = Series(series.metric, steps, mean, mean)
        records += _records(smooth, f"mean {number}", kind)
    chart = alt.Chart(alt.InlineData(values=records)).mark_line(strokeWidth=2.2)
    return [chart.encode(x="step:Q", y=y, color=_colour(), detail="run:N")]


def _window_layers(windows: Sequence[WindowResult], scale: alt.Scale) -> list[alt.Chart]:
    """A window's bound as a dashed line, its mean as a bar in the colour of its state."""
    bound = [
        {"first": w.first, "last": w.last, "value": w.bound, "kind": _BOUND}
        for w in windows
        if np.isfinite(w.bound)
    ]
    mean = [
        {"first": w.first, "last": w.last, "value": w.run, "colour": _STATES[w.state]}
        for w in windows
        if np.isfinite(w.run)
    ]
    x, x2, y = alt.X("first:Q"), alt.X2("last:Q"), alt.Y("value:Q", scale=scale)
    layers = []
    if bound:
        rule = alt.Chart(alt.InlineData(values=bound)).mark_rule(strokeDash=[6, 3], strokeWidth=1.8)
        layers.append(rule.encode(x=x, x2=x2, y=y, color=_colour()))
    if mean:
        rule = alt.Chart(alt.InlineData(values=mean)).mark_rule(strokeWidth=5, opacity=0.55)
        layers.append(rule.encode(x=x, x2=x2, y=y, color=alt.Color("colour:N", scale=None)))
    return layers


def _ceiling(ceiling: float, records: list[dict[str, Any]], scale: alt.Scale) -> list[alt.Chart]:
    """The recipe's ceiling, unless the curve stays so far below that it would be flattened."""
    highest = max((record["value"] for record in records), default=0.0)
    if highest < ceiling / 3:
        return []
    data = alt.InlineData(values=[{"value": ceiling, "text": f"ceiling {ceiling:g}"}])
    base = alt.Chart(data).encode(y=alt.Y("value:Q", scale=scale))
    return [
        base.mark_rule(color="#555555", strokeDash=[2, 2]),
        base.mark_text(align="right", dy=-6, x="width", color="#555555").encode(text="text:N"),
    ]


def to_png(figure: Chart) -> bytes:
    """The figure as PNG at twice the pixel density, made without network."""
    png: bytes = vl_convert.vegalite_to_png(figure.to_dict(), scale=1.5)
    return png
