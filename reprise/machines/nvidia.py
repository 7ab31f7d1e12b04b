"""NVIDIA GPUs: nvidia-smi, NCCL, and frequent faults of hosts with NVSwitch and RDMA."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reprise.machines import collective, dcgm, nvidia_state
from reprise.machines.accelerator import Accelerator, Facts, Gpu, Health, Reading, Use, owner_of
from reprise.machines.profile import Profile

__all__ = ["ACCELERATOR"]

_KEY = "gpu.nvidia"
_FIELDS = "index,name,memory.total,memory.used,driver_version,pci.bus_id,uuid"
_CSV = "--format=csv,noheader"
# `code` is the exit status of `rows`: after a time limit, or without the tool, the driver is not
# queried again.
_QUESTION = f"""\
service fabricmanager nvidia-fabricmanager
module peermem nvidia_peermem nv_peer_mem
kernel_log xid 'NVRM: Xid'
rows {_KEY} 5 nvidia-smi --query-gpu={_FIELDS} {_CSV},nounits
case $code in 124 | 127 | 137) return ;; esac
rows gpu.app 3 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory {_CSV},nounits
rows gpu.remapped 3 nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.uncorrectable,\
remapped_rows.pending,remapped_rows.failure {_CSV}
{nvidia_state.QUESTION}"""
# "... for GPU 0000:0B:00.0: Unknown Error", "... for GPU0: GPU is lost": the bus, or the index.
_LOST = re.compile(r"^Unable to \w+ the device handle for (GPU.*)$")
# A value of a row that stands for the whole GPU: [GPU is lost], [GPU requires reset].
_DEAD = re.compile(r"\[(GPU is lost|GPU requires reset|GPU reset required|Reset Required)\]", re.I)
_BUS = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")
_INVENTORY = ("--query-gpu=name,driver_version,memory.total", _CSV)
_INVENTORY_SECONDS = 30.0


class Nvidia:
    """Facts of CUDA, NCCL and the driver."""

    vendor = "nvidia"
    maker = "NVIDIA"
    pci = "0x10de"
    tool = "nvidia-smi"
    question = _QUESTION
    active_question = dcgm.QUESTION + collective.QUESTION
    pids = r"s/^= gpu\.app [^,]*, *\([0-9]*\),.*/\1/p"
    backend = "nccl"
    torch_device = "cuda"
    ray_counts = True
    visible_variables: Sequence[str] = ("CUDA_VISIBLE_DEVICES",)
    refused_variables: Mapping[str, str] = {}
    interface_variables: Sequence[str] = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    gid_variables: Sequence[str] = ("NCCL_IB_GID_INDEX",)
    rdma_variables: Sequence[str] = ("NCCL_IB_HCA", "NCCL_IB_DISABLE")
    job_variables: Mapping[str, str] = {}
    packages: Sequence[str] = ()
    install_runtime = "install the NVIDIA container toolkit: nvidia-ctk runtime configure"

    def detect(self, root: Path) -> str | None:
        """Device files /dev/nvidia0 and on."""
        dev = root / "dev"
        return f"{dev}/nvidia* exists" if any(dev.glob("nvidia[0-9]*")) else None

    def inventory(self) -> list[str]:
        """Name, driver and memory of each GPU, as nvidia-smi prints them."""
        smi = shutil.which(self.tool)
        # nvidia-smi hangs when a GPU or its driver hangs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            if smi is not None:
                done = subprocess.run(
                    [smi, *_INVENTORY],
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    check=False,
                    timeout=_INVENTORY_SECONDS,
                )
                return done.stdout.splitlines() if done.returncode == 0 else []
        return []

    def why(self, facts: Facts) -> str | None:
        """The tool's error, its time limit, or that it is not installed."""
        return facts.why(_KEY)

    def read(self, facts: Facts) -> Reading | None:
        """Rows of `--query-gpu`: a value in brackets ([N/A], [Unknown Error]) is unknown."""
        gpus, lost, said, empty = [], [], [], False
        if not facts.all(_KEY) and (self.why(facts) is not None or not facts.complete):
            return None
        for line in facts.all(_KEY):
            parts = [part.strip() for part in line.split(",")]
            if parts[0].isdigit() and (dead := _DEAD.search(line)):
                lost.append(f"GPU {line.split(',')[0]} ({_bus(parts)}): {dead[1]}")
            elif parts[0].isdigit():
                gpus.append(_gpu(parts))
            elif match := _LOST.match(line.strip()):
                lost.append(match[1])
            elif "No devices were found" in line:
                empty = True
            elif line.strip():
                said.append(line.strip())
        if said and not (gpus or lost or empty):
            return None
        return Reading(gpus, lost, said)

    def uses(self, facts: Facts) -> list[Use] | None:
        """Rows of `--query-compute-apps`."""
        if facts.why("gpu.app") is not None and not facts.all("gpu.app"):
            return None
        found = []
        for line in facts.all("gpu.app"):
            parts = [part.strip() for part in line.split(",")]
            if len(parts) == 3 and parts[1].isdigit():
                pid = int(parts[1])
                found.append(Use(parts[0], pid, owner_of(facts, pid), _number(parts[2])))
        return found

    def health(self, facts: Facts, profile: Profile) -> Iterator[Health]:
        """Fabric manager, NVLink, row remapping, Xid errors, state, clocks, peer memory module."""
        if not facts.all(_KEY):
            # A driver that does not answer has often left the reason in the kernel log.
            if facts.all("xid"):
                yield from nvidia_state.xid_errors(facts)
            return
        if profile.fabric_manager:
            yield _fabric(facts)
            yield from nvidia_state.links(facts)
        yield from _rows(facts)
        yield from nvidia_state.xid_errors(facts)
        yield from nvidia_state.state(facts)
        yield from nvidia_state.clocks(facts)
        if profile.rdma and facts.one("peermem") == "no":
            yield Health.warn("gpu-peermem.not-loaded")
        else:
            yield Health.good("gpu-peermem")

    def tested(self, facts: Facts) -> Iterator[Health]:
        """Results of `dcgmi diag`."""
        yield from dcgm.diagnosis(facts)


