"""Rules on one host: ports, other Ray clusters, /dev/shm, limits, memory, disk, shared folders."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host

__all__ = ["limits", "memory", "ports", "ports_in_use", "sessions", "shares", "shm", "temp"]

_GIB = 2**30
_SHM = "/dev/shm"  # noqa: S108
# Bytes that Ray appends to its temp dir: /session_<date>_<time>_<micro>_<pid>/sockets/plasma_store.
_SOCKET_TAIL = 70
_SOCKET_LIMIT = 107
# Below these, Ray's logs and sockets do not fit even for a short job.
_TEMP_MIB, _TEMP_FILES = 256, 10_000
# One rehearsal on a GPU had about 1,800 threads on 32 cores (docs/gpu.md); a host with eight GPUs
# runs several times that, and Kubernetes' usual limit is 4,096 for a pod.
_LEAST_PROCESSES = 16_384


def ports(context: Context, marks: Marks) -> None:
    """Ray's fixed ports are free, or used by this hostfile's own cluster."""
    for host, facts in context.answered():
        wanted = context.site.ports.of_worker()
        if host is context.head:
            wanted = context.site.ports.of_head()
        by_number = {number: name for name, number in wanted.items()}
        own = set(facts.pairs("own"))
        if (why := facts.why("listen")) is not None:
            marks.blank("ports.unread", host.name, why=why)
            continue
        busy = False
        started = set(facts.pairs("reprise"))
        for line in facts.all("listen"):
            match = re.search(r"[:.](\d+)\s+\S+", line)
            if match is None or int(match[1]) not in by_number:
                continue
            holder = re.search(r'\(\("([^"]+)",pid=(\d+)', line)
            if holder is not None and holder[2] in own:
                continue
            busy = True
            process = f"{holder[1]}, pid {holder[2]}" if holder else "another user's process"
            port, name = match[1], by_number[int(match[1])]
            if holder is not None and holder[2] in started:
                marks.bad("ports.of-reprise", host.name, port=port, name=name, holder=process)
            else:
                marks.bad("ports.in-use", host.name, port=port, name=name, holder=process)
        if not busy:
            marks.good("ports", host.name)


def ports_in_use(facts: Facts) -> frozenset[int]:
    """Those of Ray's fixed ports on which something listens."""
    matches = (re.search(r"[:.](\d+)\s+\S+", line) for line in facts.all("listen"))
    return frozenset(int(match[1]) for match in matches if match is not None)


def sessions(context: Context, marks: Marks) -> None:
    """Ray processes of other clusters: listed with pid and owner, never stopped."""
    for host, facts in context.answered():
        if (why := facts.why("ray")) is not None:
            marks.blank("sessions.unread", host.name, why=why)
            continue
        own = set(facts.pairs("own"))
        foreign = [words for v in facts.all("ray") if (words := v.split(" "))[0] not in own]
        if not foreign:
            marks.good("sessions", host.name)
            continue
        started = [words for words in foreign if _folder(words)]
        others = [words for words in foreign if not _folder(words)]
        if started:
            folders = ", ".join(sorted({_folder(words) for words in started}))
            marks.warn(
                "sessions.reprise",
                host.name,
                folders=folders,
                processes=_processes(started),
                owners=", ".join(sorted({words[1] for words in started})),
            )
        owners = sorted({words[1] for words in others} - {facts.one("user") or ""})
        if owners:
            names = ", ".join(owners)
            marks.warn("sessions.other-user", host.name, processes=_processes(others), owners=names)
        elif others:
            mine = " ".join(words[0] for words in others)
            marks.warn("sessions.own", host.name, processes=_processes(others), pids=mine)


def _folder(words: Sequence[str]) -> str:
    """The folder of the cluster that reprise started, of a line `pid user start name session`."""
    return words[5] if len(words) > 5 else ""


def _processes(lines: Sequence[Sequence[str]]) -> str:
    return "; ".join(
        f"{name}, pid {pid} of {user}, since {started.replace('_', ' ')}"
        for pid, user, started, name, *_ in lines
    )


def shm(context: Context, marks: Marks) -> None:
    """Shared memory: a container's default breaks Ray; leftovers and a small size slow it down."""
    for host, facts in context.answered():
        sizes = facts.shm()
        if sizes is None:
            marks.blank("shm.unread", host.name, why=facts.why("shm") or "no answer")
            continue
        total, free = sizes
        ram = facts.memory()
        if total < 128 * 2**20:
            marks.bad("shm.container-default", host.name, total=total / 2**20)
        elif free < context.profile.shm_free_gib * _GIB:
            files = facts.all("shm.file")
            left = f"; leftovers: {', '.join(files[:4])}" if files else ""
            marks.warn(
                "shm.low",
                host.name,
                free=free / _GIB,
                total=total / _GIB,
                least=context.profile.shm_free_gib,
                profile=context.profile.name,
                leftovers=left,
            )
        elif ram is not None and total < context.profile.shm_fraction * ram:
            wanted = context.profile.shm_fraction * ram
            marks.warn(
                "shm.small",
                host.name,
                total=total / _GIB,
                share=total / ram,
                least=wanted / _GIB,
            )
        else:
            marks.good("shm", host.name)


