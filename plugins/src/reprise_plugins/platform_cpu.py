"""A CPU as a verl platform, registered through ``PlatformRegistry`` (verl's extension point).

Ray schedules *logical* GPUs: start Ray with ``num_gpus=<n>`` and set ``trainer.n_gpus_per_node``
to the same number, and resource pools, placement groups and ranks work as on a GPU machine.
Weights go to vLLM through shared memory, which is what verl does wherever CUDA IPC is missing.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class CpuIndex(str):
    """A device id that serves both ways in which verl uses one.

    As a device (``tensor.to(id)``) it is "cpu"; formatted (``f"{device_name}:{id}"``) it is "0".
    """

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "0"


THE_CPU = CpuIndex("cpu")


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the most bytes that this process has held (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_info() -> tuple[int, int]:
    """Return available and total bytes of the machine's memory."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    available, total = (int(fields[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    return available, total


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def device_module() -> ModuleType:
    """Return a stand-in for ``torch.cuda``: what ``torch.cpu`` has, and what verl calls beyond it.

    Memory figures are those of the process: on a CPU that is the memory of the device.
    """
    module = ModuleType("reprise_plugins.cpu_device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    for name in (
        "empty_cache",
        "ipc_collect",
        "manual_seed",
        "manual_seed_all",
        "reset_max_memory_allocated",
        "reset_peak_memory_stats",
        "set_device",
        "set_per_process_memory_fraction",
        "synchronize",
    ):
        setattr(module, name, _nothing)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: THE_CPU,
        "memory_allocated": lambda *_: resident_bytes(),
        "memory_reserved": lambda *_: resident_bytes(),
        "max_memory_allocated": lambda *_: peak_bytes(),
        "max_memory_reserved": lambda *_: peak_bytes(),
        "memory_stats": lambda *_: {},
        "mem_get_info": lambda *_: memory_info(),
        "get_device_name": lambda *_: "cpu",
        "get_device_properties": lambda *_: SimpleNamespace(
            name="cpu", total_memory=memory_info()[1]
        ),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }
    for name, answer in answers.items():
        setattr(module, name, answer)
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """The platform that ``VERL_PLATFORM=cpu`` selects."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = device_module()

    def is_available(self) -> bool:
        """Return True: there is always a CPU."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return whether the CPU was asked for; it is never found by looking around."""
        return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"

    def current_device(self) -> CpuIndex:
        """Return the one device id."""
        return THE_CPU

    def device_count(self) -> int:
        """Return 1: a rank sees one device."""
        return 1

    def set_device(self, device_index: Any) -> None:
        """Do nothing: there is no other device."""

    def synchronize(self, device_index: Any = None) -> None:
        """Do nothing: a CPU computes in order."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: the settings are CUDA's."""

    def empty_cache(self) -> None:
        """Do nothing: nothing is cached."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """Return that there is no compute capability."""
        return (None, None)

    def communication_backend_name(self) -> str:
        """Return the collective backend of a CPU."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable in which Ray hands a worker its logical GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Mark nothing."""
        yield

    def profiler_start(self) -> None:
        """Do nothing."""

    def profiler_stop(self) -> None:
        """Do nothing."""

    def ray_resource_name(self) -> str:
        """Return the resource that Ray counts: logical GPUs."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return the variable that keeps Ray from hiding devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Return False: weights go through shared memory."""
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        """Return that the rollout needs no variable of ours."""
        return {}

    def cudart(self) -> None:
        """Return that there is no CUDA runtime."""
        return

    def get_device_uuid(self, device_id: Any) -> str:
        """Return a name for the device. (verl's own version compares the id with a number.)"""
        return f"CPU-{device_id}"
