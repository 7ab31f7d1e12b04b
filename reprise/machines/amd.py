"""AMD GPUs with ROCm: amd-smi (rocm-smi where it is missing), RCCL. Not run on hardware."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reprise.machines import collective
from reprise.machines.accelerator import Accelerator, Facts, Gpu, Health, Reading, Use, owner_of
from reprise.machines.profile import Profile

__all__ = ["ACCELERATOR"]

_STATIC, _METRIC, _ROCM, _APP = "gpu.amd", "gpu.amd.metric", "gpu.amd.rocm", "gpu.app"
# A login without a profile lacks ROCm's folder on its PATH.
_QUESTION = f"""\
PATH=$PATH:/opt/rocm/bin
if has amd-smi; then
    rows {_STATIC} 6 amd-smi static --asic --bus --vram --driver --json
    case $code in 124 | 137) return ;; esac
    rows {_METRIC} 6 amd-smi metric --mem-usage --ecc --json
    rows {_APP} 4 amd-smi process --json
elif has rocm-smi; then
    rows {_ROCM} 6 rocm-smi --showproductname --showbus --showuniqueid --showmeminfo vram \
--showdriverversion --json
    case $code in 124 | 137) return ;; esac
    rows {_APP} 4 rocm-smi --showpids --json
else
    blank {_STATIC} 'amd-smi: command not found'
fi
"""
# gfx942 (MI300X) in the kernel's list of compute devices: 9.4.2 as major, minor, stepping.
_GFX942 = re.compile(r"^gfx_target_version 90402$", re.MULTILINE)
# amd-smi's MB are 2**20 bytes: 192 GiB of an MI300X are shown as 196592 MB.
_IN_MIB = {"B": 2.0**-20, "KB": 2.0**-10, "MB": 1.0, "GB": 2.0**10}
_AMOUNT = re.compile(r"^([\d.]+)\s*([KMG]?B)?$")


class Amd:
    """Facts of ROCm, RCCL and the driver amdgpu."""

    vendor = "amd"
    maker = "AMD"
    pci = "0x1002"
    tool = "amd-smi"
    question = _QUESTION
    active_question = collective.QUESTION
    pids = (
        r's/^= gpu\.app .*"pid": *"*\([0-9][0-9]*\).*/\1/p; '
        r's/^= gpu\.app .*"PID\([0-9][0-9]*\)".*/\1/p'
    )
    # torch names RCCL nccl, and RCCL reads NCCL's variables; torch calls the device cuda.
    backend = "nccl"
    torch_device = "cuda"
    ray_counts = True
    visible_variables: Sequence[str] = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    # ray/_private/accelerators/amd_gpu.py; verl 0.9.0, single_controller/base/worker.py.
    refused_variables: Mapping[str, str] = {
        "ROCR_VISIBLE_DEVICES": "Ray stops without HIP_VISIBLE_DEVICES, verl's workers with it"
    }
    interface_variables: Sequence[str] = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    gid_variables: Sequence[str] = ("NCCL_IB_GID_INDEX",)
    rdma_variables: Sequence[str] = ("NCCL_IB_HCA", "NCCL_IB_DISABLE")
    job_variables: Mapping[str, str] = {}
    packages: Sequence[str] = ()
    install_runtime = ""

    def detect(self, root: Path) -> str | None:
        """A gfx942 in /sys/class/kfd; a display adapter of AMD alone does not count."""
        nodes = root / "sys/class/kfd/kfd/topology/nodes"
        for path in sorted(nodes.glob("*/properties")):
            try:
                if _GFX942.search(path.read_text(encoding="utf-8", errors="replace")):
                    return f"{path} has gfx_target_version 90402"
            except OSError:
                continue
        return None

    def inventory(self) -> list[str]:
        """Empty: no run is recorded with these GPUs."""
        return []

    def why(self, facts: Facts) -> str | None:
        """The tool's error, its time limit, or that none is installed."""
        return facts.why(_STATIC) or facts.why(_ROCM)

    def read(self, facts: Facts) -> Reading | None:
        """Entries of `amd-smi static`, with the memory in use of `amd-smi metric`."""
        if facts.all(_ROCM):
            return _rocm(facts)
        entries, said = _entries(facts, _STATIC)
        if entries is None:
            return None
        used = {
            entry.get("gpu"): _mib(_at(entry, "mem_usage", "used_vram"))
            for entry in _entries(facts, _METRIC)[0] or ()
        }
        gpus, lost = [], []
        for entry in entries:
            index, bus = entry.get("gpu"), _text(_at(entry, "bus", "bdf"))
            name, total = _text(_at(entry, "asic", "market_name")), _mib(_size(entry))
            if not isinstance(index, int):
                said.append(json.dumps(entry)[:80])
            elif name is None and total is None:
                lost.append(f"GPU {index} ({bus or 'bus unknown'}): name and memory unknown")
            else:
                driver = _text(_at(entry, "driver", "version"))
                uuid = _text(_at(entry, "asic", "asic_serial"))
                gpus.append(Gpu(index, name, total, used.get(index), driver, bus, uuid))
        return Reading(gpus, lost, said)

    def uses(self, facts: Facts) -> list[Use] | None:
        """Processes of `amd-smi process` or `rocm-smi --showpids` that hold memory of a GPU."""
        if facts.all(_ROCM):
            return _rocm_uses(facts)
        entries, _ = _entries(facts, _APP)
        if entries is None:
            return None
        found = []
        for entry in entries:
            listed = entry.get("process_list")
            for item in listed if isinstance(listed, list) else ():
                pid = _at(item, "process_info", "pid")
                if not str(pid).isdigit():  # "No running processes detected"
                    continue
                memory = _at(item, "process_info", "memory_usage", "vram_mem")
                if memory is None:
                    memory = _at(item, "process_info", "mem_usage")
                used = _mib(memory)
                # Monitors are listed too; they use no memory.
                if used != 0 or str(memory).startswith("N/A"):
                    owner = owner_of(facts, int(pid))
                    found.append(Use(str(entry.get("gpu")), int(pid), owner, used))
        return found

    def health(self, facts: Facts, profile: Profile) -> Iterator[Health]:
        """Memory errors since the driver was loaded, as `amd-smi metric --ecc` counts them."""
        if not facts.all(_STATIC) and not facts.all(_ROCM):
            return
        entries, _ = _entries(facts, _METRIC)
        if not entries:
            why = facts.why(_METRIC) or "rocm-smi does not report ECC counters"
            yield Health.unknown("gpu-ecc.unread", why=why)
            return
        found = [health for entry in entries for health in _ecc(entry)]
        yield from found or [Health.good("gpu-ecc")]

    def tested(self, facts: Facts) -> Iterator[Health]:
        """No test of the vendor's own is known here."""
        yield from ()


