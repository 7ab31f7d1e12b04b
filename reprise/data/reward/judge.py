"""Check the results of a scorer: do right answers score more, and is it fast enough."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from reprise.core.findings import Report
from reprise.data.check.settings import Settings
from reprise.data.read.scan import RowList
from reprise.data.reward.run import Scored, groups

__all__ = ["judge_reward"]

_NO_MODULE = re.compile(r"No module named '([^']+)'")
# A scorer may take this share of a step without a finding.
_SHARE = 0.1
# A slower call (milliseconds) is reported when the step time is unknown.
_SLOW_CALL = 1000.0


def judge_reward(
    report: Report, scored: Sequence[Scored], settings: Settings, step_seconds: float
) -> None:
    """Check each data_source separately. `step_seconds` is the time of a training step."""
    report.data["reward"] = []
    for source, tried in groups(scored):
        items = _run(report, source, tried)
        if not items:
            continue
        _judge_errors(report, source, items)
        _judge_scores(report, source, items)
        _judge_speed(report, source, items, settings, step_seconds)
        report.data["reward"].append(_facts(source, items))
    for rule in ("reward-run", "reward-error", "reward-equal", "reward-empty", "reward-speed"):
        report.settle(rule)


def _run(report: Report, source: str, tried: Sequence[Scored]) -> list[Scored]:
    """The items with scores; a failed import is not a fault of the rows."""
    lacking = [(text, item) for item in tried if (text := item.missing())]
    for text, item in list({text: (text, item) for text, item in reversed(lacking)}.values()):
        named = _NO_MODULE.fullmatch(text)
        where = _where([item])
        if named:
            report.unknown(
                "reward-run.source-lacks-package", where, source=source, package=named[1]
            )
        else:
            report.unknown("reward-run.import-fails", where, source=source, reason=text)
    return [item for item in tried if item.missing() is None]


def _where(items: Sequence[Scored]) -> str:
    return f"{items[0].probe.file}:row {items[0].probe.row}"


def _rows(items: Sequence[Scored]) -> str:
    rows = RowList(len(items))
    rows.shown.extend(item.probe.row for item in items[:20])
    return rows.text()


def _judge_errors(report: Report, source: str, items: Sequence[Scored]) -> None:
    """Exceptions by their text, and scores that are not finite numbers."""
    by_text: dict[str, list[Scored]] = {}
    for item in items:
        for text in dict.fromkeys(item.errors.values()):
            by_text.setdefault(text, []).append(item)
        if any(not math.isfinite(value) for value in item.scores.values()):
            by_text.setdefault("the score is not a finite number", []).append(item)
    for text, hit in list(by_text.items())[:10]:
        found: dict[str, object] = {"source": source, "reason": text, "rows": _rows(hit)}
        if "NotImplementedError" in text:
            report.failed("reward-error.not-routed", _where(hit), **found)
        else:
            report.failed("reward-error.fails", _where(hit), **found)


def _judge_scores(report: Report, source: str, items: Sequence[Scored]) -> None:
    """A right answer must score more than a wrong answer and more than an empty one."""
    equal, empty, unsure = [], [], []
    for item in items:
        best = item.best()
        if best is None:
            unsure += [] if item.errors else [item]
            continue
        right = item.scores[f"right {best}"]
        if right <= item.scores.get(f"wrong {best}", -math.inf):
            equal.append(item)
        elif right <= item.scores.get("empty", -math.inf):
            empty.append(item)
    tried = ", ".join(dict.fromkeys(name for item in items for name in item.formats()))
    if equal:
        truth = str(equal[0].probe.ground_truth)[:60]
        report.failed(
            "reward-equal.not-better",
            _where(equal),
            source=source,
            truth=truth,
            rows=_rows(equal),
            tried=tried,
        )
    if empty:
        report.failed("reward-empty.scores-full", _where(empty), source=source, rows=_rows(empty))
    if unsure:
        report.unknown(
            "reward-equal.no-right-answer", _where(unsure), source=source, rows=_rows(unsure)
        )
    taken = _formats(items)
    if taken and not equal:
        shown = ", ".join(f"{name} ({count} of {len(items)})" for name, count in taken.items())
        report.note("reward-format.full-score", _where(items), source=source, formats=shown)


def _formats(items: Sequence[Scored]) -> Counter[str]:
    """In how many rows each format of the right answer gets the row's best score."""
    taken: Counter[str] = Counter()
    for item in items:
        best = item.best()
        if best is None:
            continue
        top = item.scores[f"right {best}"]
        taken.update(name for name in item.formats() if item.scores[f"right {name}"] == top)
    return taken


def _judge_speed(
    report: Report, source: str, items: Sequence[Scored], settings: Settings, step_seconds: float
) -> None:
    """Milliseconds per call against the time of a step."""
    calls = [value for item in items for value in item.ms.values()]
    mean, slow = float(np.mean(calls)), float(np.percentile(calls, 99))
    found: dict[str, object] = {"source": source, "mean": mean, "slow": slow}
    if settings.train_batch_size and settings.samples:
        workers = settings.reward_workers or 8
        total = settings.train_batch_size * settings.samples
        needed = total * mean / 1000 / workers
        found |= {"answers": total, "workers": workers, "needed": needed, "step": step_seconds}
        enough = math.ceil(workers * needed / (_SHARE * step_seconds))
        if needed > step_seconds:
            report.failed("reward-speed.too-slow", _where(items), enough=enough, **found)
        elif needed > _SHARE * step_seconds:
            report.warn("reward-speed.large-share", _where(items), enough=enough, **found)
        else:
            report.note("reward-speed.share", _where(items), **found)
    elif slow > _SLOW_CALL:
        report.warn("reward-speed.slow", _where(items), **found)
    else:
        report.note("reward-speed.calls", _where(items), **found)


def _facts(source: str, items: Sequence[Scored]) -> dict[str, object]:
    calls = [value for item in items for value in item.ms.values()]
    return {
        "data_source": source,
        "rows": len(items),
        "calls": len(calls),
        "ms_mean": float(np.mean(calls)),
        "ms_p99": float(np.percentile(calls, 99)),
        "formats": dict(_formats(items)),
    }
