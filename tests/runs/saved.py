"""Checkpoints as verl lays them out, with small files of the real formats."""

from __future__ import annotations

import base64
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

# .metadata as torch 2.13 wrote it for {"a": arange(8.), "b": {"c": ones(3), "n": 5}}, one writer.
METADATA = base64.b64decode(
    "gASVJAQAAAAAAACMJXRvcmNoLmRpc3RyaWJ1dGVkLmNoZWNrcG9pbnQubWV0YWRhdGGUjAhNZXRhZGF0YZSTlCmBlH2U"
    "KIwTc3RhdGVfZGljdF9tZXRhZGF0YZR9lCiMAWGUaACMFVRlbnNvclN0b3JhZ2VNZXRhZGF0YZSTlCmBlH2UKIwKcHJv"
    "cGVydGllc5RoAIwQVGVuc29yUHJvcGVydGllc5STlCmBlCiMBXRvcmNolIwHZmxvYXQzMpSTlIwTdG9yY2guc2VyaWFs"
    "aXphdGlvbpSMC19nZXRfbGF5b3V0lJOUjA10b3JjaC5zdHJpZGVklIWUUpSJaACMFF9NRU1fRk9STUFUX0VOQ09ESU5H"
    "lJOUSwCFlFKUiXSUYowEc2l6ZZSMBXRvcmNolIwEU2l6ZZSTlEsIhZSFlFKUjAZjaHVua3OUXZRoAIwUQ2h1bmtTdG9y"
    "YWdlTWV0YWRhdGGUk5QpgZR9lCiMB29mZnNldHOUaCFLAIWUhZRSlIwFc2l6ZXOUaCFLCIWUhZRSlHViYXVijANiLmOU"
    "aAkpgZR9lChoDGgOKYGUKGgSaBiJaByJdJRiaB5oIUsDhZSFlFKUaCVdlGgoKYGUfZQoaCtoIUsAhZSFlFKUaC9oIUsD"
    "hZSFlFKUdWJhdWKMA2IubpRoAIwUQnl0ZXNTdG9yYWdlTWV0YWRhdGGUk5QpgZR1jAxwbGFubmVyX2RhdGGUfZQoaAdo"
    "B4WUaDOMAWKUjAFjlIaUaERoS4wBbpSGlHWMDHN0b3JhZ2VfZGF0YZR9lChoAIwNTWV0YWRhdGFJbmRleJSTlCmBlH2U"
    "KIwDZnFulGhEjAVpbmRleJROdWKMJ3RvcmNoLmRpc3RyaWJ1dGVkLmNoZWNrcG9pbnQuZmlsZXN5c3RlbZSMDF9TdG9y"
    "YWdlSW5mb5STlCmBlH2UKIwNcmVsYXRpdmVfcGF0aJSMDF9fMF8wLmRpc3RjcJSMBm9mZnNldJRLAIwGbGVuZ3RolE3t"
    "BHViaFMpgZR9lChoVmgHaFdLAGhfaCFLAIWUhZRSlHViaFopgZR9lChoXWheaF9N7QRoYE0pBnViaFMpgZR9lChoVmgz"
    "aFdLAGhfaCFLAIWUhZRSlHViaFopgZR9lChoXWheaF9NFgtoYE0pBnVidYwMc3RvcmFnZV9tZXRhlGgAjAtTdG9yYWdl"
    "TWV0YZSTlCmBlH2UKIwNY2hlY2twb2ludF9pZJSMB3BhdGhsaWKUjAlQb3NpeFBhdGiUk5QojAEvlIwDdG1wlIwCdDKU"
    "jANkY3CUdJRSlIwHc2F2ZV9pZJSMJDAxNGE0MzI2LTE4YTQtNDNhNi05MTI5LTA3NTgyMTk5N2RlM5SMB2xvYWRfaWSU"
    "TowHbW9kdWxlc5RdlHVijAd2ZXJzaW9ulIwFMS4wLjCUdWIu"
)
SHARD_BYTES = 4415
"""Where the last piece of `__0_0.distcp` ends, by METADATA."""


def torch_file(path: Path, value: Any = None) -> Path:
    """A file in the archive format of torch.save: a pickle and its tensors, stored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr(f"{path.stem}/data/0", b"\0" * 4096)
    return path


def safetensors(path: Path, payload: int = 64) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [payload], "data_offsets": [0, payload]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"\0" * payload)
    return path


def fsdp(
    role: Path, ranks: int, kinds: tuple[str, ...] = ("model", "optim", "extra_state")
) -> None:
    for kind in kinds:
        for rank in range(ranks):
            torch_file(role / f"{kind}_world_size_{ranks}_rank_{rank}.pt")
    (role / "huggingface").mkdir(exist_ok=True)
    (role / "huggingface" / "config.json").write_text('{"model_type": "hy_v3"}')
    (role / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": ranks}))


def dist_ckpt(folder: Path, reshard: str = "dp_reshardable") -> None:
    """A folder of Megatron's dist_checkpointing."""
    torch_file(folder / "common.pt", {"content_metadata": {"distrib_optim_sharding_type": reshard}})
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    (folder / "__0_0.distcp").write_bytes(b"\1" * SHARD_BYTES)
    (folder / ".metadata").write_bytes(METADATA)


def megatron(role: Path, step: int, ranks: int, reshard: str = "dp_reshardable") -> None:
    """verl's layout 2, weights in Hugging Face form."""
    hugging = role / "model" / "huggingface"
    safetensors(hugging / "model-00001-of-00001.safetensors")
    (hugging / "config.json").write_text('{"model_type": "hy_v3"}')
    (hugging / "model.safetensors.index.json").write_text(
        '{"weight_map": {"w": "model-00001-of-00001.safetensors"}}'
    )
    dist_ckpt(role / "optimizer" / "dist_ckpt", reshard)
    dist_ckpt(role / "extra" / "dist_ckpt", reshard)
    (role / "transformer_config.json").write_text("{}")
    form = "megatron_dist_checkpoint"
    contents = {
        "model": {"path": "model/huggingface", "format": "huggingface"},
        "optimizer": {"path": "optimizer/dist_ckpt", "format": form},
        "rng_state": {"path": "extra/dist_ckpt", "format": form, "key": "rng_state"},
        "transformer_config": {"path": "transformer_config.json", "format": "json"},
        "hf_config": {"path": "model/huggingface", "format": "huggingface"},
    }
    manifest = {
        "schema_version": 2,
        "framework": "megatron",
        "global_step": step,
        "world_size": ranks,
        "contents": contents,
    }
    (role / "ckpt_contents.json").write_text(json.dumps(manifest))


def saved_step(folder: Path, step: int, ranks: int = 2) -> Path:
    """A whole `global_step_N` of FSDP; the tracker names it."""
    path = folder / f"global_step_{step}"
    fsdp(path / "actor", ranks)
    torch_file(path / "data.pt", {"_num_yielded": step})
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def cut(path: Path, keep: float = 0.5) -> None:
    """Leave the first part of a file, as a write that was killed does."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
