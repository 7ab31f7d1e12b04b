"""`reprise data check`: every problem of any number of data files, in one pass each."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.data.check.amounts import judge_leak, judge_samples, judge_steps, steps_of
from reprise.data.check.judging import judge_file, row_name
from reprise.data.check.lengths import Lengths, judge_lengths, measure_lengths
from reprise.data.check.repeats import Repeats, count_repeats, distinct, prompt_text, rows_at
from reprise.data.check.router import Router
from reprise.data.check.schemas import judge_schemas
from reprise.data.check.settings import Settings
from reprise.data.check.tokens import ChatTokenizer
from reprise.data.read.reading import open_source
from reprise.data.read.scan import FileScan, scan_file

__all__ = ["Checked", "Inputs", "check_files"]

_SHOWN_CONFLICTS = 10

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a check needs besides the files. `router` may be the reason why it is missing.

    `image_datasets` is the version of the `datasets` package in the image, when known, `processor`
    whether the model has one for images.
    """

    router: Router | CannotTell
    settings: Settings = field(default_factory=Settings)
    tokenizer: ChatTokenizer | None = None
    image_datasets: str | None = None
    progress: Progress | None = None
    processor: bool | None = None


@dataclass(slots=True)
class Checked:
    """The results for one file. `seconds` are for the structural pass and the token pass."""

    scan: FileScan
    repeats: Repeats
    lengths: Lengths
    seconds: tuple[float, float]


def check_files(
    command: str, train: list[Path], val: list[Path], inputs: Inputs
) -> tuple[Report, list[Checked], list[Checked]]:
    """Check training and validation files alone, against each other and against the settings.

    A file that cannot be opened is a finding; the others are still checked.
    """
    report = Report(command)
    sets: list[list[Checked]] = []
    for paths in (train, val):
        checked = [_check_one(report, path, inputs) for path in paths]
        sets.append([item for item in checked if item is not None])
    first, second = sets
    _judge_router(report, first + second, inputs)
    for group in sets:
        judge_schemas(report, [item.scan for item in group])
    if first:
        rows = sum(_rows_left(item, inputs.settings) for item in first)
        pairs = distinct(np.concatenate([item.scan.pairs for item in first]))
        where = ", ".join(str(item.scan.source.path) for item in first)
        judge_steps(report, rows, pairs, where, inputs.settings)
    for item in second:
        judge_samples(report, item.scan, item.repeats, inputs.settings)
    judge_leak(report, [item.scan for item in first], [item.scan for item in second])
    report.data["files"] = [_summary(item, inputs.settings) for item in first + second]
    return report, first, second


def _check_one(report: Report, path: Path, inputs: Inputs) -> Checked | None:
    settings = inputs.settings
    started = time.monotonic()
    if glob.has_magic(str(path)) and path.exists() and _pattern_matches(path) != [str(path)]:
        report.failed("data-file.pattern", str(path), count=len(_pattern_matches(path)))
    try:
        source = open_source(path)
        scan = scan_file(
            source,
            settings.prompt_key,
            settings.custom_reward is not None,
            _ticker(inputs.progress, f"check {path.name}", source.rows),
        )
    except OperatorError as error:
        report.failed(error.rule, error.where, error.message, error.fix)
        return None
    except (pa.ArrowException, OSError) as error:  # damage that only one of the readers sees
        reason = str(error).splitlines()[0]
        report.failed("data-file.damaged", str(path), reason=reason)
        return None
    middle = time.monotonic()
    lengths = measure_lengths(
        scan,
        settings.prompt_key,
        inputs.tokenizer,
        _ticker(inputs.progress, f"tokenise {path.name}", None),
    )
    repeats = count_repeats(scan)
    ended = time.monotonic()
    judge_file(report, scan, settings, inputs.router, inputs.image_datasets, inputs.processor)
    _judge_repeats(report, scan, repeats, settings)
    judge_lengths(report, scan, lengths, settings)
    return Checked(scan, repeats, lengths, (middle - started, ended - middle))


def _pattern_matches(path: Path) -> list[str]:
    """The files that a name matches as a pattern, which datasets takes it for."""
    return glob.glob(str(path))  # noqa: PTH207  (the pattern may be absolute)


def _rows_left(item: Checked, settings: Settings) -> int:
    """The rows that verl's length filter keeps; all of them where lengths are estimates."""
    limit = settings.max_prompt_length
    if not settings.filter_overlong or limit is None or not item.lengths.exact:
        return item.scan.rows
    tokens = item.lengths.tokens
    return int(((tokens >= 0) & (tokens <= limit)).sum())


def _ticker(
    progress: Progress | None, title: str, total: int | None
) -> Callable[[int], None] | None:
    return None if progress is None else lambda count: progress(title, count, total)


def _judge_router(report: Report, checked: list[Checked], inputs: Inputs) -> None:
    if not isinstance(inputs.router, CannotTell) or not checked:
        return
    error = inputs.router
    if inputs.settings.custom_reward is not None:
        report.settle("data-source")
        return
    report.unknown(error.rule, error.where, error.message, error.fix)


def _judge_repeats(report: Report, scan: FileScan, repeats: Repeats, settings: Settings) -> None:
    where = str(scan.source.path)
    report.settle("data-repeats")
    if repeats.pairs < repeats.rows:
        before, after = steps_of(repeats.rows, settings), steps_of(repeats.pairs, settings)
        found: dict[str, object] = {
            "rows": repeats.rows,
            "prompts": repeats.prompts,
            "most": repeats.most,
            "pairs": repeats.pairs,
            "file": where,
        }
        if before is None:
            report.note("data-repeats.repeated", where, **found)
        else:
            report.note("data-repeats.repeated-steps", where, before=before, after=after, **found)
    report.settle("data-conflict")
    if not repeats.conflicts:
        return
    shown = repeats.conflicts[:_SHOWN_CONFLICTS]
    places = sorted({place for group in shown for place in group})
    rows = rows_at(scan.source, np.asarray(places, np.int64), settings.prompt_key)
    by_place = dict(zip(places, rows, strict=True))
    for group in shown:
        report.warn(
            "data-conflict.answers",
            row_name(scan.source, scan.number(group[-1])),
            count=len(group),
            answers=_answers(scan, group, by_place),
            prompt=prompt_text(by_place[group[0]].get(settings.prompt_key)),
        )
    if len(repeats.conflicts) > len(shown):
        count = len(repeats.conflicts)
        report.note("data-conflict.count", where, count=count)


def _answers(scan: FileScan, group: tuple[int, ...], rows: dict[int, dict[str, Any]]) -> str:
    answers = []
    for place in group[:5]:
        reward = rows[place].get("reward_model")
        truth = reward.get("ground_truth") if isinstance(reward, dict) else None
        answers.append(f"{str(truth)[:40]!r} (row {scan.number(place)})")
    return ", ".join(answers)


def _summary(item: Checked, settings: Settings) -> dict[str, Any]:
    repeats = item.repeats
    return {
        "file": str(item.scan.source.path),
        "rows": repeats.rows,
        "unique_prompts": repeats.prompts,
        "unique_pairs": repeats.pairs,
        "unique_indices": repeats.indices,
        "max_repeat": repeats.most,
        "conflicts": len(repeats.conflicts),
        "sources": dict(item.scan.sources.most_common(50)),
        "steps_per_epoch": steps_of(repeats.rows, settings),
        "steps_per_epoch_unique": steps_of(repeats.pairs, settings),
        "lengths": {"how": item.lengths.how, "histogram": dict(item.lengths.histogram())},
        "seconds": {"structure": item.seconds[0], "tokens": item.seconds[1]},
    }
