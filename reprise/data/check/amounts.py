"""Rows against the recipe: steps in an epoch, samples a problem, leakage. Arithmetic only."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.data.check.repeats import Repeats, shared_rows
from reprise.data.check.settings import Settings
from reprise.data.read.scan import FileScan

__all__ = ["judge_leak", "judge_samples", "judge_steps", "steps_of"]

# Below this many validation generations one score moves by more than five points on its own:
# the standard error of a share is at most 0.5 / sqrt(generations).
_FEW_GENERATIONS = 100


def steps_of(rows: int, settings: Settings) -> int | None:
    """Steps in one epoch: verl drops the last, incomplete batch. None without a batch size."""
    if not settings.train_batch_size or settings.train_batch_size < 1:
        return None
    limit = settings.train_max_samples or -1
    used = min(rows, limit) if limit > 0 else rows
    return used // settings.train_batch_size


def judge_steps(report: Report, rows: int, pairs: int, where: str, settings: Settings) -> None:
    """Whether training has any step, and what the frequencies mean for its number of steps.

    `rows` and `pairs` (distinct prompt and answer) are of all training files together.
    """
    batch = settings.train_batch_size
    steps = steps_of(rows, settings)
    if steps is None or batch is None:
        return
    if steps == 0:
        report.failed(
            "data-batch.steps-per-epoch",
            where,
            rows=rows,
            batch=batch,
            power_of_two=_power_of_two(rows),
        )
        return
    report.settle("data-batch")
    total = settings.total_steps or steps * (settings.epochs or 1)
    report.note("data-batch", where, _steps_text(rows, pairs, steps, total, settings))
    if settings.save_freq is not None and settings.save_freq > total:
        report.warn(
            "data-batch.trainer-save-freq",
            where,
            save_freq=settings.save_freq,
            total=total,
            value=max(1, total // 4),
        )


def _power_of_two(rows: int) -> int:
    return 1 << max(0, rows.bit_length() - 1) if rows else 1


def _steps_text(rows: int, pairs: int, steps: int, total: int, settings: Settings) -> str:
    batch = settings.train_batch_size or 1
    unused = rows % batch
    text = f"{steps:,} steps/epoch (floor({rows:,} / {batch})), {unused:,} rows unused each epoch"
    if pairs != rows:
        unique = steps_of(pairs, settings)
        text += f"; {unique:,} steps/epoch when each prompt and answer is kept once"
    text += f"; {total:,} steps in all"
    frequencies = [
        f"{name}={value}"
        for name, value in (("save_freq", settings.save_freq), ("test_freq", settings.test_freq))
        if value is not None
    ]
    return f"{text} ({', '.join(frequencies)})" if frequencies else text


def judge_samples(report: Report, scan: FileScan, repeats: Repeats, settings: Settings) -> None:
    """Samples a validation problem = how often the file repeats it x val_kwargs.n."""
    if settings.val_samples is None or not repeats.prompts:
        return
    n = settings.val_samples
    where = str(scan.source.path)
    each = repeats.most * n
    told = (
        f"{each:,} samples a problem = {repeats.most} rows a problem x val_kwargs.n={n}; "
        f"{scan.rows * n:,} generations for {repeats.prompts:,} problems"
    )
    key = "actor_rollout_ref.rollout.val_kwargs.n"
    report.settle("data-samples")
    if repeats.least != repeats.most:
        report.warn(
            "data-samples.problems-repeated-times", where, least=repeats.least, most=repeats.most
        )
    if repeats.most > 1 and n > 1:
        report.warn(
            "data-samples.validation-x-too", where, n=n, told=told, setting=key, most=repeats.most
        )
    elif each == 1 and repeats.prompts < _FEW_GENERATIONS:
        error = 50 / repeats.prompts**0.5
        report.warn("data-samples.average-over-so", where, told=told, error=error, setting=key)
    else:
        report.note("data-samples", where, told)


def judge_leak(report: Report, train: list[FileScan], val: list[FileScan]) -> None:
    """Whether validation prompts stand in the training files."""
    for held_out in val:
        for seen in train:
            places = shared_rows(seen, held_out)
            if not len(places):
                continue
            rows = seen.row_list(places)
            problems = len(set(seen.prompts[places].tolist()))
            report.failed(
                "data-leak.prompts-stand-training",
                str(seen.source.path),
                problems=problems,
                source_path=held_out.source.path,
                text=rows.text(),
                source_path2=seen.source.path,
            )
    if train and val:
        report.settle("data-leak")
