"""What one scanned file is told: its rows' faults, columns, sources, footer and nesting."""

from __future__ import annotations

from collections.abc import Mapping

from reprise.core.errors import CannotTell
from reprise.core.findings import Report, Severity
from reprise.data.check.router import Router
from reprise.data.check.settings import Settings
from reprise.data.read.parquet import FIELDS
from reprise.data.read.reading import Source
from reprise.data.read.rows import Fault
from reprise.data.read.scan import FileScan, RowList

__all__ = ["judge_file", "row_name"]

# Rules that the row rules serve; each is settled for a file whose rows break none of them.
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
) -> None:
    """Add everything that one pass over a file found, and settle the rules that hold."""
    path = str(scan.source.path)
    for bad in scan.bad_lines[:20]:
        reason = f"not a JSON object: {bad.reason}"
        report.failed("data-file", f"{path}:{bad.number}", reason, "correct or remove the line")
    if not scan.rows:
        report.failed("data-file.rows", path)
    for fault, rows in scan.faults.items():
        _tell_fault(report, scan, fault, rows)
    _judge_columns(report, scan, settings)
    _judge_sources(report, scan, settings, router)
    _judge_footer(report, scan, image_datasets)
    _judge_nesting(report, scan)
    for rule in ("data-file", *_RULES):
        if rule != "data-source" or not isinstance(router, CannotTell):
            report.settle(rule)


def _tell_fault(report: Report, scan: FileScan, fault: Fault, rows: RowList) -> None:
    where = row_name(scan.source, rows.shown[0])
    message = f"{fault.message}: {rows.text()}"
    fix = fault.fix
    if fault.rule == "data-columns":
        fix = _conversion(scan, fix)
    fix = fix.replace("IN OUT", f"{scan.source.path} OUT.parquet")
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
    """Columns that the documentation asks for although training runs without them."""
    names = scan.types()
    for name in ("ability", "extra_info"):
        if scan.rows and name not in names:
            told = (
                "verl puts {} in its place (index 0)"
                if name == "extra_info"
                else "nothing reads it"
            )
            report.note("data-columns.column", str(scan.source.path), name=name, told=told)
    others = [n for n in names if n not in (*FIELDS, settings.prompt_key)]
    if others:
        shown = ", ".join(others[:10])
        report.note("data-columns.further-columns-checked", str(scan.source.path), shown=shown)


def _judge_sources(
    report: Report, scan: FileScan, settings: Settings, router: Router | CannotTell
) -> None:
    """Every value of data_source that no scorer is routed for."""
    if not isinstance(router, Router):
        return
    for value, count in scan.sources.items():
        if router.knows(value):
            continue
        rows = scan.source_rows[value]
        shown = f"{value[:60]!r}"
        message = f"data_source {shown} is routed to no scorer in {router.source}: {rows.text()}"
        where = row_name(scan.source, rows.shown[0])
        if settings.custom_reward is not None:
            report.note("data-source.custom-reward-function", where, answer=message)
            continue
        near = router.nearest(value)
        name = f"data_source={near!r}" if near else "a name that the router knows (case-sensitive)"
        report.failed(
            "data-source.scoring-would-end", where, answer=message, name=name, count=count
        )


def _judge_footer(report: Report, scan: FileScan, image: str | None) -> None:
    """Feature metadata of the `datasets` package, which older versions of it may not know."""
    blob = (scan.source.metadata or {}).get("huggingface")
    report.settle("data-footer")
    if blob is None:
        return
    where = str(scan.source.path)
    fix = f"reprise data convert {where} OUT.parquet writes it without that metadata"
    if b'"List"' in blob or b'"LargeList"' in blob:
        has = f"the image has {image}" if image else "which version the image has is not known here"
        report.warn(
            "data-footer",
            where,
            f"written by datasets >= 4, whose feature type 'List' datasets 3 cannot read; {has}",
            fix,
        )
    else:
        report.note("data-footer", where, "holds feature metadata of the datasets package", fix)


def _judge_nesting(report: Report, scan: FileScan) -> None:
    """Objects whose keys differ (readers fill them with None) and values that fit no one type."""
    where = str(scan.source.path)
    sparse: Mapping[str, int] = scan.sparse
    if scan.source.schema is None:
        sparse = {
            key: absent
            for name, shape in scan.shape.fields.items()
            for key, absent, _ in shape.sparse_fields(name)
        }
        for name, shape in scan.shape.fields.items():
            for clash in shape.clashes(name):
                report.failed("data-type.one-column-type", where, text=clash.text())
    report.settle("data-null-fill")
    in_prompt = {key: n for key, n in sparse.items() if key.startswith("prompt[]")}
    others = {key: n for key, n in sparse.items() if key not in in_prompt}
    if in_prompt:
        listed = ", ".join(f"{key} ({n:,} messages)" for key, n in list(in_prompt.items())[:8])
        report.warn("data-null-fill.messages-different-keys", where, listed=listed)
    if others:
        listed = ", ".join(f"{key} ({n:,} rows)" for key, n in list(others.items())[:8])
        report.note("data-null-fill.null-where-object", where, listed=listed)
