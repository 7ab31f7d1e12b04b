"""Where the reader is in a file: the bytes before the present line, and the last time stamp."""

from __future__ import annotations

from reprise.triage.read.clock import last_moment
from reprise.triage.read.prefix import Line

__all__ = ["Place"]

_BACK = 2048
_MOST_BACK = 500


class Place:
    """The present line of a file that is read in blocks."""

    def __init__(self) -> None:
        self.moment: tuple[float, bool] | None = None
        """The last time stamp that was read, and whether it had no year."""
        self._before = b""
        self._here: tuple[bytes, int] = (b"", 0)
        self._looked_back = 0

    def at(self, block: bytes, start: int) -> None:
        """The line that is read begins at `start` of `block`."""
        self._here = (block, start)

    def end_block(self, block: bytes) -> None:
        """Keep the end of a block for the lines of the next one."""
        self._before = block[-_BACK:]

    def beginning(self, count: int) -> bytes:
        """The first `count` bytes from the present line on."""
        block, start = self._here
        return block[start : start + count]

    def before(self, count: int) -> str:
        """At most `count` bytes before the present line, in its block."""
        block, start = self._here
        return block[max(0, start - count) : start].decode(errors="replace")

    def bytes_before(self) -> bytes:
        """What is before the present line, also in the block before."""
        block, start = self._here
        before = block[max(0, start - _BACK) : start]
        return self._before[-(_BACK - start) :] + before if start < _BACK else before

    def look_back(self, line: Line) -> tuple[float | None, bool]:
        """The time stamp of a line, or the last one before it."""
        if line.moment is None and self._looked_back < _MOST_BACK:
            self._looked_back += 1
            self.moment = last_moment(self.bytes_before()) or self.moment
        return line.moment or self.moment or (None, False)
