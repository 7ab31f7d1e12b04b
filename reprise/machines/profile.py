"""Requirements on a kind of machine, and how Ray is started on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Floors", "Profile"]


class Floors(BaseModel):
    """Least bandwidths in GB/s (1e9 bytes a second); None: not known, and then not judged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    intra_host: Annotated[float, Field(gt=0)] | None = None
    """Bus bandwidth of an all-reduce among the GPUs of one host, as nccl-tests define it."""
    inter_host: Annotated[float, Field(gt=0)] | None = None
    """The same among all GPUs of all hosts."""
    storage_read: Annotated[float, Field(gt=0)] | None = None
    """Of one host, from the folders of model, data and checkpoints, all hosts at once."""
    storage_write: Annotated[float, Field(gt=0)] | None = None
    """Of one host, to the folder of checkpoints, all hosts at once."""

    def under(self, site: Floors) -> Floors:
        """These floors, with those that a site sets in their place."""
        return self.model_copy(update=site.model_dump(exclude_none=True))


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
    floors: Floors = Floors()
