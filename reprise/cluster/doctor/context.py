"""The input of all rules: hosts, their answers and facts, the machine, the site, the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.facts import Address, Facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site
from reprise.machines.profile import Profile
from reprise.machines.registry import Machine

__all__ = ["Context", "Expected", "Mesh", "common"]


@dataclass(frozen=True, slots=True)
class Expected:
    """Values of the lock: versions of packages, commits of checkouts by their path on the nodes.

    `image_digest` is the locked digest of the container image, sha256:….
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    image_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Mesh:
    """Connections between hosts, as scripts/mesh.py reports them.

    `results` has source, target and port; `busy` the ports that a host found in use; `unread` why a
    host took no part. `names` are the ports' names.
    """

    results: Mapping[tuple[str, str, int], str]
    busy: Mapping[str, frozenset[int]]
    unread: Mapping[str, str]
    names: Mapping[int, str]


@dataclass(slots=True)
class Context:
    """The state of all hosts. `facts` has the hosts that answered; `head_ip` is an address."""

    hosts: Sequence[Host]
    answers: Mapping[str, Answer]
    facts: Mapping[str, Facts]
    machine: Machine
    site: Site
    expected: Expected
    head_ip: str | None = None
    mark: str = ""
    """The id of this hostfile's own cluster when it is up; its own processes are expected."""
    seen: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By host and shared folder: whether the host saw the nonce of the head (yes or no)."""

    mesh: Mesh | None = None
    """What each host reached of the others; None where this was not checked (a single host)."""
    named: bool = True
    """Whether the machine was named with the command, and not by the site file or by a guess."""

    @property
    def profile(self) -> Profile:
        """The requirements on such a host."""
        return self.machine.profile

    def answered(self) -> Iterator[tuple[Host, Facts]]:
        """Hosts whose probe finished, with their facts, in the hostfile's order.

        An unfinished probe proves nothing: a missing fact may be a fact that was not read.
        """
        for host in self.hosts:
            facts = self.facts.get(host.name)
            if facts is not None and facts.complete:
                yield host, facts

    @property
    def head(self) -> Host:
        """The first host."""
        return self.hosts[0]

    def address(self, host: Host) -> Address | None:
        """The address of `host` for Ray and the collectives.

        Its ip= in the hostfile, else that of the site's network interface, else the source address
        of its packets to the head. None when it is unknown.
        """
        facts = self.facts.get(host.name)
        if facts is None:
            return None
        held = facts.addresses()
        interface = self.site.network.interface
        if host.ip is not None:
            wanted = host.ip
        elif interface is not None:
            family = ":" if ":" in (self.head_ip or "") else "."
            here = [a for a in held if a.interface == interface and not a.local]
            wanted = next((a.ip for a in here if family in a.ip), "")
        elif host is self.head:
            wanted = self.head_ip or ""
            if not wanted and len(self.hosts) == 1:
                wanted = next((address.ip for address in held if not address.local), "")
        else:
            wanted = facts.route_source() or ""
        return next((address for address in held if address.ip == wanted), None)


def common(values: Mapping[str, str], head: str) -> str | None:
    """The value of most hosts; in a tie, the head's. None without any value."""
    if not values:
        return None
    counts = Counter(values.values())
    most = max(counts.values())
    best = [value for value, count in counts.items() if count == most]
    return values[head] if values.get(head) in best else best[0]
