"""The tracebacks of a file while they are read: several processes write into each other's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reprise.triage.model import Event, Role
from reprise.triage.read.events import SHOWN, Events, facts_of
from reprise.triage.read.matcher import ABOVE
from reprise.triage.read.named import Named
from reprise.triage.read.normal import normalise
from reprise.triage.read.phases import phase_in
from reprise.triage.read.prefix import Line
from reprise.triage.read.tracebacks import HEADER_BYTES, Echo, Ended, Trace, is_header

__all__ = ["HANDLED", "Traces"]

HANDLED = {"DEBUG", "INFO", "NOTICE", "WARNING", "WARN"}
"""Levels of a record whose exception was handled."""
_MOST_PREFIXES = 256
_LONG_TRACE = 600


class Traces:
    """The open tracebacks by process, and what was seen shortly before them."""

    def __init__(self, events: Events, named: Named) -> None:
        self.events = events
        self.named = named
        self.open: dict[str, Trace] = {}
        self.pending: dict[str, tuple[Event, int]] = {}
        """Exceptions without a message, which may be on the next line; that line's last number."""
        self.noise: dict[str, int] = {}
        self.confirmed: dict[str, int] = {}
        self.above: dict[str, tuple[int, bool]] = {}
        self._chains: dict[str, int] = {}
        self._chain = 0
        self._prefixes: dict[bytes, re.Pattern[bytes]] = {}

    @property
    def busy(self) -> bool:
        """Whether the next line may belong to a traceback."""
        return bool(self.open or self.pending)

    def quotation(self, block: bytes, cursor: int, number: int) -> int:
        """Take the frames and the quoted code of a traceback at once; where the next line begins.

        Most lines of a traceback are these, and its process usually prints them together.
        """
        for trace in self.open.values():
            if trace.prefix is None or not block.startswith(trace.prefix, cursor):
                continue
            match = self._indented(trace.prefix).match(block, cursor)
            if match is None or trace.own > _LONG_TRACE:
                return cursor
            width = len(trace.prefix)
            lines = match.group(0).split(b"\n")
            trace.own += len(lines) - 1
            for index, line in enumerate(lines):
                if line.startswith(b'  File "', width):
                    trace.frame(number + index, line[width:].decode(errors="replace"))
            return match.end()
        return cursor

    def _indented(self, prefix: bytes) -> re.Pattern[bytes]:
        """Lines that have `prefix` and are indented behind it."""
        found = self._prefixes.get(prefix)
        if found is None:
            if len(self._prefixes) > _MOST_PREFIXES:
                self._prefixes.clear()
            found = re.compile(b"(?:" + re.escape(prefix) + rb"  [^\n]*\n)+")
            self._prefixes[prefix] = found
        return found

    def others(self, line: Line) -> None:
        """Tracebacks of other processes wait; those that wait too long are given up."""
        ended = [
            key for key, trace in self.open.items() if key != line.process and not trace.wait()
        ]
        for key in ended:
            del self.open[key]

    def trace_of(self, key: str, line: Line) -> Trace | None:
        """The open traceback that a line may belong to."""
        trace = self.open.get(key)
        if trace is None and not key and line.body.startswith(("  File ", "    ")):
            # The header had a process, the lines below it have no prefix at all.
            for name, other in self.open.items():
                if not other.frames and other.other <= 2:
                    self.open[key] = self.open.pop(name)
                    return other
        return trace

    def begin(self, key: str, number: int, line: Line, headed: bool, kinds: Iterable[int]) -> None:
        """Open a traceback at its header, or at a frame where the header is not to be seen."""
        trace = Trace(number, line, headed)
        near, direct = self.above.pop(key, (-10, False))
        trace.chained = number - near <= 4
        trace.direct = trace.chained and direct
        before = line.body.split("Traceback", 1)[0]
        noisy = [p for p in self.named.of(kinds, line) if p.suppresses]
        trace.suppressed = bool(noisy) or number - self.noise.get(key, -10) <= 2
        announcing = [p for p in self.named.of(kinds, line) if p.role is Role.CONFIRMATION]
        if announcing and before.strip():
            self.events.record(number, line, announcing[0], line.body)
        trace.announced = bool(announcing) or number - self.confirmed.get(key, -10) <= 3
        if headed:
            self.open[key] = trace
        else:
            trace.feed(number, line)
            self.open[key] = trace
        prefix, found, _ = self.events.place.beginning(300).partition(HEADER_BYTES)
        trace.prefix = prefix if found and line.body.startswith("Traceback") else None

    def take(self, trace: Trace, key: str, number: int, line: Line, kinds: set[int]) -> bool:
        """Give a line to its traceback; whether it belongs to it."""
        result = trace.feed(number, line)
        if isinstance(result, Echo):
            self._echo(number, line, result)
            return True
        if isinstance(result, Ended):
            del self.open[key]
            self._ended(trace, key, number, line, result, kinds)
            return True
        if not result:
            self.open.pop(key, None)
            return False
        # A log record between the frames is read for itself.
        return trace.junk == 0 or line.body[:1] in ("", " ", "\t")

    def _echo(self, number: int, line: Line, echo: Echo) -> None:
        pattern = next(p for p in self.named.patterns if p.id == "ray-task-error")
        event = self.events.event(number, line, pattern, line.body)
        event.facts.update(pid=echo.pid, ip=echo.ip, cause=echo.cause, call=echo.call)
        event.phase = phase_in(echo.call)
        self.events.keep(event)

    def _ended(
        self, trace: Trace, key: str, number: int, line: Line, ended: Ended, kinds: set[int]
    ) -> None:
        if trace.suppressed:
            self.noise[key] = number
            return
        text = f"{ended.name}: {ended.message}" if ended.message else ended.name
        named = next(
            (
                p
                for p in self.named.of(kinds, line, "\n".join(ended.frames))
                if p.role is not Role.CONFIRMATION
            ),
            None,
        )
        if named is not None and named.role is Role.NOISE:
            return
        if ended.message and self.events.again(number, line, named, text):
            return
        event = self.events.event(number, line, named, text)
        if ended.remote is not None and ended.remote.pid:
            event.pid, event.ip = ended.remote.pid, ended.remote.ip
            event.phase = phase_in(ended.remote.call)
        if not trace.chained:
            self._chain += 1
            self._chains[key] = self._chain
        event.chain = self._chains.get(key, 0)
        event.links = int(trace.chained)
        event.direct = trace.direct
        event.exception = ended.name
        event.frames, event.frames_lines = ended.frames, ended.frames_lines
        event.phase = event.phase or phase_in("\n".join(ended.frames))
        event.handled = trace.identity.level in HANDLED or line.level in HANDLED
        event.announced = trace.announced
        if named is None:
            event.tier = 1 if trace.announced or not key else 2
        if not trace.headed and named is None:
            event.tier = 3
        if trace.identity.process and not event.process:
            event.process, event.rank = trace.identity.process, trace.identity.rank
        self.events.keep(event)
        if not ended.message:
            self.pending[key] = (event, number + 3)

    def continues(self, number: int, line: Line, kinds: set[int]) -> bool:
        """Whether a line is the message of the exception before it, which had none of its own."""
        key = line.process
        for other, (_, last) in list(self.pending.items()):
            if number > last or other == key:
                event = self.pending.pop(other)[0]
                if other == key and number <= last and line.body.strip():
                    if is_header(line.body) or ABOVE in kinds or line.stamped:
                        return False
                    self._complete(event, line, kinds)
                    return True
                if other == key and number <= last:
                    self.pending[other] = (event, last)
                    return True
        return False

    def _complete(self, event: Event, line: Line, kinds: set[int]) -> None:
        """Add the message that stands below the exception's name."""
        old = (event.pattern, event.key)
        group = self.events.found.groups.get(old)
        event.text = f"{event.text.rstrip(':')}: {line.body.strip()}"[:SHOWN]
        event.key = normalise(event.text)[0]
        if group is None or group.first is not event:
            return
        joined = Line(event.text, line.process, level=line.level)
        named = next(
            (
                p
                for p in self.named.of(kinds, joined, " ".join(event.frames))
                if p.role in {Role.ROOT, Role.CASCADE}
            ),
            None,
        )
        if named is not None and not event.category:
            event.pattern, event.category, event.role = named.id, named.category, named.role
            event.tier = 0
            event.facts.update(facts_of(named, joined.body))
        self.events.found.groups.pop(old)
        self.events.found.groups.setdefault((event.pattern, event.key), group)
