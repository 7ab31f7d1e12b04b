"""What a scorer's answers mean: is a right answer worth more, and is it quick enough."""

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
# A scorer may take this share of a step without being told.
_SHARE = 0.1
# One call beyond this many milliseconds is told when nothing is known of the step.
_SLOW_CALL = 1000.0


def judge_reward(
    report: Report, scored: Sequence[Scored], settings: Settings, step_seconds: float
) -> None:
    """Judge each data_source apart. `step_seconds` is how long a training step takes."""
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
    """Those that were scored at all; an import that fails says nothing of the rows."""
    lacking = [(text, item) for item in tried if (text := item.missing())]
    for text, item in list({text: (text, item) for text, item in reversed(lacking)}.values()):
        named = _NO_MODULE.fullmatch(text)
        missing = f"missing {named[1]}" if named else text
        fix = f"install {named[1]}" if named else "repair it"
        report.unknown(
            "reward-run.scorer-could-run",
            _where([item]),
            source=source,
            missing=missing,
            advice=fix,
        )
    return [item for item in tried if item.missing() is None]


def _where(items: Sequence[Scored]) -> str:
    return f"{items[0].probe.file}:row {items[0].probe.row}"


def _rows(items: Sequence[Scored]) -> str:
    rows = RowList(len(items))
    rows.shown.extend(item.probe.row for item in items[:20])
    return rows.text()


def _judge_errors(report: Report, source: str, items: Sequence[Scored]) -> None:
    """Exceptions by their text, and scores that are no finite number."""
    by_text: dict[str, list[Scored]] = {}
    for item in items:
        for text in dict.fromkeys(item.errors.values()):
            by_text.setdefault(text, []).append(item)
        if any(not math.isfinite(value) for value in item.scores.values()):
            by_text.setdefault("the score is no finite number", []).append(item)
    for text, hit in list(by_text.items())[:10]:
        routed = "NotImplementedError" not in text
        fix = (
            "make the scorer give its lowest score instead of failing"
            if routed
            else "use a data_source that verl routes, or reward.custom_reward_function.path=FILE"
        )
        message = f"{source!r}: scoring fails with {text}: {_rows(hit)}"
        report.failed("reward-error", _where(hit), message, fix)


def _judge_scores(report: Report, source: str, items: Sequence[Scored]) -> None:
    """A right answer must be worth more than a wrong one and than nothing."""
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
            "reward-equal.right-answer-scores",
            _where(equal),
            source=source,
            truth=truth,
            rows=_rows(equal),
            tried=tried,
        )
    if empty:
        report.failed(
            "reward-empty.empty-answer-scores", _where(empty), source=source, rows=_rows(empty)
        )
    if unsure:
        report.unknown(
            "reward-equal.right-answer-can", _where(unsure), source=source, rows=_rows(unsure)
        )
    taken = _formats(items)
    if taken and not equal:
        told = ", ".join(f"{name} ({count} of {len(items)})" for name, count in taken.items())
        report.note("reward-format.right-answers-get", _where(items), source=source, told=told)


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
    """Milliseconds a call against what the step has for it."""
    calls = [value for item in items for value in item.ms.values()]
    mean, slow = float(np.mean(calls)), float(np.percentile(calls, 99))
    told = f"{source!r}: {mean:.2f} ms a call on average, {slow:.2f} ms at the 99th percentile"
    if settings.train_batch_size and settings.samples:
        workers = settings.reward_workers or 8
        total = settings.train_batch_size * settings.samples
        needed = total * mean / 1000 / workers
        told += (
            f"; {total:,} answers a step on {workers} workers: {needed:.1f} s of a step of "
            f"{step_seconds:.0f} s"
        )
        if needed > _SHARE * step_seconds:
            enough = math.ceil(workers * needed / (_SHARE * step_seconds))
            fix = f"make it faster, or reward.num_workers={enough}"
            (report.failed if needed > step_seconds else report.warn)(
                "reward-speed", _where(items), f"too slow: {told}", fix
            )
            return
    elif slow > _SLOW_CALL:
        report.warn("reward-speed.slow", _where(items), told=told)
        return
    report.note("reward-speed", _where(items), told)


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
