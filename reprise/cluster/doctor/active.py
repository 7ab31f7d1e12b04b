"""Checks that use the GPUs and the network: the vendor's own tests, and an all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import Facts, parse_facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.ssh import Job, assignments
from reprise.machines.collective import read_collective

__all__ = ["Figures", "Runner", "check_active", "floor_of"]

# Size of one all-reduce, with GPUs and without.
_MIB, _MIB_ON_CPU = 1024, 16
_PORT = 8272
_SECONDS = 150.0
_TESTS_SECONDS = 600.0
_SHARE = 0.8
"""A host below this part of the median of all hosts is named, whatever the floor is."""
_LEAST_HOSTS = 3

Runner = Callable[[Sequence[Job], float], list[Answer]]
"""Runs each host's script within a number of seconds: `Ssh.run`, or on this machine."""


@dataclass(slots=True)
class Figures:
    """Bus bandwidths in GB/s by host, by the training's own library and by the vendor's test."""

    intra: dict[str, float] = field(default_factory=dict)
    inter: dict[str, float] = field(default_factory=dict)
    tests: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The figures as `--json` prints them; null: not measured."""
        return {
            "unit": "GB/s",
            "intra_host": self.intra,
            "intra_host_by_vendor_test": self.tests,
            "inter_host": min(self.inter.values(), default=None),
        }


def check_active(context: Context, run: Runner, scripts: Scripts, marks: Marks) -> Figures:
    """The vendor's tests on each idle host, then an all-reduce between all GPUs of all hosts."""
    figures = Figures()
    idle = _idle(context, marks)
    if context.machine.accelerator.active_question and idle:
        _vendor_tests(context, idle, run, scripts, marks, figures)
    if len(idle) == len(context.hosts):
        _all_reduce(context, run, scripts, marks, figures)
    else:
        marks.blank("all-reduce.not-all-hosts", context.head.name)
    _judge_intra(context, marks, {**figures.intra, **figures.tests})
    _judge_inter(context, marks, min(figures.inter.values(), default=None))
    return figures


def _idle(context: Context, marks: Marks) -> list[Host]:
    """Hosts that answered and whose GPUs nothing uses: a job would be slowed, and the figures."""
    found = []
    for host, facts in context.answered():
        used = context.machine.accelerator.uses(facts)
        if used is None:
            marks.blank("active.use-unknown", host.name)
        elif used:
            users = ", ".join(sorted({f"{use.owner} (pid {use.pid})" for use in used}))
            marks.blank("active.in-use", host.name, users=users)
        else:
            found.append(host)
    return found


def _vendor_tests(
    context: Context,
    hosts: Sequence[Host],
    run: Runner,
    scripts: Scripts,
    marks: Marks,
    figures: Figures,
) -> None:
    accelerator = context.machine.accelerator
    asked = f"active_facts() {{\n{accelerator.active_question}}}\n"
    text = scripts.text("active.sh")
    jobs = [(host, assignments({"A_SLOTS": str(host.slots)}) + asked + text) for host in hosts]
    mark = {"error": marks.bad, "warning": marks.warn, "unknown": marks.blank}
    for answer in run(jobs, _TESTS_SECONDS):
        facts = parse_facts(answer.host, answer.output)
        if facts.one("active") != "yes":
            said = (answer.said.splitlines() or [answer.outcome.value])[-1]
            marks.blank("active.no-answer", answer.host, said=said)
            continue
        for item in accelerator.tested(facts):
            if item.level == "good":
                marks.good(item.rule, answer.host)
            else:
                mark[item.level](item.rule, answer.host, item.message, item.fix)
        _collective(answer.host, facts, marks, figures)


def _collective(host: str, facts: Facts, marks: Marks, figures: Figures) -> None:
    found = read_collective(facts)
    if found is None:
        return
    if found.wrong:
        marks.bad("all-reduce.wrong-values", host, count=found.wrong)
    elif found.bus is None or found.why is not None:
        why = found.why or "it printed no bus bandwidth"
        marks.blank("all-reduce.test-failed", host, why=why)
    else:
        figures.tests[host] = found.bus
        marks.good("all-reduce", host)


