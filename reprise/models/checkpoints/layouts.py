"""The files of verl's checkpoint managers below `global_step_N/`, one folder per role.

FSDP (verl: utils/checkpoint/fsdp_checkpoint_manager.py): one file
`model|optim|extra_state_world_size_N_rank_R.pt` of each kind per rank, and from rank 0
`fsdp_config.json` and `huggingface/`.
Megatron (megatron_checkpoint_manager.py, layout 2): `model/`, `optimizer/` and `extra/`, each with
a `dist_ckpt/` of Megatron's dist_checkpointing or, for the weights, a `huggingface/`; last of all
`ckpt_contents.json`. Layout 1 had one `dist_ckpt/` at the top, and is refused by the loader.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from reprise.metrics import spans
from reprise.models.shards import read_shard
from reprise.models.tensorfiles import FileFault, content_metadata, dist_faults, zip_fault

__all__ = ["Kind", "Part", "folder_bytes", "read_part"]

_SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt")
MANIFEST = "ckpt_contents.json"
# The changes of ranks that Megatron's distributed optimizer supports: megatron.core,
# optimizer/distrib_optimizer.py, and verl's dist_ckpt_optim_fully_reshardable.
_ANY_RANKS = frozenset({"fully_reshardable", "fully_sharded_model_space"})
_SAME_MODEL_RANKS = "dp_reshardable"
# Parallel sizes in transformer_config.json, which verl writes beside a Megatron checkpoint.
_SIZES = {
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "CP": "context_parallel_size",
    "EP": "expert_model_parallel_size",
    "ETP": "expert_tensor_parallel_size",
}


class Kind(StrEnum):
    """The layout of a role's folder."""

    FSDP = "FSDP"
    MEGATRON = "Megatron"
    MEGATRON_1 = "Megatron, layout 1"
    MCORE = "MCore weights"
    EMPTY = "empty"
    OTHER = "unknown"


@dataclass(frozen=True, slots=True)
class Part:
    """One role's folder. `ranks` are those with all their files; world_size 0: unknown.

    `reshard` is how Megatron can redistribute the optimizer state, empty where unknown; `sizes` are
    the parallel sizes that wrote it, by short name, those that its files state.
    """

    path: Path
    kind: Kind
    faults: tuple[FileFault, ...] = ()
    remarks: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    world_size: int = 0
    ranks: tuple[int, ...] = ()
    step: int | None = None
    reshard: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """The folder's name: actor, critic."""
        return self.path.name

    @property
    def lacks(self) -> tuple[str, ...]:
        """What verl saves by default for a resume, and no rank has: such weights are for inference.

        verl loads what it saves (checkpoint.load_contents follows save_contents).
        """
        if self.kind not in (Kind.FSDP, Kind.MEGATRON) or not self.contents:
            return ()
        wanted = ("optimizer", "extra") if self.kind is Kind.FSDP else ("optimizer", "rng_state")
        return tuple(name for name in wanted if name not in self.contents)

    def refusal(self, world_size: int | None) -> str | None:
        """Why a job (of `world_size` ranks, if given) cannot resume from it; else None."""
        if self.kind is Kind.FSDP and world_size and self.world_size != world_size:
            return (
                f"{self.role} was saved by {self.world_size} ranks, the job has {world_size}: FSDP "
                "shards need the same number"
            )
        if self.kind is Kind.MEGATRON_1:
            return f"{self.role} has Megatron's layout 1, which verl refuses"
        return None

    def doubt(self, world_size: int) -> str | None:
        """Conditions for a job of `world_size` ranks that the files do not show."""
        if self.kind is not Kind.MEGATRON or world_size == self.world_size:
            return None
        if self.reshard in _ANY_RANKS:
            return None
        if self.reshard == _SAME_MODEL_RANKS:
            how = "its optimizer state supports another data parallel size only"
        else:
            how = "it is unknown whether its optimizer state can be redistributed"
        before = self.world_size or "an unknown number of"
        sizes = f" ({self.layout})" if self.sizes else ""
        return (
            f"{self.role} was saved by {before} ranks{sizes}, the job has {world_size}; {how}: "
            "tensor, pipeline, context and expert sizes must be the same"
        )

    @property
    def layout(self) -> str:
        """The parallel sizes that wrote it: TP 1 x PP 2; empty where none is stated."""
        return " x ".join(f"{name} {size}" for name, size in self.sizes.items())


