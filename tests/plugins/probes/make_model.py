"""Write a tiny Hy3 model and what transformers computes with it before and after a weight update.

usage: make_model.py FOLDER. FOLDER/model is the checkpoint; update.safetensors the changed weights
under transformers' run-time names; expected.json token sequences and the log-probability of each
token under both sets of weights (float32).
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import HYV3Config, HYV3ForCausalLM

VOCABULARY = 128
SEQUENCES, LENGTH = 8, 20


def log_probabilities(model: HYV3ForCausalLM, tokens: torch.Tensor) -> list[list[float]]:
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[:, :-1].float()
    chosen = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return chosen.tolist()


def main(folder: Path) -> None:
    torch.manual_seed(0)
    config = HYV3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.1,
        num_experts=8,
        num_experts_per_tok=2,
        num_shared_experts=1,
        moe_intermediate_size=64,
        router_scaling_factor=1.5,
        enable_moe_fp32_combine=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        # The same settings under the names that vLLM's HYV3Config has.
        expert_hidden_dim=64,
        first_k_dense_replace=1,
        route_norm=True,
        qk_norm=True,
        moe_router_enable_expert_bias=True,
        moe_router_use_sigmoid=True,
        enable_lm_head_fp32=True,
        dtype="float32",
    )
    config.architectures = ["HYV3ForCausalLM"]
    model = HYV3ForCausalLM(config).float().eval()
    model.save_pretrained(folder / "model")
    tokens = torch.randint(2, VOCABULARY, (SEQUENCES, LENGTH))
    before = log_probabilities(model, tokens)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            # The router's bias decides which experts are chosen: it must change, too.
            tensor.add_(torch.randn_like(tensor) * (0.2 if "bias" in name else 0.05))
    after = log_probabilities(model, tokens)
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "update.safetensors",
    )
    expected = {"tokens": tokens.tolist(), "before": before, "after": after}
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
