"""Charts as SVG for the page: drawn here, so that they need no script to be seen or printed.

Colours are classes, which the page's style sets for light and dark. A script of the page adds
reading with pointer or keys, and zoom.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reprise.core.findings import State
from reprise.curves.result import WindowResult, drawn_windows, number
from reprise.metrics import Series

__all__ = ["Curve", "Panel", "panel", "unit_of"]

_WIDE, _TALL = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 14, 12, 46
_PLOT_W, _PLOT_H = _WIDE - _LEFT - _RIGHT, _TALL - _TOP - _BOTTOM
_UNIT = 1000.0
_MOST_POINTS = 1500
_TICKS = 5
_STATES = {State.PASSED: "passed", State.FAILED: "failed", State.UNKNOWN: "unknown"}
_UNITS = (
    ("entropy", "nats"),
    ("clip_ratio", "share of answers"),
    ("aborted_ratio", "share of answers"),
    ("response_length", "tokens"),
    ("num_tokens", "tokens"),
    ("/acc/", "accuracy"),
    ("probs_diff", "probability"),
    ("kl", "nats"),
    ("timing_s/", "seconds"),
    ("reward", "reward"),
    ("score", "score"),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart; `kind` is its class: run, reference, or run1, run2, ..."""

    name: str
    series: Series
    kind: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: curves of a metric, the windows that judged it, and where curves part."""

    metric: str
    curves: Sequence[Curve]
    windows: Sequence[WindowResult] = field(default=())
    parting: int | None = None


def unit_of(metric: str) -> str:
    """The unit of a metric's axis, from verl's names; "value" where none is known."""
    return next((unit for part, unit in _UNITS if part in metric), "value")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a step and a value are drawn, in units of the inner plot."""

    first: float
    last: float
    low: float
    high: float
    log: bool

    def x(self, step: float) -> float:
        return _UNIT * (step - self.first) / max(self.last - self.first, 1e-9)

    def y(self, value: float) -> float:
        top, at = self.high, value
        low = self.low
        if self.log:
            top, at, low = math.log(self.high), math.log(max(value, 1e-300)), math.log(self.low)
        share = (at - low) / max(top - low, 1e-300)
        # A point far outside is drawn at the edge's far side, so that its line leaves the plot.
        return float(np.clip(_UNIT * (1 - share), -9 * _UNIT, 10 * _UNIT))

    def value(self, share: float) -> float:
        """The value at `share` of the height, from below."""
        if self.log:
            return float(np.exp(np.log(self.low) + share * np.log(self.high / self.low)))
        return self.low + share * (self.high - self.low)


def _scale(curves: Sequence[Curve]) -> _Scale | None:
    """From the curves alone: bounds far away are cut off rather than squash what is compared."""
    series = [curve.series.finite() for curve in curves if len(curve.series.finite())]
    if not series:
        return None
    values = np.concatenate([item.values for item in series])
    first = min(float(item.steps[0]) for item in series)
    last = max(float(item.steps[-1]) for item in series)
    low, high = float(values.min()), float(values.max())
    log = low > 0 and high > 20 * low
    if log:
        return _Scale(first, last, low / 1.15, high * 1.15, True)
    # One spike must not flatten the rest: the axis ends a little above the 99th percentile.
    near = np.quantile(values, [0.005, 0.995])
    span = max(float(near[1] - near[0]), 1e-12)
    low, high = max(low, float(near[0]) - span), min(high, float(near[1]) + span)
    margin = 0.06 * max(high - low, abs(high) * 1e-6, 1e-12)
    return _Scale(first, last, low - margin, high + margin, False)


