"""The findings of one scanned file: faults of rows, columns, sources, footer and nesting."""

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
) -> None:
    """Add everything that one pass over a file found, and settle the rules that hold."""
    path = str(scan.source.path)
    for bad in scan.bad_lines[:20]:
        report.failed("data-file.bad-line", f"{path}:{bad.number}", reason=bad.reason)
    if not scan.rows:
        report.failed("data-file.empty", path)
    for fault, rows in scan.faults.items():
        _add_fault(report, scan, fault, rows)
    _judge_columns(report, scan, settings)
    _judge_sources(report, scan, settings, router)
    _judge_footer(report, scan, image_datasets)
    _judge_nesting(report, scan)
    for rule in ("data-file", *_RULES):
        if rule != "data-source" or not isinstance(router, CannotTell):
            report.settle(rule)


def _add_fault(report: Report, scan: FileScan, fault: Fault, rows: RowList) -> None:
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


def _judge_nesting(report: Report, scan: FileScan) -> None:
    """Objects whose keys differ (readers fill in None) and values that do not fit one type."""
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
                report.failed("data-type.mixed", where, places=clash.text())
    report.settle("data-null-fill")
    in_prompt = {key: n for key, n in sparse.items() if key.startswith("prompt[]")}
    others = {key: n for key, n in sparse.items() if key not in in_prompt}
    if in_prompt:
        listed = ", ".join(f"{key} ({n:,} messages)" for key, n in list(in_prompt.items())[:8])
        report.warn("data-null-fill.messages", where, listed=listed)
    if others:
        listed = ", ".join(f"{key} ({n:,} rows)" for key, n in list(others.items())[:8])
        report.note("data-null-fill.other-columns", where, listed=listed)
