"""Rules on accelerators: count, model, memory, driver, who uses them, what fails most on H20."""

from __future__ import annotations

import re

from reprise.cluster.doctor.cards import Card, cards, in_use
from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host

__all__ = ["accelerators", "nvidia_health"]

_TOOLS = {"nvidia": "nvidia-smi", "mthreads": "mthreads-gmi"}
# Memory that a driver holds on an idle card; more means that somebody computes there.
_IDLE_MIB = 1024


def accelerators(context: Context, marks: Marks) -> None:
    """Cards of every host against its slots, the profile and the other hosts."""
    kind = context.profile.accelerator
    if kind == "none":
        return
    found: dict[str, list[Card]] = {}
    for host, facts in context.answered():
        held = cards(facts, kind)
        if held is None:
            tool = _TOOLS[kind]
            why = facts.why(f"gpu.{kind}") or f"{tool} printed something unknown"
            marks.blank(
                "gpu-count", host.name, why, f"run {tool} on the host; is the driver loaded?"
            )
            continue
        found[host.name] = held
        _count(host, facts, held, context, marks)
        _models(host, held, context, marks)
        _users(host, facts, held, context, marks)
    drivers = {name: ",".join(sorted({c.driver for c in held})) for name, held in found.items()}
    most = common(drivers, context.head.name)
    for name, driver in drivers.items():
        if driver == most:
            marks.good("gpu-driver", name)
        else:
            marks.bad("gpu-driver.driver-others", name, driver=driver or "unknown", most=most)


def _count(host: Host, facts: Facts, held: list[Card], context: Context, marks: Marks) -> None:
    tool = _TOOLS[context.profile.accelerator]
    if len(held) < host.slots:
        marks.bad(
            "gpu-count.cards-slots", host.name, held_count=len(held), slots=host.slots, tool=tool
        )
    elif len(held) > host.slots:
        marks.warn("gpu-count.cards-which-slots", host.name, held_count=len(held), slots=host.slots)
    else:
        marks.good("gpu-count", host.name)
    for name in ("CUDA_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES"):
        value = facts.environment().get(name)
        if value is not None and len([v for v in value.split(",") if v]) < host.slots:
            marks.bad("gpu-count.hides-cards-from", host.name, name=name, value=value)


def _models(host: Host, held: list[Card], context: Context, marks: Marks) -> None:
    profile = context.profile
    for rule, wrong, fix in (
        (
            "gpu-model",
            sorted({c.name for c in held if not any(re.search(m, c.name) for m in profile.models)}),
            f"name the right profile (this one: {profile.name}) or leave the host out: --exclude",
        ),
        (
            "gpu-memory",
            sorted({f"{c.total} MiB" for c in held if c.total < profile.memory_mib}),
            f"profile {profile.name} needs {profile.memory_mib} MiB a card",
        ),
    ):
        if wrong:
            marks.bad(rule, host.name, f"unexpected: {', '.join(wrong)}", fix)
        elif held:
            marks.good(rule, host.name)


def _users(host: Host, facts: Facts, held: list[Card], context: Context, marks: Marks) -> None:
    used = in_use(facts, context.profile.accelerator)
    own = set(facts.pairs("own"))
    others = [use for use in used if str(use.pid) not in own]
    if others:
        who = ", ".join(sorted({f"{use.owner} (pid {use.pid})" for use in others}))
        marks.bad("gpu-free.cards-use", host.name, who=who)
        return
    busy = [f"{card.index} ({card.used} MiB)" for card in held if card.used > _IDLE_MIB]
    if busy and not used:
        marks.warn("gpu-free.memory-cards-held", host.name, busys=", ".join(busy))
    else:
        marks.good("gpu-free", host.name)


def nvidia_health(context: Context, marks: Marks) -> None:
    """Fabric manager, row remapping, Xid errors and the peer memory module."""
    if context.profile.accelerator != "nvidia":
        return
    for host, facts in context.answered():
        if not facts.all("gpu.nvidia"):
            continue
        if context.profile.fabric_manager:
            _fabric(host, facts, marks)
        _rows(host, facts, marks)
        _xid(host, facts, marks)
        if context.profile.rdma and facts.one("peermem") == "no":
            marks.warn("gpu-peermem.module-nvidia-peermem", host.name)
        else:
            marks.good("gpu-peermem", host.name)


def _fabric(host: Host, facts: Facts, marks: Marks) -> None:
    state = facts.one("fabricmanager")
    if state == "active":
        marks.good("fabric-manager", host.name)
    elif state in ("inactive", "failed", "activating", "deactivating"):
        marks.bad("fabric-manager.nvidia-fabricmanager", host.name, state=state)
    else:
        why = facts.why("fabricmanager") or state or "no answer"
        marks.blank("fabric-manager", host.name, why, "ask the host's own service manager")


def _rows(host: Host, facts: Facts, marks: Marks) -> None:
    if (why := facts.why("gpu.remapped")) is not None:
        marks.blank("gpu-rows", host.name, why, "run nvidia-smi -q -d ROW_REMAPPER")
        return
    for line in facts.all("gpu.remapped"):
        bus, uncorrectable, pending, failure = [*line.split(", "), "", "", "", ""][:4]
        if "N/A" in line or "Not Supported" in line or not failure:
            marks.blank("gpu-rows.told", host.name, bus=bus)
        elif failure.strip() not in ("0", "No"):
            marks.bad("gpu-rows.row-remapping-failed", host.name, bus=bus, failure=failure)
        elif pending.strip() not in ("0", "No"):
            marks.bad("gpu-rows.row-remapped-next", host.name, bus=bus)
        elif uncorrectable.strip() not in ("0", "No"):
            marks.warn(
                "gpu-rows.rows-remapped-after", host.name, bus=bus, uncorrectable=uncorrectable
            )
    if not any(mark.rule == "gpu-rows" and mark.host == host.name for mark in marks.marks):
        marks.good("gpu-rows", host.name)


def _xid(host: Host, facts: Facts, marks: Marks) -> None:
    if facts.one("xid.read") is None:
        why = facts.why("xid.read") or "the kernel log was not read"
        marks.blank("gpu-xid", host.name, why, "as root on the host: dmesg | grep Xid")
    elif lines := facts.all("xid"):
        found = [match[0] for line in lines if (match := re.search(r"Xid \([^)]*\): \d+", line))]
        marks.warn("gpu-xid.kernel-log", host.name, fromkeys=", ".join(dict.fromkeys(found)))
    else:
        marks.good("gpu-xid", host.name)
