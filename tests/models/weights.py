"""Small weights folders in the real file format."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from reprise.models.tables import expected_tensors

CONFIG = {
    "architectures": ["HYV3ForCausalLM"], "model_type": "hy_v3", "vocab_size": 8, "hidden_size": 2,
    "intermediate_size": 4, "num_hidden_layers": 2, "num_attention_heads": 1,
    "num_key_value_heads": 1, "head_dim": 2, "num_experts": 1, "num_experts_per_tok": 1,
    "num_shared_experts": 1,
    "moe_intermediate_size": 4, "expert_hidden_dim": 4, "first_k_dense_replace": 1,
    "router_scaling_factor": 2.826, "enable_moe_fp32_combine": False,
}  # fmt: skip
INDEX = "model.safetensors.index.json"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 499\n"


def tensor(*shape: int, dtype: str = "BF16") -> tuple[str, list[int]]:
    return dtype, list(shape)


def shard(path: Path, tensors: dict[str, tuple[str, list[int]]], cut: int = 0) -> None:
    """A safetensors file; `cut` bytes are left out at its end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = {"BF16": 2, "F32": 4}[dtype]
        for axis in shape:
            size *= axis
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(place)
    path.write_bytes(data[: len(data) - cut])


def layer(number: int) -> dict[str, tuple[str, list[int]]]:
    """Layer 0 is dense, the others have one expert."""
    wanted = expected_tensors(CONFIG)
    assert wanted is not None
    start = f"model.layers.{number}."
    return {n: tensor(*shape) for n, shape in wanted.wanted.items() if n.startswith(start)}


def model(folder: Path, **changes: Any) -> Path:
    """A whole model of three shards; `changes` go into config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        {"model.embed_tokens.weight": tensor(8, 2), "lm_head.weight": tensor(8, 2),
         "model.norm.weight": tensor(2)},
        layer(0),
        layer(1),
    ]  # fmt: skip
    table, total = {}, 0
    for place, tensors in enumerate(parts, 1):
        name = f"model-{place:05d}-of-00003.safetensors"
        shard(folder / name, tensors)
        table |= dict.fromkeys(tensors, name)
        total += sum(2 * math.prod(shape) for _, shape in tensors.values())
    (folder / INDEX).write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": table})
    )
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder
