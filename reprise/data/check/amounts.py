"""Rows against the recipe: steps per epoch, samples per problem, leakage. Arithmetic only."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.data.check.repeats import Repeats, shared_rows
from reprise.data.check.settings import Settings
from reprise.data.read.scan import FileScan

__all__ = ["judge_leak", "judge_samples", "judge_steps", "steps_of"]

# Below this many validation generations the standard error of a score exceeds five points:
# that of a share is at most 0.5 / sqrt(generations).
_FEW_GENERATIONS = 100


def steps_of(rows: int, settings: Settings) -> int | None:
    """Steps in one epoch: verl drops the last, incomplete batch. None without a batch size."""
    if not settings.train_batch_size or settings.train_batch_size < 1:
        return None
    limit = settings.train_max_samples or -1
    used = min(rows, limit) if limit > 0 else rows
    return used // settings.train_batch_size


def judge_steps(report: Report, rows: int, pairs: int, where: str, settings: Settings) -> None:
    """Whether training has any step, and whether the frequencies fit the number of steps.

    `rows` and `pairs` (distinct prompt and answer) are of all training files together.
    """
    batch = settings.train_batch_size
    steps = steps_of(rows, settings)
    if steps is None or batch is None:
        return
    if steps == 0:
        report.failed(
            "data-batch.no-steps", where, rows=rows, batch=batch, suggested=_power_of_two(rows)
        )
        return
    report.settle("data-batch")
    ends = steps * settings.epochs if settings.epochs else None
    shown = _steps_text(rows, pairs, steps, ends, settings)
    report.note("data-batch.steps", where, steps=shown)
    stated = settings.total_steps
    if stated and ends is not None and stated > ends:
        report.failed(
            "data-batch.epochs-first",
            where,
            stated=stated,
            ends=ends,
            epochs=settings.epochs,
            steps=steps,
            needed=-(-stated // steps),
        )
    _judge_frequencies(report, where, settings, ends)


def _judge_frequencies(report: Report, where: str, settings: Settings, ends: int | None) -> None:
    """save_freq and test_freq against the steps of the run, as `recipe-steps-frequencies` does."""
    stated = settings.total_steps
    known = [count for count in (stated, ends) if count]
    if not known:
        return
    total = min(known)
    # verl saves and validates at its last step, which it reaches only within the epochs.
    never = bool(stated and ends is not None and stated > ends)
    for name, freq, thing in (
        ("save_freq", settings.save_freq, "checkpoint"),
        ("test_freq", settings.test_freq, "validation"),
    ):
        if freq is None or freq <= total:
            continue
        values = {"setting": f"trainer.{name}", "freq": freq, "total": total, "thing": thing}
        values["suggested"] = max(1, total // 4)
        if never:
            report.failed("data-batch.never", where, **values)
        else:
            report.warn("data-batch.too-late", where, **values)


def _power_of_two(rows: int) -> int:
    return 1 << max(0, rows.bit_length() - 1) if rows else 1


def _steps_text(rows: int, pairs: int, steps: int, ends: int | None, settings: Settings) -> str:
    """Steps of an epoch and of the run; nothing is said of the run where epochs are not known."""
    batch = settings.train_batch_size or 1
    limit = settings.train_max_samples or -1
    used = min(rows, limit) if limit > 0 else rows
    text = (
        f"{steps:,} steps/epoch (floor({used:,} / {batch})), {used % batch:,} rows unused per epoch"
    )
    if pairs != rows:
        unique = steps_of(pairs, settings)
        text += f"; {unique:,} steps/epoch without repeats"
    stated = settings.total_steps
    if ends is not None:
        text += f"; {min(stated or ends, ends):,} steps in total"
    elif stated:
        text += f"; at most {stated:,} steps (trainer.total_epochs is not known)"
    frequencies = [
        f"{name}={value}"
        for name, value in (("save_freq", settings.save_freq), ("test_freq", settings.test_freq))
        if value is not None
    ]
    return f"{text} ({', '.join(frequencies)})" if frequencies else text


def judge_samples(report: Report, scan: FileScan, repeats: Repeats, settings: Settings) -> None:
    """Samples per validation problem = its rows in the file x val_kwargs.n."""
    if settings.val_samples is None or not repeats.prompts:
        return
    n = settings.val_samples
    where = str(scan.source.path)
    each = repeats.most * n
    counts = (
        f"{each:,} samples per problem = {repeats.most} rows x val_kwargs.n={n}; "
        f"{scan.rows * n:,} generations for {repeats.prompts:,} problems"
    )
    report.settle("data-samples")
    if repeats.least != repeats.most:
        report.warn("data-samples.unequal", where, least=repeats.least, most=repeats.most)
    if repeats.most > 1 and n > 1:
        report.warn(
            "data-samples.too-large", where, n=n, counts=counts, most=repeats.most, file=where
        )
    elif each == 1 and repeats.prompts < _FEW_GENERATIONS:
        error = 50 / repeats.prompts**0.5
        report.warn("data-samples.too-few", where, counts=counts, error=error)
    else:
        report.note("data-samples.samples", where, counts=counts)


def judge_leak(report: Report, train: list[FileScan], val: list[FileScan]) -> None:
    """Whether training files contain validation prompts."""
    for held_out in val:
        for seen in train:
            places = shared_rows(seen, held_out)
            if not len(places):
                continue
            rows = seen.row_list(places)
            problems = len(set(seen.prompts[places].tolist()))
            report.failed(
                "data-leak.shared-prompts",
                str(seen.source.path),
                problems=problems,
                validation=held_out.source.path,
                rows=rows.text(),
                training=seen.source.path,
            )
    if train and val:
        report.settle("data-leak")
