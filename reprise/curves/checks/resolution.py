"""Whether the comparison of the reward could have seen what a PASS excludes."""

from __future__ import annotations

from dataclasses import replace

from reprise.core.findings import State
from reprise.curves.checks.compared import (
    OWN_SPREAD,
    WINDOW_SHARE,
    compare,
    limits_of,
    without_reward,
)
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, found, number
from reprise.curves.spread import ALPHA, BORROWED, needed_runs
from reprise.metrics import MetricTable

__all__ = ["record_more", "resolution"]


def resolution(table: MetricTable, reference: Reference, steps: int) -> CheckResult:
    """Whether the comparison could detect a drop of `margin` at the end of the run.

    Without this, a wide spread between reference runs would pass anything. A drop at the end is
    one of the last window; one that begins earlier also lowers the mean of the whole run.
    """
    spec = reference.metrics.reward
    if (lacking := without_reward(reference, steps)) is not None:
        return replace(lacking, rule="resolution")
    compared = compare(table, reference, steps)
    limits = limits_of(compared)
    at = len(compared.windows) - 1
    smallest = float(max(limits.smallest[at], compared.material))
    whole = float(max(limits.smallest[at + 1], compared.material))
    margin = compared.margin
    numbers: dict[str, object] = {
        "smallest": smallest,
        "smallest_whole": whole,
        "margin": margin,
        "margin_stated": spec.margin is not None,
        "reference_gain": compared.gain,
    }
    first, last = compared.windows[-1]
    detects = (
        f"minimum detectable drop {number(smallest)} over steps {first}-{last}, "
        f"{number(whole)} over the whole run (90 % power)"
    )
    if compared.borrowed:
        numbers["borrowed_spread"] = BORROWED
        detects += f", with a spread between runs borrowed from {BORROWED}"
    if compared.gain <= 0 and (spec.margin is None or compared.borrowed):
        return found("resolution.no-gain", spec.metric, numbers, detects=detects)
    if len(compared.seeds) < OWN_SPREAD and spec.margin is None:
        runs = len(compared.seeds)
        known = {"detects": detects, "runs": runs, "margin": number(smallest)}
        return found("resolution.borrowed", spec.metric, numbers, **known)
    if smallest <= margin:
        text = f"{detects}; margin {number(margin)}"
        return CheckResult("resolution", State.PASSED, spec.metric, text, "", numbers)
    share = WINDOW_SHARE * ALPHA["reward"] / len(compared.windows)
    each = 1.0 if compared.borrowed else float(limits.freedom[at]) / (len(compared.seeds) - 1)
    more = needed_runs(float(limits.deviation[at]), margin, share, each)
    numbers["runs_needed"] = more
    return found(
        "resolution.too-wide",
        spec.metric,
        numbers,
        detects=detects,
        margin=number(margin),
        fix=record_more(more, len(compared.seeds)),
    )


def record_more(needed: int | None, have: int) -> str:
    """What to do when `have` reference runs are too few; `needed` is None where none suffice."""
    if needed is None:
        return "use more steps or larger batches, or accept a larger margin: --margin"
    return f"record {needed} reference runs or more ({max(needed - have, 1)} further seeds)"
