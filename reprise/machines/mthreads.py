"""Moore Threads GPUs: mthreads-gmi, MCCL, torch_musa."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reprise.machines.accelerator import Accelerator, Facts, Gpu, Health, Reading, Use, owner_of
from reprise.machines.profile import Profile

__all__ = ["ACCELERATOR"]

_KEY = "gpu.mthreads"
# mthreads-gmi 1.14 to 2.4 print a block of three lines a GPU (public logs of S80, S3000, S5000);
# the driver's version is in the head, processes are in a table of their own.
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_GPU = re.compile(r"^(\d+)\s+(MTT \S+(?: \S+)*?)\s*\|\s*([0-9a-fA-F:.]+)\s*\|(.*)$")
_MEMORY = re.compile(r"(\d+)MiB\s*\((\d+)MiB\)")
_LANES = re.compile(r"\b(\d+)x\((\d+)x\)")
_PROCESS = re.compile(r"^(\d+)\s+(\d+)\s+\S.*?\s(\d+)MiB\s*$")


class MooreThreads:
    """Facts of MUSA, MCCL and the driver."""

    vendor = "mthreads"
    maker = "Moore Threads"
    pci = "0x1ed5"
    tool = "mthreads-gmi"
    question = f"rows {_KEY} 5 mthreads-gmi\n"
    active_question = ""
    pids = r"s/^= gpu\.mthreads  *[0-9][0-9]*  *\([0-9][0-9]*\)  .*[0-9]MiB *$/\1/p"
    backend = "mccl"
    torch_device = "musa"
    # Stock Ray has no accelerator manager for these GPUs: without --num-gpus it counts none. The
    # resource stays Ray's own GPU (quick start of verl-hardware-plugin).
    ray_counts = False
    visible_variables: Sequence[str] = ("CUDA_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES")
    refused_variables: Mapping[str, str] = {}
    interface_variables: Sequence[str] = ("MCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    gid_variables: Sequence[str] = ("MCCL_IB_GID_INDEX",)
    rdma_variables: Sequence[str] = ("MCCL_IB_HCA",)
    job_variables: Mapping[str, str] = {
        "VERL_PLATFORM": "musa",
        "VERL_USE_EXTERNAL_MODULES": "verl_hardware_plugin",
        "RAY_EXPERIMENTAL_NOSET_MUSA_VISIBLE_DEVICES": "1",
    }
    packages: Sequence[str] = ("torch-musa",)
    install_runtime = (
        "install the vendor's container toolkit, then register it: "
        "cd /usr/bin/musa && ./docker setup $PWD"
    )

    def detect(self, root: Path) -> str | None:
        """Device files /dev/mtgpu.0 and on."""
        dev = root / "dev"
        return f"{dev}/mtgpu.* exists" if any(dev.glob("mtgpu.[0-9]*")) else None

    def inventory(self) -> list[str]:
        """Empty: no run is recorded with these GPUs."""
        return []

    def why(self, facts: Facts) -> str | None:
        """The tool's error, its time limit, or that it is not installed."""
        return facts.why(_KEY)

    def read(self, facts: Facts) -> Reading | None:
        """The blocks of mthreads-gmi; None when they hold neither a driver nor a GPU."""
        lines = facts.all(_KEY)
        driver = next((match[1] for line in lines if (match := _DRIVER.search(line))), None)
        gpus = []
        for line in lines:
            if match := _GPU.match(line):
                memory = _MEMORY.search(match[4])
                used, total = (int(memory[1]), int(memory[2])) if memory else (None, None)
                gpus.append(Gpu(int(match[1]), match[2], total, used, driver, match[3]))
        if not gpus and (driver is None or self.why(facts) is not None):
            return None
        return Reading(gpus)

    def uses(self, facts: Facts) -> list[Use] | None:
        """The table of processes."""
        return [
            Use(match[1], pid, owner_of(facts, pid), int(match[3]))
            for line in facts.all(_KEY)
            if (match := _PROCESS.match(line))
            for pid in [int(match[2])]
        ]

    def health(self, facts: Facts, profile: Profile) -> Iterator[Health]:
        """PCIe lane width and ECC mode, in the lines below each GPU; it shows no error counters."""
        blocks = _blocks(facts.all(_KEY))
        if not blocks:
            return
        yield from _lanes(blocks)
        yield from _ecc(blocks)

    def tested(self, facts: Facts) -> Iterator[Health]:
        """No test of the vendor's own is known here."""
        yield from ()


def _blocks(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines below each GPU's first line, by the GPU's number and address."""
    blocks: dict[str, list[str]] = {}
    gpu = None
    for line in lines:
        if match := _GPU.match(line):
            gpu = f"{match[1]} ({match[3]})"
            blocks[gpu] = []
        elif re.match(r"^[+-]{3}", line.strip()):
            gpu = None
        elif gpu is not None:
            blocks[gpu].append(line)
    return blocks


def _lanes(blocks: Mapping[str, Sequence[str]]) -> Iterator[Health]:
    narrow, unread = [], []
    for gpu, lines in blocks.items():
        match = next((found for line in lines if (found := _LANES.search(line))), None)
        if match is None:
            unread.append(gpu)
        elif int(match[1]) < int(match[2]):
            narrow.append(f"{gpu}: x{match[1]} of x{match[2]}")
    if narrow:
        yield Health.warn("gpu-pcie.narrow", gpus=", ".join(narrow), tool="mthreads-gmi")
    if unread:
        yield Health.unknown("gpu-pcie.unread", gpus=", ".join(unread), tool="mthreads-gmi")
    if not narrow and not unread:
        yield Health.good("gpu-pcie")


def _ecc(blocks: Mapping[str, Sequence[str]]) -> Iterator[Health]:
    """The ECC mode is the last cell of a GPU's third line: "On-die, EDC", "Off", "N/A"."""
    off, unread = [], []
    for gpu, lines in blocks.items():
        mode = lines[1].rpartition("|")[2].strip() if len(lines) > 1 else ""
        if re.fullmatch(r"(?i)off|disabled|no", mode):
            off.append(gpu)
        elif not mode or mode == "N/A":
            unread.append(gpu)
    if off:
        yield Health.warn("gpu-ecc.off", gpus=", ".join(off), tool="mthreads-gmi")
    if unread:
        gpus = ", ".join(unread)
        yield Health.unknown("gpu-ecc.mode-unread", gpus=gpus, tool="mthreads-gmi")
    if not off and not unread:
        yield Health.good("gpu-ecc")


ACCELERATOR: Accelerator = MooreThreads()