def _ecc(entry: Mapping[str, Any]) -> Iterator[Health]:
    """Uncorrectable and deferred errors of one GPU; corrected errors are normal."""
    gpu, count = entry.get("gpu"), _at(entry, "ecc", "total_uncorrectable_count")
    deferred = _at(entry, "ecc", "total_deferred_count")
    if not isinstance(count, int):
        yield Health.unknown("gpu-ecc.not-reported", gpu=gpu)
    elif count > 0:
        yield Health.error("gpu-ecc.uncorrectable", gpu=gpu, count=count)
    if isinstance(deferred, int) and deferred > 0:
        yield Health.warn("gpu-ecc.deferred", gpu=gpu, count=deferred)


def _rocm(facts: Facts) -> Reading | None:
    """`rocm-smi --json`: one object a GPU (card0), and the driver in `system`; bytes as text."""
    value, said = _document(facts.all(_ROCM))
    if not isinstance(value, dict):
        return None
    driver = _text(_at(value, "system", "Driver version"))
    gpus = []
    for key, entry in value.items():
        if (match := re.fullmatch(r"card(\d+)", key)) and isinstance(entry, dict):
            total, used = (
                _mib(f"{entry.get(name)} B")
                for name in ("VRAM Total Memory (B)", "VRAM Total Used Memory (B)")
            )
            name = _text(entry.get("Card Series") or entry.get("Card series"))
            bus, uuid = _text(entry.get("PCI Bus")), _text(entry.get("Unique ID"))
            gpus.append(Gpu(int(match[1]), name, total, used, driver, bus, uuid))
    return Reading(gpus, (), said)


def _rocm_uses(facts: Facts) -> list[Use] | None:
    """`rocm-smi --showpids --json`: "PID4711": "name, GPUs, bytes, ..." in `system`."""
    value, said = _document(facts.all(_APP))
    if not isinstance(value, dict):
        return [] if any("No" in line for line in said) and not facts.why(_APP) else None
    found = []
    for key, text in (value.get("system") or {}).items():
        if match := re.fullmatch(r"PID(\d+)", key):
            parts = [part.strip() for part in str(text).split(",")]
            used = _mib(f"{parts[2]} B") if len(parts) > 2 else None
            if used != 0:
                found.append(Use("", int(match[1]), owner_of(facts, int(match[1])), used))
    return found


def _entries(facts: Facts, key: str) -> tuple[list[dict[str, Any]] | None, list[str]]:
    """The GPUs of amd-smi's JSON: a list, since ROCm 7 the list `gpu_data` of an object."""
    value, said = _document(facts.all(key))
    if isinstance(value, dict):
        value = value.get("gpu_data")
    if not isinstance(value, list):
        return None, said
    return [entry for entry in value if isinstance(entry, dict)], said


def _document(lines: Sequence[str]) -> tuple[Any, list[str]]:
    """The JSON value in a tool's output, and its lines outside of it (warnings); None: no JSON."""
    text = "\n".join(lines)
    start = re.search(r"^\s*[\[{]", text, re.MULTILINE)
    if start is None:
        return None, [line.strip() for line in lines if line.strip()]
    try:
        value, end = json.JSONDecoder().raw_decode(text, start.end() - 1)
    except ValueError:
        return None, []
    said = [*text[: start.start()].splitlines(), *text[end:].splitlines()]
    return value, [line.strip() for line in said if line.strip()]


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _size(entry: Mapping[str, Any]) -> Any:
    """`size`, with its unit; ROCm 6.0 wrote `size_mb`."""
    size = _at(entry, "vram", "size")
    return _at(entry, "vram", "size_mb") if size is None else size


def _text(value: object) -> str | None:
    text = str(value).strip()
    return None if value is None or text in ("", "N/A") else text


def _mib(value: object) -> int | None:
    """An amount in MiB: {"value": 283, "unit": "MB"}, "283 MB", or a number of MB."""
    if isinstance(value, dict):
        value = f"{value.get('value')} {value.get('unit') or 'MB'}"
    match = _AMOUNT.match(str(value).strip())
    return int(float(match[1]) * _IN_MIB[match[2] or "MB"]) if match else None


ACCELERATOR: Accelerator = Amd()
