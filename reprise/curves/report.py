"""The files of a verdict: verdict.json, curves.png and a report.html that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reprise.core.files import write_text, writing
from reprise.curves.past import Past
from reprise.curves.reference import Reference
from reprise.curves.result import Judgement
from reprise.metrics import MetricTable

__all__ = ["write_report"]


def write_report(
    folder: Path,
    judgement: Judgement,
    table: MetricTable,
    reference: Reference,
    provenance: Mapping[str, object],
    past: Past | None = None,
) -> None:
    """Write verdict.json, curves.png and report.html into `folder`, which must exist.

    `provenance` describes the run (seed, lock, versions, machine); its values must be JSON values.
    `past`: what happened to it, where that is recorded.
    Raises OSError as the file system gives it.
    """
    # Altair takes a second to import; code that only reads or judges curves does not need it.
    from reprise.curves.charts import draw, to_png
    from reprise.curves.page import verdict_page
    from reprise.curves.verdict import write_verdict

    png = to_png(draw(judgement, table, reference))
    write_verdict(folder, judgement, reference, provenance)
    with writing(folder / "curves.png") as file:
        file.write(png)
    page = verdict_page(judgement, table, reference, provenance, past or Past())
    write_text(folder / "report.html", page)
