"""Which patterns a line is an example of."""

from __future__ import annotations

from collections.abc import Iterable

from reprise.triage.model import Role
from reprise.triage.patterns import Pattern
from reprise.triage.read.matcher import Matcher
from reprise.triage.read.prefix import Line

__all__ = ["Named"]


class Named:
    """The patterns, asked about one line after another."""

    def __init__(self, patterns: tuple[Pattern, ...], matcher: Matcher) -> None:
        self.patterns = patterns
        self._matcher = matcher
        self._quiet = [p for p in patterns if p.role is Role.NOISE and not p.suppresses]

    def of(self, kinds: Iterable[int], line: Line, frames: str | None = None) -> list[Pattern]:
        """The patterns that a line is an example of, in their order."""
        found = []
        for index in self._matcher.patterns_of(kinds):
            pattern = self.patterns[index]
            if pattern.frame is not None and not (frames and pattern.frame.search(frames)):
                continue
            if pattern.match.search(line.body):
                found.append(pattern)
        if found:
            noise = next((p for p in self._quiet if p.match.search(line.body)), None)
            return [noise] if noise is not None else found
        return found
