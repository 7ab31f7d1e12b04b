"""Alarms on the numbers of a run while it trains: what broke, at which step, what to look at.

An alarm is told once. When a later attempt trains a step again, what was seen from that step on
is forgotten and may be told anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.core.findings import Finding, Severity
from reprise.metrics import is_validation
from reprise.runs.watch import alarm_rules
from reprise.runs.watch.alarm_history import Alarm, History

__all__ = ["AlarmSettings", "Alarms", "alarm_settings"]


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """What differs between recipes: the longest response in tokens, the probs diff's ceiling."""

    response_limit: int | None = None
    probs_ceiling: float = 0.015


def alarm_settings(config: Mapping[str, Any], probs_ceiling: float | None = None) -> AlarmSettings:
    """The settings of a run with the resolved `config`; `probs_ceiling` is its reference's."""
    data = config.get("data")
    limit = data.get("max_response_length") if isinstance(data, dict) else None
    limit = limit if isinstance(limit, int) else None
    return AlarmSettings(limit) if probs_ceiling is None else AlarmSettings(limit, probs_ceiling)


class Alarms:
    """Fed with one step after another; gives back what is new to tell.

    `saved` gives the steps of the complete checkpoints, for the advice where to continue; it is
    asked only when there is something to tell.
    """

    def __init__(
        self,
        settings: AlarmSettings | None = None,
        saved: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self.settings = settings or AlarmSettings()
        self._history = History(lambda: iter(saved()))
        self._told: dict[tuple[str, Severity, str], tuple[Alarm, Finding]] = {}

    def standing(self) -> list[Finding]:
        """What was told and not forgotten, in the order of telling."""
        return [finding for _, finding in self._told.values()]

    def feed(self, step: int, values: Mapping[str, float]) -> list[Finding]:
        """Take one step's metrics, name to value; a record of a validation alone is left out."""
        values = {name: value for name, value in values.items() if not is_validation(name)}
        if not values:
            return []
        if self._history.last is not None and step <= self._history.last:
            self._history.rewind(step)
            kept = ((key, told) for key, told in self._told.items() if told[0].first < step)
            self._told = dict(kept)
        self._history.add(step, values)
        return [self._tell(alarm) for alarm in self._found() if self._is_new(alarm)]

    def _found(self) -> Iterator[Alarm]:
        yield from alarm_rules.broken(self._history)
        yield from alarm_rules.floor(self._history)
        yield from alarm_rules.no_signal(self._history)
        yield from alarm_rules.entropy(self._history)
        yield from alarm_rules.probs_diff(self._history, self.settings.probs_ceiling)
        yield from alarm_rules.growing(self._history, self.settings.probs_ceiling)
        yield from alarm_rules.length(self._history, self.settings.response_limit)

    def _is_new(self, alarm: Alarm) -> bool:
        # What was told as an error is not told again as less.
        severities = (alarm.severity, Severity.ERROR)
        return not any((alarm.rule, severity, alarm.what) in self._told for severity in severities)

    def _tell(self, alarm: Alarm) -> Finding:
        earlier = sorted(
            {
                (told.first, told.what)
                for told, _ in self._told.values()
                if told.first <= alarm.first and told.what != alarm.what
            }
        )
        text = alarm.message
        if earlier:
            events = ", ".join(f"{what} at step {step}" for step, what in earlier)
            text += f" (before it: {events})"
        where = f"{alarm.metric}@{alarm.first}"
        finding = Finding(alarm.rule, alarm.severity, where, text, alarm.fix)
        self._told[alarm.rule, alarm.severity, alarm.what] = (alarm, finding)
        return finding
