"""The files of a verdict: verdict.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reprise.curves.judge import Judgement
from reprise.curves.reference import Reference
from reprise.files import dump_json
from reprise.metrics import MetricTable

__all__ = ["write_report"]


def write_report(
    folder: Path,
    judgement: Judgement,
    table: MetricTable,
    reference: Reference,
    provenance: Mapping[str, object],
) -> None:
    """Write verdict.json into `folder`."""
    dump_json(folder / "verdict.json", judgement.to_json() | {"provenance": dict(provenance)})
