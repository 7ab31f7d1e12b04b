"""Prompt lengths against the recipe's limit, and the effect of its policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reprise.core.findings import Report
from reprise.data.check.repeats import first_places
from reprise.data.check.settings import Settings
from reprise.data.check.tokens import CHARS_PER_TOKEN, ChatTokenizer
from reprise.data.read.reading import Source
from reprise.data.read.rows import as_list
from reprise.data.read.scan import FileScan, RowList

__all__ = ["Lengths", "judge_lengths", "measure_lengths"]

_EDGES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_CHUNK = 2048


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of each row's prompt (-1 where the template refused it), and how they were found."""

    tokens: npt.NDArray[np.int64]
    how: str
    exact: bool

    def histogram(self) -> list[tuple[str, int]]:
        """Rows by length in tokens, from the first class that holds one to the last."""
        counts, _ = np.histogram(self.tokens, bins=[0, *(e + 1 for e in _EDGES), 1 << 40])
        names = [f"<= {edge:,}" for edge in _EDGES] + [f"> {_EDGES[-1]:,}"]
        filled = np.flatnonzero(counts)
        if not len(filled):
            return []
        kept = range(int(filled[0]), int(filled[-1]) + 1)
        return [(names[i], int(counts[i])) for i in kept]


def measure_lengths(
    scan: FileScan,
    prompt_key: str,
    tokenizer: ChatTokenizer | None,
    progress: Callable[[int], None] | None = None,
) -> Lengths:
    """Lengths of all rows: each distinct prompt is tokenised once, in a pass of its own.

    Without a tokenizer they are estimated as characters divided by CHARS_PER_TOKEN, rounded up.
    """
    if tokenizer is None:
        tokens = -(-scan.chars.astype(np.int64) // CHARS_PER_TOKEN)
        return Lengths(tokens, f"estimate: characters / {CHARS_PER_TOKEN}", False)
    places = first_places(scan)
    found = np.full(len(places), -1, np.int64)
    for start, values in _tokenised(scan.source, places, prompt_key, tokenizer):
        found[start : start + len(values)] = values
        if progress is not None:
            progress(len(values))
    order = np.argsort(scan.prompts[places])
    keys = scan.prompts[places][order]
    where = np.searchsorted(keys, scan.prompts)
    return Lengths(found[order][where], f"tokens of {tokenizer.folder.name}", True)


def _tokenised(
    source: Source, places: npt.NDArray[np.int64], prompt_key: str, tokenizer: ChatTokenizer
) -> Iterator[tuple[int, list[int]]]:
    """Lengths of the prompts at sorted places, by chunks that bound the memory."""
    before, done = 0, 0
    waiting: list[list[dict[str, object]]] = []
    for batch, _, _ in source.batches(prompt_key, (prompt_key,)):
        count = len(batch.numbers)
        wanted = np.zeros(count, np.bool_)
        wanted[places[(places >= before) & (places < before + count)] - before] = True
        before += count
        for _, row in batch.rows(wanted):
            messages = as_list(row.get(prompt_key)) or ()
            waiting.append([_filled(m) for m in messages if isinstance(m, dict)])
            if len(waiting) == _CHUNK:
                yield done, _lengths(tokenizer, waiting)
                done += len(waiting)
                waiting = []
    if waiting:
        yield done, _lengths(tokenizer, waiting)


def _filled(message: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in message.items() if value is not None}


def _lengths(tokenizer: ChatTokenizer, prompts: list[list[dict[str, object]]]) -> list[int]:
    return [-1 if length is None else length for length in tokenizer.lengths(prompts)]


def judge_lengths(report: Report, scan: FileScan, lengths: Lengths, settings: Settings) -> None:
    """Report the rows over the limit and what verl does with them; without a limit, do not."""
    where = str(scan.source.path)
    refused = np.flatnonzero(lengths.tokens < 0)
    if len(refused):
        rows = scan.row_list(refused)
        report.failed("data-template.refused", where, rows=rows.text())
    elif lengths.exact:
        report.passed("data-template")
    limit = settings.max_prompt_length
    if limit is None:
        return
    over = np.flatnonzero(lengths.tokens > limit)
    report.settle("data-length")
    if len(over):
        _report_over(report, scan, scan.row_list(over), lengths, settings)


def _report_over(
    report: Report, scan: FileScan, rows: RowList, lengths: Lengths, settings: Settings
) -> None:
    longest = int(lengths.tokens.max())
    found: dict[str, object] = {
        "over": rows.count,
        "total": scan.rows,
        "limit": settings.max_prompt_length,
        "rows": rows.text(),
        "longest": longest,
        "how": lengths.how,
    }
    where = str(scan.source.path)
    truncation = settings.truncation or "error"
    # The rollout at 220e903 and in 0.9.1: _cap_text_prompt_length in
    # verl/experimental/agent_loop/agent_loop.py cuts from the left and does not read truncation.
    if settings.filter_overlong and lengths.exact and rows.count == scan.rows:
        shortest = int(lengths.tokens.min())
        report.failed(
            "data-length.none-left", where, total=scan.rows, limit=settings.max_prompt_length,
            shortest=shortest, longest=longest, how=lengths.how,
        )  # fmt: skip
    elif settings.filter_overlong:
        report.note("data-length.dropped", where, left=scan.rows - rows.count, **found)
    elif truncation == "left":
        report.warn("data-length.cut", where, **found)
    else:
        report.warn("data-length.cut-despite", where, truncation=truncation, **found)
