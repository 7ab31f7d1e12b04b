"""The findings of one scanned file: faults of rows, columns, sources, footer and nesting."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from reprise.core.errors import CannotTell
from reprise.core.findings import Report, Severity
from reprise.core.rules import rule_id
from reprise.data.check.router import Router
from reprise.data.check.settings import Settings
from reprise.data.read.chunks import Uncast
from reprise.data.read.parquet import FIELDS
from reprise.data.read.reading import Source
from reprise.data.read.rows import PARTS, Fault
from reprise.data.read.scan import FileScan, RowList
from reprise.data.read.shape import Clash

__all__ = ["judge_file", "row_name"]

# Rules of rows; each is settled for a file whose rows all meet it.
_RULES = (
    "data-columns",
    "data-prompt",
    "data-prompt-role",
    "data-ground-truth",
    "data-source",
    "data-extra-info",
    "data-type",
)


def row_name(source: Source, row: int) -> str:
    """`file:row 3` for parquet, `file:3` (its line) for JSON lines."""
    return f"{source.path}:row {row}" if source.parquet else f"{source.path}:{row}"


def judge_file(
    report: Report,
    scan: FileScan,
    settings: Settings,
    router: Router | CannotTell,
    image_datasets: str | None = None,
    processor: bool | None = None,
) -> None:
    """Add everything that one pass over a file found, and settle the rules that hold."""
    path = str(scan.source.path)
    for bad in scan.bad_lines[:20]:
        report.failed("data-file.bad-line", f"{path}:{bad.number}", reason=bad.reason)
    if not scan.rows:
        report.failed("data-file.empty", path)
    for fault, rows in scan.faults.items():
        if fault.rule != rule_id(PARTS):
            _add_fault(report, scan, fault, rows)
    _judge_media(report, scan, processor)
    _judge_columns(report, scan, settings)
    _judge_sources(report, scan, settings, router)
    _judge_footer(report, scan, image_datasets)
    _judge_nesting(report, scan, image_datasets)
    for rule in ("data-file", *_RULES):
        if rule != "data-source" or not isinstance(router, CannotTell):
            report.settle(rule)


def _add_fault(report: Report, scan: FileScan, fault: Fault, rows: RowList) -> None:
    where = row_name(scan.source, rows.shown[0])
    message = f"{fault.message}: {rows.text()}"
    fix = fault.fix
    if fault.rule == "data-columns":
        fix = _conversion(scan, fix)
    fix = fix.replace("IN OUT", f"{shlex.quote(str(scan.source.path))} OUT.parquet")
    if fault.severity is Severity.ERROR:
        report.failed(fault.rule, where, message, fix)
    else:
        report.warn(fault.rule, where, message, fix)


_PAIRS = (("question", "answer"), ("problem", "answer"), ("problem", "solution"),
          ("instruction", "output"), ("prompt", "answer"), ("input", "output"))  # fmt: skip


def _conversion(scan: FileScan, fallback: str) -> str:
    """The exact conversion when the file has a question and an answer column."""
    names = set(scan.types())
    for question, answer in _PAIRS:
        if {question, answer} <= names:
            return f"{fallback} --question {question} --answer {answer} --data-source NAME"
    return f"{fallback} (map the columns with --question and --answer)"


def _judge_columns(report: Report, scan: FileScan, settings: Settings) -> None:
    """Columns of verl's documentation that training does not need."""
    names = scan.types()
    if scan.rows and "ability" not in names:
        report.note("data-columns.no-ability", str(scan.source.path))
    if scan.rows and "extra_info" not in names:
        report.note("data-columns.no-extra-info", str(scan.source.path))
    others = [n for n in names if n not in (*FIELDS, settings.prompt_key)]
    if others:
        shown = ", ".join(others[:10])
        report.note("data-columns.further", str(scan.source.path), shown=shown)


def _judge_sources(
    report: Report, scan: FileScan, settings: Settings, router: Router | CannotTell
) -> None:
    """Every value of data_source without a scorer."""
    if not isinstance(router, Router):
        return
    for value, count in scan.sources.items():
        if router.knows(value):
            continue
        rows = scan.source_rows[value]
        found: dict[str, object] = {
            "name": value[:60],
            "router": router.source,
            "rows": rows.text(),
        }
        where = row_name(scan.source, rows.shown[0])
        near = router.nearest(value)
        if settings.custom_reward is not None:
            report.note("data-source.custom-reward", where, **found)
        elif near:
            report.failed("data-source.misspelt", where, near=near, count=count, **found)
        else:
            report.failed("data-source.unknown", where, count=count, **found)


