"""Check that a folder of safetensors weights is complete. Reads headers only: minutes for 598 GB.

This file imports only the standard library (Python 3.9 and later), so its text can be sent to a
host without any package: `ssh HOST python3 - DIR < shards.py`. It then prints one
JSON object. The layout of a safetensors file is that of its specification: 8 bytes with the length
of the header (little endian), the header in JSON, the tensors' bytes without gaps.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["INDEX", "SINGLE", "inspect_folder", "main"]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_HEADER_LIMIT = 100_000_000  # the limit of the safetensors library itself
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_AGAIN = "fetch the file again: reprise model fetch NAME DIR"
# Optional files next to the weights, each a JSON object.
_SETTINGS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("generation_config.json", "preprocessor_config.json", "processor_config.json"),
)
_POINTER = b"version https://git-lfs"


class Notes:
    """Faults as (rule, file, message, fix), and the rules that were evaluated."""

    def __init__(self) -> None:
        self.faults: list[dict[str, str]] = []
        self.rules: list[str] = []

    def fault(self, rule: str, where: str, message: str, fix: str = _AGAIN) -> None:
        """Add one."""
        self.faults.append({"rule": rule, "where": where, "message": message, "fix": fix})


def inspect_folder(folder: Path) -> dict[str, Any]:
    """Inspect config, index and the header of every shard of `folder`.

    Returns {"faults": [{rule, where, message, fix}], "rules": [...], "facts": {...}, "config":
    {...} or None, "tensors": {name: [dtype, shape]} or None when a shard could not be read,
    "names": those of the index then, "tokenizer": see _tokenizer}; `facts` has shards, tensors,
    bytes (of tensors), dtypes and the sha256 of config and index. Never raises, whatever the folder
    contains.
    """
    notes = Notes()
    config = _json(notes, "model-config", folder / "config.json")
    shards, wanted, total = _plan(notes, folder)
    with ThreadPoolExecutor(16) as pool:
        headers = list(pool.map(lambda name: read_shard(folder / name), shards))
    found: dict[str, str] = {}
    dtypes: dict[str, int] = {}
    size = 0
    tensors: dict[str, list[Any]] = {}
    for name, (header, fault) in zip(shards, headers):  # noqa: B905  (Python 3.9 on hosts)
        if fault is not None:
            notes.fault("model-shard", str(folder / name), fault)
        for tensor, entry in header.items():
            if tensor in found:
                text = f"{tensor} is also in {found[tensor]}"
                notes.fault("model-tensors", str(folder / name), text)
            found[tensor] = name
            begin, end = entry["data_offsets"]
            size += end - begin
            dtypes[entry["dtype"]] = dtypes.get(entry["dtype"], 0) + 1
            tensors[tensor] = [entry["dtype"], entry["shape"]]
    broken = {n for n, (_, fault) in zip(shards, headers) if fault is not None}  # noqa: B905
    _compare(notes, folder, wanted, found, broken)
    if total is not None and not broken and size != total:
        text = f"{size:,} bytes of tensors, but metadata.total_size is {total:,}"
        notes.fault("model-size", str(folder / INDEX), text)
    notes.rules += ["model-shard", "model-tensors", "model-size"]
    _pointers(notes, folder)
    _settings(notes, folder)
    return {
        "faults": notes.faults,
        "rules": sorted(set(notes.rules)),
        "facts": {
            "shards": len(shards),
            "tensors": len(found),
            "bytes": size,
            "dtypes": dtypes,
            "config_sha256": _sha256(folder / "config.json"),
            "index_sha256": _sha256(folder / INDEX),
        },
        "config": config if isinstance(config, dict) else None,
        # Names and shapes count only when all of them are known.
        "tensors": tensors if shards and not broken else None,
        "names": sorted(wanted or {}) if broken else [],
        "tokenizer": _tokenizer(folder),
    }


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


def _require_regular(path: Path) -> int:
    """The size of a file; raises Damaged for a pipe or device: to open one may never end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
        raise Damaged("not a regular file")
    return about.st_size


