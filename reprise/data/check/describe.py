"""`reprise data describe`: what a data file holds, as one JSON object."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprise.data.check.amounts import steps_of
from reprise.data.check.check import Checked
from reprise.data.check.repeats import first_places, prompt_text, rows_at
from reprise.data.check.settings import Settings

__all__ = ["describe"]

_SAMPLE_CHARS = 160


def describe(item: Checked, settings: Settings, samples: int) -> dict[str, Any]:
    """Facts of one scanned file: counts, sources, roles, lengths, answers, samples, steps.

    `samples` distinct prompts are shown, evenly spread over the file. Lengths are in tokens (or in
    the estimate that `lengths.how` names).
    """
    scan, repeats = item.scan, item.repeats
    tokens = item.lengths.tokens
    known = tokens[tokens >= 0]
    return {
        "file": str(scan.source.path),
        "format": "parquet" if scan.source.parquet else "JSON lines",
        "rows": repeats.rows,
        "unique_prompts": repeats.prompts,
        "unique_pairs": repeats.pairs,
        "unique_indices": repeats.indices,
        "repeats": {"least": repeats.least, "most": repeats.most},
        "conflicting_prompts": len(repeats.conflicts),
        "sources": dict(scan.sources.most_common(20)),
        "roles": dict(scan.roles.most_common()),
        "answers": dict(scan.answers.most_common()),
        "columns": {name: str(kind) for name, kind in scan.types().items()},
        "lengths": {
            "how": item.lengths.how,
            "least": int(known.min()) if len(known) else None,
            "median": float(np.median(known)) if len(known) else None,
            "most": int(known.max()) if len(known) else None,
            "histogram": dict(item.lengths.histogram()),
        },
        "steps_per_epoch": steps_of(repeats.rows, settings),
        "steps_per_epoch_unique": steps_of(repeats.pairs, settings),
        "batch": settings.train_batch_size,
        "samples": _samples(item, settings, samples),
    }


def _samples(item: Checked, settings: Settings, count: int) -> list[dict[str, Any]]:
    places = first_places(item.scan)
    if not count or not len(places):
        return []
    chosen = np.unique(np.linspace(0, len(places) - 1, min(count, len(places))).astype(np.int64))
    wanted = places[chosen]
    rows = rows_at(item.scan.source, wanted, settings.prompt_key)
    return [
        {
            "row": item.scan.number(int(place)),
            "data_source": row.get("data_source"),
            "prompt": prompt_text(row.get(settings.prompt_key), _SAMPLE_CHARS),
            "answer": _answer(row),
        }
        for place, row in zip(wanted, rows, strict=True)
    ]


def _answer(row: dict[str, Any]) -> str | None:
    reward = row.get("reward_model")
    truth = reward.get("ground_truth") if isinstance(reward, dict) else None
    return None if truth is None else str(truth)[:_SAMPLE_CHARS]
