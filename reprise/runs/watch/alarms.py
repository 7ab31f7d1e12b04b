"""Alarms on the metrics of a run while it trains: what broke, at which step, what to check.

An alarm is shown once. When a later attempt trains a step again, alarms from that step on are
forgotten and can be shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.core.findings import Finding, Severity
from reprise.metrics import is_validation
from reprise.runs.watch import alarm_collapse, alarm_rules
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
    """Takes one step after another; returns the new alarms.

    `saved` gives the steps of the complete checkpoints, for the advice where to continue; it is
    called only for an alarm.
    """

    def __init__(
        self,
        settings: AlarmSettings | None = None,
        saved: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self.settings = settings or AlarmSettings()
        self._history = History(lambda: iter(saved()))
        self._shown: dict[tuple[str, Severity, str], tuple[Alarm, Finding]] = {}

    def standing(self) -> list[Finding]:
        """The alarms that were shown and still hold, in order."""
        return [finding for _, finding in self._shown.values()]

    def feed(self, step: int, values: Mapping[str, float]) -> list[Finding]:
        """Take one step's metrics, name to value; a record of a validation alone is left out."""
        values = {name: value for name, value in values.items() if not is_validation(name)}
        if not values:
            return []
        if self._history.last is not None and step <= self._history.last:
            self._history.rewind(step)
            kept = ((key, shown) for key, shown in self._shown.items() if shown[0].first < step)
            self._shown = dict(kept)
        self._history.add(step, values)
        return [self._tell(alarm) for alarm in self._found() if self._is_new(alarm)]

    def _found(self) -> Iterator[Alarm]:
        yield from alarm_rules.broken(self._history)
        yield from alarm_rules.floor(self._history)
        yield from alarm_rules.no_signal(self._history)
        yield from alarm_rules.entropy(self._history)
        yield from alarm_collapse.leaves_its_level(self._history)
        yield from alarm_collapse.falling(self._history)
        yield from alarm_rules.probs_diff(self._history, self.settings.probs_ceiling)
        yield from alarm_rules.growing(self._history, self.settings.probs_ceiling)
        yield from alarm_rules.length(self._history, self.settings.response_limit)

    def _is_new(self, alarm: Alarm) -> bool:
        # An alarm shown as an error is not shown again as less.
        severities = (alarm.severity, Severity.ERROR)
        return not any((alarm.rule, severity, alarm.what) in self._shown for severity in severities)

    def _tell(self, alarm: Alarm) -> Finding:
        earlier = sorted(
            {
                (shown.first, shown.what)
                for shown, _ in self._shown.values()
                if shown.first <= alarm.first and shown.what != alarm.what
            }
        )
        text = alarm.message
        if earlier:
            events = ", ".join(f"{what} at step {step}" for step, what in earlier)
            text += f" (before it: {events})"
        where = f"{alarm.metric}@{alarm.first}"
        finding = Finding(alarm.rule, alarm.severity, where, text, alarm.fix)
        self._shown[alarm.rule, alarm.severity, alarm.what] = (alarm, finding)
        return finding