def _all_reduce(
    context: Context, run: Runner, scripts: Scripts, marks: Marks, figures: Figures
) -> None:
    """One rank a GPU on every host; a host without a known address makes the check unknown."""
    head = context.head.name
    addresses = [context.address(host) for host in context.hosts]
    if sum(host.slots for host in context.hosts) < 2:
        marks.blank("all-reduce.one-gpu", head)
        return
    if len(addresses) > 1 and any(address is None for address in addresses):
        marks.blank("all-reduce.no-address", head)
        return
    if context.site.container.image is not None:
        marks.blank("all-reduce.container", head)
        return
    for answer in run(_jobs(context, scripts), _SECONDS):
        facts = parse_facts(answer.host, answer.output)
        if "wrong" in facts.all("sum"):
            marks.bad("all-reduce.wrong-sum", answer.host)
        elif not answer.ok or facts.one("sum") != "right":
            said = (answer.said.splitlines() or [answer.outcome.value])[-1]
            marks.bad("all-reduce.failed", answer.host, said=said)
        else:
            marks.good("all-reduce", answer.host)
            for key, values in (("intra", figures.intra), ("inter", figures.inter)):
                if (text := facts.one(key)) is not None:
                    values[answer.host] = float(text)
    if len(figures.inter) < len(context.hosts):
        # The slowest rank is among those that gave no figure.
        figures.inter.clear()


def _jobs(context: Context, scripts: Scripts) -> list[Job]:
    accelerator = context.machine.accelerator
    head = context.address(context.head)
    jobs: list[Job] = []
    for number, host in enumerate(context.hosts):
        address = context.address(host)
        several = address is not None and len(context.hosts) > 1
        names = accelerator.interface_variables if several else ()
        exported = {
            **dict.fromkeys(names, address.interface if address else ""),
            **context.profile.ray_variables,
            **context.site.variables,
            "A_SLOTS": " ".join(str(each.slots) for each in context.hosts),
            "A_HOST": str(number),
            "A_ADDRESS": head.ip if head else "127.0.0.1",
            "A_PORT": str(_PORT),
            "A_BACKEND": accelerator.backend,
            "A_DEVICE": accelerator.torch_device,
            "A_MIB": str(_MIB if accelerator.tool else _MIB_ON_CPU),
        }
        values = {"code": scripts.text("allreduce.py"), "python": context.site.paths.python}
        line = 'printf \'%s\' "$code" | timeout 140 "$python" -I -\n'
        jobs.append((host, assignments(values) + assignments(exported, export=True) + line))
    return jobs


def floor_of(context: Context, key: str) -> tuple[float | None, str]:
    """The least bandwidth that is known, and who says so."""
    own = getattr(context.site.floors, key)
    source = "site file" if own is not None else f"profile {context.profile.name}"
    return getattr(context.profile.floors.under(context.site.floors), key), source


def _judge_intra(context: Context, marks: Marks, figures: Mapping[str, float]) -> None:
    floor, source = floor_of(context, "intra_host")
    usual = median(figures.values()) if len(figures) >= _LEAST_HOSTS else None
    for host, figure in figures.items():
        values = {"figure": figure, "profile": context.profile.name}
        if floor is None:
            marks.blank("bandwidth-intra.no-floor", host, **values)
        elif figure < floor:
            marks.bad("bandwidth-intra.too-low", host, figure=figure, floor=floor, source=source)
        else:
            marks.note("bandwidth-intra.measured", host, figure=figure, floor=floor, source=source)
        if usual is not None and figure < _SHARE * usual:
            share = figure / usual
            marks.warn("bandwidth-intra.slower", host, figure=figure, share=share, usual=usual)


def _judge_inter(context: Context, marks: Marks, figure: float | None) -> None:
    if figure is None:
        return
    floor, source = floor_of(context, "inter_host")
    host = context.head.name
    if floor is None:
        marks.blank("bandwidth-inter.no-floor", host, figure=figure, profile=context.profile.name)
    elif figure < floor:
        marks.bad("bandwidth-inter.too-low", host, figure=figure, floor=floor, source=source)
    else:
        marks.note("bandwidth-inter.measured", host, figure=figure, floor=floor, source=source)
