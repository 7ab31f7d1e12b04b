"""Machine profiles: what a kind of machine must have, and how Ray is started on it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reprise.core.errors import OperatorError

__all__ = ["Profile", "load_profile", "profile_names"]

_FOLDER = Path(__file__).parent / "profiles"


class Profile(BaseModel):
    """One TOML file of reprise/cluster/profiles; comments there give the sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    accelerator: Literal["nvidia", "mthreads", "none"]
    models: tuple[str, ...] = ()
    """Regular expressions, one of which a card's name matches."""
    memory_mib: Annotated[int, Field(ge=0)] = 0
    """Least memory of a card."""
    ray_sees_cards: bool
    """Whether stock Ray counts the cards itself; otherwise `--num-gpus` comes from the slots."""
    lock_machine: Literal["h20", "musa", "rehearsal"]
    interface_variables: tuple[str, ...]
    """Variables that name the card of the training network, set on every node."""
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
    """Least /dev/shm as a part of the memory: what Ray takes for its object store by default."""
    shm_free_gib: Annotated[float, Field(ge=0)] = 64
    """Free /dev/shm below which a warning is given."""
    memory_gib: Annotated[float, Field(ge=0)] = 0
    open_files: int = 65536
    """What Ray's documentation recommends for large clusters; its workers hold many sockets."""
    memlock_unlimited: bool = False
    disk_gib: Annotated[float, Field(ge=0)] = 20
    clock_seconds: Annotated[float, Field(gt=0)] = 5


def profile_names() -> list[str]:
    """The names of all profiles."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """The profile called `name`. Raises OperatorError when there is none."""
    if name not in profile_names():
        fix = f"name one of {', '.join(profile_names())}: --profile, or profile= in the site file"
        raise OperatorError("profile", name, "there is no such machine profile", fix)
    path = _FOLDER / f"{name}.toml"
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise OperatorError("profile", str(path), str(error), "correct the file") from None
