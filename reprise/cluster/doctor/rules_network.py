"""Rules on the network: the address that routes to the head, its card, proxies, RDMA."""

from __future__ import annotations

import re

from reprise.cluster.address import jobs_address
from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.facts import Address, Facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.hosts.hostfile import Host
from reprise.core.errors import OperatorError
from reprise.machines.registry import union

__all__ = ["INNER", "addresses", "covering", "proxies", "ray_address", "rdma"]

# Cards that exist for containers and virtual machines of the host itself: NCCL takes them all the
# same when nothing is named (NVIDIA/nccl issues 375 and 697).
INNER = re.compile(r"^(lo|docker\d*|br-[0-9a-f]{12}|veth.*|virbr.*|cni.*|flannel.*|cali.*)$")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SET_IT = "state it: ip= in the hostfile, or network.interface in the site file"


def addresses(context: Context, marks: Marks) -> None:
    """One address a host, held by a card that other hosts can reach."""
    taken: dict[str, str] = {}
    for host, facts in context.answered():
        address = context.address(host)
        if address is None:
            _no_address(host, facts, context, marks)
            continue
        if address.local or INNER.match(address.card):
            marks.bad("address.cannot-reached-from", host.name, ip=address.ip, card=address.card)
            continue
        if address.ip in taken:
            marks.bad(
                "address.address-two-names", host.name, ip=address.ip, taken=taken[address.ip]
            )
            continue
        taken[address.ip] = host.name
        _other_cards(host, facts, address, context, marks)
        _variables(host, facts, address, context, marks)


def _no_address(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    if (why := facts.why("address")) is not None:
        marks.blank("address", host.name, why, "install iproute2 on the host")
    elif host.ip is not None:
        marks.bad("address.card-host-ip", host.name, ip=host.ip)
    elif (card := context.site.network.interface) is not None:
        marks.bad("address.card-missing-address", host.name, card=card)
    elif context.head_ip is None:
        marks.blank("address.head-s-own", host.name)
    elif host is context.head:
        marks.bad("address.card-head-address", host.name, head_ip=context.head_ip)
    else:
        why = facts.why("route") or "there is no route"
        marks.bad("address.way-head", host.name, head_ip=context.head_ip, why=why)


def _other_cards(
    host: Host, facts: Facts, address: Address, context: Context, marks: Marks
) -> None:
    """`hostname -I` is what start scripts usually take; tell when that would have been wrong."""
    first = next(iter((facts.one("hostname-i") or "").split()), None)
    if first is not None and first != address.ip:
        marks.warn(
            "address.ray-uses-first", host.name, ip=address.ip, card=address.card, first=first
        )
    else:
        marks.good("address", host.name)


def _variables(host: Host, facts: Facts, address: Address, context: Context, marks: Marks) -> None:
    held = {a.card for a in facts.addresses()}
    environment = {**facts.environment(), **context.site.variables}
    for name in union(lambda vendor: vendor.interface_variables):
        value = environment.get(name)
        if value is None or value.startswith("^"):
            continue
        named = [card.lstrip("=") for card in value.split(",") if card]
        matching = [card for card in held if any(card.startswith(n) for n in named)]
        fix = f"set {name}={address.card} in [variables] of the site file, or remove it"
        if not matching:
            marks.bad("interface", host.name, f"{name}={value}: the host has no such card", fix)
        elif all(INNER.match(card) for card in matching):
            marks.bad("interface", host.name, f"{name}={value} is reached by no other host", fix)
        elif address.card not in matching:
            marks.warn(
                "interface",
                host.name,
                f"{name}={value}, but {address.card} routes to the head",
                fix,
            )
        else:
            marks.good("interface", host.name)
    if not any(mark.rule == "interface" and mark.host == host.name for mark in marks.marks):
        marks.good("interface", host.name)


def covering(existing: str, names: list[str]) -> str:
    """A value of no_proxy that keeps what is there and names every host."""
    entries = [entry.strip() for entry in existing.split(",") if entry.strip()]
    return ",".join(dict.fromkeys([*entries, "localhost", "127.0.0.1", *names]))


def proxies(context: Context, marks: Marks) -> None:
    """A proxy must be told of every host by name: many clients ignore ranges in no_proxy."""
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
                "proxy.set-proxy-lacks",
                host.name,
                useds=", ".join(used),
                uncovered_count=len(uncovered),
                value=value,
            )
        else:
            marks.good("proxy", host.name)


def ray_address(context: Context, marks: Marks) -> None:
    """RAY_ADDRESS of a login: a job submitted there goes where it says, or nowhere."""
    for host, facts in context.answered():
        value = facts.environment().get("RAY_ADDRESS")
        if value is None or value == "auto":
            marks.good("ray-address", host.name)
            continue
        try:
            jobs_address(value, on_head=host is context.head)
            marks.good("ray-address", host.name)
        except OperatorError as error:
            marks.warn("ray-address", host.name, f"RAY_ADDRESS={value}: {error.message}", error.fix)


def _covered(name: str, entries: set[str]) -> bool:
    return (
        "*" in entries
        or name in entries
        or any(entry.startswith(".") and name.endswith(entry) for entry in entries)
    )


def rdma(context: Context, marks: Marks) -> None:
    """RDMA ports active, alike on all hosts, and a GID index that is RoCE v2 everywhere."""
    shapes: dict[str, str] = {}
    for host, facts in context.answered():
        ports = [value.split(" ") for value in facts.all("rdma")]
        if not ports:
            if context.profile.rdma:
                marks.bad("rdma.host-rdma-device", host.name)
            continue
        active = [port for port in ports if port[2].endswith("ACTIVE")]
        for device, number, state, *_ in (port for port in ports if port not in active):
            marks.warn("rdma.port", host.name, device=device, number=number, state=state)
        if not active and context.profile.rdma:
            marks.bad("rdma.rdma-port-active", host.name)
        shapes[host.name] = ", ".join(sorted(f"{p[0]}:{p[1]} {p[3]} {p[4]}" for p in active))
        _gid(host, facts, context, marks)
    most = common(shapes, context.head.name)
    for name, shape in shapes.items():
        if shape != most:
            marks.bad("rdma.active-ports-others", name, shape=shape or "none", most=most)
        else:
            marks.good("rdma", name)


def _gid(host: Host, facts: Facts, context: Context, marks: Marks) -> None:
    environment = {**facts.environment(), **context.site.variables}
    for name in union(lambda vendor: vendor.gid_variables):
        index = environment.get(name)
        if index is None:
            continue
        kinds = [v.split(" ")[4] for v in facts.all("gid") if v.split(" ")[2] == index]
        if not kinds:
            marks.bad("gid.port-gid", host.name, name=name, index=index)
        elif not any("v2" in kind for kind in kinds):
            marks.warn("gid.roce-v", host.name, name=name, index=index, kinds=kinds[0])
        else:
            marks.good("gid", host.name)
