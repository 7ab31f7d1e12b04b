"""The page of a run that is going on: its state, its alarms, its curves so far."""

from __future__ import annotations

from collections.abc import Sequence

from reprise.core.findings import Finding
from reprise.curves.document import (
    FURTHER,
    document,
    escaped,
    findings_table,
    html_table,
    time_line_table,
)
from reprise.curves.panels import Curve, Panel, panel
from reprise.curves.past import Past, cause_section
from reprise.metrics import MetricTable

__all__ = ["live_page"]

_FIRST = ("critic/rewards/mean", "val-core/")


def live_page(
    run: str,
    rows: Sequence[tuple[str, str]],
    findings: Sequence[Finding],
    table: MetricTable | None,
    past: Past,
    seconds: int | None,
) -> str:
    """The page, which a browser loads again every `seconds`; None: never.

    `rows` are label and text of the state, `table` the metrics so far, None where there are none.
    """
    again = f"<p>Loaded again every {seconds} s.</p>" if seconds else "<p>The run has ended.</p>"
    state = html_table("State", ("name", "value"), [[escaped(a), escaped(b)] for a, b in rows])
    body = [
        f"<header><h1>{escaped(run)}</h1>{again}</header>",
        f"<section><h2>State</h2>{state}</section>",
        cause_section(past),
        f"<section><h2>Alarms and findings</h2>{findings_table(findings)}</section>",
        f"<section><h2>Curves</h2>{_charts(table)}</section>",
        f"<section><h2>Time line</h2>{time_line_table(past)}</section>",
    ]
    return document(run, "\n".join(body), seconds)


def _charts(table: MetricTable | None) -> str:
    if table is None:
        return "<p>No step has its metrics yet.</p>"
    judged = [name for name in table.names if name.startswith(_FIRST)]
    shown = dict.fromkeys([*judged, *(name for name in FURTHER if name in table)])
    charts = []
    for metric in shown:
        series = table.series(metric).finite()
        if len(series.steps):
            charts.append(panel(Panel(metric, [Curve("this run", series, "run")])))
    return f'<div class="charts">{"".join(charts)}</div>'
