"""The interface of a vendor's accelerator; nvidia.py, amd.py, mthreads.py, none.py implement it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

from reprise.core.rules import render, rule_id
from reprise.machines.profile import Profile

__all__ = ["Accelerator", "Facts", "Gpu", "Health", "Reading", "Use", "owner_of"]

Level = Literal["good", "warning", "error", "unknown"]


class Facts(Protocol):
    """The probe's output on one host; cluster/doctor/facts.py reads it."""

    def all(self, key: str) -> Sequence[str]:
        """Every value of `key`, in order."""
        ...

    def one(self, key: str) -> str | None:
        """The first value of `key`."""
        ...

    def why(self, key: str) -> str | None:
        """Why `key` could not be read; None when it was read, or was not requested."""
        ...

    def pairs(self, key: str) -> dict[str, str]:
        """Values of the form `NAME REST` as a mapping."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the probe ran to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; memory in MiB. A value that the vendor's tool did not report is None."""

    index: int
    name: str | None = None
    total: int | None = None
    used: int | None = None
    driver: str | None = None
    bus: str | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The report of a vendor's tool on one host.

    `lost` names GPUs that the driver lists and cannot read, with the tool's message; `said` has
    lines of the tool that describe no GPU (its warnings).
    """

    gpus: Sequence[Gpu] = ()
    lost: Sequence[str] = ()
    said: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """A process that holds memory of a GPU; `owner` is its user, memory in MiB (None: unknown)."""

    gpu: str
    pid: int
    owner: str
    used: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """One rule's result on one host; `level` good has no message.

    `error`, `warn` and `unknown` take the name of a text in the registry, and its values.
    """

    rule: str
    level: Level
    message: str = ""
    fix: str = ""

    @classmethod
    def good(cls, rule: str) -> Self:
        """The rule holds."""
        return cls(rule, "good")

    @classmethod
    def error(cls, text: str, /, **values: object) -> Self:
        """The rule does not hold."""
        return cls(rule_id(text), "error", *render(text, values))

    @classmethod
    def warn(cls, text: str, /, **values: object) -> Self:
        """The rule holds, with a warning."""
        return cls(rule_id(text), "warning", *render(text, values))

    @classmethod
    def unknown(cls, text: str, /, **values: object) -> Self:
        """The rule could not be evaluated."""
        return cls(rule_id(text), "unknown", *render(text, values))


class Accelerator(Protocol):
    """One vendor. Attributes are facts of its software; methods read what its tools print."""

    vendor: str
    """As `vendor` of a machine names it, and the name of this module."""
    maker: str
    """The vendor's name as findings show it; empty without GPUs."""
    pci: str
    """The vendor's number on the PCI bus (0x10de), empty without GPUs; scripts/probe.sh lists its
    GPUs without any tool or driver."""
    tool: str
    """The command that lists GPUs, as an operator types it; empty without GPUs."""
    question: str
    """Lines of POSIX shell for scripts/probe.sh, which has `rows`, `lines`, `service`, `module` and
    `kernel_log` for them: each prints facts for `read`, `uses` and `health`."""
    active_question: str
    """Lines of POSIX shell for scripts/active.sh, which has `output` and `collective` for them: the
    vendor's own tests, which use the GPUs; empty without any."""
    pids: str
    """A sed script that prints the process ids of `question`'s facts, for the owners' names."""
    backend: str
    """The backend of torch.distributed."""
    torch_device: str
    """The device of torch, as `trainer.device` of a recipe names it."""
    ray_counts: bool
    """Whether stock Ray counts the GPUs itself as its resource GPU; otherwise `ray start` gets
    `--num-gpus` from the hostfile's slots."""
    visible_variables: Sequence[str]
    """Variables that hide GPUs from a process."""
    refused_variables: Mapping[str, str]
    """Variables that no login may set, whatever their value, and what stops where one is set."""
    interface_variables: Sequence[str]
    """Variables that name the network interface of collectives, set on every node."""
    gid_variables: Sequence[str]
    """Variables that choose the index of a RoCE GID."""
    rdma_variables: Sequence[str]
    """Further variables on RDMA that the probe reports."""
    job_variables: Mapping[str, str]
    """Variables that the environment of a job on these GPUs needs."""
    packages: Sequence[str]
    """Distributions that only this vendor needs, compared with the lock."""
    install_runtime: str
    """How to install the runtime that a container engine must know."""

    def detect(self, root: Path) -> str | None:
        """Why the machine at `root` (/) seems to have these GPUs; None when it does not."""
        ...

    def inventory(self) -> list[str]:
        """This machine's GPUs, one line each; empty when they could not be read."""
        ...

    def read(self, facts: Facts) -> Reading | None:
        """The GPUs of a host; None when nothing could be read (`facts.why` may give a reason)."""
        ...

    def why(self, facts: Facts) -> str | None:
        """Why `read` returned nothing, or not all GPUs."""
        ...

    def uses(self, facts: Facts) -> list[Use] | None:
        """Processes that hold a GPU; None when they could not be read."""
        ...

    def health(self, facts: Facts, profile: Profile) -> Iterator[Health]:
        """Health that only this vendor's GPUs report: memory errors, services, modules."""
        ...

    def tested(self, facts: Facts) -> Iterator[Health]:
        """Results of the vendor's own tests, from the facts of `active_question`."""
        ...


def owner_of(facts: Facts, pid: int) -> str:
    """The user of a process that `pids` named; "unknown" when the host did not report it."""
    return facts.pairs("owner").get(str(pid), "").strip() or "unknown"
