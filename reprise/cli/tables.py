"""Tables whose cells are never cut: shortened identifiers and paths are useless."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["print_table"]


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    """Print `rows` under the column `names` on standard output; the columns `right` to the right.

    Wider than the terminal where the cells are; a terminal then wraps the lines itself.
    """
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    needed = sum(max(len(row[i]) for row in (names, *rows)) + 2 for i in range(len(names)))
    console.width = max(console.width, needed)
    console.print(table)
