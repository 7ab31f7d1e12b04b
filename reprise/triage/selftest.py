"""Each pattern tried on its own examples, as they would stand in a log."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.triage.model import Role
from reprise.triage.patterns import Library, Pattern

__all__ = ["self_test"]

_RULE = "triage-self-test"


def self_test(library: Library) -> Report:
    """Report every example that a pattern does not treat as it says."""
    report = Report("triage")
    for pattern in library.patterns:
        faults = [*_faults(pattern), *_shadowed(pattern, library)]
        for fault in faults:
            report.failed(_RULE, f"{pattern.file}: {pattern.id}", fault, f"edit {pattern.file}")
    if not report.checks:
        report.passed(_RULE)
    report.data["patterns"] = len(library.patterns)
    return report


def _faults(pattern: Pattern) -> list[str]:
    found = []
    for text in pattern.positive:
        if not any(literal in text for literal in pattern.literals):
            found.append(f"positive example has none of the literals: {text}")
        elif not pattern.match.search(text):
            found.append(f"positive example does not match: {text}")
    for text in pattern.negative:
        if (
            pattern.match.search(text)
            and pattern.frame is None
            and any(literal in text for literal in pattern.literals)
        ):
            found.append(f"negative example matches: {text}")
    return found


def _shadowed(pattern: Pattern, library: Library) -> list[str]:
    """A root whose own example another pattern takes first would never be named."""
    if pattern.role is not Role.ROOT or pattern.frame is not None:
        return []
    found = []
    for text in pattern.positive:
        first = library.first(text)
        if first is not None and first.id != pattern.id and first.category != pattern.category:
            found.append(f"another pattern, {first.id}, takes the example first: {text}")
    return found
