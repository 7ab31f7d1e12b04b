"""Tiny whole models of twelve architectures, and 52 ways to damage one."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reprise.models.shards import INDEX, SINGLE, read_shard

_BASE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}  # fmt: skip
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _config(architecture: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": kind} | _BASE | more


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _config("LlamaForCausalLM", "llama"),
    "mistral": _config("MistralForCausalLM", "mistral", head_dim=8),
    "qwen2": _config("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True),
    "qwen3": _config("Qwen3ForCausalLM", "qwen3", head_dim=16),
    "qwen3_moe": _config("Qwen3MoeForCausalLM", "qwen3_moe", head_dim=16, decoder_sparse_step=1,
                         mlp_only_layers=[], **_MOE),
    "mixtral": _config("MixtralForCausalLM", "mixtral", num_local_experts=4),
    "gemma2": _config("Gemma2ForCausalLM", "gemma2", head_dim=8, tie_word_embeddings=True),
    "phi3": _config("Phi3ForCausalLM", "phi3", pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "deepseek_v3": _config(
        "DeepseekV3ForCausalLM", "deepseek_v3", n_routed_experts=4, n_shared_experts=1,
        moe_intermediate_size=16, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16,
        qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, n_group=1, topk_group=1,
        num_experts_per_tok=2, num_key_value_heads=4),
    # As transformers saves it: without the names that only vLLM reads.
    "hy_v3": _config("HYV3ForCausalLM", "hy_v3", head_dim=8, num_shared_experts=1,
                     mlp_layer_types=["dense", "sparse"], router_scaling_factor=2.826,
                     enable_moe_fp32_combine=False, **_MOE),
    "glm4_moe": _config("Glm4MoeForCausalLM", "glm4_moe", head_dim=8, attention_bias=True,
                        use_qk_norm=True, n_routed_experts=4, n_shared_experts=1, n_group=1,
                        topk_group=1, moe_intermediate_size=16, num_experts_per_tok=2,
                        first_k_dense_replace=1),
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": {k: v for k, v in _BASE.items() if k != "tie_word_embeddings"}
        | {"model_type": "gemma3_text", "head_dim": 8, "sliding_window": 16},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 16,
                          "intermediate_size": 24, "num_hidden_layers": 1, "image_size": 28,
                          "num_attention_heads": 2, "patch_size": 14},
        "mm_tokens_per_image": 4, "image_token_index": 60, "boi_token_index": 61,
        "eoi_token_index": 62,
    },
}  # fmt: skip

Tensors = dict[str, tuple[str, list[int]]]
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1, "I16": 2, "F8_E4M3": 1}


class Model(NamedTuple):
    """A model in memory, before it is written: config, headers, and files to write as they are."""

    config: dict[str, Any]
    tensors: Tensors
    draw: random.Random

    def text(self) -> dict[str, Any]:
        found: dict[str, Any] = self.config.get("text_config", self.config)
        return found

    def pick(self, *parts: str) -> list[str]:
        """The tensors of the language model with one of `parts` in their name, in a fixed order."""
        names = sorted(name for name in self.tensors if "vision" not in name)
        return [name for name in names if any(part in name for part in parts)]


def read_model(folder: Path, seed: int) -> Model:
    header, fault = read_shard(folder / SINGLE)
    assert fault is None
    tensors = {name: (entry["dtype"], list(entry["shape"])) for name, entry in header.items()}
    return Model(
        json.loads((folder / "config.json").read_text(encoding="utf-8")),
        tensors,
        random.Random(seed),
    )


def write_shard(path: Path, tensors: Tensors) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for axis in shape:
            size *= axis
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(place))


def write_model(model: Model, folder: Path) -> None:
    """Two shards, an index, a tokenizer with a chat template."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    names = list(model.tensors)
    half = len(names) // 2
    table, total = {}, 0
    for number, part in enumerate((names[:half], names[half:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        write_shard(folder / file, {name: model.tensors[name] for name in part})
        table |= dict.fromkeys(part, file)
        length = struct.unpack("<Q", (folder / file).read_bytes()[:8])[0]
        total += (folder / file).stat().st_size - 8 - length
    index = {"metadata": {"total_size": total}, "weight_map": table}
    (folder / INDEX).write_text(json.dumps(index))
    _tokenizer(folder, 60)


def _tokenizer(folder: Path, size: int) -> None:
    vocab = {f"t{number}": number for number in range(size)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))


def _drop(*parts: str, place: int = -1) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        names = model.pick(*parts)
        if names:
            del model.tensors[names[place]]

    return damage


def _drop_layer(number: str) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        for name in model.pick(f"layers.{number}."):
            del model.tensors[name]

    return damage


def _reshape(*parts: str, axis: int = 0, by: float = 2) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        for name in model.pick(*parts)[-1:]:
            dtype, shape = model.tensors[name]
            shape[axis if axis < len(shape) else 0] = max(
                1, int(shape[axis if axis < len(shape) else 0] * by)
            )
            model.tensors[name] = (dtype, shape)

    return damage


def _swap(first: str, second: str) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        one, two = model.pick(first)[-1:], model.pick(second)[-1:]
        if one and two:
            a, b = one[0], two[0]
            model.tensors[a], model.tensors[b] = model.tensors[b], model.tensors[a]

    return damage


def _rename(old: str, new: str) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        for name in model.pick(old):
            model.tensors[name.replace(old, new)] = model.tensors.pop(name)

    return damage


def _surplus_layer(model: Model) -> None:
    for name in model.pick("layers.1."):
        model.tensors[name.replace("layers.1.", "layers.2.")] = model.tensors[name]


def _random_drop(model: Model) -> None:
    del model.tensors[model.draw.choice(model.pick("layers."))]


def _random_longer(model: Model) -> None:
    name = model.draw.choice(model.pick("layers."))
    model.tensors[name][1][0] += 1


def _random_transpose(model: Model) -> None:
    name = model.draw.choice(
        [n for n in model.pick("mlp", "experts") if len(model.tensors[n][1]) == 2]
    )
    dtype, shape = model.tensors[name]
    model.tensors[name] = (dtype, shape[::-1])


def _set(key: str, change: Callable[[Any], Any]) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        if key in model.text():
            model.text()[key] = change(model.text()[key])

    return damage


def _tie(value: bool) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        model.config["tie_word_embeddings"] = value

    return damage


def _layers(change: int) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        text = model.text()
        text["num_hidden_layers"] += change
        for key in ("layer_types", "mlp_layer_types"):
            if isinstance(text.get(key), list):
                text[key] = (text[key] + text[key][-1:])[: text["num_hidden_layers"]]

    return damage


def _types(dtype: str, *parts: str) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        for name in model.pick(*parts):
            model.tensors[name] = (dtype, model.tensors[name][1])

    return damage


def _add(name: str, *shape: int) -> Callable[[Model], None]:
    def damage(model: Model) -> None:
        model.tensors[name] = ("BF16", list(shape))

    return damage


# What happens to the tensors and the config, before the files are written.
CONTENT: dict[str, Callable[[Model], None]] = {
    "absent: head": _drop("lm_head"),
    "absent: embedding": _drop("embed_tokens"),
    "absent: final norm": _drop("model.norm.weight"),
    "absent: first k_proj": _drop("k_proj", "qkv_proj", "kv_a_proj", place=0),
    "absent: last k_proj": _drop("k_proj", "qkv_proj", "kv_b_proj"),
    "absent: q_proj": _drop("q_proj", "q_a_proj"),
    "absent: o_proj": _drop("o_proj"),
    "absent: gate of an MLP": _drop("gate_proj", "gate_up_proj", ".w1."),
    "absent: down of an MLP": _drop("down_proj", ".w2."),
    "absent: input norm": _drop("input_layernorm"),
    "absent: second norm": _drop("post_attention_layernorm"),
    "absent: norm of the attention": _drop("q_norm", "kv_a_layernorm"),
    "absent: router": _drop("router.gate", "mlp.gate.weight", "block_sparse_moe.gate"),
    "absent: bias": _drop("bias"),
    "absent: one expert": _drop("experts.3"),
    "absent: first layer": _drop_layer("0"),
    "absent: last layer": _drop_layer("1"),
    "absent: any": _random_drop,
    "shape: MLP wider": _reshape("up_proj", ".w3."),
    "shape: MLP narrower": _reshape("down_proj", ".w2.", axis=1, by=0.5),
    "shape: final norm": _reshape("model.norm.weight"),
    "shape: norm of a layer": _reshape("input_layernorm", by=0.5),
    "shape: heads": _reshape("q_proj", "q_b_proj", "qkv_proj"),
    "shape: key heads": _reshape("k_proj", "kv_b_proj", "qkv_proj", by=0.5),
    "shape: embedding rows": _reshape("embed_tokens", by=1.25),
    "shape: embedding width": _reshape("embed_tokens", axis=1),
    "shape: head rows": _reshape("lm_head", by=0.5),
    "shape: router": _reshape("router.gate", "mlp.gate.weight", "block_sparse_moe.gate"),
    "shape: one longer": _random_longer,
    "shape: one transposed": _random_transpose,
    "names: q and down": _swap("q_proj", "down_proj"),
    "names: norm and embedding": _swap("model.norm.weight", "embed_tokens"),
    "names: up and down": _swap("up_proj", "down_proj"),
    "names: prefix": _rename("model.layers", "module.layers"),
    "names: adapter": _rename("self_attn.o_proj.weight", "self_attn.o_proj.base_layer.weight"),
    "surplus: a layer": _surplus_layer,
    "surplus: a value head": _add("v_head.weight", 1, 32),
    "config: one layer more": _layers(1),
    "config: one layer fewer": _layers(-1),
    "config: hidden size": _set("hidden_size", lambda value: value * 2),
    "config: vocabulary": _set("vocab_size", lambda value: value + 8),
    "config: width of the MLP": _set("intermediate_size", lambda value: value + 16),
    "config: key heads": _set("num_key_value_heads", lambda value: max(1, value // 2)),
    "config: tied": _tie(True),
    "config: untied": _tie(False),
    "types: integers": _types("I8", "mlp", "experts"),
    "types: 8 bits without scale": _types("F8_E4M3", "layers."),
}  # fmt: skip


def _stale(folder: Path) -> None:
    write_shard(folder / SINGLE, {"model.embed_tokens.weight": ("BF16", [64, 32])})


def _large_tokenizer(folder: Path) -> None:
    _tokenizer(folder, 65)


def _cut(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def _lost(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()


def _no_template(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")


# What happens to the files, after a whole model was written.
FILES: dict[str, Callable[[Path], None]] = {
    "files: stale single file": _stale,
    "files: tokenizer too large": _large_tokenizer,
    "files: no chat template": _no_template,
    "files: shard cut": _cut,
    "files: shard missing": _lost,
}
# Found by the check alone: transformers loads these without a word.
OURS = {"files: tokenizer too large", "files: no chat template", "types: integers",
        "types: 8 bits without scale"}  # fmt: skip


def damaged(whole: Path, kind: str, folder: Path, seed: int) -> bool:
    """Write the model of `whole` with damage `kind`; False when it has nothing to damage so."""
    model = read_model(whole, seed)
    before = json.dumps([model.config, model.tensors])
    if kind in CONTENT:
        CONTENT[kind](model)
        if json.dumps([model.config, model.tensors]) == before:
            return False
    write_model(model, folder)
    if kind in FILES:
        FILES[kind](folder)
    return True


def kinds() -> Iterator[str]:
    yield from CONTENT
    yield from FILES