def _json(notes: Notes, rule: str, path: Path) -> Any:
    """The JSON object in a file, or None with a fault; in UTF-8, as transformers reads it."""
    notes.rules.append(rule)
    try:
        _require_regular(path)
        text = path.read_bytes()
    except Damaged as damage:
        notes.fault(rule, str(path), str(damage))
    except FileNotFoundError:
        notes.fault(rule, str(path), "file not found")
    except OSError as error:
        notes.fault(rule, str(path), f"cannot be read: {error.strerror}", "check its permissions")
    else:
        if text.startswith(_POINTER):
            notes.fault(
                rule, str(path), f"git-lfs pointer of {len(text)} bytes instead of the file"
            )
            return None
        try:
            value = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            notes.fault(rule, str(path), f"not JSON in UTF-8: {error}")
            return None
        if isinstance(value, dict):
            return value
        notes.fault(rule, str(path), f"expected a JSON object, found {type(value).__name__}")
    return None


def _plan(notes: Notes, folder: Path) -> tuple[list[str], dict[str, str] | None, int | None]:
    """The shards to read, the index's map (None for a single file) and its total size."""
    if not (folder / INDEX).exists() and (folder / SINGLE).exists():
        notes.rules.append("model-index")
        return [SINGLE], None, None
    index = _json(notes, "model-index", folder / INDEX)
    if (folder / SINGLE).exists() and not _lists(index, SINGLE):
        # transformers 5.6, modeling_utils._get_resolved_checkpoint_files: the single file first.
        text = f"{SINGLE} is also present: transformers loads it and ignores the index"
        notes.fault("model-index", str(folder / INDEX), text, f"move {SINGLE} out of the folder")
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not table:
        if index is not None:
            notes.fault("model-index", str(folder / INDEX), "weight_map is missing")
        return [], {}, None
    good = {str(k): v for k, v in table.items() if isinstance(v, str) and "/" not in v}
    if len(good) != len(table):
        notes.fault("model-index", str(folder / INDEX), "weight_map has invalid file names")
    meta = index.get("metadata")
    total = meta.get("total_size") if isinstance(meta, dict) else None
    return sorted(set(good.values())), good, int(total) if isinstance(total, (int, float)) else None


def _lists(index: Any, name: str) -> bool:
    """Is `name` a file of the index?"""
    table = index.get("weight_map") if isinstance(index, dict) else None
    return isinstance(table, dict) and name in table.values()


class Damaged(Exception):
    """A shard that is not a complete safetensors file; the text gives the reason."""


def read_shard(path: Path) -> tuple[dict[str, Any], str | None]:
    """The tensors of one shard's header, and the fault of the file (None: no fault)."""
    try:
        size = _require_regular(path)
        with path.open("rb") as file:
            length = _header_length(file.read(8), size)
            header = json.loads(file.read(length))
    except FileNotFoundError:
        return {}, "missing"
    except OSError as error:
        return {}, f"cannot be read: {error.strerror}"
    except Damaged as damage:
        return {}, str(damage)
    except (ValueError, RecursionError) as error:
        return {}, f"damaged header: {error}"
    if not isinstance(header, dict):
        return {}, "damaged header: not a JSON object"
    header.pop("__metadata__", None)
    return _tensors(header, size - 8 - length)


def _header_length(start: bytes, size: int) -> int:
    """The length that the first 8 bytes of a file of `size` bytes state. Raises Damaged."""
    if start == _POINTER[:8]:
        raise Damaged(f"git-lfs pointer of {size} bytes instead of the weights")
    if len(start) < 8:
        raise Damaged(f"truncated: {size} bytes, shorter than a header")
    length = int(struct.unpack("<Q", start)[0])
    if length > size - 8:
        raise Damaged(
            f"truncated, or not safetensors: header length {length:,} exceeds the rest of the file "
            f"({size - 8:,} bytes)"
        )
    if length > _HEADER_LIMIT:
        raise Damaged(f"header of {length:,} bytes, more than the format allows")
    return length


