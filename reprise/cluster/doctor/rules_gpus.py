"""Rules on GPUs: count, model, memory, driver, use, health reported by the vendor's tool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.machines.accelerator import Accelerator, Gpu, Reading
from reprise.machines.registry import accelerators as vendors
from reprise.machines.registry import names_shown

__all__ = ["accelerators", "hardware", "health"]

# Upper limit of the memory that a driver holds on an idle GPU; more means that the GPU is in use.
_IDLE_MIB = 1024


def hardware(context: Context, marks: Marks) -> None:
    """The host's GPUs are of the machine's vendor: otherwise no rule has checked them."""
    own = context.machine.accelerator
    others = [vendor for vendor in vendors() if vendor.pci and vendor.pci != own.pci]
    for host, facts in context.answered():
        if facts.one("pci.read") is None:
            why = facts.why("pci.read") or "no answer"
            marks.blank("accelerator.unread", host.name, why=why)
            continue
        found = {vendor: max(facts.devices(vendor.pci)) for vendor in others}
        # A display adapter of another vendor next to the GPUs of the machine is not theirs.
        if not any(found.values()) or (own.tool and max(facts.devices(own.pci))):
            marks.good("accelerator", host.name)
            continue
        for vendor, count in found.items():
            if count:
                _other(host, vendor, count, context, marks)


def _other(host: Host, vendor: Accelerator, count: int, context: Context, marks: Marks) -> None:
    """GPUs of a vendor that the machine does not have; on purpose only if it was named."""
    machine, maker = context.machine.name, vendor.maker
    known = names_shown(lambda item: item.trains and item.vendor == vendor.vendor)
    if context.named and not context.machine.accelerator.tool:
        marks.warn("accelerator.unused", host.name, count=count, maker=maker, machine=machine)
    else:
        marks.bad(
            "accelerator.other-machine",
            host.name,
            count=count,
            maker=maker,
            machine=machine,
            known=known,
        )


def accelerators(context: Context, marks: Marks) -> None:
    """The GPUs of every host against its slots, the profile and the other hosts."""
    accelerator = context.machine.accelerator
    tool = accelerator.tool
    if not tool:
        return
    drivers: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for host, facts in context.answered():
        reading = accelerator.read(facts)
        if reading is None:
            why = accelerator.why(facts) or f"unknown output of {tool}"
            marks.blank("gpu-count.unread", host.name, why=why, tool=tool)
            continue
        _count(host, facts, reading, context, marks)
        _hidden(host, facts, context, marks)
        _models(host, reading.gpus, context, marks)
        if all(gpu.name and gpu.total for gpu in reading.gpus):
            found = {f"{g.name} ({round((g.total or 0) / 1024)} GiB)" for g in reading.gpus}
            kinds[host.name] = ", ".join(sorted(found)) or "none"
        _users(host, facts, reading.gpus, context, marks)
        known = sorted({gpu.driver for gpu in reading.gpus if gpu.driver})
        if known:
            drivers[host.name] = ",".join(known)
        elif reading.gpus:
            _unread("gpu-driver.unread", host, reading.gpus, tool, marks)
    _same_models(kinds, context, marks)
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
        bus, _ = facts.devices(context.machine.accelerator.pci)
        pci = f"; the PCI bus has {bus}" if bus else ""
        marks.bad("gpu-count.too-few", host.name, found=found, slots=host.slots, tool=tool, pci=pci)
    elif found > host.slots:
        marks.warn("gpu-count.too-many", host.name, found=found, slots=host.slots)
    else:
        marks.good("gpu-count", host.name)


def _hidden(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    """Variables of a login that hide GPUs hide them from Ray too; some stop Ray or verl."""
    vendor = context.machine.accelerator
    for name in vendor.visible_variables:
        value = facts.environment().get(name)
        if value is not None and (why := vendor.refused_variables.get(name)):
            marks.bad("gpu-count.refused", host.name, name=name, value=value, why=why)
        elif value is not None and len([v for v in value.split(",") if v]) < host.slots:
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


def _same_models(kinds: Mapping[str, str], context: Context, marks: Marks) -> None:
    """Models that the profile allows may still differ: the plan must fit the smallest memory."""
    most = common(kinds, context.head.name)
    for name, kind in kinds.items():
        if kind != most:
            marks.warn("gpu-model.differs", name, models=kind, most=most)
        elif ", " in kind:
            marks.warn("gpu-model.mixed", name, models=kind)


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
