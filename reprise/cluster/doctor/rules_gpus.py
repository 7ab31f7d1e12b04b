"""Rules on GPUs: count, model, memory, driver, use, health reported by the vendor's tool."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.machines.accelerator import Gpu, Reading

__all__ = ["accelerators", "health"]

# Upper limit of the memory that a driver holds on an idle GPU; more means that the GPU is in use.
_IDLE_MIB = 1024


def accelerators(context: Context, marks: Marks) -> None:
    """The GPUs of every host against its slots, the profile and the other hosts."""
    accelerator = context.machine.accelerator
    tool = accelerator.tool
    if not tool:
        return
    drivers: dict[str, str] = {}
    for host, facts in context.answered():
        reading = accelerator.read(facts)
        if reading is None:
            why = accelerator.why(facts) or f"unknown output of {tool}"
            marks.blank("gpu-count.unread", host.name, why=why, tool=tool)
            continue
        _count(host, facts, reading, context, marks)
        _hidden(host, facts, context, marks)
        _models(host, reading.gpus, context, marks)
        _users(host, facts, reading.gpus, context, marks)
        known = sorted({gpu.driver for gpu in reading.gpus if gpu.driver})
        if known:
            drivers[host.name] = ",".join(known)
        elif reading.gpus:
            _unread("gpu-driver.unread", host, reading.gpus, tool, marks)
    most = common(drivers, context.head.name)
    for name, driver in drivers.items():
        if driver == most:
            marks.good("gpu-driver", name)
        else:
            marks.bad("gpu-driver.differs", name, driver=driver, most=most)


def _count(host: Host, facts: Facts, reading: Reading, context: Context, marks: Marks) -> None:
    tool, found = context.machine.accelerator.tool, len(reading.gpus)
    why = context.machine.accelerator.why(facts)
    for line in reading.said:
        marks.warn("gpu-tool.warned", host.name, tool=tool, line=line)
    if reading.lost:
        marks.bad(
            "gpu-count.unreadable",
            host.name,
            found=found,
            slots=host.slots,
            tool=tool,
            lost="; ".join(reading.lost),
        )
    elif found < host.slots and why is not None:
        marks.blank(
            "gpu-count.incomplete", host.name, found=found, slots=host.slots, why=why, tool=tool
        )
    elif found < host.slots:
        marks.bad("gpu-count.too-few", host.name, found=found, slots=host.slots, tool=tool)
    elif found > host.slots:
        marks.warn("gpu-count.too-many", host.name, found=found, slots=host.slots)
    else:
        marks.good("gpu-count", host.name)


def _hidden(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    """Variables of a login that hide GPUs hide them from Ray too."""
    for name in context.machine.accelerator.visible_variables:
        value = facts.environment().get(name)
        if value is not None and len([v for v in value.split(",") if v]) < host.slots:
            marks.bad("gpu-count.hidden", host.name, name=name, value=value)


def _models(host: Host, gpus: Sequence[Gpu], context: Context, marks: Marks) -> None:
    profile, tool = context.profile, context.machine.accelerator.tool
    names = {gpu.name for gpu in gpus if gpu.name is not None}
    others = sorted(n for n in names if not any(re.search(m, n) for m in profile.models))
    if others:
        models = ", ".join(others)
        marks.bad("gpu-model.unexpected", host.name, models=models, machine=profile.name)
    if unread := [gpu for gpu in gpus if gpu.name is None]:
        _unread("gpu-model.unread", host, unread, tool, marks)
    elif gpus and not others:
        marks.good("gpu-model", host.name)
    totals = {gpu.total for gpu in gpus if gpu.total is not None}
    small = [f"{total} MiB" for total in sorted(totals) if total < profile.memory_mib]
    if small:
        marks.bad(
            "gpu-memory.too-small",
            host.name,
            sizes=", ".join(small),
            least=profile.memory_mib,
            profile=profile.name,
        )
    if unread := [gpu for gpu in gpus if gpu.total is None]:
        _unread("gpu-memory.unread", host, unread, tool, marks)
    elif gpus and not small:
        marks.good("gpu-memory", host.name)


def _unread(text: str, host: Host, gpus: Sequence[Gpu], tool: str, marks: Marks) -> None:
    """The vendor's tool did not report a value of these GPUs; `text` names it."""
    marks.blank(text, host.name, gpus=", ".join(str(gpu.index) for gpu in gpus), tool=tool)


def _users(host: Host, facts: Facts, gpus: Sequence[Gpu], context: Context, marks: Marks) -> None:
    tool = context.machine.accelerator.tool
    used = context.machine.accelerator.uses(facts)
    own = set(facts.pairs("own"))
    others = [use for use in used or () if str(use.pid) not in own]
    busy = [f"{gpu.index} ({gpu.used} MiB)" for gpu in gpus if (gpu.used or 0) > _IDLE_MIB]
    unread = [gpu for gpu in gpus if gpu.used is None]
    if others:
        users = ", ".join(sorted({f"{use.owner} (pid {use.pid})" for use in others}))
        marks.bad("gpu-free.in-use", host.name, users=users)
    elif busy and not used:
        marks.warn("gpu-free.memory-in-use", host.name, gpus=", ".join(busy))
    elif used is None:
        marks.blank("gpu-free.processes-unread", host.name, tool=tool)
    elif unread:
        _unread("gpu-free.memory-unread", host, unread, tool, marks)
    else:
        marks.good("gpu-free", host.name)


def health(context: Context, marks: Marks) -> None:
    """Health that the vendor's GPUs report."""
    mark = {"error": marks.bad, "warning": marks.warn, "unknown": marks.blank}
    for host, facts in context.answered():
        for item in context.machine.accelerator.health(facts, context.profile):
            if item.level == "good":
                marks.good(item.rule, host.name)
            else:
                mark[item.level](item.rule, host.name, item.message, item.fix)
