"""Rules on the network: the address with the route to the head, its interface, proxies, RDMA."""

from __future__ import annotations

import re
from statistics import median

from reprise.cluster.address import jobs_address
from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Address, Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.core.errors import OperatorError
from reprise.machines.registry import union

__all__ = ["INNER", "addresses", "covering", "proxies", "ray_address", "rdma", "rdma_errors"]

# Interfaces for containers and virtual machines of the host itself: NCCL uses them too when no
# interface is set (NVIDIA/nccl issues 375 and 697).
INNER = re.compile(r"^(lo|docker\d*|br-[0-9a-f]{12}|veth.*|virbr.*|cni.*|flannel.*|cali.*)$")
# An error counter is high above this number, and this many times the median of all ports.
_MANY_ERRORS = 100
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def addresses(context: Context, marks: Marks) -> None:
    """One address per host, on an interface that other hosts can reach."""
    taken: dict[str, str] = {}
    for host, facts in context.answered():
        address = context.address(host)
        if address is None:
            _no_address(host, facts, context, marks)
            continue
        if address.local or INNER.match(address.interface):
            marks.bad(
                "address.not-reachable", host.name, ip=address.ip, interface=address.interface
            )
            continue
        if address.ip in taken:
            marks.bad("address.duplicate", host.name, ip=address.ip, other=taken[address.ip])
            continue
        taken[address.ip] = host.name
        _hostname_address(host, facts, address, context, marks)
        _variables(host, facts, address, context, marks)


