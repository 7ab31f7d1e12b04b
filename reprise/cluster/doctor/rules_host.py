"""Rules on one host's room: ports, earlier Ray sessions, /dev/shm, limits, memory, disk, shares."""

from __future__ import annotations

import re

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host

__all__ = ["limits", "memory", "ports", "sessions", "shares", "shm", "temp"]

_GIB = 2**30
_SHM = "/dev/shm"  # noqa: S108
# Ray appends this much to its temp dir: /session_<date>_<time>_<micro>_<pid>/sockets/plasma_store.
_SOCKET_TAIL = 70
_SOCKET_LIMIT = 107


def ports(context: Context, marks: Marks) -> None:
    """Ray's fixed ports are free, or held by this hostfile's own cluster."""
    for host, facts in context.answered():
        wanted = context.site.ports.of_worker()
        if host is context.head:
            wanted = context.site.ports.of_head()
        by_number = {number: name for name, number in wanted.items()}
        own = set(facts.pairs("own"))
        if (why := facts.why("listen")) is not None:
            marks.blank("ports", host.name, why, "run ss -ltnp on the host")
            continue
        busy = False
        for line in facts.all("listen"):
            match = re.search(r"[:.](\d+)\s+\S+", line)
            if match is None or int(match[1]) not in by_number:
                continue
            holder = re.search(r'\(\("([^"]+)",pid=(\d+)', line)
            if holder is not None and holder[2] in own:
                continue
            busy = True
            who = f"{holder[1]}, pid {holder[2]}" if holder else "another user's process"
            marks.bad(
                "ports.port-held",
                host.name,
                match=match[1],
                by_number=by_number[int(match[1])],
                who=who,
            )
        if not busy:
            marks.good("ports", host.name)


def sessions(context: Context, marks: Marks) -> None:
    """Ray processes that are not of this cluster: listed with pid and owner, never stopped."""
    for host, facts in context.answered():
        if (why := facts.why("ray")) is not None:
            marks.blank("sessions", host.name, why, "install procps on the host")
            continue
        own = set(facts.pairs("own"))
        strangers = [words for v in facts.all("ray") if (words := v.split(" "))[0] not in own]
        if not strangers:
            marks.good("sessions", host.name)
            continue
        told = [
            f"{name}, pid {pid} of {user}, since {started.replace('_', ' ')}"
            for pid, user, started, name, *_ in strangers
        ]
        others = sorted({words[1] for words in strangers} - {facts.one("user") or ""})
        mine = " ".join(words[0] for words in strangers if words[1] not in others)
        fix = f"ask {', '.join(others)}" if others else f"if nothing uses it: kill {mine}"
        marks.warn("sessions.another-ray-runs", host.name, tolds="; ".join(told), advice=fix)


def shm(context: Context, marks: Marks) -> None:
    """Shared memory: a container's default breaks Ray, leftovers and a small share slow it."""
    for host, facts in context.answered():
        sizes = facts.shm()
        if sizes is None:
            why = facts.why("shm") or "its size could not be read"
            marks.blank("shm", host.name, why, "run df /dev/shm on the host")
            continue
        total, free = sizes
        ram = facts.memory()
        if total < 128 * 2**20:
            marks.bad("shm.dev-shm-mib", host.name, total=total / 2**20)
        elif free < context.profile.shm_free_gib * _GIB:
            files = facts.all("shm.file")
            left = f"; leftovers: {', '.join(files[:4])}" if files else ""
            marks.warn(
                "shm.dev-shm-gib", host.name, free=free / _GIB, total=total / _GIB, left=left
            )
        elif ram is not None and total < context.profile.shm_fraction * ram:
            wanted = context.profile.shm_fraction * ram
            marks.warn(
                "shm.dev-shm-gib-2",
                host.name,
                total=total / _GIB,
                total2=total / ram,
                wanted=wanted / _GIB,
            )
        else:
            marks.good("shm", host.name)


def limits(context: Context, marks: Marks) -> None:
    """Open files and locked memory of a login on the host."""
    profile = context.profile
    wanted = {"open files": float(profile.open_files)}
    if profile.memlock_unlimited and context.site.container.image is None:
        wanted["locked memory"] = float("inf")
    for host, facts in context.answered():
        for name, least in wanted.items():
            value = facts.limit(name)
            option = "nofile" if name == "open files" else "memlock"
            if value is None:
                marks.blank("limits.unknown", host.name, name=name)
            elif value < least:
                text = "unlimited" if least == float("inf") else f"{least:.0f}"
                marks.warn(
                    "limits.expected", host.name, name=name, value=value, text=text, option=option
                )
            else:
                marks.good("limits", host.name)


def memory(context: Context, marks: Marks) -> None:
    """Memory of the host, and room on the file systems that are written to."""
    profile = context.profile
    for host, facts in context.answered():
        total = facts.memory()
        if total is None:
            marks.blank("memory.unknown", host.name)
        elif total < profile.memory_gib * _GIB:
            marks.warn(
                "memory.gib-profile-plans",
                host.name,
                total=total / _GIB,
                profile_name=profile.name,
                memory_gib=profile.memory_gib,
            )
        else:
            marks.good("memory", host.name)
        _disks(host, facts, context, marks)


def _disks(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    for reason in facts.blanks.get("disk", ()):
        marks.blank("disk", host.name, reason, "is the file system mounted? run df on the host")
    for disk in facts.disks():
        if not disk.writable and disk.path in (
            context.site.paths.temp,
            context.site.paths.checkpoints,
        ):
            marks.bad("disk.cannot-written", host.name, disk_path=disk.path)
        elif disk.free < context.profile.disk_gib * _GIB:
            marks.warn(
                "disk.gib-free",
                host.name,
                disk_path=disk.path,
                free=disk.free / _GIB,
                profile_name=context.profile.name,
                disk_gib=context.profile.disk_gib,
            )
        else:
            marks.good("disk", host.name)


def temp(context: Context, marks: Marks) -> None:
    """Paths of sockets have at most 107 bytes: a long temp dir keeps Ray from starting."""
    path = f"{context.site.paths.temp}/rp-00000000/r"
    length = len(path.encode()) + _SOCKET_TAIL
    for host, _ in context.answered():
        if length > _SOCKET_LIMIT:
            marks.bad(
                "temp-path.sockets-below-would",
                host.name,
                temp=context.site.paths.temp,
                length=length,
                socket_limit=_SOCKET_LIMIT,
            )
        else:
            marks.good("temp-path", host.name)


def shares(context: Context, marks: Marks) -> None:
    """Folders that all hosts must share: what the first one wrote, every other one must see."""
    for name, path in context.site.paths.shared().items():
        written = next(
            (
                value
                for _, facts in context.answered()
                for value in facts.all("share")
                if value == f"{name} written"
            ),
            None,
        )
        for host, facts in context.answered():
            states = facts.pairs("share")
            seen = context.seen.get(host.name, {}).get(name)
            fix = f"mount the shared storage there, or correct paths.{name} in the site file"
            if states.get(name) == "missing":
                marks.bad("shared", host.name, f"{name}: {path} is missing", fix)
            elif len(context.hosts) == 1:
                marks.good("shared", host.name)
            elif written is None:
                marks.blank("shared.could-written-first", host.name, name=name, path=path)
            elif seen == "yes":
                marks.good("shared", host.name)
            elif seen == "no":
                marks.bad(
                    "shared",
                    host.name,
                    f"{name}: {path} is not the folder that {context.head.name} sees",
                    fix,
                )
            else:
                marks.blank("shared", host.name, f"{name}: {path} could not be read", fix)
