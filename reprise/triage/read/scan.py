"""One log file read once: its events, folded; its training steps; what ends it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reprise.triage.model import Event, Group, Mark, Role, Step
from reprise.triage.patterns import Library, Pattern
from reprise.triage.read.clock import last_moment
from reprise.triage.read.matcher import ABOVE, BARE, FRAME, HEADER, STEP, Matcher
from reprise.triage.read.normal import clean, normalise
from reprise.triage.read.phases import last_phase, phase_in
from reprise.triage.read.prefix import Line, PrefixMemory, parse_line
from reprise.triage.read.source import LogFile, read_blocks
from reprise.triage.read.tracebacks import HEADER_BYTES, Echo, Ended, Trace, exception_of, is_header

__all__ = ["FileScan", "Scanner"]

_LONGEST = 4096
_SHOWN = 600
_MOST_GROUPS = 3000
_MOST_PREFIXES = 256
_MOST_RANKS = 4096
_MOST_BACK = 500
_BACK = 2048
_LOUD = 2000
_LONG_TRACE = 600
_SAMPLE = 64
_HANDLED = {"DEBUG", "INFO", "NOTICE", "WARNING", "WARN"}
_STEP_BYTES = re.compile(rb"\bstep:(\d+) - ")
_STEP_NUMBER = re.compile(r"\bstep:(\d+) - ")
_FILE_RANK = re.compile(r"rank[_-]?(\d+)")


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


class Scanner:
    """Reads files one after another with the same patterns."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._matcher = Matcher(library.patterns)

    def scan(self, log: LogFile) -> FileScan:
        """Read `log` to its end. Raises OSError as the file system does."""
        found = FileScan(log)
        reader = _Reader(found, self.library.patterns, self._matcher)
        for block, goes_on in read_blocks(log):
            reader.block(block, goes_on)
        reader.finish()
        found.lines, found.epoch = reader.number, reader.epoch
        return found


