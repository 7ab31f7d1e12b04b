"""`reprise curves show | compare`, `reprise compare`, `reprise reference ...`, `reprise report`.

The arguments that name a run are in reprise/cli/options.py, for all of them.
"""

from __future__ import annotations

import typer

from reprise.cli.commands.curves import compare, groups, reference, report

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    compare.register(app)
    groups.register(app)
    reference.register(app)
    report.register(app)
