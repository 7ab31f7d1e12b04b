"""Machines without an accelerator: Gloo, and Ray's GPU count from the slots of the hostfile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reprise.machines.accelerator import Accelerator, Facts, Health, Reading, Use
from reprise.machines.profile import Profile

__all__ = ["ACCELERATOR"]


class NoAccelerator:
    """The rehearsal's machine."""

    vendor = "none"
    maker = ""
    pci = ""
    tool = ""
    question = ":\n"
    active_question = ""
    pids = ""
    backend = "gloo"
    torch_device = "cpu"
    ray_counts = False
    visible_variables: Sequence[str] = ()
    refused_variables: Mapping[str, str] = {}
    interface_variables: Sequence[str] = ("GLOO_SOCKET_IFNAME",)
    gid_variables: Sequence[str] = ()
    rdma_variables: Sequence[str] = ()
    job_variables: Mapping[str, str] = {}
    packages: Sequence[str] = ()
    install_runtime = ""

    def detect(self, root: Path) -> str | None:
        """Any machine; checked last."""
        return "no accelerator device file was found"

    def inventory(self) -> list[str]:
        """Empty."""
        return []

    def why(self, facts: Facts) -> str | None:
        """Nothing is read."""
        return None

    def read(self, facts: Facts) -> Reading | None:
        """No GPU."""
        return Reading()

    def uses(self, facts: Facts) -> list[Use] | None:
        """No process."""
        return []

    def health(self, facts: Facts, profile: Profile) -> Iterator[Health]:
        """Nothing to report."""
        yield from ()

    def tested(self, facts: Facts) -> Iterator[Health]:
        """No test of the vendor's own is known here."""
        yield from ()


ACCELERATOR: Accelerator = NoAccelerator()
