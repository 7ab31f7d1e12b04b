"""The parts of every page: one HTML file that needs nothing else, its tables, its texts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib import resources

from reprise.core.findings import Finding
from reprise.curves.past import Past, time_line

__all__ = ["FURTHER", "document", "escaped", "findings_table", "html_table", "time_line_table"]

FURTHER = (
    "actor/entropy",
    "actor/grad_norm",
    "response_length/mean",
    "response_length/clip_ratio",
    "perf/total_num_tokens",
)
"""Shown with the judged metrics when a run has them."""


def _asset(name: str) -> str:
    return resources.files("reprise.curves").joinpath(name).read_text(encoding="utf-8")


def escaped(value: object) -> str:
    """Any value as text of HTML."""
    return html.escape(str(value))


def document(title: str, body: str, refresh: int | None = None) -> str:
    """The page `body`, with style and script in it; loaded again every `refresh` seconds."""
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{again}'
        f"<title>{escaped(title)}</title><style>{_asset('page.css')}</style></head>"
        f"<body><main>{body}</main><script>{_asset('page.js')}</script></body></html>\n"
    )


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first cell of a row is its header; `rows` are cells as HTML."""
    names = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    body = ""
    for first, *cells in rows:
        rest = "".join(
            f'<td data-name="{escaped(name)}">{cell}</td>'
            for name, cell in zip(head[1:], cells, strict=True)
        )
        body += f'<tr><th scope="row">{first}</th>{rest}</tr>'
    return (
        f'<div class="wide"><table><caption>{escaped(caption)}</caption><thead><tr>{names}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def findings_table(found: Sequence[Finding]) -> str:
    """Findings with their fixes."""
    if not found:
        return "<p>No further findings.</p>"
    rows = [
        [
            escaped(note.severity.value),
            f"<code>{escaped(note.where)}</code>",
            escaped(note.message) + (f'<p class="fix">{escaped(note.fix)}</p>' if note.fix else ""),
        ]
        for note in found
    ]
    return html_table("Findings", ("severity", "where", "message"), rows)


def time_line_table(past: Past) -> str:
    """What happened to a run, in the order of time."""
    rows = time_line(past)
    if not rows:
        return "<p>Not recorded: events and alarms are those of a run folder.</p>"
    return html_table("Time line", ("time", "attempt", "event", "details"), rows)
