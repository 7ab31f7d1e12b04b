"""What all rules look at: hosts, their answers and facts, the machine, the site, the lock."""

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

__all__ = ["Context", "Expected", "common"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the lock says: versions of packages, commits of checkouts by their path on the nodes.

    `image_digest` is the locked digest of the container image, sha256:….
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    image_digest: str | None = None


@dataclass(slots=True)
class Context:
    """One look at all hosts. `facts` holds those that answered; `head_ip` is an address."""

    hosts: Sequence[Host]
    answers: Mapping[str, Answer]
    facts: Mapping[str, Facts]
    machine: Machine
    site: Site
    expected: Expected
    head_ip: str | None = None
    mark: str = ""
    """The id of this hostfile's own cluster when it is up; its processes are no strangers."""
    seen: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By host: which shared folder's nonce it saw (yes or no)."""

    @property
    def profile(self) -> Profile:
        """What such a host must have."""
        return self.machine.profile

    def answered(self) -> Iterator[tuple[Host, Facts]]:
        """Hosts whose probe came to its end, with their facts, in the hostfile's order.

        Of half a probe nothing is concluded: what it does not say is not known to be absent.
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
        """The address by which Ray and the collectives of `host` are to be reached.

        Its ip= of the hostfile, else the site's network card, else the address that its packets
        to the head carry. None when that cannot be told.
        """
        facts = self.facts.get(host.name)
        if facts is None:
            return None
        held = facts.addresses()
        card = self.site.network.interface
        if host.ip is not None:
            wanted = host.ip
        elif card is not None:
            family = ":" if ":" in (self.head_ip or "") else "."
            on_card = [a.ip for a in held if a.card == card and family in a.ip and not a.local]
            wanted = on_card[0] if on_card else ""
        elif host is self.head:
            wanted = self.head_ip or ""
            if not wanted and len(self.hosts) == 1:
                wanted = next((address.ip for address in held if not address.local), "")
        else:
            wanted = facts.route_source() or ""
        return next((address for address in held if address.ip == wanted), None)


def common(values: Mapping[str, str], head: str) -> str | None:
    """The value of most hosts; among equals, the head's. None without any value."""
    if not values:
        return None
    counts = Counter(values.values())
    most = max(counts.values())
    best = [value for value, count in counts.items() if count == most]
    return values[head] if values.get(head) in best else best[0]
