"""Rules: every host answers, its probe finishes, the clocks and systems agree."""

from __future__ import annotations

from statistics import median

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.unreached import why

__all__ = ["clock", "reach", "system", "time_sync"]


def reach(context: Context, marks: Marks) -> None:
    """Hosts that do not answer, each with the command that helps."""
    for host in context.hosts:
        answer = context.answers.get(host.name)
        facts = context.facts.get(host.name)
        if answer is None or facts is None:
            _unreached(host, answer, context, marks)
        elif not facts.complete:
            marks.blank("probe.incomplete", host.name, said=answer.said or "no reason given")
            marks.good("reach", host.name)
        else:
            marks.good("reach", host.name)
            marks.good("probe", host.name)


def _unreached(host: Host, answer: Answer | None, context: Context, marks: Marks) -> None:
    if answer is None:
        marks.blank("reach.not-contacted", host.name)
        return
    marks.bad("reach", host.name, *why(host, answer, context.site.ssh))


def clock(context: Context, marks: Marks) -> None:
    """Clocks against the median of all hosts and this machine, within the precision of SSH.

    The probe reports the whole second at its begin and end; a host's offset is between its last
    second minus our end, and its first second plus one minus our begin.
    """
    spans: dict[str, tuple[float, float]] = {}
    for host, facts in context.answered():
        begin, end = facts.one("clock.begin"), facts.one("clock.end")
        if not (begin or "").isdigit() or not (end or "").isdigit():
            marks.blank("clock.unread", host.name)
            continue
        spans[host.name] = (int(end or 0) - facts.ended, int(begin or 0) + 1 - facts.began)
    middles = [0.0, *((low + high) / 2 for low, high in spans.values())]
    reference = median(middles)
    allowed = context.profile.clock_seconds
    for name, (low, high) in spans.items():
        if low - allowed <= reference <= high + allowed:
            marks.good("clock", name)
            continue
        off = (low + high) / 2 - reference
        direction = "ahead of" if off > 0 else "behind"
        marks.bad("clock.off", name, off=abs(off), direction=direction, allowed=allowed)


def time_sync(context: Context, marks: Marks) -> None:
    """A daemon keeps the clock right: a clock that agrees today drifts without one.

    In a container the daemon is outside and not visible: nothing is claimed there.
    """
    for host, facts in context.answered():
        if facts.all("timesync"):
            marks.good("time-sync", host.name)
        elif facts.one("init") in ("systemd", "init"):
            marks.warn("time-sync.missing", host.name)


def system(context: Context, marks: Marks) -> None:
    """Operating system and kernel: differences are warnings; processor: they are errors."""
    for key, unread, differs in (
        ("os", "os.unread", "os.differs"),
        ("kernel", "kernel.unread", "kernel.differs"),
        ("machine", "machine.processor-unread", "machine.processor-differs"),
    ):
        values = {
            host.name: value for host, facts in context.answered() if (value := facts.one(key))
        }
        most = common(values, context.head.name)
        for host, facts in context.answered():
            value = values.get(host.name)
            if value is None:
                marks.blank(unread, host.name, why=facts.why(key) or "no answer")
            elif value != most:
                mark = marks.bad if key == "machine" else marks.warn
                mark(differs, host.name, value=value, most=most)
            else:
                marks.good(key, host.name)
