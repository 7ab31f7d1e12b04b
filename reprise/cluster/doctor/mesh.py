"""Which host reaches which on the ports in use: asked of all hosts at once, without load."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.context import Context, Mesh
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.doctor.rules_host import ports_in_use
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Ports
from reprise.cluster.ssh import Job, Ssh, assignments

__all__ = ["MESH_SECONDS", "ask_mesh", "pairs"]

MESH_SECONDS = 6.0
"""Limit of all connections of a host; a healthy mesh needs one or two seconds."""

_LOGIN_SECONDS = 20.0
_NO_PYTHON = "python3: command not found"
_ALL_PAIRS = 16
_BLOCK = 256
"""Hosts that are asked at once: each is one SSH client on this machine."""


def pairs(count: int) -> set[tuple[int, int]]:
    """Ordered pairs (source, target) of `count` hosts, the head being 0.

    Up to 16 hosts all of them. Beyond, each host and the head in both directions, and each host to
    those 1, 2, 4, 8 ... further on: every host is source and target of several, and a cut between
    any two groups of hosts is crossed in both directions.
    """
    if count <= _ALL_PAIRS:
        return {(a, b) for a in range(count) for b in range(count) if a != b}
    steps = [2**n for n in range(count.bit_length()) if 2**n < count]
    found = {(n, (n + step) % count) for n in range(count) for step in steps}
    for n in range(1, count):
        found |= {(0, n), (n, 0)}
    return found


def ask_mesh(context: Context, ssh: Ssh, script: str) -> Mesh:
    """Let the hosts with a known address connect to each other.

    A refused connection may only mean that the other host began late: those pairs are repeated
    once. `script` is the text of scripts/mesh.py.
    """
    hosts = [host for host, _ in context.answered() if context.address(host) is not None]
    spare = 40_000 + secrets.randbelow(20_000)
    names = _names(context.site.ports, spare)
    results: dict[tuple[str, str, int], str] = {}
    busy: dict[str, frozenset[int]] = {}
    unread: dict[str, str] = {}
    for block in _blocks(hosts):
        wanted = {
            (block[a].name, block[b].name, port)
            for a, b in pairs(len(block))
            for port in _ports(context, block[b], spare)
        }
        for _ in range(2):
            answers = ssh.run(
                _jobs(context, block, wanted, script),
                MESH_SECONDS + _LOGIN_SECONDS,
                at_once=len(block),
            )
            _read(answers, results, busy, unread)
            wanted = {
                key
                for key in wanted
                if results.get(key) in (None, "refused", "silent")
                and key[2] not in busy.get(key[1], ())
                and not {_NO_PYTHON} & {unread.get(key[0]), unread.get(key[1])}
            }
            if not wanted:
                break
    return Mesh(results, busy, unread, names)


def _blocks(hosts: Sequence[Host]) -> list[Sequence[Host]]:
    """At most 256 hosts at once, the head among each of them; none when there is no pair."""
    if len(hosts) < 2:
        return []
    head, *others = hosts
    return [[head, *others[n : n + _BLOCK - 1]] for n in range(0, len(others), _BLOCK - 1)]


def _names(ports: Ports, spare: int) -> dict[int, str]:
    """Names of the ports that Ray and the collectives use between hosts."""
    named = {**ports.of_head(), "workers": ports.worker_low}
    return {
        spare: "any other port",
        ports.worker_high: "workers",
        **{port: name for name, port in named.items()},
    }


def _ports(context: Context, host: Host, spare: int) -> list[int]:
    """The ports of one host to which others connect."""
    ports = context.site.ports
    found = [ports.node_manager, ports.object_manager, ports.agent_grpc, ports.agent_http]
    found += [ports.worker_low, ports.worker_high, spare]
    if host is context.head:
        found += [ports.gcs, ports.dashboard, ports.client]
    return list(dict.fromkeys(found))


def _jobs(
    context: Context, hosts: Sequence[Host], wanted: set[tuple[str, str, int]], script: str
) -> list[Job]:
    """The script of each host that takes part, with its targets and its sources."""
    nonce = secrets.token_hex(8)
    used = {host.name: ports_in_use(context.facts[host.name]) for host in hosts}
    jobs = []
    for host in hosts:
        out = [(target, port) for source, target, port in sorted(wanted) if source == host.name]
        into = [(source, port) for source, target, port in sorted(wanted) if target == host.name]
        if not out and not into:
            continue
        address = context.address(host)
        listens = sorted({port for _, port in into} - used[host.name])
        values = {
            "M_NAME": host.name,
            "M_IP": address.ip if address else "",
            "M_NONCE": nonce,
            "M_PORTS": "\n".join(str(port) for port in listens),
            "M_TARGETS": _targets(context, out, used),
            "M_SOURCES": "\n".join(sorted({source for source, _ in into})),
            "M_SECONDS": f"{MESH_SECONDS:g}",
        }
        given = {"code": script, "python": context.site.paths.python}
        run = (
            'command -v "$python" >/dev/null 2>&1 || python=python3\n'
            'command -v "$python" >/dev/null 2>&1 || '
            f"{{ printf '? mesh {_NO_PYTHON}\\n'; exit 0; }}\n"
            'printf \'%s\' "$code" | "$python" -I -\n'
        )
        jobs.append((host, assignments(given) + assignments(values, export=True) + run))
    return jobs


def _targets(
    context: Context, out: Sequence[tuple[str, int]], used: Mapping[str, frozenset[int]]
) -> str:
    words: dict[str, list[str]] = {}
    for target, port in out:
        mark = "!" if port in used[target] else ""
        words.setdefault(target, []).append(f"{port}{mark}")
    addresses = {host.name: context.address(host) for host in context.hosts if host.name in words}
    return "\n".join(
        f"{name} {address.ip} {' '.join(words[name])}"
        for name, address in addresses.items()
        if address is not None
    )


def _read(
    answers: Sequence[Answer],
    results: dict[tuple[str, str, int], str],
    busy: dict[str, frozenset[int]],
    unread: dict[str, str],
) -> None:
    """Put the answers of one round into the three mappings; a later round replaces results."""
    for answer in answers:
        facts = parse_facts(answer.host, answer.output)
        if not facts.complete:
            said = (answer.said.splitlines() or [answer.outcome.value])[-1]
            unread[answer.host] = facts.why("mesh") or said
            continue
        unread.pop(answer.host, None)
        for value in facts.all("mesh"):
            target, port, result = value.split(" ", 2)
            results[answer.host, target, int(port)] = result
        taken = frozenset(int(port) for port in facts.all("busy"))
        busy[answer.host] = busy.get(answer.host, frozenset()) | taken
