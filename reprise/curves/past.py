"""What happened to a run besides its curve: events, alarms, and the cause of a failure."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Past", "cause_section", "flat", "moment", "time_line"]

_ALARM = "alarm"
# Facts of an event that have a column of their own, or are the event itself.
_COLUMNS = {"time", "event", "attempt"}
_TIMES = {"created", "started", "ended", "stop"}


@dataclass(frozen=True, slots=True)
class Past:
    """The record of a run folder: lines of events.jsonl, and what triage.json says.

    `events`: one mapping an event, with `time` (seconds since the epoch), `event`, perhaps
    `attempt`, and facts; an alarm has severity, where, message and fix. `triage`: title, and
    `root` with host, file, line, text and advice; empty where no failure was explained.
    """

    events: Sequence[Mapping[str, Any]] = ()
    triage: Mapping[str, Any] = field(default_factory=dict)


def moment(value: object) -> str:
    """Seconds since the epoch as a time in UTC."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return "unknown"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
    except (OverflowError, ValueError, OSError):
        return "unknown"


def flat(facts: Mapping[str, Any], stem: str = "") -> Iterable[tuple[str, str]]:
    """Facts as text, nested ones by dotted names; what is empty or not known is left out."""
    for key, value in sorted(facts.items()):
        name = f"{stem}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif key in _TIMES:
            yield name, moment(value)
        elif isinstance(value, list | tuple):
            if value:
                yield name, ", ".join(_item(item) for item in value)
        elif value not in (None, ""):
            yield name, str(value)


def _item(value: object) -> str:
    """One item of a list: a mapping by its names, anything else as it is."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in flat(value))
    return str(value)


def time_line(past: Past) -> list[list[str]]:
    """Rows of the time line as HTML: time, attempt, event, details; alarms are marked."""
    rows = []
    for event in past.events:
        kind = str(event.get("event", "unknown"))
        details = "; ".join(
            f"{html.escape(name)}: {html.escape(text)}"
            for name, text in flat({k: v for k, v in event.items() if k not in _COLUMNS})
        )
        if kind == _ALARM:
            kind, details = _alarm(event)
        attempt = event.get("attempt")
        shown = "" if attempt is None else str(attempt)
        rows.append([moment(event.get("time")), html.escape(shown), kind, details])
    return rows


def _alarm(event: Mapping[str, Any]) -> tuple[str, str]:
    severity = str(event.get("severity", "unknown"))
    state = "failed" if severity == "error" else "unknown"
    details = f"<code>{html.escape(str(event.get('where', '')))}</code> "
    details += html.escape(str(event.get("message", "")))
    if fix := event.get("fix"):
        details += f'<p class="fix">{html.escape(str(fix))}</p>'
    return f'<span class="{state}">alarm: {html.escape(severity)}</span>', details


def cause_section(past: Past, heading: str = "Failure") -> str:
    """The explained failure as a section; empty where nothing failed or nothing is known."""
    root = past.triage.get("root")
    title = past.triage.get("title")
    if not isinstance(root, Mapping) or not title:
        return ""
    place = f"{root.get('file', 'unknown')}:{root.get('line', 'unknown')}"
    host = f" on {root['host']}" if root.get("host") else ""
    attempt = past.triage.get("attempt", "unknown")
    advice = root.get("advice")
    steps = advice if isinstance(advice, list | tuple) else ()
    items = "".join(f"<li>{html.escape(str(step))}</li>" for step in steps)
    return (
        f"<section><h2>{html.escape(heading)}</h2><p><strong>{html.escape(str(title))}</strong>"
        f"{html.escape(host)}, attempt {html.escape(str(attempt))}</p>"
        f"<p><code>{html.escape(place)}</code> {html.escape(str(root.get('text', '')))}</p>"
        + (f"<ul>{items}</ul>" if items else "")
        + "</section>"
    )
