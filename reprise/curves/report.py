"""The files of a verdict: verdict.json, curves.png and a report.html that needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from pathlib import Path

from reprise.core.files import write_text, writing
from reprise.core.findings import State
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, Judgement, number
from reprise.metrics import MetricTable

__all__ = ["write_report"]

_WORDS = {State.PASSED: "passed", State.FAILED: "failed", State.UNKNOWN: "unknown"}
_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid #e4e4e4 }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
th.n { text-align: right } code { font-size: .9em; overflow-wrap: anywhere }
.PASS, .passed { color: #2e7d32 } .FAIL, .failed { color: #c62828 }
.INCONCLUSIVE, .unknown { color: #8a6500 }
.passed, .failed, .unknown { font-weight: 600 } .fix { color: #555 }
svg { max-width: 100%; height: auto }
"""


def write_report(
    folder: Path,
    judgement: Judgement,
    table: MetricTable,
    reference: Reference,
    provenance: Mapping[str, object],
) -> None:
    """Write verdict.json, curves.png and report.html into `folder`, which must exist.

    `provenance` describes the run (seed, lock, versions, machine); its values must be JSON values.
    Raises OSError as the file system gives it.
    """
    # Altair takes a second to import; what only reads or judges curves does not wait for it.
    from reprise.curves.charts import draw, to_png, to_svg
    from reprise.curves.verdict import write_verdict

    figure = draw(judgement, table, reference)
    png, svg = to_png(figure), to_svg(figure)
    write_verdict(folder, judgement, reference, provenance)
    with writing(folder / "curves.png") as file:
        file.write(png)
    write_text(folder / "report.html", _page(judgement, reference, provenance, svg))


def _page(
    judgement: Judgement, reference: Reference, provenance: Mapping[str, object], svg: str
) -> str:
    outcome = judgement.outcome.value
    plural = "s" if judgement.reference_runs != 1 else ""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{outcome}: {_text(judgement.run)}</title><style>{_STYLE}</style></head><body>",
        f'<h1><span class="{outcome}">{outcome}</span> {_text(judgement.run)}</h1>',
        f"<p>Against <strong>{_text(reference.name)}</strong>: {judgement.reference_runs} "
        f"{_text(reference.kind)} reference run{plural}, {judgement.compared_steps} of "
        f"{judgement.expected_steps} expected steps compared. {_text(judgement.smallest)}.</p>",
        f"<h2>Checks</h2>{_checks(judgement.checks)}",
        f"<h2>Windows</h2>{_windows(judgement.checks)}",
        f"<h2>Curves</h2>{svg}",
        f"<h2>Findings</h2>{_findings(judgement)}",
        f"<h2>This run</h2>{_facts(provenance)}",
        f"<h2>Reference</h2>{_facts(_reference_facts(reference))}",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _text(value: object) -> str:
    return html.escape(str(value))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{cells}</tbody></table>"


def _checks(checks: Iterable[CheckResult]) -> str:
    rows = []
    for check in checks:
        fix = f'<div class="fix">{_text(check.fix)}</div>' if check.fix else ""
        rows.append(
            [
                f"<td>{_text(check.rule)}</td>",
                f'<td class="{_WORDS[check.state]}">{_WORDS[check.state]}</td>',
                f"<td><code>{_text(check.where)}</code></td><td>{_text(check.message)}{fix}</td>",
            ]
        )
    return _table(["<th>check</th>", "<th>state</th>", "<th>where</th>", "<th>what</th>"], rows)


def _windows(checks: Iterable[CheckResult]) -> str:
    rows = []
    for window in (window for check in checks for window in check.windows):
        values = (
            window.run,
            window.reference,
            window.deviation,
            window.bound,
            window.smallest,
        )
        cells = "".join(f'<td class="n">{number(value)}</td>' for value in values)
        rows.append(
            [
                f"<td><code>{_text(window.metric)}</code></td>",
                f'<td class="n">{window.first}-{window.last}</td>{cells}',
                f'<td class="{_WORDS[window.state]}">{_WORDS[window.state]}</td>',
            ]
        )
    if not rows:
        return "<p>No window could be compared.</p>"
    names = ("steps", "this run", "reference", "sd of runs", "bound", "sees a shift of")
    head = ["<th>metric</th>", *(f'<th class="n">{name}</th>' for name in names), "<th>state</th>"]
    return _table(head, rows)


def _findings(judgement: Judgement) -> str:
    found = judgement.all_notes()
    if not found:
        return "<p>None beside the checks.</p>"
    rows = (
        [
            f"<td>{_text(note.severity.value)}</td><td><code>{_text(note.where)}</code></td>",
            f'<td>{_text(note.message)}<div class="fix">{_text(note.fix)}</div></td>',
        ]
        for note in found
    )
    return _table(["<th>severity</th>", "<th>where</th>", "<th>what</th>"], rows)


def _facts(facts: Mapping[str, object]) -> str:
    if not facts:
        return "<p>Nothing is recorded.</p>"
    rows = (
        [f"<td>{_text(key)}</td><td><code>{_text(value)}</code></td>"]
        for key, value in sorted(facts.items())
    )
    return _table(["<th>what</th>", "<th>value</th>"], rows)


def _reference_facts(reference: Reference) -> dict[str, object]:
    seeds = ", ".join("unknown" if seed is None else str(seed) for seed in reference.seeds)
    own = {"recipe": reference.recipe, "steps": reference.steps, "seeds": seeds}
    return own | dict(reference.provenance)
