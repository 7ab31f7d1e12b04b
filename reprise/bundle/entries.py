"""The entries of a lock on their way into a bundle: added, left out, or reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.lock.model import Entry, Lock, Shipped
from reprise.trees.git import GitError

__all__ = ["adding", "collect"]


def collect(
    lock: Lock, chosen: Sequence[str], add: Callable[[str, Entry], bool], report: Report
) -> tuple[list[str], list[str]]:
    """Add every chosen entry; the entries that are in, and those that are left out.

    `add` gets the name without its kind and the entry, and says whether a bundle of this form has
    such entries. Shipped files are part of the project, which is in every bundle. What is wrong
    with an entry goes into `report`.
    """
    entries: list[str] = []
    left_out: list[str] = []
    for name in chosen:
        entry = lock.entry(name)
        with adding(name, report):
            short = name.partition(".")[2]
            if isinstance(entry, Shipped) or (entry is not None and add(short, entry)):
                entries.append(name)
                report.passed(name)
            else:
                left_out.append(name)
                report.note("bundle-note.left-out", name)
    return entries, left_out


@contextlib.contextmanager
def adding(name: str, report: Report) -> Iterator[None]:
    """Problems with the entry `name` while it is added go into `report`."""
    try:
        yield
    except GitError as error:
        report.failed(name, name, error.last_line, "`make setup`, then repeat the command")
    except OperatorError as error:
        record = report.unknown if isinstance(error, CannotTell) else report.failed
        record(name, error.where, error.message, error.fix)
