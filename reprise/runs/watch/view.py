"""The live view of a run: a table on a terminal, one line a step anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reprise.core.errors import OperatorError
from reprise.core.findings import Finding, Severity
from reprise.core.progress import Screen, error_console
from reprise.runs.ray.contact import GONE, Contact, contact_of
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.state.attempt import AttemptEnd
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.pulse import supervised
from reprise.runs.state.state import LIVE
from reprise.runs.supervise.following import LOST_SECONDS, Follower, follow
from reprise.runs.watch.alarms import AlarmSettings
from reprise.runs.watch.monitor import Monitor
from reprise.runs.watch.seen import Seen, duration, step_line, table_rows

__all__ = ["Limits", "View", "attend", "table_of", "watch"]

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_POLL_SECONDS = 2.0
# Maximum time without an answer of the Jobs API.
_LOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds without progress of the job, and without an answer of its Ray."""

    stall: float
    lost: float = LOST_SECONDS


class View(Screen):
    """Shows one look after another on standard error; a context manager.

    `plain` forces lines; by default they are used if standard error is not a terminal.
    """

    def __init__(self, plain: bool | None = None, quiet: bool = False) -> None:
        console = error_console()
        self._quiet = quiet
        lines = not console.is_terminal if plain is None else plain
        self._live = None if lines or quiet else Live(console=console, transient=True)
        super().__init__(self._live)
        self._step: tuple[int, int] | None = None
        self._phase = ""

    def line(self, text: str) -> None:
        """One line, above the table."""
        if not self._quiet:
            super().line(text)

    def phase(self, name: str) -> None:
        """Which phase of its start the job has reached."""
        self._phase = name
        if self._live is None:
            self.line(f"start-up: {name}")

    def show(self, seen: Seen) -> None:
        """Show a look: the updated table, or a line when there is a new step; alarms once."""
        for finding in seen.fresh:
            self.line(_alarm_line(finding))
        if self._live is not None:
            starting = self._phase if not seen.step else ""
            self._live.update(Group(table_of(seen, starting), *map(_alarm_text, seen.standing)))
        elif self._step != (seen.attempt, seen.step):
            if self._step is not None and self._step[0] != seen.attempt:
                place = "the start" if seen.resumed_from is None else f"step {seen.resumed_from}"
                self.line(f"attempt {seen.attempt} continues from {place}")
            else:
                self.line(step_line(seen))
            self._step = (seen.attempt, seen.step)


def table_of(seen: Seen, phase: str = "") -> Table:
    """The view as a table of labels and texts."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for label, text in table_rows(seen):
        table.add_row(label, Text(text))
    if phase:
        table.add_row("start-up", Text(phase))
    return table


def _alarm_line(finding: Finding) -> str:
    return f"{finding.severity.value} {finding.where}: {finding.message} [{finding.rule}]"


def _alarm_text(finding: Finding) -> Text:
    return Text(_alarm_line(finding), style=_COLOURS[finding.severity])


def watch(
    folder: RunFolder,
    number: int,
    jobs: Jobs,
    limits: Limits,
    view: View,
    settings: AlarmSettings | None = None,
) -> AttemptEnd:
    """Show attempt `number` until its job has ended; copies its log into the run folder.

    Alarms are shown and written as events. Nothing is stopped here: neither a stalled job nor
    one whose watcher is interrupted (KeyboardInterrupt passes through).
    """
    contact: Contact | None = None
    with contextlib.suppress(OperatorError):
        contact = contact_of(folder)
    monitor = Monitor(folder, contact, settings)
    monitor.told_before(event for event in folder.events() if event.get("event") == "alarm")

    shown: set[str] = set()
    silent = False

    def look() -> None:
        nonlocal silent
        try:
            seen = monitor.look()
        except (OperatorError, OSError) as error:
            # A failed look does not end the watch: the job continues.
            if str(error) not in shown:
                shown.add(str(error))
                view.line(str(error))
            return
        for finding in seen.fresh:
            folder.event("alarm", attempt=number, **finding.to_json())
        unanswered = monitor.unanswered
        if unanswered is not None and not silent:
            said = f"{unanswered.where}: {unanswered.message}"
            view.line(f"{said}; waiting up to {duration(limits.lost)}")
        silent = unanswered is not None
        for text in sorted({f"{item.where}: {item.message}" for item in monitor.unread} - shown):
            shown.add(text)
            view.line(text)
        view.show(seen)

    follower = Follower(lambda _: None, view.phase, limits.stall, limits.lost, on_poll=look)
    attempt = follow(folder, number, jobs, follower)
    look()
    return attempt


def attend(
    monitor: Monitor,
    view: View,
    patience: float = _LOST_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Seen]:
    """Look until the run is no longer live or its job has ended; yields each look.

    A cluster that does not answer for `patience` seconds ends it as well. For a run that another
    command supervises, or no command: nothing is written.
    """
    silent = 0
    while True:
        seen = monitor.look()
        view.show(seen)
        yield seen
        silent = silent + 1 if monitor.unanswered is not None else 0
        if silent == 1 and monitor.unanswered is not None:
            view.line(f"{monitor.unanswered.where}: {monitor.unanswered.message}")
        if seen.state not in LIVE or silent > patience / _POLL_SECONDS:
            return
        # A supervisor writes how an attempt ended, and may begin the next; without one, only the
        # cluster can report the end.
        over = monitor.contact is None or seen.job in (*ENDED, GONE)
        if over and not supervised(monitor.folder, monitor.folder.read()):
            return
        sleep(_POLL_SECONDS)
