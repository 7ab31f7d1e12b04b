"""The same validation quantity under two keys: mean@32 of grouped rows, mean@1 of single ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprise.curves.reference import ValidationSpec
from reprise.metrics import MetricTable

__all__ = ["Alias", "ValidationSet", "find_metric"]

_KEY = re.compile(r"^val-(?:core|aux)/(?P<source>.+)/(?P<quantity>[^/]+)/mean@(?P<samples>\d+)$")


@dataclass(frozen=True, slots=True)
class Alias:
    """The run's own key for a reference metric; `metric` is None when there is none to pair."""

    metric: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """The validation set of the judged run: rows, distinct prompts, samples per row."""

    rows: int
    prompts: int
    samples: int = 1


def find_metric(table: MetricTable, spec: ValidationSpec, used: ValidationSet | None) -> Alias:
    """Find the key in `table` that measures what `spec.metric` measures.

    verl names an average over n samples a prompt `mean@n`. Trainers that give each row its own
    uid count rows as prompts, so a file of 30 prompts repeated 32 times logs mean@1 where others
    log mean@32: the same average over 960 answers. They are paired only when rows, prompts and
    samples of the set that the run `used` say so. Accuracies and scores are never paired:
    their scales differ.
    """
    if spec.metric in table:
        return Alias(spec.metric, "same key")
    wanted = _KEY.match(spec.metric)
    if wanted is None:
        return Alias(None, f"the run has no {spec.metric}")
    for name in sorted(table.names):
        match = _KEY.match(name)
        if match is None or match["source"] != wanted["source"]:
            continue
        if match["quantity"] != wanted["quantity"]:
            continue
        if used is None:
            why = "the rows and prompts of the run's validation set are unknown"
            return Alias(None, f"the run has {name}, the reference {spec.metric}, and {why}")
        size = f"{used.prompts} prompts, {used.rows} rows, {used.samples} sample(s) per row"
        pair = {int(match["samples"]), int(wanted["samples"])}
        if pair == {used.samples, used.rows // used.prompts * used.samples}:
            return Alias(name, f"{name} is {spec.metric}: {size}")
        why = f"{name} over {used.rows * used.samples} answers is noisier ({size})"
        return Alias(None, f"{why}: not paired with {spec.metric}")
    return Alias(None, f"the run has no {spec.metric}")
