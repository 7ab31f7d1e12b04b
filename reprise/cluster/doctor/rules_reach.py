"""Rules: is every host reached, did its probe end, do the clocks agree."""

from __future__ import annotations

from statistics import median

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.unreached import why

__all__ = ["clock", "reach", "system"]


def reach(context: Context, marks: Marks) -> None:
    """Each way in which a host can fail to answer, with what to type."""
    for host in context.hosts:
        answer = context.answers.get(host.name)
        facts = context.facts.get(host.name)
        if answer is None or facts is None:
            _unreached(host, answer, marks)
        elif not facts.complete:
            marks.blank("probe.probe-did-end", host.name, said=answer.said or "no reason given")
            marks.good("reach", host.name)
        else:
            marks.good("reach", host.name)
            marks.good("probe", host.name)


def _unreached(host: Host, answer: Answer | None, marks: Marks) -> None:
    if answer is None:
        marks.blank("reach.asked", host.name)
        return
    marks.bad("reach", host.name, *why(host, answer))


def clock(context: Context, marks: Marks) -> None:
    """Clocks against the median of all hosts and this machine, as far as SSH lets one see.

    The probe says the whole second at its begin and end; a host's offset lies between its last
    second minus our end, and its first second plus one minus our begin.
    """
    spans: dict[str, tuple[float, float]] = {}
    for host, facts in context.answered():
        begin, end = facts.one("clock.begin"), facts.one("clock.end")
        if not (begin or "").isdigit() or not (end or "").isdigit():
            marks.blank("clock.time-could-read", host.name)
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
        marks.bad("clock.clock-about-s", name, off=abs(off), value="ahead" if off > 0 else "behind")


def system(context: Context, marks: Marks) -> None:
    """Operating system and kernel: differences are told, not refused."""
    for key, what in (("os", "operating system"), ("kernel", "kernel"), ("machine", "processor")):
        values = {
            host.name: value for host, facts in context.answered() if (value := facts.one(key))
        }
        most = common(values, context.head.name)
        for host, facts in context.answered():
            value = values.get(host.name)
            if value is None:
                marks.blank(key, host.name, facts.why(key) or f"{what}: unknown", "run uname -a")
            elif value != most:
                fix = "install the same on all hosts, or leave the odd one out: --exclude"
                tell = marks.bad if key == "machine" else marks.warn
                tell(key, host.name, f"{what} {value}, the others have {most}", fix)
            else:
                marks.good(key, host.name)
