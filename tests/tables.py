"""Tables of documentation pages that a test run writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_table(
    page: Path, name: str, head: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Replace the table between the marks `<!-- NAME: written by ... -->` and `<!-- /NAME -->`."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(f"<!-- {name}: ")
    mark, close, rest = rest.partition("-->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    assert begin and close and end, f"{page} has no table {name}"
    lines = [" | ".join(head), "|".join("---" for _ in head)]
    lines[1:] = [f"|{lines[1]}|"]
    lines[0] = f"| {lines[0]} |"
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    table = "\n".join(lines)
    page.write_text(f"{before}{begin}{mark}{close}\n{table}\n\n{end}{after}", encoding="utf-8")
