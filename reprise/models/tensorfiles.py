"""Files that torch and Megatron save, read without torch: completeness, shards of a folder.

torch.save writes a zip archive with its directory at the end: a truncated file lacks it.
torch.distributed.checkpoint, and Megatron's dist_checkpointing on top of it, write one `.distcp`
file per rank and writer, and `.metadata` last, which has the place of each piece in them.
"""

from __future__ import annotations

import json
import pickle  # Only with a reader that makes no object of any foreign class: see _Inert.
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

__all__ = ["FileFault", "content_metadata", "dist_faults", "zip_fault"]

SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_LOCAL_HEADER = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that is missing or damaged, and the fault."""

    path: Path
    message: str


def zip_fault(path: Path) -> str | None:
    """The fault of a file of torch.save; None when it is complete.

    Reads the directory at the archive's end and its first entry, not the tensors.
    """
    try:
        size = path.stat().st_size
        return _archive_fault(path) if size else "is empty (0 bytes)"
    except FileNotFoundError:
        return "is missing"
    except zipfile.BadZipFile:
        return f"is truncated or damaged ({size} bytes, no archive directory at its end)"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _archive_fault(path: Path) -> str | None:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        first = min((entry.header_offset for entry in archive.infolist()), default=None)
        if first is None:
            return "is an archive without entries"
        file.seek(first)
        if file.read(4) != _LOCAL_HEADER:
            return "is damaged: its directory lists a missing entry"
    return None


def dist_faults(folder: Path, megatron: bool = True) -> list[FileFault]:
    """The faults of a folder of torch.distributed.checkpoint; empty when it is complete.

    With `megatron`, also the files that Megatron's dist_checkpointing adds: common.pt and
    metadata.json, whose backend must be torch_dist.
    """
    faults = []
    if megatron:
        if (fault := zip_fault(folder / "common.pt")) is not None:
            faults.append(FileFault(folder / "common.pt", fault))
        if (fault := _backend_fault(folder / "metadata.json")) is not None:
            faults.append(FileFault(folder / "metadata.json", fault))
    shards = sorted(folder.glob("*.distcp"))
    if not shards:
        faults.append(FileFault(folder, "has no shard (__<rank>_<writer>.distcp)"))
    for path in shards:
        if not SHARD.fullmatch(path.name):
            faults.append(FileFault(path, "has an unexpected name"))
        elif not path.stat().st_size:
            faults.append(FileFault(path, "is empty (0 bytes)"))
    return faults + _unlisted(folder)


def _backend_fault(path: Path) -> str | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError):
        return "is empty or damaged"
    backend = value.get("sharded_backend") if isinstance(value, dict) else None
    return None if backend == "torch_dist" else f"has sharded_backend {backend!r}, not 'torch_dist'"


def _unlisted(folder: Path) -> list[FileFault]:
    """Shards that .metadata lists and that are missing or too short."""
    path = folder / ".metadata"
    if not path.is_file():
        return [FileFault(path, "is missing: it is written last, so the save did not finish")]
    try:
        wanted = _shard_sizes(path)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError):
        return [FileFault(path, "is empty, truncated or damaged")]
    except (AttributeError, ImportError, UnicodeDecodeError):
        return [FileFault(path, "is damaged")]
    faults = []
    for name, least in sorted(wanted.items()):
        shard = folder / name
        if not shard.is_file():
            faults.append(FileFault(shard, "is missing, but .metadata lists it"))
        elif 0 < shard.stat().st_size < least:
            text = f"is truncated: {shard.stat().st_size} of {least} bytes"
            faults.append(FileFault(shard, text))
    return faults


def _shard_sizes(path: Path) -> dict[str, int]:
    """For each shard in .metadata, the end of its last piece, in bytes.

    Its storage_data maps pieces to (relative_path, offset, length); torch:
    distributed/checkpoint/filesystem.py, _StorageInfo.
    """
    with path.open("rb") as file:
        root = _read(file)
    ends: dict[str, int] = {}
    for info in _state(root).get("storage_data", {}).values():
        piece = _state(info)
        name = str(piece["relative_path"])
        ends[name] = max(ends.get(name, 0), int(piece["offset"]) + int(piece["length"]))
    if not ends:
        raise ValueError("no pieces")
    return ends


def content_metadata(common: Path) -> Mapping[str, Any]:
    """How Megatron laid out a checkpoint's state (`content_metadata` in common.pt); {} if unknown.

    megatron.core: dist_checkpointing/serialization.py, save.
    """
    try:
        with zipfile.ZipFile(common) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as file:
                root = _read(file)
    except (OSError, zipfile.BadZipFile, StopIteration, pickle.UnpicklingError, EOFError):
        return {}
    except (AttributeError, ValueError, TypeError, KeyError, IndexError):
        return {}
    found = root.get("content_metadata") if isinstance(root, dict) else None
    return found if isinstance(found, dict) else {}


class _Inert(dict[Any, Any]):
    """Replaces an object of any foreign class: it only keeps its state."""

    __slots__ = ("state",)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.state: Any = None

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, _: Any) -> None:
        """Lists of a foreign class are read and dropped."""

    def extend(self, _: Any) -> None:
        """As `append`."""


class _Reader(pickle.Unpickler):
    """Unpickles without calling or importing anything named in a file."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Only the standard mapping is a real class."""
        return dict if (module, name) == ("collections", "OrderedDict") else _Inert

    def persistent_load(self, pid: Any, /) -> Any:
        """A tensor's storage: not read."""
        return None


def _read(file: IO[bytes]) -> Any:
    return _Reader(file).load()


def _state(value: Any) -> dict[str, Any]:
    """The attributes of an inert object."""
    state = value.state if isinstance(value, _Inert) else None
    if not isinstance(state, dict):
        raise TypeError("no attributes")
    return state
