"""What stays on the screen when a run has ended: its curve in a few lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

from reprise.core.errors import OperatorError
from reprise.metrics import MetricTable, read_run
from reprise.runs.state.folder import RunFolder
from reprise.runs.watch.seen import NUMBERS, duration

__all__ = ["sparkline", "summary_lines"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#@"
_WIDTH = 40


def sparkline(values: Sequence[float], width: int = _WIDTH, plain: bool = False) -> str:
    """The values as one line of blocks, lowest to highest; NaN and Inf are blanks.

    More than `width` values are averaged in equal groups. `plain`: in ASCII.
    """
    blocks = _ASCII if plain else _BLOCKS
    groups = [
        values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)
    ]
    means = [_mean(group) for group in groups] if len(values) > width else list(values)
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(
        blocks[round((value - low) * scale)] if math.isfinite(value) else " " for value in means
    )


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def summary_lines(folder: RunFolder, plain: bool | None = None) -> Iterator[str]:
    """Reward and validation from first to last, the time of a step, the throughput.

    Nothing for a run without metrics. `plain`: in ASCII; by default where standard error is not in
    UTF-8.
    """
    if plain is None:
        plain = "utf" not in (sys.stderr.encoding or "").lower()
    try:
        table = read_run(folder.path)
    except (OperatorError, OSError):
        return
    validation = next((name for name in table.names if name.startswith("val-core/")), None)
    for label, name in (("reward", NUMBERS["reward"]), ("validation", validation)):
        if name is not None and (line := _curve(table, label, name, plain)):
            yield line
    seconds = [value for _, value in _points(table, "timing_s/step")]
    tokens = [value for _, value in _points(table, NUMBERS["throughput"])]
    words = [f"{len(seconds)} steps in {duration(sum(seconds))}"] if seconds else []
    if seconds:
        words.append(f"median {sorted(seconds)[len(seconds) // 2]:.1f} s a step")
    if tokens:
        words.append(f"{_mean(tokens):.4g} tokens/s per GPU")
    if words:
        yield ", ".join(words)


def _curve(table: MetricTable, label: str, name: str, plain: bool) -> str:
    found = _points(table, name)
    if not found:
        return ""
    (first, begin), (last, end) = found[0], found[-1]
    line = sparkline([value for _, value in found], plain=plain)
    return f"{label:<10} {begin:.4g} (step {first}) {line} {end:.4g} (step {last})"


def _points(table: MetricTable, name: str) -> list[tuple[int, float]]:
    """(step, value) in the order of steps."""
    found = table.series(name)
    return [(int(s), float(v)) for s, v in zip(found.steps, found.values, strict=True)]
