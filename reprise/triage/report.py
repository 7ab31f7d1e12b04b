"""A diagnosis for people and for programs: lines of text, a JSON object, a finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reprise.core.findings import Report
from reprise.triage.engine import Examined
from reprise.triage.model import TIERS, Event, Group, Role, State
from reprise.triage.patterns import Category, Library
from reprise.triage.read.normal import normalise
from reprise.triage.read.tracebacks import frame_text
from reprise.triage.secrets import without_secrets

__all__ = [
    "RULE",
    "cascade_lines",
    "describe",
    "fill_report",
    "root_advice",
    "root_place",
    "summary",
]

RULE = "triage-root-cause"
_MOST_SHOWN = 12
_SHORT = 160


def fill_report(report: Report, examined: Examined) -> None:
    """Add the answer to `report`: a root cause is a problem, no primary cause is unknown."""
    diagnosis = examined.diagnosis
    report.data["triage"] = describe(examined)
    for text in examined.unread:
        report.warn("triage-unread", text.partition(": ")[0], text.partition(": ")[2], "")
    if diagnosis.root is not None:
        event = diagnosis.root.first
        category = examined.library.category(diagnosis.category)
        advice = "; ".join(advice_for(examined.library, event, category)) or "read the log there"
        report.failed(
            RULE, _where(examined, event), _root_message(diagnosis.root, category), advice
        )
        if not diagnosis.certain:
            _rivals(report, examined)
    elif diagnosis.state is State.NO_PRIMARY_CAUSE:
        category = examined.library.category(diagnosis.category or "job_failed")
        first = diagnosis.cascade[0].first if diagnosis.cascade else None
        where = _where(examined, first) if first else _files(examined)
        message = f"no primary cause in these logs: {category.title}"
        if first is not None:
            message += f"; the first line of the failure: {_short(first.text)}"
        if diagnosis.missing_ranks:
            ranks = rank_text(diagnosis.missing_ranks)
            message += f"; ranks that did not report: {ranks}"
        if diagnosis.teardown is not None:
            message += f"; the job was stopped from outside at {diagnosis.teardown.file}:"
            message += str(diagnosis.teardown.line)
        report.unknown(RULE, where, message, "; ".join(category.advice))
    elif diagnosis.state is State.NO_FAILURE:
        report.passed(RULE)
    else:
        _nothing(report, examined)


def _nothing(report: Report, examined: Examined) -> None:
    teardown = examined.diagnosis.teardown
    if not examined.files:
        message, fix = "no log file found", "name log files, or a folder that holds some"
    elif teardown is not None:
        message = f"no failure found; the job was stopped from outside: {_short(teardown.text)}"
        fix = "find who stopped it: the scheduler's log, or reprise status RUN"
    else:
        message = "no failure found, and no line shows that the job ended well"
        fix = "add the logs of the other ranks and hosts; the job may still be running"
    report.unknown(RULE, _files(examined), message, fix)


def _rivals(report: Report, examined: Examined) -> None:
    for rival in examined.diagnosis.rivals:
        report.note(
            "triage-order",
            _where(examined, rival.first),
            f"as early as the root within the accuracy of the clocks: {_short(rival.first.text)}",
            "measure the clocks and pass --clock HOST=SECONDS",
        )


def _files(examined: Examined) -> str:
    return (
        str(examined.files[0].path) if len(examined.files) == 1 else f"{len(examined.files)} files"
    )


def _where(examined: Examined, event: Event) -> str:
    path = next((log.path for log in examined.files if log.name == event.file), event.file)
    return f"{path}:{event.line}"


def _root_message(group: Group, category: Category) -> str:
    event = group.first
    places = [
        f"{name} {value}"
        for name, value in (
            ("host", event.host),
            ("rank", event.rank),
            ("process", event.process),
            ("phase", event.phase),
        )
        if value not in ("", None)
    ]
    times = f", {group.count} times" if group.count > 1 else ""
    return (
        f"{category.title} ({', '.join(places) or 'one process'}{times}): {_short(event.text, 400)}"
    )


def advice_for(library: Library, event: Event, category: Category) -> Sequence[str]:
    """What to change, the pattern's own advice first, else the category's for the phase."""
    pattern = library.pattern(event.pattern) if event.pattern else None
    if pattern is not None and pattern.advice:
        return pattern.advice
    return category.phases.get(event.phase, category.advice)


def summary(examined: Examined) -> str:
    """The answer in one line, for a status line or a retry."""
    diagnosis = examined.diagnosis
    if diagnosis.root is not None:
        return without_secrets(diagnosis.root.first.text)
    texts = [g.first.text for g in diagnosis.cascade if g.first.pattern != "hydra-tail"]
    return without_secrets(texts[0]) if texts else ""


def root_place(examined: Examined) -> str:
    """The root's file and line; empty where there is none."""
    root = examined.diagnosis.root
    return _where(examined, root.first) if root is not None else ""


def root_advice(examined: Examined) -> str:
    """What to change; empty where no root was found."""
    root = examined.diagnosis.root
    if root is None:
        return ""
    category = examined.library.category(examined.diagnosis.category)
    return "; ".join(advice_for(examined.library, root.first, category))


