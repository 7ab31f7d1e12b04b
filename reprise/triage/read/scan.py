"""One log file read once, in blocks: which lines are read, and what becomes of each."""

from __future__ import annotations

import re

from reprise.triage.model import Role
from reprise.triage.patterns import Library, Pattern
from reprise.triage.read.events import Events, FileScan
from reprise.triage.read.matcher import ABOVE, BARE, FRAME, HEADER, STEP, Matcher
from reprise.triage.read.named import Named
from reprise.triage.read.normal import clean
from reprise.triage.read.place import Place
from reprise.triage.read.prefix import Line, PrefixMemory, parse_line
from reprise.triage.read.source import LogFile, read_blocks
from reprise.triage.read.tracebacks import exception_of, is_header
from reprise.triage.read.traces import HANDLED, Traces

__all__ = ["Scanner"]

_LONGEST = 4096
_LOUD = 2000
_SAMPLE = 64
_STEP_BYTES = re.compile(rb"\bstep:(\d+) - ")
_STEP_NUMBER = re.compile(r"\bstep:(\d+) - ")
_FILE_RANK = re.compile(r"rank[_-]?(\d+)")


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
        reader.events.finish()
        found.lines, found.epoch = reader.number, reader.events.epoch
        return found


class _Reader:
    """The state between two blocks of a file."""

    def __init__(self, found: FileScan, patterns: tuple[Pattern, ...], matcher: Matcher) -> None:
        self.matcher = matcher
        self.named = Named(patterns, matcher)
        self.place = Place()
        self.events = Events(found, self.place)
        self.traces = Traces(self.events, self.named)
        self.number = 0
        self.prefixes = PrefixMemory()
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
            if not self.traces.busy:
                while at < len(hits) and hits[at][0] <= cursor:
                    at += 1
                if at == len(hits):
                    break
                cursor = max(cursor, block.rfind(b"\n", cursor, hits[at][0]) + 1)
            if self.traces.open:
                after = self.traces.quotation(
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
            if len(here) == 1 and here[0][1] == STEP and not self.traces.busy:
                self._step_line(number + 1, block, cursor, end)
            elif self._worth(here):
                self._line(number + 1, block, cursor, end, here)
            cursor = end + 1
        self.number = number + block.count(b"\n", counted)
        if not goes_on and size and block[-1] != 10:
            self.number += 1
        self.place.end_block(block)

    def _step_line(self, number: int, block: bytes, start: int, end: int) -> None:
        """A line of metrics, which is long, and of which only the step counts."""
        match = _STEP_BYTES.search(block, start, end)
        if match is None or int(match.group(1)) <= self.events.top:
            return
        self.place.at(block, start)
        head = clean(block[start : min(start + 200, match.start())].decode(errors="replace"))
        line = parse_line(head)
        self.place.moment = line.moment or self.place.moment
        self.events.step(number, int(match.group(1)), line)

    def _worth(self, here: list[tuple[int, int]]) -> bool:
        """Whether to read a line: of what comes thousands of times, only some are."""
        if self.traces.busy:
            return True
        quiet = False
        for _, number in here:
            seen = self.loud[number] = self.loud.get(number, 0) + 1
            quiet = quiet or seen < _LOUD or number == STEP or seen % _SAMPLE == 0
        if not quiet:
            self.events.found.dropped += 1
        return quiet

    def _line(
        self, number: int, block: bytes, start: int, end: int, here: list[tuple[int, int]]
    ) -> None:
        text, line = self._parse(block, start, end, here)
        traces = self.traces
        kinds = {kind for _, kind in here}
        self.place.at(block, start)
        if line.moment is not None:
            self.place.moment = line.moment
        self.events.address(line)
        if traces.busy:
            traces.others(line)
        key = line.process
        if traces.continues(number, line, kinds):
            return
        trace = traces.trace_of(key, line)
        if trace is not None:
            if traces.take(trace, key, number, line, kinds):
                return
        elif HEADER in kinds and is_header(line.body):
            traces.begin(key, number, line, headed=True, kinds=kinds)
            return
        elif FRAME in kinds and line.body.lstrip().startswith('File "'):
            traces.begin(key, number, line, headed=False, kinds=set())
            return
        if ABOVE in kinds and "exception" in line.body:
            traces.above[key] = (number, "direct cause" in line.body)
        if STEP in kinds and (match := _STEP_NUMBER.search(text)):
            self.events.step(number, int(match.group(1)), line)
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

    def _plain(self, number: int, line: Line, kinds: set[int]) -> None:
        """A line outside tracebacks."""
        matching = self.named.of(kinds, line)
        pattern = matching[0] if matching else None
        if pattern is None:
            if BARE in kinds and line.level not in HANDLED:
                self._bare(number, line)
            return
        if pattern.role is Role.NOISE:
            if pattern.suppresses:
                self.traces.noise[line.process] = number
            return
        if pattern.role in {Role.SUCCESS, Role.TEARDOWN}:
            self.events.mark(number, line, pattern)
            return
        if pattern.role is Role.CONFIRMATION:
            self.traces.confirmed[line.process] = number
        if pattern.role is Role.ROOT and line.level in HANDLED and not pattern.any_level:
            return
        self.events.record(number, line, pattern, line.body)

    def _bare(self, number: int, line: Line) -> None:
        """An exception without a traceback: weak evidence, as any print may look like it."""
        named = exception_of(line.body, strict=True)
        if named is not None:
            event = self.events.event(number, line, None, line.body)
            event.exception, event.tier = named[0], 3
            self.events.keep(event)


def _weight(part: bytes, raw: bytes) -> tuple[bool, int]:
    """Prefer the part of a rewritten line that holds more than a bar; then the last one."""
    return (b"rror" in part or b"Traceback" in part or b"step:" in part, raw.rfind(part))