def _gpu(parts: Sequence[str]) -> Gpu:
    """A row of _FIELDS; in a row with another number of values, only the index is known."""
    if len(parts) != len(_FIELDS.split(",")):
        return Gpu(int(parts[0]))
    index, name, total, used, driver, bus, uuid = parts
    return Gpu(
        int(index),
        _text(name),
        _number(total),
        _number(used),
        _text(driver),
        _text(bus),
        _text(uuid),
    )


def _bus(parts: Sequence[str]) -> str:
    return next((part for part in parts if _BUS.match(part)), "bus unknown")


def _text(value: str) -> str | None:
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _number(value: str) -> int | None:
    return int(value) if value.isdigit() else None


def _fabric(facts: Facts) -> Health:
    state = facts.one("fabricmanager")
    if state == "active":
        return Health.good("fabric-manager")
    if state in ("inactive", "failed", "activating", "deactivating"):
        return Health.error("fabric-manager.not-active", state=state)
    why = facts.why("fabricmanager") or state or "no answer"
    return Health.unknown("fabric-manager.unread", why=why)


def _rows(facts: Facts) -> Iterator[Health]:
    """Row remapping; GPUs with the same fault share a finding."""
    lines = [line for line in facts.all("gpu.remapped") if not _LOST.match(line.strip())]
    why = facts.why("gpu.remapped")
    if why is not None:
        yield Health.unknown("gpu-rows.unread", why=why)
    kinds: dict[str, list[str]] = {"failed": [], "pending": [], "not-reported": [], "remapped": []}
    for line in lines:
        kind, gpu = _row(line)
        if kind:
            kinds[kind].append(gpu)
    shown = {kind: ", ".join(gpus) for kind, gpus in kinds.items()}
    ids = ",".join(kinds["pending"])
    if shown["failed"]:
        yield Health.error("gpu-rows.failed", gpus=shown["failed"])
    if shown["pending"]:
        yield Health.error("gpu-rows.pending", gpus=shown["pending"], ids=ids)
    if shown["not-reported"]:
        yield Health.unknown("gpu-rows.not-reported", gpus=shown["not-reported"])
    if shown["remapped"]:
        yield Health.warn("gpu-rows.remapped", gpus=shown["remapped"])
    if why is None and not any(shown.values()):
        yield Health.good("gpu-rows")


def _row(line: str) -> tuple[str, str]:
    """Kind of one GPU's row remapping, and the GPU in the finding; an empty kind: no remapping."""
    words = [*(part.strip() for part in line.split(",")), *([""] * 4)]
    bus, uncorrectable, pending, failure = words[:4]
    fine = ("0", "No", "Not Supported")
    if failure and _text(failure) and failure not in fine:
        return "failed", bus
    if pending and _text(pending) and pending not in fine:
        return "pending", bus
    if "N/A" in line or "[" in line or "Not Supported" in line or not failure:
        return "not-reported", bus
    if uncorrectable not in ("0", "No"):
        return "remapped", f"{bus} ({uncorrectable})"
    return "", bus


ACCELERATOR: Accelerator = Nvidia()