def describe(examined: Examined) -> dict[str, Any]:
    """The diagnosis as JSON values; secrets are removed."""
    diagnosis, library = examined.diagnosis, examined.library
    category = library.category(diagnosis.category) if diagnosis.category else None
    root = None
    if diagnosis.root is not None and category is not None:
        event = diagnosis.root.first
        pattern = library.pattern(event.pattern) if event.pattern else None
        root = _group(diagnosis.root) | {
            "explanation": pattern.explanation if pattern else "",
            "advice": list(advice_for(library, event, category)),
            "source": pattern.source if pattern else "",
            "confidence": TIERS[event.tier],
            "frames": list(map(frame_text, event.frames[-6:])),
        }
    return {
        "state": diagnosis.state.value,
        "category": diagnosis.category or None,
        "title": category.title if category else None,
        "retry": category.retry if category else None,
        "root": root,
        "certain": diagnosis.certain,
        "cascade": [_group(group) for group in diagnosis.cascade],
        "confirmations": [_group(group) for group in diagnosis.confirmations],
        "recovered": [_group(group) for group in diagnosis.recovered],
        "also_early": [_group(group) for group in diagnosis.rivals],
        "missing_ranks": list(diagnosis.missing_ranks),
        "last_step": diagnosis.steps,
        "stopped_from_outside": _mark(diagnosis.teardown),
        "succeeded": _mark(diagnosis.success),
        "files": len(examined.files),
        "lines": examined.lines,
        "bytes": examined.size,
        "unread": [without_secrets(text) for text in examined.unread],
        "notes": diagnosis.notes,
    }


def _mark(mark: Any) -> dict[str, Any] | None:
    if mark is None:
        return None
    return {"file": mark.file, "line": mark.line, "text": without_secrets(mark.text)}


def _group(group: Group) -> dict[str, Any]:
    event = group.first
    return {
        "file": event.file,
        "line": event.line,
        "role": event.role.value,
        "category": event.category or None,
        "pattern": event.pattern or None,
        "text": without_secrets(event.text),
        "exception": event.exception or None,
        "host": event.host or None,
        "rank": event.rank,
        "process": event.process or None,
        "pid": event.pid or None,
        "phase": event.phase or None,
        "time": event.stamp,
        "facts": {name: without_secrets(value) for name, value in sorted(event.facts.items())},
        "count": group.count,
        "ranks": sorted(group.ranks),
        "hosts": sorted(group.hosts),
        "last": {"file": group.last.file, "line": group.last.line},
    }


def cascade_lines(examined: Examined) -> list[str]:
    """What followed from the root, shortened, and what came before it: one line a kind."""
    diagnosis = examined.diagnosis
    lines = []
    early = [g for g in diagnosis.confirmations if g.first.role is Role.CONFIRMATION]
    for title, groups in (
        ("recovered, training went on", diagnosis.recovered),
        ("evidence", early),
        ("consequences", diagnosis.cascade),
    ):
        shown = _one_of_each(groups)
        if shown:
            lines.append(f"{title}:")
            lines += [f"  {_line(group)}" for group in shown[:_MOST_SHOWN]]
            if len(shown) > _MOST_SHOWN:
                lines.append(f"  and {len(shown) - _MOST_SHOWN} more kinds (--json lists all)")
    return lines


def _one_of_each(groups: Iterable[Group]) -> list[Group]:
    """The first group of each pattern; the others of a pattern add to its count."""
    shown: dict[str, Group] = {}
    for group in groups:
        key = group.first.pattern or normalise(group.first.text)[0]
        if key in shown:
            old = shown[key]
            shown[key] = Group(
                old.first,
                old.late,
                group.last,
                old.count + group.count,
                old.ranks | group.ranks,
                old.hosts | group.hosts,
            )
        else:
            shown[key] = group
    return list(shown.values())


def _line(group: Group) -> str:
    event = group.first
    spread = []
    if group.count > 1:
        spread.append(f"{group.count} times")
    if len(group.ranks) > 1:
        spread.append(f"ranks {rank_text(sorted(group.ranks))}")
    elif event.rank is not None:
        spread.append(f"rank {event.rank}")
    if len(group.hosts) > 1:
        spread.append(f"{len(group.hosts)} hosts")
    elif event.host:
        spread.append(event.host)
    note = f" ({', '.join(spread)})" if spread else ""
    return f"{event.file}:{event.line}{note} {_short(event.text)}"


def rank_text(ranks: Sequence[int]) -> str:
    """Ranks as ranges: 0-3, 8."""
    parts: list[str] = []
    begin = previous = None
    for rank in [*ranks, None]:
        if begin is None:
            begin = previous = rank
        elif rank is not None and previous is not None and rank == previous + 1:
            previous = rank
        else:
            parts.append(str(begin) if begin == previous else f"{begin}-{previous}")
            begin = previous = rank
    return ", ".join(parts)


def _short(text: str, most: int = _SHORT) -> str:
    text = without_secrets(text)
    return text if len(text) <= most else text[: most - 1] + "…"