def _judge_footer(report: Report, scan: FileScan, image: str | None) -> None:
    """Feature metadata of the `datasets` package, which its older versions may not read."""
    blob = (scan.source.metadata or {}).get("huggingface")
    report.settle("data-footer")
    if blob is None:
        return
    where = str(scan.source.path)
    if b'"List"' not in blob and b'"LargeList"' not in blob:
        report.note("data-footer.metadata", where, file=where)
    elif image:
        report.warn("data-footer.list-type", where, image=image, file=where)
    else:
        report.warn("data-footer.list-type-unknown-image", where, file=where)


def _judge_media(report: Report, scan: FileScan, processor: bool | None) -> None:
    """Images, videos, audios and contents in parts, which a text-only model cannot take."""
    found = dict(scan.media)
    for fault, rows in scan.faults.items():
        if fault.rule == rule_id(PARTS):
            found["contents in parts"] = rows
    for name, rows in found.items():
        where = row_name(scan.source, rows.shown[0])
        if processor is None:
            report.unknown("data-media.model-unknown", where, what=name, rows=rows.text())
        elif not processor:
            report.failed("data-media.text-only", where, what=name, rows=rows.text())
    report.settle("data-media")


def _judge_clash(report: Report, where: str, clash: Clash, image: str | None) -> None:
    """Mixed types: datasets 5.2 reads them as JSON (on_mixed_types); older versions may not."""
    # In what is read as JSON a text of digits becomes a number.
    needed = clash.path.startswith(("prompt", "data_source", "reward_model.ground_truth"))
    plain = not clash.impossible and len(clash.kinds) > 1 and not needed
    major = (image or "").partition(".")[0]
    if plain and major.isdigit() and int(major) >= 5:
        report.warn("data-type.mixed-json", where, places=clash.text(), image=image)
        return
    report.failed("data-type.mixed", where, places=clash.text())


def _dropped(uncast: Sequence[Uncast]) -> str:
    """The options of `data convert` that leave out columns of several types.

    Of the five fields, answers become texts and the others are needed.
    """
    columns = (re.split(r"[.\[]", item.path)[0] for item in uncast if item.mixed)
    further = (name for name in columns if name not in FIELDS or name == "extra_info")
    return "".join(f" --drop {shlex.quote(name)}" for name in dict.fromkeys(further))


def _judge_later_chunks(report: Report, scan: FileScan) -> None:
    """Places that do not fit the types of the first 10 MiB, and texts that are read as dates."""
    where = str(scan.source.path)
    uncast = scan.chunks.uncast
    if uncast:
        listed = ", ".join(f"{item.path} (line {item.row}: {item.reason})" for item in uncast[:5])
        found = {"listed": listed, "file": where, "drop": _dropped(uncast)}
        report.failed("data-type.later-chunk", f"{where}:{uncast[0].row}", **found)
    for name, shape in scan.chunks.first.fields.items():
        for path, row in shape.date_paths(name):
            if path in ("reward_model.ground_truth", "prompt[].content"):
                report.failed("data-type.dates", f"{where}:{row}", path=path, file=where)


def _judge_nesting(report: Report, scan: FileScan, image: str | None) -> None:
    """Objects whose keys differ (readers fill in None) and values that do not fit one type."""
    where = str(scan.source.path)
    sparse: Mapping[str, int] = scan.sparse
    if scan.source.schema is None:
        sparse = {
            key: absent
            for name, shape in scan.shape.fields.items()
            for key, absent, _ in shape.sparse_fields(name)
        }
        # datasets decides by the first chunk, and casts the others to its types.
        for name, shape in scan.chunks.first.fields.items():
            for clash in shape.clashes(name, parquet=False):
                _judge_clash(report, where, clash, image)
        _judge_later_chunks(report, scan)
    report.settle("data-null-fill")
    in_prompt = {key: n for key, n in sparse.items() if key.startswith("prompt[]")}
    others = {key: n for key, n in sparse.items() if key not in in_prompt}
    if in_prompt:
        listed = ", ".join(f"{key} ({n:,} messages)" for key, n in list(in_prompt.items())[:8])
        report.warn("data-null-fill.messages", where, listed=listed)
    if others:
        listed = ", ".join(f"{key} ({n:,} rows)" for key, n in list(others.items())[:8])
        report.note("data-null-fill.other-columns", where, listed=listed)
