"""What a file holds: its events folded into groups, its training steps, what ends it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reprise.triage.model import Event, Group, Mark, Role, Step
from reprise.triage.patterns import Pattern
from reprise.triage.read.clock import last_moment
from reprise.triage.read.normal import normalise
from reprise.triage.read.phases import last_phase, phase_in
from reprise.triage.read.place import Place
from reprise.triage.read.prefix import Line
from reprise.triage.read.source import LogFile

__all__ = ["SHOWN", "Events", "FileScan", "facts_of"]

SHOWN = 600
"""Characters of a line that an event keeps."""
_MOST_GROUPS = 3000
_MOST_RANKS = 4096


@dataclass(slots=True)
class FileScan:
    """What one file holds. `dropped` counts events beyond what is kept."""

    log: LogFile
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    success: list[Mark] = field(default_factory=list)
    teardown: list[Mark] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    lines: int = 0
    dropped: int = 0


class Events:
    """Collects the events and the steps of one file into `found`."""

    def __init__(self, found: FileScan, place: Place) -> None:
        self.found = found
        self.place = place
        self.epoch = 0
        self.top = -1
        self._before_step = b""

    def address(self, line: Line) -> None:
        """Remember the address of the line's process."""
        if line.pid and line.ip and len(self.found.addresses) < _MOST_GROUPS:
            self.found.addresses[line.pid] = line.ip

    def mark(self, number: int, line: Line, pattern: Pattern) -> None:
        """Keep a line that says how the job ended: its success, or a stop from outside."""
        stamp, yearless = self.place.look_back(line)
        mark = Mark(
            self.found.log.name,
            number,
            line.process,
            self.epoch,
            stamp,
            line.body[:SHOWN],
            pattern.id,
            yearless,
        )
        marks = self.found.success if pattern.role is Role.SUCCESS else self.found.teardown
        marks.append(mark)
        del marks[8:-8]

    def record(self, number: int, line: Line, pattern: Pattern, body: str) -> None:
        """Keep a line that is an example of `pattern`, unless its like was seen."""
        if self.again(number, line, pattern, body):
            return
        event = self.event(number, line, pattern, body)
        if event.role is Role.ROOT and not event.phase and not line.process.startswith("("):
            # A worker's own file: its last words before are of the same process.
            event.phase = last_phase(self.place.before(1500))
        self.keep(event)

    def again(self, number: int, line: Line, pattern: Pattern | None, body: str) -> bool:
        """Count a line whose like was seen since the last training step; whether it was."""
        key, repeats = normalise(body.strip()[:SHOWN])
        group = self.found.groups.get((pattern.id if pattern else "", key))
        if group is None or group.late.epoch != self.epoch:
            return False
        if number != group.last.line:
            group.last = replace(
                group.late,
                line=number,
                process=line.process,
                pid=line.pid,
                ip=line.ip,
                host=line.host,
                rank=line.rank,
            )
            self._count(group, group.last, repeats)
        return True

    def event(self, number: int, line: Line, pattern: Pattern | None, body: str) -> Event:
        """A line as an event; `body` is its text."""
        text = body.strip()[:SHOWN]
        key, repeats = normalise(text)
        stamp, yearless = self.place.look_back(line)
        return Event(
            file=self.found.log.name,
            line=number,
            role=pattern.role if pattern else Role.ROOT,
            pattern=pattern.id if pattern else "",
            category=pattern.category if pattern else "",
            text=text,
            key=key,
            process=line.process,
            pid=line.pid,
            ip=line.ip,
            host=line.host,
            rank=line.rank,
            stamp=stamp,
            exact=line.moment is not None,
            yearless=yearless,
            level=line.level,
            facts=facts_of(pattern, line.body) if pattern else {},
            phase=phase_in(text[:200]) if pattern else "",
            epoch=self.epoch,
            repeats=repeats,
        )

    def keep(self, event: Event) -> None:
        """Fold an event into its group."""
        groups = self.found.groups
        key = (event.pattern, event.key)
        group = groups.get(key)
        if group is None:
            if len(groups) >= _MOST_GROUPS:
                self.found.dropped += 1
                return
            group = groups[key] = Group(event, event, event)
        elif event.line == group.last.line:
            return
        if event.epoch > group.late.epoch:
            group.late = event
        group.last = event
        self._count(group, event, event.repeats)

    def _count(self, group: Group, event: Event, repeats: int) -> None:
        group.count += repeats
        if event.rank is not None and len(group.ranks) < _MOST_RANKS:
            group.ranks.add(event.rank)
        if len(group.hosts) < _MOST_RANKS and (host := event.ip or event.host):
            group.hosts.add(host)

    def step(self, number: int, step: int, line: Line) -> None:
        """A training step was recorded: what came before it did not end the job."""
        if step <= self.top:
            return
        if self.top >= 0 or step > 0:
            self.epoch += 1
        self.top = step
        stamp, yearless = line.moment or (None, False)
        self.found.steps.append(Step(self.found.log.name, number, step, stamp, yearless))
        self._before_step = b"" if line.moment else self.place.bytes_before()
        del self.found.steps[:-4]

    def finish(self) -> None:
        """Give the last step the time of the lines before it; only this one is asked for."""
        steps = self.found.steps
        if steps and steps[-1].stamp is None and (moment := last_moment(self._before_step)):
            steps[-1] = replace(steps[-1], stamp=moment[0], yearless=moment[1])


def facts_of(pattern: Pattern, body: str) -> dict[str, str]:
    """The named groups of the pattern in a line."""
    match = pattern.match.search(body)
    found = match.groupdict() if match else {}
    return {name: value for name, value in found.items() if value is not None}
