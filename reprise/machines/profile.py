"""Requirements on a kind of machine, and how Ray is started on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Profile"]


class Profile(BaseModel):
    """The table [profile] of a file in profiles/; comments there give the sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    slots: Annotated[int, Field(gt=0)] = 8
    """GPUs of a host that no hostfile describes."""
    models: tuple[str, ...] = ()
    """Regular expressions, one of which a GPU's name matches."""
    memory_mib: Annotated[int, Field(ge=0)] = 0
    """Least memory of a GPU."""
    gpu: str = ""
    """A GPU's name and size, for a recipe card."""
    bf16_tflops: Annotated[float, Field(gt=0)] | None = None
    """Its dense peak in bfloat16, where its maker states it; None: a recipe card has to."""
    ray_variables: dict[str, str] = Field(default_factory=dict)
    ray_flags: tuple[str, ...] = ()
    container_flags: tuple[str, ...] = ()
    container_variables: dict[str, str] = Field(default_factory=dict)
    container_runtime: str | None = None
    """A runtime that the engine must know."""
    rdma: bool = False
    """Whether RDMA devices are expected."""
    fabric_manager: bool = False
    shm_fraction: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Least /dev/shm as a part of the memory: Ray's default for its object store."""
    shm_free_gib: Annotated[float, Field(ge=0)] = 64
    """Free /dev/shm below which a warning is given."""
    memory_gib: Annotated[float, Field(ge=0)] = 0
    open_files: int = 65536
    """The value that Ray's documentation recommends for large clusters with many sockets."""
    memlock_unlimited: bool = False
    disk_gib: Annotated[float, Field(ge=0)] = 20
    clock_seconds: Annotated[float, Field(gt=0)] = 5
