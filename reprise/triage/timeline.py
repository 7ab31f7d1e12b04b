"""The events of all files on one clock: what is equal, what the job survived, what ended it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprise.triage.model import Clock, Event, Group, Mark, Role, Step
from reprise.triage.read.clock import most_common_year, with_year
from reprise.triage.read.events import FileScan

__all__ = ["CLOCK_SECONDS", "Timeline", "Whole", "is_driver"]

CLOCK_SECONDS = 2.0
"""Clocks of two hosts whose offset is unknown are trusted to this many seconds."""

_DRIVERS = ("TaskRunner", "main_task")
_BACK_AFTER = 5.0
# Logs print thousandths of a second, and a line some time after it happened.
_PRINTED_SECONDS = 0.05


@dataclass(slots=True)
class Whole:
    """Equal events of all files, and what became of them."""

    parts: list[Group]
    chosen: Event
    recovered: bool = False
    torn_down: bool = False

    @property
    def first(self) -> Event:
        """The earliest of them, also one that the job survived."""
        return self.parts[0].first

    def merged(self) -> Group:
        """One group of all parts that begins with the chosen event."""
        group = Group(self.chosen, self.chosen, self.parts[-1].last)
        for part in self.parts:
            group.count += part.count
            group.ranks |= part.ranks
            group.hosts |= part.hosts
        if (host := self.chosen.ip or self.chosen.host) and len(self.parts) > 1:
            group.hosts.add(host)
        return group


class Timeline:
    """The files read together, and the clocks of their hosts as far as they are known."""

    def __init__(self, scans: Sequence[FileScan], clocks: Mapping[str, Clock]) -> None:
        self.scans = scans
        self.clocks = clocks
        self.of_file = {scan.log.name: scan.log.host for scan in scans}
        self.order = {scan.log.name: index for index, scan in enumerate(scans)}
        self.lines = {scan.log.name: scan.lines for scan in scans}
        self.final = {scan.log.name: _epochs(scan) for scan in scans}
        self._prepare()
        self.step = self._last_step()
        self.wholes = self._merge()
        self._decide_teardown()

    def _decide_teardown(self) -> None:
        """What follows a stop from outside did not cause it."""
        stops = self.stops()
        for whole in self.wholes:
            whole.torn_down = self._is_teardown(whole.chosen, stops)

    def first_stop(self) -> Mark | None:
        """The first stop from outside after which no training step came."""
        return min(self.stops(), key=lambda m: (self.order[m.file], m.line), default=None)

    def _prepare(self) -> None:
        """Years, offsets and hosts, which only all files together show."""
        events = [
            event for scan in self.scans for group in scan.groups.values() for event in _once(group)
        ]
        years = [event.stamp for event in events if event.stamp is not None and not event.yearless]
        years += [
            step.stamp
            for scan in self.scans
            for step in scan.steps
            if step.stamp is not None and not step.yearless
        ]
        self.year = most_common_year(years)
        for scan in self.scans:
            found = [event for group in scan.groups.values() for event in _once(group)]
            for event in found:
                self._complete(event, scan)
            _fill_stamps(found)

    def _complete(self, event: Event, scan: FileScan) -> None:
        if not event.ip and event.pid:
            event.ip = scan.addresses.get(event.pid, "")
        event.host = event.ip or event.host or scan.log.host
        event.coarse = not event.exact or (event.stamp or 0.0) % 1 == 0
        event.stamp = self._moment(event.stamp, event.yearless, event.host, scan.log.host)
        event.yearless = False

    def _moment(self, stamp: float | None, yearless: bool, *hosts: str) -> float | None:
        if stamp is None:
            return None
        moment = with_year(stamp, self.year) if yearless else stamp
        clock = next((self.clocks[host] for host in hosts if host in self.clocks), None)
        return moment - clock.ahead if clock is not None else moment

    def tolerance(self, one: Event, other: Event) -> float:
        """Seconds within which the clocks of two hosts cannot tell which event came first."""
        clocks = [self.clocks[event.host] for event in (one, other) if event.host in self.clocks]
        if len(clocks) < 2:
            return CLOCK_SECONDS
        printed = CLOCK_SECONDS if one.coarse or other.coarse else _PRINTED_SECONDS
        return printed + sum(clock.within for clock in clocks)

    def _last_step(self) -> Step | None:
        steps = [scan.steps[-1] for scan in self.scans if scan.steps]
        return max(steps, key=lambda step: step.step) if steps else None

    def _merge(self) -> list[Whole]:
        groups: dict[tuple[str, str], list[Group]] = {}
        for scan in self.scans:
            for key, group in scan.groups.items():
                groups.setdefault(key, []).append(group)
        wholes = []
        for parts in groups.values():
            parts.sort(key=lambda part: self.when(part.first))
            wholes.append(Whole(parts, parts[0].first))
        for whole in wholes:
            self._decide_recovery(whole)
        return wholes

    def when(self, event: Event) -> tuple[float, int, int]:
        """Time first; files without any clock come after those with one, in their order."""
        stamp = event.stamp if event.stamp is not None else float("inf")
        return (stamp, self.order[event.file], event.line)

    def _decide_recovery(self, whole: Whole) -> None:
        """An event after which training went on did not end the job; a later equal one may have."""
        late = [part.late for part in whole.parts if not self._went_on(part.late)]
        if not late:
            whole.recovered = True
            return
        late.sort(key=self.when)
        whole.chosen = late[0]

    def _went_on(self, event: Event) -> bool:
        """Whether a training step was recorded after `event`."""
        if self.final[event.file] > 0:
            return event.epoch < self.final[event.file]
        step = self.step
        if step is None or step.stamp is None or event.stamp is None or not event.exact:
            return False
        moment = self._moment(step.stamp, step.yearless, self.of_file[step.file])
        return moment is not None and event.stamp < moment - _BACK_AFTER

    def stops(self) -> list[Mark]:
        """Stops from outside after which no training step came."""
        return [
            mark
            for scan in self.scans
            for mark in scan.teardown
            if mark.epoch == self.final[mark.file]
        ]

    def _is_teardown(self, event: Event, stops: Sequence[Mark]) -> bool:
        for mark in stops:
            whole_job = is_driver(mark.process)
            if mark.file == event.file:
                if event.line > mark.line and (whole_job or mark.process == event.process):
                    return True
            elif whole_job and mark.stamp is not None and event.stamp is not None:
                moment = self._moment(mark.stamp, mark.yearless, self.of_file[mark.file])
                if moment is not None and event.stamp > moment + CLOCK_SECONDS:
                    return True
        return False

    def success(self) -> Mark | None:
        """The mark of success after which the same file shows no failure."""
        for scan in self.scans:
            for mark in scan.success:
                if mark.epoch < self.final[scan.log.name]:
                    continue
                after = [
                    w
                    for w in self.wholes
                    for part in w.parts
                    if part.last.file == mark.file
                    and part.last.line > mark.line
                    and w.chosen.role is Role.CASCADE
                    and not w.torn_down
                    and w.chosen.category == "job_failed"
                ]
                if not after:
                    return mark
        return None

    def ordered(self, wholes: Iterable[Whole]) -> list[Whole]:
        """The groups in the order of their chosen events."""
        return sorted(wholes, key=lambda w: self.when(w.chosen))


def is_driver(process: str) -> bool:
    """Whether the process runs the whole job; a log without processes is the job's own."""
    return not process or any(name in process for name in _DRIVERS)


def _epochs(scan: FileScan) -> int:
    """How often the file records that training went on."""
    marks = [mark.epoch for mark in (*scan.success, *scan.teardown)]
    events = [group.late.epoch for group in scan.groups.values()]
    return max([scan.epoch, *marks, *events], default=0)


def _fill_stamps(events: Sequence[Event]) -> None:
    """Give lines before a file's first time stamp that stamp: they were written no later.

    Without it they would come after every line with a stamp, even those that follow them.
    """
    stamp = None
    for event in sorted(events, key=lambda one: one.line, reverse=True):
        if event.stamp is None:
            event.stamp = stamp
        else:
            stamp = event.stamp


def _once(group: Group) -> list[Event]:
    """The events of a group, each once."""
    found = {id(event): event for event in (group.first, group.late, group.last)}
    return list(found.values())