def _no_address(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    if (why := facts.why("address")) is not None:
        marks.blank("address.unread", host.name, why=why)
    elif host.ip is not None:
        marks.bad("address.ip-not-held", host.name, ip=host.ip)
    elif (interface := context.site.network.interface) is not None:
        marks.bad("address.interface-missing", host.name, interface=interface)
    elif context.head_ip is None:
        marks.blank("address.head-unknown", host.name)
    elif host is context.head:
        marks.bad("address.head-elsewhere", host.name, ip=context.head_ip)
    else:
        why = facts.why("route") or "`ip route get` reports no address of this host"
        marks.bad("address.no-route", host.name, ip=context.head_ip, why=why)


def _hostname_address(
    host: Host, facts: Facts, address: Address, context: Context, marks: Marks
) -> None:
    """Start scripts often use `hostname -I`: warn when its first address is another one."""
    first = next(iter((facts.one("hostname-i") or "").split()), None)
    if first is not None and first != address.ip:
        marks.warn(
            "address.hostname-differs",
            host.name,
            ip=address.ip,
            interface=address.interface,
            first=first,
        )
    else:
        marks.good("address", host.name)


def _variables(host: Host, facts: Facts, address: Address, context: Context, marks: Marks) -> None:
    held = {a.interface for a in facts.addresses()}
    environment = {**facts.environment(), **context.site.variables}
    before = len(marks.marks)
    for name in union(lambda vendor: vendor.interface_variables):
        value = environment.get(name)
        if value is None or value.startswith("^"):
            continue
        named = [prefix.lstrip("=") for prefix in value.split(",") if prefix]
        matching = [held_name for held_name in held if held_name.startswith(tuple(named))]
        right = address.interface
        if not matching:
            marks.bad("interface.missing", host.name, name=name, value=value, interface=right)
        elif all(INNER.match(held_name) for held_name in matching):
            marks.bad("interface.not-reachable", host.name, name=name, value=value, interface=right)
        elif right not in matching:
            marks.warn("interface.other-route", host.name, name=name, value=value, interface=right)
        else:
            marks.good("interface", host.name)
    if len(marks.marks) == before:
        marks.good("interface", host.name)


def covering(existing: str, names: list[str]) -> str:
    """A value of no_proxy with the existing entries and every host."""
    entries = [entry.strip() for entry in existing.split(",") if entry.strip()]
    return ",".join(dict.fromkeys([*entries, "localhost", "127.0.0.1", *names]))


def proxies(context: Context, marks: Marks) -> None:
    """no_proxy must list every host by name: many clients ignore ranges in no_proxy."""
    names = [host.name for host in context.hosts]
    names += [a.ip for host in context.hosts if (a := context.address(host)) is not None]
    for host, facts in context.answered():
        environment = {**facts.environment(), **context.site.variables}
        used = [name for name in _PROXIES if environment.get(name)]
        existing = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        entries = {entry.strip() for entry in existing.split(",")}
        uncovered = [name for name in dict.fromkeys(names) if not _covered(name, entries)]
        if used and uncovered:
            value = covering(existing, list(dict.fromkeys(names)))
            marks.warn(
                "proxy.hosts-missing",
                host.name,
                proxies=", ".join(used),
                count=len(uncovered),
                value=value,
            )
        else:
            marks.good("proxy", host.name)


def ray_address(context: Context, marks: Marks) -> None:
    """RAY_ADDRESS of a login: jobs submitted there use this address."""
    for host, facts in context.answered():
        value = facts.environment().get("RAY_ADDRESS")
        if value is None or value == "auto":
            marks.good("ray-address", host.name)
            continue
        try:
            jobs_address(value, on_head=host is context.head)
            marks.good("ray-address", host.name)
        except OperatorError as error:
            marks.warn(
                "ray-address.variable",
                host.name,
                value=value,
                problem=error.message,
                fix=error.fix,
            )


def _covered(name: str, entries: set[str]) -> bool:
    return (
        "*" in entries
        or name in entries
        or any(entry.startswith(".") and name.endswith(entry) for entry in entries)
    )


def rdma(context: Context, marks: Marks) -> None:
    """RDMA ports are active and the same on all hosts, and the GID index is RoCE v2 everywhere."""
    shapes: dict[str, str] = {}
    for host, facts in context.answered():
        ports = [value.split(" ") for value in facts.all("rdma")]
        if not ports:
            if context.profile.rdma:
                marks.bad("rdma.no-device", host.name, profile=context.profile.name)
            continue
        active = [port for port in ports if port[2].endswith("ACTIVE")]
        for device, number, state, *_ in (port for port in ports if port not in active):
            marks.warn("rdma.port-not-active", host.name, device=device, port=number, state=state)
        if not active and context.profile.rdma:
            marks.bad("rdma.none-active", host.name)
        shapes[host.name] = ", ".join(sorted(f"{p[0]}:{p[1]} {p[3]} {p[4]}" for p in active))
        _gid(host, facts, context, marks)
    most = common(shapes, context.head.name)
    for name, shape in shapes.items():
        if shape != most:
            marks.bad("rdma.differs", name, ports=shape or "none", most=most)
        else:
            marks.good("rdma", name)


def rdma_errors(context: Context, marks: Marks) -> None:
    """Error counters of RDMA ports against those of all other ports.

    Counters grow since the driver was loaded, so a single reading has no rate: only a port far
    above the others is reported.
    """
    counts: dict[str, dict[tuple[str, str], int]] = {}
    for host, facts in context.answered():
        for port, text in facts.pairs("rdma.errors").items():
            for word in text.split():
                name, _, value = word.partition("=")
                if value.isdigit():
                    counts.setdefault(name, {})[host.name, port] = int(value)
    high: dict[str, list[str]] = {}
    for name, by_port in counts.items():
        usual = median(by_port.values())
        for (host_name, port), count in by_port.items():
            if count > _MANY_ERRORS and count > _MANY_ERRORS * usual:
                high.setdefault(host_name, []).append(f"{port} {name} {count} (median {usual:g})")
    for host, facts in context.answered():
        if host.name in high:
            marks.warn("rdma-errors.high", host.name, counters="; ".join(high[host.name]))
        elif facts.all("rdma.errors"):
            marks.good("rdma-errors", host.name)


def _gid(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    environment = {**facts.environment(), **context.site.variables}
    for name in union(lambda vendor: vendor.gid_variables):
        index = environment.get(name)
        if index is None:
            continue
        kinds = [v.split(" ")[4] for v in facts.all("gid") if v.split(" ")[2] == index]
        if not kinds:
            marks.bad("gid.missing", host.name, name=name, index=index)
        elif not any("v2" in kind for kind in kinds):
            marks.warn("gid.not-roce-v2", host.name, name=name, index=index, kind=kinds[0])
        else:
            marks.good("gid", host.name)
