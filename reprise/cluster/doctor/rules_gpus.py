"""Rules on GPUs: count, model, memory, driver, who uses them, what the vendor's tool reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.machines.accelerator import Gpu, Reading

__all__ = ["accelerators", "health"]

# Memory that a driver holds on an idle GPU; more means that somebody computes there.
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
            why = accelerator.why(facts) or f"{tool} printed something unknown"
            marks.blank(
                "gpu-count", host.name, why, f"run {tool} on the host; is the driver loaded?"
            )
            continue
        _count(host, facts, reading, context, marks)
        _hidden(host, facts, context, marks)
        _models(host, reading.gpus, context, marks)
        _users(host, facts, reading.gpus, context, marks)
        known = sorted({gpu.driver for gpu in reading.gpus if gpu.driver})
        if known:
            drivers[host.name] = ",".join(known)
        elif reading.gpus:
            _unread("gpu-driver", host, reading.gpus, "driver version", tool, marks)
    most = common(drivers, context.head.name)
    for name, driver in drivers.items():
        if driver == most:
            marks.good("gpu-driver", name)
        else:
            marks.bad("gpu-driver.driver-others", name, driver=driver, most=most)


def _count(host: Host, facts: Facts, reading: Reading, context: Context, marks: Marks) -> None:
    tool, found = context.machine.accelerator.tool, len(reading.gpus)
    why = context.machine.accelerator.why(facts)
    look = (
        f"run {tool} and look at the kernel log (dmesg) for GPUs that fell off the bus; "
        "or correct slots= in the hostfile"
    )
    for line in reading.said:
        marks.warn("gpu-tool.also-printed", host.name, tool=tool, line=line)
    if reading.lost:
        named = "; ".join(reading.lost)
        message = f"{found} of {host.slots} GPUs (slots={host.slots}); {tool} cannot read {named}"
        marks.bad("gpu-count", host.name, message, look)
    elif found < host.slots and why is not None:
        marks.blank("gpu-count", host.name, f"{found} GPUs were listed, then: {why}", look)
    elif found < host.slots:
        message = f"{found} of {host.slots} GPUs (slots={host.slots})"
        marks.bad("gpu-count", host.name, message, look)
    elif found > host.slots:
        marks.warn("gpu-count.gpus-which-slots", host.name, found=found, slots=host.slots)
    else:
        marks.good("gpu-count", host.name)


def _hidden(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    """A login that hides GPUs hides them from Ray too."""
    for name in context.machine.accelerator.visible_variables:
        value = facts.environment().get(name)
        if value is not None and len([v for v in value.split(",") if v]) < host.slots:
            marks.bad("gpu-count.hides-gpus-from", host.name, name=name, value=value)


def _models(host: Host, gpus: Sequence[Gpu], context: Context, marks: Marks) -> None:
    profile, tool = context.profile, context.machine.accelerator.tool
    names = {gpu.name for gpu in gpus if gpu.name is not None}
    sizes = {gpu.total for gpu in gpus if gpu.total is not None}
    for rule, what, wrong, fix, unread in (
        (
            "gpu-model",
            "name",
            sorted(name for name in names if not any(re.search(m, name) for m in profile.models)),
            f"name the right machine (this one: {profile.name}) or leave the host out: --exclude",
            [gpu for gpu in gpus if gpu.name is None],
        ),
        (
            "gpu-memory",
            "total memory",
            [f"{size} MiB" for size in sorted(sizes) if size < profile.memory_mib],
            f"profile {profile.name} needs {profile.memory_mib} MiB a GPU",
            [gpu for gpu in gpus if gpu.total is None],
        ),
    ):
        if wrong:
            marks.bad(rule, host.name, f"unexpected: {', '.join(wrong)}", fix)
        if unread:
            _unread(rule, host, unread, what, tool, marks)
        elif gpus and not wrong:
            marks.good(rule, host.name)


def _unread(rule: str, host: Host, gpus: Sequence[Gpu], what: str, tool: str, marks: Marks) -> None:
    indices = ", ".join(str(gpu.index) for gpu in gpus)
    message = f"{what} of GPU {indices}: {tool} did not report it"
    marks.blank(rule, host.name, message, f"run {tool} on the host")


def _users(host: Host, facts: Facts, gpus: Sequence[Gpu], context: Context, marks: Marks) -> None:
    tool = context.machine.accelerator.tool
    used = context.machine.accelerator.uses(facts)
    own = set(facts.pairs("own"))
    others = [use for use in used or () if str(use.pid) not in own]
    busy = [f"{gpu.index} ({gpu.used} MiB)" for gpu in gpus if (gpu.used or 0) > _IDLE_MIB]
    unread = [gpu for gpu in gpus if gpu.used is None]
    if others:
        who = ", ".join(sorted({f"{use.owner} (pid {use.pid})" for use in others}))
        marks.bad("gpu-free.gpus-use", host.name, who=who)
    elif busy and not used:
        marks.warn("gpu-free.memory-gpus-use", host.name, busys=", ".join(busy))
    elif used is None:
        message = f"processes on the GPUs: {tool} did not report them"
        marks.blank("gpu-free", host.name, message, f"run {tool} on the host")
    elif unread:
        _unread("gpu-free", host, unread, "memory in use", tool, marks)
    else:
        marks.good("gpu-free", host.name)


def health(context: Context, marks: Marks) -> None:
    """What only the vendor's GPUs report of themselves."""
    tell = {"error": marks.bad, "warning": marks.warn, "unknown": marks.blank}
    for host, facts in context.answered():
        for item in context.machine.accelerator.health(facts, context.profile):
            if item.level == "good":
                marks.good(item.rule, host.name)
            else:
                tell[item.level](item.rule, host.name, item.message, item.fix)