class _Reader:
    """The state between two blocks of a file."""

    def __init__(self, found: FileScan, patterns: tuple[Pattern, ...], matcher: Matcher) -> None:
        self.found = found
        self.patterns = patterns
        self.matcher = matcher
        self.quiet = [p for p in patterns if p.role is Role.NOISE and not p.suppresses]
        self.number = 0
        self.open: dict[str, Trace] = {}
        self.noise: dict[str, int] = {}
        self.confirmed: dict[str, int] = {}
        self.above: dict[str, tuple[int, bool]] = {}
        self.chains: dict[str, int] = {}
        self.chain = 0
        self.pending: dict[str, tuple[Event, int]] = {}
        self.epoch = 0
        self.top = -1
        self.moment: tuple[float, bool] | None = None
        self.before = b""
        self.here: tuple[bytes, int] = (b"", 0)
        self.before_step = b""
        self.indented: dict[bytes, re.Pattern[bytes]] = {}
        self.prefixes = PrefixMemory()
        self.looked_back = 0
        self.loud: dict[int, int] = {}
        rank = _FILE_RANK.search(found.log.name)
        self.file_rank = int(rank.group(1)) if rank else None

    def block(self, block: bytes, goes_on: bool) -> None:
        """Take one block of whole lines (or a piece of a line that goes on)."""
        hits = self.matcher.find(block)
        at, counted, cursor = 0, 0, 0
        number = self.number
        size = len(block)
        while cursor < size:
            if not self.open and not self.pending:
                while at < len(hits) and hits[at][0] <= cursor:
                    at += 1
                if at == len(hits):
                    break
                cursor = max(cursor, block.rfind(b"\n", cursor, hits[at][0]) + 1)
            if self.open:
                after = self._quotation(
                    block, cursor, number + block.count(b"\n", counted, cursor) + 1
                )
                if after > cursor:
                    cursor = after
                    continue
            end = block.find(b"\n", cursor)
            end = size if end < 0 else end
            while at < len(hits) and hits[at][0] <= cursor:
                at += 1
            first = at
            while at < len(hits) and hits[at][0] <= end:
                at += 1
            here = hits[first:at]
            number += block.count(b"\n", counted, cursor)
            counted = cursor
            if len(here) == 1 and here[0][1] == STEP and not self.open and not self.pending:
                self._step_line(number + 1, block, cursor, end)
            elif self._worth(here):
                self._line(number + 1, block, cursor, end, here)
            cursor = end + 1
        self.number = number + block.count(b"\n", counted)
        if not goes_on and size and block[-1] != 10:
            self.number += 1
        self.before = block[-_BACK:]

    def _quotation(self, block: bytes, cursor: int, number: int) -> int:
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
        found = self.indented.get(prefix)
        if found is None:
            if len(self.indented) > _MOST_PREFIXES:
                self.indented.clear()
            found = re.compile(b"(?:" + re.escape(prefix) + rb"  [^\n]*\n)+")
            self.indented[prefix] = found
        return found

    def _step_line(self, number: int, block: bytes, start: int, end: int) -> None:
        """A line of metrics, which is long, and of which only the step counts."""
        match = _STEP_BYTES.search(block, start, end)
        if match is None or int(match.group(1)) <= self.top:
            return
        self.here = (block, start)
        head = clean(block[start : min(start + 200, match.start())].decode(errors="replace"))
        line = parse_line(head)
        self.moment = line.moment or self.moment
        self._step(number, int(match.group(1)), line)

    def _worth(self, here: list[tuple[int, int]]) -> bool:
        """Whether to read a line: of what comes thousands of times, only some are."""
        if self.open or self.pending:
            return True
        quiet = False
        for _, number in here:
            seen = self.loud[number] = self.loud.get(number, 0) + 1
            quiet = quiet or seen < _LOUD or number == STEP or seen % _SAMPLE == 0
        if not quiet:
            self.found.dropped += 1
        return quiet

    def _line(
        self, number: int, block: bytes, start: int, end: int, here: list[tuple[int, int]]
    ) -> None:
        text, line = self._parse(block, start, end, here)
        kinds = {kind for _, kind in here}
        self.here = (block, start)
        if line.moment is not None:
            self.moment = line.moment
        if line.pid and line.ip and len(self.found.addresses) < _MOST_GROUPS:
            self.found.addresses[line.pid] = line.ip
        if self.open or self.pending:
            self._others(line)
        key = line.process
        if self._continues(number, line, kinds):
            return
        trace = self._trace_of(key, line)
        if trace is not None:
            if self._feed(trace, key, number, line, kinds):
                return
        elif HEADER in kinds and is_header(line.body):
            self._open(key, number, line, headed=True, kinds=kinds)
            return
        elif FRAME in kinds and line.body.lstrip().startswith('File "'):
            self._open(key, number, line, headed=False, kinds=set())
            return
        if ABOVE in kinds and "exception" in line.body:
            self.above[key] = (number, "direct cause" in line.body)
        if STEP in kinds and (match := _STEP_NUMBER.search(text)):
            self._step(number, int(match.group(1)), line)
        self._plain(number, line, kinds)

    def _parse(
        self, block: bytes, start: int, end: int, here: list[tuple[int, int]]
    ) -> tuple[str, Line]:
        """The text and its parts; of a very long line, what is around the first literal."""
        head = b""
        if end - start > _LONGEST:
            head = block[start : start + 200]
            middle = here[0][0] if here else start
            raw = block[max(start, middle - _LONGEST // 2) : min(end, middle + _LONGEST // 2)]
        else:
            raw = block[start:end]
        raw = raw.rstrip(b"\r\n")
        if b"\r" in raw:
            # A progress bar rewrites its line; what follows the last return is the text.
            head = head or raw[:200]
            raw = max(raw.split(b"\r"), key=lambda part: _weight(part, raw))
        text = clean(raw.decode(errors="replace"))
        line = self.prefixes.parse(text)
        if head and not line.process:
            first = parse_line(clean(head.decode(errors="replace")))
            line.process, line.pid, line.ip = first.process, first.pid, first.ip
            line.rank = line.rank if line.rank is not None else first.rank
            line.moment = line.moment or first.moment
        if line.rank is None:
            line.rank = self.file_rank
        return text, line

    def _look_back(self, line: Line) -> tuple[float | None, bool]:
        """The time stamp of a line, or the last one before it."""
        if line.moment is None and self.looked_back < _MOST_BACK:
            self.looked_back += 1
            self.moment = last_moment(self._bytes_before()) or self.moment
        return line.moment or self.moment or (None, False)

    def _bytes_before(self) -> bytes:
        """What stands before the line that is read."""
        block, start = self.here
        before = block[max(0, start - _BACK) : start]
        return self.before[-(_BACK - start) :] + before if start < _BACK else before

    def _others(self, line: Line) -> None:
        """Tracebacks of other processes wait; those that wait too long are given up."""
        ended = [
            key for key, trace in self.open.items() if key != line.process and not trace.wait()
        ]
        for key in ended:
            del self.open[key]

    def _trace_of(self, key: str, line: Line) -> Trace | None:
        trace = self.open.get(key)
        if trace is None and not key and line.body.startswith(("  File ", "    ")):
            # The header had a process, the lines below it have no prefix at all.
            for name, other in self.open.items():
                if not other.frames and other.other <= 2:
                    self.open[key] = self.open.pop(name)
                    return other
        return trace

    def _open(self, key: str, number: int, line: Line, headed: bool, kinds: Iterable[int]) -> None:
        trace = Trace(number, line, headed)
        near, direct = self.above.pop(key, (-10, False))
        trace.chained = number - near <= 4
        trace.direct = trace.chained and direct
        before = line.body.split("Traceback", 1)[0]
        noisy = [p for p in self._matching(kinds, line) if p.suppresses]
        trace.suppressed = bool(noisy) or number - self.noise.get(key, -10) <= 2
        announcing = [p for p in self._matching(kinds, line) if p.role is Role.CONFIRMATION]
        if announcing and before.strip():
            self._record(number, line, announcing[0], line.body)
        trace.announced = bool(announcing) or number - self.confirmed.get(key, -10) <= 3
        if headed:
            self.open[key] = trace
        else:
            trace.feed(number, line)
            self.open[key] = trace
        raw = self.here[0]
        start = self.here[1]
        prefix, found, _ = raw[start : start + 300].partition(HEADER_BYTES)
        trace.prefix = prefix if found and line.body.startswith("Traceback") else None

    def _feed(self, trace: Trace, key: str, number: int, line: Line, kinds: set[int]) -> bool:
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
        pattern = next(p for p in self.patterns if p.id == "ray-task-error")
        event = self._event(number, line, pattern, line.body)
        event.facts.update(pid=echo.pid, ip=echo.ip, cause=echo.cause, call=echo.call)
        event.phase = phase_in(echo.call)
        self._keep(event)

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
                for p in self._matching(kinds, line, "\n".join(ended.frames))
                if p.role is not Role.CONFIRMATION
            ),
            None,
        )
        if named is not None and named.role is Role.NOISE:
            return
        if ended.message and self._again(number, line, named, text):
            return
        event = self._event(number, line, named, text)
        if ended.remote is not None and ended.remote.pid:
            event.pid, event.ip = ended.remote.pid, ended.remote.ip
            event.phase = phase_in(ended.remote.call)
        if not trace.chained:
            self.chain += 1
            self.chains[key] = self.chain
        event.chain = self.chains.get(key, 0)
        event.links = int(trace.chained)
        event.direct = trace.direct
        event.exception = ended.name
        event.frames, event.frames_lines = ended.frames, ended.frames_lines
        event.phase = event.phase or phase_in("\n".join(ended.frames))
        event.handled = trace.identity.level in _HANDLED or line.level in _HANDLED
        event.announced = trace.announced
        if named is None:
            event.tier = 1 if trace.announced or not key else 2
        if not trace.headed and named is None:
            event.tier = 3
        if trace.identity.process and not event.process:
            event.process, event.rank = trace.identity.process, trace.identity.rank
        self._keep(event)
        if not ended.message:
            self.pending[key] = (event, number + 3)

    def _continues(self, number: int, line: Line, kinds: set[int]) -> bool:
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
        group = self.found.groups.get(old)
        event.text = f"{event.text.rstrip(':')}: {line.body.strip()}"[:_SHOWN]
        event.key = normalise(event.text)[0]
        if group is None or group.first is not event:
            return
        joined = Line(event.text, line.process, level=line.level)
        named = next(
            (
                p
                for p in self._matching(kinds, joined, " ".join(event.frames))
                if p.role in {Role.ROOT, Role.CASCADE}
            ),
            None,
        )
        if named is not None and not event.category:
            event.pattern, event.category, event.role = named.id, named.category, named.role
            event.tier = 0
            event.facts.update(_facts(named, joined.body))
        self.found.groups.pop(old)
        self.found.groups.setdefault((event.pattern, event.key), group)

    def _matching(
        self, kinds: Iterable[int], line: Line, frames: str | None = None
    ) -> list[Pattern]:
        """The patterns that a line is an example of, in their order."""
        found = []
        for index in self.matcher.patterns_of(kinds):
            pattern = self.patterns[index]
            if pattern.frame is not None and not (frames and pattern.frame.search(frames)):
                continue
            if pattern.match.search(line.body):
                found.append(pattern)
        if found:
            noise = next((p for p in self.quiet if p.match.search(line.body)), None)
            return [noise] if noise is not None else found
        return found

    def _plain(self, number: int, line: Line, kinds: set[int]) -> None:
        """A line outside tracebacks."""
        matching = self._matching(kinds, line)
        pattern = matching[0] if matching else None
        if pattern is None:
            if BARE in kinds and line.level not in _HANDLED:
                self._bare(number, line)
            return
        if pattern.role is Role.NOISE:
            if pattern.suppresses:
                self.noise[line.process] = number
            return
        if pattern.role in {Role.SUCCESS, Role.TEARDOWN}:
            stamp, yearless = self._look_back(line)
            mark = Mark(
                self.found.log.name,
                number,
                line.process,
                self.epoch,
                stamp,
                line.body[:_SHOWN],
                pattern.id,
                yearless,
            )
            marks = self.found.success if pattern.role is Role.SUCCESS else self.found.teardown
            marks.append(mark)
            del marks[8:-8]
            return
        if pattern.role is Role.CONFIRMATION:
            self.confirmed[line.process] = number
        if pattern.role is Role.ROOT and line.level in _HANDLED and not pattern.any_level:
            return
        self._record(number, line, pattern, line.body)

    def _bare(self, number: int, line: Line) -> None:
        """An exception without a traceback: weak evidence, as any print may look like it."""
        named = exception_of(line.body, strict=True)
        if named is not None:
            event = self._event(number, line, None, line.body)
            event.exception, event.tier = named[0], 3
            self._keep(event)

    def _record(self, number: int, line: Line, pattern: Pattern, body: str) -> None:
        if self._again(number, line, pattern, body):
            return
        event = self._event(number, line, pattern, body)
        if event.role is Role.ROOT and not event.phase and not line.process.startswith("("):
            # A worker's own file: its last words before are of the same process.
            block, start = self.here
            event.phase = last_phase(block[max(0, start - 1500) : start].decode(errors="replace"))
        self._keep(event)

    def _again(self, number: int, line: Line, pattern: Pattern | None, body: str) -> bool:
        """Count a line whose like was seen since the last training step; whether it was."""
        key, repeats = normalise(body.strip()[:_SHOWN])
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

    def _event(self, number: int, line: Line, pattern: Pattern | None, body: str) -> Event:
        text = body.strip()[:_SHOWN]
        key, repeats = normalise(text)
        stamp, yearless = self._look_back(line)
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
            facts=_facts(pattern, line.body) if pattern else {},
            phase=phase_in(text[:200]) if pattern else "",
            epoch=self.epoch,
            repeats=repeats,
        )

    def _keep(self, event: Event) -> None:
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

    def _step(self, number: int, step: int, line: Line) -> None:
        """A training step was recorded: what came before it did not end the job."""
        if step <= self.top:
            return
        if self.top >= 0 or step > 0:
            self.epoch += 1
        self.top = step
        stamp, yearless = line.moment or (None, False)
        self.found.steps.append(Step(self.found.log.name, number, step, stamp, yearless))
        self.before_step = b"" if line.moment else self._bytes_before()
        del self.found.steps[:-4]

    def finish(self) -> None:
        """Give the last step the time of the lines before it; only this one is asked for."""
        steps = self.found.steps
        if steps and steps[-1].stamp is None and (moment := last_moment(self.before_step)):
            steps[-1] = replace(steps[-1], stamp=moment[0], yearless=moment[1])


def _weight(part: bytes, raw: bytes) -> tuple[bool, int]:
    """Prefer the part of a rewritten line that holds more than a bar; then the last one."""
    return (b"rror" in part or b"Traceback" in part or b"step:" in part, raw.rfind(part))


def _facts(pattern: Pattern, body: str) -> dict[str, str]:
    match = pattern.match.search(body)
    found = match.groupdict() if match else {}
    return {name: value for name, value in found.items() if value is not None}