def _thin(series: Series) -> Series:
    series = series.finite()
    stride = max(1, -(-len(series) // _MOST_POINTS))
    keep = np.zeros(len(series), dtype=bool)
    keep[::stride] = True
    if len(keep):
        keep[-1] = True
    return series.keep(keep)


def _line(curve: Curve, scale: _Scale) -> str:
    series = _thin(curve.series)
    points = " ".join(
        f"{scale.x(float(s)):.1f},{scale.y(float(v)):.1f}"
        for s, v in zip(series.steps, series.values, strict=True)
    )
    return f'<polyline class="line {curve.kind}" points="{points}"/>'


def _band(curves: Sequence[Curve], scale: _Scale) -> str:
    """From the lowest to the highest of three or more reference runs."""
    seeds = [_thin(curve.series) for curve in curves if curve.kind == "reference"]
    if len(seeds) < 3:
        return ""
    common = seeds[0].steps
    for series in seeds[1:]:
        common = np.intersect1d(common, series.steps)
    if not len(common):
        return ""
    values = np.array([series.values[np.isin(series.steps, common)] for series in seeds])
    top = [f"{scale.x(s):.1f},{scale.y(v):.1f}" for s, v in zip(common, values.max(0), strict=True)]
    low = [f"{scale.x(s):.1f},{scale.y(v):.1f}" for s, v in zip(common, values.min(0), strict=True)]
    return f'<polygon class="band" points="{" ".join([*top, *reversed(low)])}"/>'


def _windows(windows: Sequence[WindowResult], scale: _Scale) -> str:
    """The run's level over each window in the colour of its state, and the bound, dashed."""
    parts = []
    for window in windows:
        left, right = scale.x(window.first), scale.x(window.last)
        for value, kind in (
            (window.run, f"level {_STATES[window.state]}"),
            (window.bound, "bound"),
        ):
            if math.isfinite(value) and (not scale.log or value > 0):
                y = scale.y(value)
                ends = f'x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
                parts.append(f'<line class="{kind}" {ends}/>')
    return "".join(parts)


def panel(chart: Panel) -> str:
    """The figure of one chart; empty where no curve has a finite value."""
    scale = _scale(chart.curves)
    if scale is None:
        return ""
    name, unit = html.escape(chart.metric), unit_of(chart.metric)
    inner = _band(chart.curves, scale)
    order = sorted(chart.curves, key=lambda curve: curve.kind != "reference")
    inner += "".join(_line(curve, scale) for curve in order)
    inner += _windows(drawn_windows(chart.windows, chart.metric), scale)
    if chart.parting is not None:
        x = scale.x(chart.parting)
        inner += f'<line class="parting" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="1000"/>'
    inner += '<line class="cursor" x1="-9" x2="-9" y1="0" y2="1000"/>'
    data = {
        "first": scale.first,
        "last": scale.last,
        "curves": [
            {
                "name": curve.name,
                "kind": curve.kind,
                "steps": _thin(curve.series).steps.tolist(),
                "values": [float(f"{v:.6g}") for v in _thin(curve.series).values],
            }
            for curve in order
        ],
    }
    ends = [curve for curve in chart.curves if curve.kind != "reference"]
    said = "; ".join(
        f"{curve.name}: {number(float(curve.series.finite().values[-1]))} at the end"
        for curve in ends
        if len(curve.series.finite())
    )
    parts = f"; curves part at step {chart.parting}" if chart.parting is not None else ""
    label = f"{chart.metric} by step. {said}{parts}"
    payload = json.dumps(data).replace("<", "\\u003c")
    return (
        f'<figure class="chart" tabindex="0" aria-label="{html.escape(label)}">'
        f"<figcaption>{name}{' (log scale)' if scale.log else ''}</figcaption>"
        f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img" aria-label="{html.escape(label)}">'
        f"<title>{html.escape(label)}</title>{_axes(scale, unit)}"
        f'<svg class="plot" x="{_LEFT}" y="{_TOP}" width="{_PLOT_W}" height="{_PLOT_H}" '
        f'viewBox="0 0 1000 1000" preserveAspectRatio="none">{inner}</svg></svg>'
        f'<output>{html.escape(said)}</output><script type="application/json">{payload}</script>'
        "</figure>"
    )


def _axes(scale: _Scale, unit: str) -> str:
    parts = []
    for i in range(_TICKS + 1):
        share = i / _TICKS
        x, y = _LEFT + share * _PLOT_W, _TOP + (1 - share) * _PLOT_H
        step = scale.first + share * (scale.last - scale.first)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{scale.value(share):.3g}</text>"
            f'<text class="tick x" x="{x:.1f}" y="{_TALL - _BOTTOM + 16}" text-anchor="middle">'
            f"{step:.0f}</text>"
        )
    middle = _TOP + _PLOT_H / 2
    parts.append(
        f'<text class="title" x="{_LEFT + _PLOT_W / 2}" y="{_TALL - 8}" '
        'text-anchor="middle">step</text>'
        f'<text class="title" transform="rotate(-90 14 {middle})" x="14" y="{middle}" '
        f'text-anchor="middle">{html.escape(unit)}</text>'
    )
    return "".join(parts)
