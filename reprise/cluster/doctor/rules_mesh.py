"""Rules on the network between hosts: who reaches whom on which port, and the packet size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from reprise.cluster.doctor.context import Context, Mesh, common
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.names import fold

__all__ = ["mesh", "packet_size"]

_Failed = dict[tuple[str, str, int], str]


def mesh(context: Context, marks: Marks) -> None:
    """Every host reaches the others; a fault is reported of the host that has it."""
    found = context.mesh
    if found is None:
        return
    for name, why in found.unread.items():
        marks.blank("mesh.unread", name, why=why)
    failed = {key: result for key, result in found.results.items() if not _fine(key, result, found)}
    # A host that took no part may not have listened: that connection proves nothing.
    failed = {key: result for key, result in failed.items() if key[1] not in found.unread}
    addresses = {host.name: a.ip for host in context.hosts if (a := context.address(host))}
    faulty = {name for key in failed for name in key[:2]}
    for name in dict.fromkeys(key[0] for key in found.results):
        if name not in faulty and name not in found.unread:
            marks.good("mesh", name)
    _from_none(failed, found, marks)
    _to_none(failed, found, marks)
    for source, target, ports, reason in _grouped(failed):
        ip = addresses.get(target, "?")
        tried = [key for key in found.results if key[:2] == (source, target)]
        if reason == _LOST:
            marks.bad("mesh.large-packets", source, between=f"to {target} ({ip})")
            continue
        marks.bad(
            "mesh.cut-off",
            source,
            target=target,
            ip=ip,
            ports=_shown(ports, found, tried),
            reason=_REASONS.get(reason, reason),
        )


_LOST = "data lost"
_REASONS = {
    "timed out": "no answer (packets are dropped)",
    "refused": "connection refused",
    "silent": "the connection opens, but another program answers",
}


def _fine(key: tuple[str, str, int], result: str, found: Mesh) -> bool:
    return result == "ok" or (result == "silent" and key[2] in found.busy.get(key[1], ()))


def _from_none(failed: _Failed, found: Mesh, marks: Marks) -> None:
    """Ports of a host that nobody reaches: the fault is at that host."""
    _whole(failed, found, marks, side=1)


def _to_none(failed: _Failed, found: Mesh, marks: Marks) -> None:
    """A host that reaches a port of no other host: the fault is at that host."""
    _whole(failed, found, marks, side=0)


def _end(key: tuple[str, str, int], side: int) -> str:
    return key[1] if side else key[0]


def _whole(failed: _Failed, found: Mesh, marks: Marks, side: int) -> None:
    """Report the failures that all partners of a host share, and remove them from `failed`.

    `side` is the host's place in the key: 0 it connects, 1 others connect to it. Two partners at
    least: with one, either end may have the fault.
    """
    tried = Counter((_end(key, side), key[2]) for key in found.results)
    missing: dict[tuple[str, int], list[str]] = defaultdict(list)
    for key, reason in failed.items():
        missing[_end(key, side), key[2]].append(reason)
    ports: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (name, port), reasons in missing.items():
        if len(reasons) == tried[name, port] >= 2:
            ports[name, reasons[0]].append(port)
    for (name, port), reasons in missing.items():
        # Ports that only the head has, of a host that reaches nothing else either.
        if tried[name, port] == 1 and (name, reasons[0]) in ports:
            ports[name, reasons[0]].append(port)
    for (name, reason), numbers in ports.items():
        text = _shown(numbers, found, [key for key in found.results if key[side] == name])
        said = _REASONS.get(reason, reason)
        if reason == _LOST:
            between = "from other hosts" if side else "to other hosts"
            marks.bad("mesh.large-packets", name, between=between)
        elif side:
            marks.bad("mesh.not-reached", name, ports=text, reason=said)
        else:
            marks.bad("mesh.reaches-none", name, ports=text, reason=said)
        for key in [key for key in failed if key[side] == name and key[2] in numbers]:
            del failed[key]


def _grouped(failed: Mapping[tuple[str, str, int], str]) -> list[tuple[str, str, list[int], str]]:
    """Source, target, ports and reason of the other failures."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for (source, target, port), reason in failed.items():
        groups[source, target, reason].append(port)
    return [(source, target, sorted(p), reason) for (source, target, reason), p in groups.items()]


def _shown(ports: Iterable[int], found: Mesh, keys: Iterable[tuple[str, str, int]]) -> str:
    """The ports with their names; "any port" where no port worked."""
    ports = sorted(set(ports))
    if len(ports) > 1 and set(ports) == {key[2] for key in keys}:
        return "any port"
    named = ", ".join(f"{port} ({found.names.get(port, 'port')})" for port in ports)
    return f"port {named}" if len(ports) == 1 else f"ports {named}"


def packet_size(context: Context, marks: Marks) -> None:
    """The MTU of the training network's interface is the same on all hosts."""
    sizes: dict[str, str] = {}
    for host, facts in context.answered():
        address = context.address(host)
        if address is None:
            continue
        size = facts.mtu(address.interface)
        if size is not None:
            sizes[host.name] = str(size)
        else:
            marks.blank("mtu.unread", host.name, interface=address.interface)
    most = common(sizes, context.head.name)
    others = fold([name for name, size in sizes.items() if size == most])
    for host, _ in context.answered():
        address, shown = context.address(host), sizes.get(host.name)
        if shown is not None and shown == most:
            marks.good("mtu", host.name)
        elif shown is not None and address is not None:
            marks.warn(
                "mtu.differs",
                host.name,
                interface=address.interface,
                size=shown,
                most=most,
                others=others,
            )