def read_part(path: Path) -> Part:
    """Inspect one role's folder. Raises OSError when it cannot be listed."""
    names = {entry.name for entry in path.iterdir()}
    if any(_SHARD.fullmatch(name) for name in names) or "fsdp_config.json" in names:
        return _fsdp(path, names)
    if MANIFEST in names or names & {"model", "optimizer", "extra"}:
        return _megatron(path)
    if "dist_ckpt" in names:
        return _megatron_1(path, names)
    if ".metadata" in names or any(name.endswith(".distcp") for name in names):
        return Part(path, Kind.MCORE, tuple(dist_faults(path)), contents=("model",))
    if not any(item.is_file() for item in path.rglob("*")):
        return Part(path, Kind.EMPTY)
    return Part(path, Kind.OTHER)


def _fsdp(path: Path, names: set[str]) -> Part:
    shards: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if match := _SHARD.fullmatch(name):
            shards[int(match[2])][match[1]].add(int(match[3]))
    configured = _json(path / "fsdp_config.json").get("world_size")
    remarks = []
    if "fsdp_config.json" not in names:
        remarks.append("fsdp_config.json is missing, which rank 0 writes after its shards")
    size = configured if isinstance(configured, int) else 0
    if size not in shards:
        size = max(shards, key=lambda key: sum(map(len, shards[key].values())), default=size)
    others = sorted(set(shards) - {size})
    if others:
        remarks.append(f"shards of another world size ({', '.join(map(str, others))}): not used")
    kinds = shards[size]
    present = [kind for kind in ("model", "optim", "extra_state") if kind in kinds]
    absent = set(range(size)).difference(*kinds.values())
    faults = list(_absent(path, size, absent)) + list(_fsdp_faults(path, size, kinds, absent))
    if "model" not in present:
        text = f"model shard of world size {size} is missing"
        faults.append(FileFault(path / f"model_world_size_{size}_rank_0.pt", text))
    bad = {fault.path.name for fault in faults}
    whole = [
        rank
        for rank in range(size)
        if present
        and rank not in absent
        and not bad & {f"{kind}_world_size_{size}_rank_{rank}.pt" for kind in present}
    ]
    return Part(
        path,
        Kind.FSDP,
        tuple(faults),
        tuple(remarks),
        tuple({"optim": "optimizer", "extra_state": "extra"}.get(kind, kind) for kind in present),
        size,
        tuple(whole),
    )


def _absent(path: Path, size: int, ranks: set[int]) -> Iterator[FileFault]:
    """The ranks without any file, in one fault."""
    if ranks and len(ranks) == size:
        yield FileFault(path, f"no file of ranks {spans(ranks)} of {size}: the files are of others")
    elif ranks:
        text = (
            f"files of ranks {spans(ranks)} of {size} are missing; they are on the disks of other "
            "nodes (under the same path) if trainer.default_local_dir is relative or not shared"
        )
        yield FileFault(path, text)


def _fsdp_faults(
    path: Path, size: int, kinds: Mapping[str, set[int]], absent: set[int]
) -> Iterator[FileFault]:
    for kind, ranks in kinds.items():
        for rank in sorted(set(range(size)) - absent):
            file = path / f"{kind}_world_size_{size}_rank_{rank}.pt"
            if rank not in ranks:
                yield FileFault(file, "is missing")
            elif (fault := zip_fault(file)) is not None:
                yield FileFault(file, fault)


