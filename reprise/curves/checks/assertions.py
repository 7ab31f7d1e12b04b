"""Assertions that a user writes about a run's metrics, such as `max(rollout_corr/k3_kl) < 0.05`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from reprise.core.findings import State
from reprise.curves.result import CheckResult, found, number
from reprise.metrics import MetricTable
from reprise.metrics.table import FloatArray

__all__ = ["GRAMMAR", "Assertion", "parse_assertion", "try_assertion"]

GRAMMAR = (
    "min|max|mean|median|first|last(METRIC), or steps_to(METRIC, TARGET), then <, <=, > or >= "
    "and a number"
)

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_FORM = re.compile(
    rf"^\s*(?P<of>[a-z_]+)\(\s*(?P<metric>[^,()\s]+)\s*(?:,\s*(?P<target>{_NUMBER})\s*)?\)"
    rf"\s*(?P<sign><=|>=|<|>)\s*(?P<limit>{_NUMBER})\s*$"
)
_OF: Mapping[str, Callable[[FloatArray], float]] = {
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
    "mean": lambda values: float(values.mean()),
    "median": lambda values: float(np.median(values)),
    "first": lambda values: float(values[0]),
    "last": lambda values: float(values[-1]),
}
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_STEPS = "steps_to"


@dataclass(frozen=True, slots=True)
class Assertion:
    """`of(metric) sign limit`; `target` only for steps_to: the first step with that value."""

    text: str
    of: str
    metric: str
    sign: str
    limit: float
    target: float | None = None


def parse_assertion(text: str) -> Assertion:
    """The assertion in `text`; raises ValueError with the grammar."""
    match = _FORM.match(text)
    if match is None or match["of"] not in (*_OF, _STEPS):
        raise ValueError(f"not an assertion: {text!r}; write {GRAMMAR}")
    if (match["of"] == _STEPS) != (match["target"] is not None):
        raise ValueError(f"only {_STEPS}(METRIC, TARGET) has a target: {text!r}")
    target = None if match["target"] is None else float(match["target"])
    limit = float(match["limit"])
    return Assertion(text.strip(), match["of"], match["metric"], match["sign"], limit, target)


def try_assertion(table: MetricTable, text: str) -> CheckResult:
    """Evaluate one assertion on the finite values of a run; unknown without any."""
    stated = parse_assertion(text)
    series = table.series(stated.metric).finite()
    if not len(series):
        return found("assertion.no-values", stated.metric, {}, text=stated.text)
    where, value = stated.metric, float("inf")
    if stated.target is not None:
        reached = np.flatnonzero(series.values >= stated.target)
        if len(reached):
            value = float(series.steps[reached[0]])
            where = f"{stated.metric}@{int(value)}"
    else:
        value = _OF[stated.of](series.values)
    shown = number(value) if np.isfinite(value) else "never"
    numbers = {"value": value if np.isfinite(value) else None, "limit": stated.limit}
    if not _SIGNS[stated.sign](value, stated.limit):
        return found("assertion.violated", where, numbers, text=stated.text, found=shown)
    message = f"{stated.text}: {shown}"
    return CheckResult("assertion", State.PASSED, where, message, "", numbers)