def limits(context: Context, marks: Marks) -> None:
    """Open files, locked memory and processes of a login on the host."""
    profile = context.profile
    wanted = {"open files": float(profile.open_files)}
    if profile.memlock_unlimited and context.site.container.image is None:
        wanted["locked memory"] = float("inf")
    for host, facts in context.answered():
        for name, least in wanted.items():
            value = facts.limit(name)
            option = "nofile" if name == "open files" else "memlock"
            if value is None:
                marks.blank("limits.unread", host.name, name=name)
            elif value < least:
                shown = "unlimited" if least == float("inf") else f"{least:.0f}"
                marks.warn(
                    "limits.low", host.name, name=name, value=value, least=shown, option=option
                )
            else:
                marks.good("limits", host.name)
        _room_for_threads(host.name, facts, marks)


def _room_for_threads(host: str, facts: Facts, marks: Marks) -> None:
    """Every thread counts as a process: the lowest limit of kernel, control group and login."""
    limits = {
        "kernel.pid_max": facts.number("pids.max"),
        "pids.max of the control group": facts.number("pids.limit"),
        "ulimit -u": facts.limit("processes"),
    }
    known = {name: value for name, value in limits.items() if value is not None}
    if not known:
        marks.blank("limits.unread", host, name="processes")
        return
    name = min(known, key=known.__getitem__)
    if known[name] < _LEAST_PROCESSES:
        marks.warn("limits.processes", host, name=name, value=known[name], least=_LEAST_PROCESSES)
    else:
        marks.good("limits", host)


def memory(context: Context, marks: Marks) -> None:
    """Memory of the host, and free space on the file systems that training writes to."""
    profile = context.profile
    for host, facts in context.answered():
        total = facts.memory()
        if total is None:
            marks.blank("memory.unread", host.name)
        elif total < profile.memory_gib * _GIB:
            marks.warn(
                "memory.low",
                host.name,
                total=total / _GIB,
                least=profile.memory_gib,
                profile=profile.name,
            )
        else:
            marks.good("memory", host.name)
        _disks(host, facts, context, marks)


def _disks(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    for reason in facts.blanks.get("disk", ()):
        marks.blank("disk.unread", host.name, why=reason)
    for disk in facts.disks():
        if not disk.writable and disk.path in (
            context.site.paths.temp,
            context.site.paths.checkpoints,
        ):
            marks.bad("disk.not-writable", host.name, path=disk.path)
        elif disk.path == context.site.paths.temp and (
            disk.free < _TEMP_MIB * 2**20 or (disk.files is not None and disk.files < _TEMP_FILES)
        ):
            files = "any number of" if disk.files is None else disk.files
            marks.bad(
                "disk.full",
                host.name,
                path=disk.path,
                free=disk.free / 2**20,
                files=files,
                least=_TEMP_MIB,
            )
        elif disk.free < context.profile.disk_gib * _GIB:
            marks.warn(
                "disk.low",
                host.name,
                path=disk.path,
                free=disk.free / _GIB,
                least=context.profile.disk_gib,
                profile=context.profile.name,
            )
        else:
            marks.good("disk", host.name)


def temp(context: Context, marks: Marks) -> None:
    """Socket paths have at most 107 bytes: Ray does not start with a longer temp dir."""
    path = f"{context.site.paths.temp}/rp-00000000/r"
    length = len(path.encode()) + _SOCKET_TAIL
    for host, _ in context.answered():
        if length > _SOCKET_LIMIT:
            marks.bad(
                "temp-path.too-long",
                host.name,
                temp=context.site.paths.temp,
                length=length,
                limit=_SOCKET_LIMIT,
            )
        else:
            marks.good("temp-path", host.name)


def shares(context: Context, marks: Marks) -> None:
    """Folders that all hosts must share: every host must see the file that the head wrote."""
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
            if states.get(name) == "missing":
                marks.bad("shared.missing", host.name, name=name, path=path)
            elif len(context.hosts) == 1:
                marks.good("shared", host.name)
            elif written is None:
                marks.blank("shared.head-not-writable", host.name, name=name, path=path)
            elif seen == "yes":
                marks.good("shared", host.name)
            elif seen == "no":
                head = context.head.name
                marks.bad("shared.not-shared", host.name, name=name, path=path, head=head)
            else:
                marks.blank("shared.unread", host.name, name=name, path=path)