def _megatron(path: Path) -> Part:
    manifest = _json(path / MANIFEST)
    faults: list[FileFault] = []
    remarks: list[str] = []
    if not manifest:
        text = "is missing or damaged: it is written last, so the save did not finish"
        faults.append(FileFault(path / MANIFEST, text))
    listed = manifest.get("contents")
    entries: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
    folders = {
        str(entry["path"]): str(entry.get("format", ""))
        for entry in entries.values()
        if isinstance(entry, dict) and isinstance(entry.get("path"), str)
    }
    for name, form in sorted(folders.items()):
        target = path / name
        if form == "megatron_dist_checkpoint":
            faults += dist_faults(target)
        elif form == "huggingface":
            faults += _huggingface(target, weights=_holds_weights(entries, name))
        elif not target.exists():
            faults.append(FileFault(target, "is missing, but the manifest lists it"))
    commons = [path / part / "dist_ckpt" / "common.pt" for part in ("optimizer", "model", "extra")]
    known = next((found for common in commons if (found := content_metadata(common))), {})
    size = manifest.get("world_size")
    step = manifest.get("global_step")
    return Part(
        path,
        Kind.MEGATRON,
        tuple(faults),
        tuple(remarks),
        tuple(name for name in ("model", "hf_model", "optimizer", "rng_state") if name in entries),
        size if isinstance(size, int) else 0,
        step=step if isinstance(step, int) else None,
        reshard=str(known.get("distrib_optim_sharding_type", "")),
        sizes=_sizes(path, entries.get("transformer_config")),
    )


def _sizes(path: Path, entry: object) -> dict[str, int]:
    """The parallel sizes in the transformer's config, by short name; only what it states."""
    name = entry.get("path") if isinstance(entry, Mapping) else None
    stated = _json(path / name) if isinstance(name, str) else {}
    found = {short: stated.get(long) for short, long in _SIZES.items()}
    return {short: size for short, size in found.items() if type(size) is int}


def _holds_weights(entries: Mapping[str, Any], folder: str) -> bool:
    """Whether `folder` must have the model's weights: of a LoRA run it has only the adapter.

    Its loader reads the adapter from the entry peft_adapters, and the base model from elsewhere.
    """
    named = [entries[name] for name in ("model", "hf_model") if isinstance(entries.get(name), dict)]
    whole = "peft_adapters" not in entries
    return whole and any(entry.get("path") == folder for entry in named)


def _megatron_1(path: Path, names: set[str]) -> Part:
    faults = dist_faults(path / "dist_ckpt")
    remark = (
        "Megatron's layout 1: verl's scripts/migrate_megatron_checkpoint_layout.py "
        f"--checkpoint {path} makes it readable"
    )
    contents = ("model", "optimizer", "extra") if "huggingface" in names else ("dist_ckpt",)
    return Part(path, Kind.MEGATRON_1, tuple(faults), (remark,), contents)


def _huggingface(folder: Path, weights: bool) -> Iterator[FileFault]:
    """Faults of a Hugging Face folder: its config, and with `weights` every shard."""
    if not _json(folder / "config.json"):
        yield FileFault(folder / "config.json", "is missing or damaged")
    if not weights:
        return
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.exists():
        mapping = _json(index).get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            yield FileFault(index, "is damaged")
            return
        names = {str(name) for name in mapping.values()}
    for name in sorted(names):
        if (fault := read_shard(folder / name)[1]) is not None:
            yield FileFault(folder / name, fault)


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def folder_bytes(path: Path) -> int:
    """The bytes of all files below `path`, except files that are deleted meanwhile."""
    total = 0
    for item in path.rglob("*"):
        try:
            total += item.lstat().st_size if item.is_file() else 0
        except OSError:
            continue
    return total


def ranks_text(ranks: tuple[int, ...], size: int) -> str:
    """The complete ranks as text: all 16, or 0-3, 5 of 16."""
    if len(ranks) == size:
        return f"all {size}"
    return f"{spans(ranks) or 'none'} of {size}"
