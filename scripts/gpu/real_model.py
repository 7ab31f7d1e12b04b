#!/usr/bin/env python3
"""A model of true size with random weights, and prompts of true length, made on a GPU.

    python real_model.py OUT --card recipes/qwen3-8b/card.toml [--layers N]

OUT gets config.json (the card's [model.config]), shards of safetensors in bfloat16, a tokenizer of
one token a character filled up to the true vocabulary, train.parquet, and made.json with bytes and
seconds. Nothing is downloaded. An OUT that is complete is left alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import string
import time
import tomllib
from pathlib import Path
from typing import Any

SPECIAL = ("<pad>", "<eos>", "<unk>")
SHARD = 5 * 10**9
PROMPT = 1000
ROWS = 64
FURTHER = {
    "architectures": ["Qwen3ForCausalLM"],
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a dense Qwen3's checkpoint, in its order."""
    hidden, head = config["hidden_size"], config["head_dim"]
    query = config["num_attention_heads"] * head
    key = config["num_key_value_heads"] * head
    wide = config["intermediate_size"]
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        found |= {
            f"{base}.input_layernorm.weight": (hidden,),
            f"{base}.self_attn.q_proj.weight": (query, hidden),
            f"{base}.self_attn.k_proj.weight": (key, hidden),
            f"{base}.self_attn.v_proj.weight": (key, hidden),
            f"{base}.self_attn.o_proj.weight": (hidden, query),
            f"{base}.self_attn.q_norm.weight": (head,),
            f"{base}.self_attn.k_norm.weight": (head,),
            f"{base}.post_attention_layernorm.weight": (hidden,),
            f"{base}.mlp.gate_proj.weight": (wide, hidden),
            f"{base}.mlp.up_proj.weight": (wide, hidden),
            f"{base}.mlp.down_proj.weight": (hidden, wide),
        }
    found["model.norm.weight"] = (hidden,)
    found["lm_head.weight"] = (config["vocab_size"], hidden)
    return found


def write_weights(out: Path, config: dict[str, Any], device: str) -> int:
    """Random weights, norms of one; the bytes written."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator(device=device).manual_seed(0)
    groups: list[dict[str, tuple[int, ...]]] = [{}]
    held = total = 0
    for name, shape in shapes(config).items():
        size = 2 * torch.Size(shape).numel()
        if held and held + size > SHARD:
            groups.append({})
            held = 0
        groups[-1][name] = shape
        held += size
        total += size
    index = {}
    for number, group in enumerate(groups, start=1):
        file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        tensors = {}
        for name, shape in group.items():
            index[name] = file
            tensor = torch.ones(shape, dtype=torch.bfloat16, device=device)
            if len(shape) > 1:
                tensor.normal_(0.0, config["initializer_range"], generator=generator)
            tensors[name] = tensor
        save_file(tensors, str(out / file), metadata={"format": "pt"})
        del tensors
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
    (out / "model.safetensors.index.json").write_text(text)
    return total


def write_tokenizer(out: Path, size: int) -> None:
    """One token a character, filled up to the true vocabulary."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = [*SPECIAL, *string.digits, *string.ascii_letters, *" +-*/=?.,:\n"]
    vocabulary = {word: index for index, word in enumerate(words)}
    for index in range(len(vocabulary), size):
        vocabulary[f"<t{index}>"] = index
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[2]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        unk_token=SPECIAL[2],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    made.chat_template = TEMPLATE
    made.save_pretrained(out)


def write_prompts(out: Path) -> None:
    """Rows as verl reads them: sums, until the prompt has its length."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for row in range(ROWS):
        text = ""
        number = row
        while len(text) < PROMPT:
            text += f"{number}+{7 * number + row}, "
            number += 1
        rows.append(
            {
                "data_source": "reprise/arithmetic",
                "prompt": [{"role": "user", "content": text[:PROMPT]}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(row)},
                "extra_info": {"index": row, "split": "train"},
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), out / "train.parquet")


def main() -> None:
    """Make it in a folder beside OUT and rename that."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--card", type=Path, required=True)
    parser.add_argument("--layers", type=int, help="fewer layers than the card says")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if (options.out / "made.json").is_file():
        print(f"{options.out}: complete")
        return
    started = time.monotonic()
    config = {**tomllib.loads(options.card.read_text(encoding="utf-8"))["model"]["config"]}
    config |= FURTHER
    if options.layers:
        config["num_hidden_layers"] = options.layers
    part = options.out.with_name(options.out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (part / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (part / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "pad_token_id": 0}))
    write_tokenizer(part, config["vocab_size"])
    write_prompts(part)
    total = write_weights(part, config, options.device)
    made = {"bytes": total, "seconds": round(time.monotonic() - started, 1)}
    (part / "made.json").write_text(json.dumps(made) + "\n")
    part.rename(options.out)
    print(json.dumps(made))


if __name__ == "__main__":
    main()