def _tensors(header: dict[str, Any], room: int) -> tuple[dict[str, Any], str | None]:
    """Check that the tensors fill the file's `room` bytes exactly, each as long as its shape."""
    spans = []
    for name, entry in header.items():
        try:
            begin, end = (int(value) for value in entry["data_offsets"])
            bits = _BITS.get(entry["dtype"])
            count = 1
            for axis in entry["shape"]:
                count *= int(axis)
        except (TypeError, KeyError, ValueError):
            return {}, f"damaged header: entry of {name}"
        if bits is not None and count * bits != 8 * (end - begin):
            return {}, f"{name}: {end - begin:,} bytes for shape {entry['shape']} {entry['dtype']}"
        spans.append((begin, end, name))
    place = 0
    for begin, end, name in sorted(spans):
        if begin != place:
            return header, f"{name} begins at {begin:,}, expected {place:,} (gap or overlap)"
        place = end
    if place != room:
        kind = "truncated" if place > room else "too long"
        return header, f"{kind}: the header needs {place:,} bytes of tensors, the file has {room:,}"
    return header, None


def _compare(
    notes: Notes,
    folder: Path,
    wanted: dict[str, str] | None,
    found: dict[str, str],
    broken: set[str],
) -> None:
    """Tensors of the index against those of the headers (of shards that could be read)."""
    if wanted is None:
        return
    where = str(folder / INDEX)
    lost = [n for n, shard in wanted.items() if shard not in broken and found.get(n) != shard]
    if lost:
        text = f"{len(lost):,} tensors are missing from their shard in the index: {_some(lost)}"
        notes.fault("model-tensors", where, text)
    extra = [name for name in found if name not in wanted]
    if extra:
        text = f"{len(extra):,} tensors are missing from the index: {_some(extra)}"
        notes.fault("model-tensors", where, text)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _pointers(notes: Notes, folder: Path) -> None:
    """Small files that are pointers (tokenizers are large enough to be stored that way)."""
    notes.rules.append("model-files")
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in names:
        if path.suffix == ".safetensors" or path.name in ("config.json", INDEX, *_SETTINGS):
            continue
        try:
            if path.is_file() and path.stat().st_size < 1024:
                with path.open("rb") as file:
                    if file.read(len(_POINTER)) == _POINTER:
                        text = f"git-lfs pointer of {path.stat().st_size} bytes instead of the file"
                        notes.fault("model-files", str(path), text)
        except OSError as error:
            notes.fault("model-files", str(path), f"cannot be read: {error.strerror}")


def _settings(notes: Notes, folder: Path) -> None:
    """Files in JSON that transformers reads with a tokenizer or a model: each is an object."""
    for name in _SETTINGS:
        if (folder / name).exists():
            _json(notes, "model-files", folder / name)


def _tokenizer(folder: Path) -> dict[str, Any]:
    """{"present", "largest": the highest token id or None (unknown), "template": a chat template}.

    Only tokenizer.json has ids that can be read here; vocab.json has those before added tokens.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    whole = _read(folder / "tokenizer.json")
    ids: list[int] = []
    model = whole.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        ids += [value for value in vocab.values() if isinstance(value, int)]
    elif isinstance(vocab, list):  # Unigram: the place is the id
        ids.append(len(vocab) - 1)
    added = whole.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            ids.append(entry["id"])
    settings = _read(folder / "tokenizer_config.json")
    return {
        "present": bool(names & {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
        or any(name.endswith(".tiktoken") for name in names),
        "largest": max(ids, default=None),
        "template": bool(settings.get("chat_template"))
        or bool(names & {"chat_template.jinja", "chat_template.json", "additional_chat_templates"}),
    }


def _read(path: Path) -> dict[str, Any]:
    """The object of a file in JSON; {} when there is none."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def main() -> None:
    """Inspect the folder of the first argument; print the JSON object."""
    sys.stdout.write(json.dumps(inspect_folder(Path(os.fsdecode(sys.argv[1])))) + "\n")


if __name__ == "__main__":
    main()
