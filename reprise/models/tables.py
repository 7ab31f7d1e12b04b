"""Names and shapes of the tensors of some architectures, for machines without transformers.

From transformers 5.6.0, `models/<model_type>/modeling_<model_type>.py` and its conversion mapping,
in the names that are saved to files; a test compares each table with the class itself. A config
that does not state a size which the table needs has no table: a default would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Table", "expected_tensors"]

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Table:
    """`wanted` are all names and shapes; `optional` may be absent (a tied head).

    `ignored` is a pattern of names that the class skips.
    """

    wanted: Mapping[str, tuple[int, ...]]
    optional: frozenset[str] = field(default_factory=frozenset)
    ignored: str = ""

    def ignores(self, name: str) -> bool:
        """Does the class skip a tensor of this name?"""
        return name.endswith("rotary_emb.inv_freq") or bool(
            self.ignored and re.search(self.ignored, name)
        )


class _Sizes:
    """The sizes of a config; a missing one raises KeyError, of another type TypeError."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def __call__(self, *names: str) -> int:
        """The first of `names` that the config has."""
        for name in names:
            value = self.config.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise TypeError(name)
                return value
        raise KeyError(names[0])

    def head(self) -> int:
        """head_dim, else hidden_size / heads (the rule of llama, mistral, mixtral, qwen2)."""
        if self.config.get("head_dim") is not None:
            return self("head_dim")
        return self("hidden_size") // self("num_attention_heads")

    def flag(self, name: str) -> bool:
        """A switch that is off where it is not stated."""
        return self.config.get(name) is True


def _attention(size: _Sizes, head: int, bias: str = "", norms: bool = False) -> Shapes:
    """Separate q, k, v and o; `bias` has the letters of the projections with a bias."""
    hidden, q = size("hidden_size"), size("num_attention_heads") * head
    kv = size("num_key_value_heads") * head
    found: Shapes = {
        "self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, q),
    }  # fmt: skip
    for letter in bias:
        name = f"self_attn.{letter}_proj"
        found[f"{name}.bias"] = found[f"{name}.weight"][:1]
    if norms:
        found |= dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (head,))
    return found


def _mlp(prefix: str, hidden: int, width: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (width, hidden),
        f"{prefix}.up_proj.weight": (width, hidden),
        f"{prefix}.down_proj.weight": (hidden, width),
    }


def _norms(hidden: int, *names: str) -> Shapes:
    return {f"{name}.weight": (hidden,) for name in names}


_TWO = ("input_layernorm", "post_attention_layernorm")


def _llama(size: _Sizes, _: int) -> Shapes:
    bias = "qkvo" if size.flag("attention_bias") else ""
    hidden, width = size("hidden_size"), size("intermediate_size")
    found = _attention(size, size.head(), bias) | _mlp("mlp", hidden, width) | _norms(hidden, *_TWO)
    if size.flag("mlp_bias"):
        found |= {k[:-6] + "bias": v[:1] for k, v in found.items() if k.startswith("mlp.")}
    return found


def _mistral(size: _Sizes, _: int) -> Shapes:
    hidden, width = size("hidden_size"), size("intermediate_size")
    return _attention(size, size.head()) | _mlp("mlp", hidden, width) | _norms(hidden, *_TWO)


def _qwen2(size: _Sizes, _: int) -> Shapes:
    hidden, width = size("hidden_size"), size("intermediate_size")
    return _attention(size, size.head(), "qkv") | _mlp("mlp", hidden, width) | _norms(hidden, *_TWO)


def _qwen3(size: _Sizes, _: int) -> Shapes:
    bias = "qkvo" if size.flag("attention_bias") else ""
    hidden, width = size("hidden_size"), size("intermediate_size")
    attention = _attention(size, size("head_dim"), bias, norms=True)
    return attention | _mlp("mlp", hidden, width) | _norms(hidden, *_TWO)


def _qwen3_moe(size: _Sizes, layer: int) -> Shapes:
    hidden, experts = size("hidden_size"), size("num_experts")
    bias = "qkvo" if size.flag("attention_bias") else ""
    found = _attention(size, size("head_dim"), bias, norms=True) | _norms(hidden, *_TWO)
    dense = size.config.get("mlp_only_layers") or []
    if layer in dense or not experts or (layer + 1) % size("decoder_sparse_step"):
        return found | _mlp("mlp", hidden, size("intermediate_size"))
    found["mlp.gate.weight"] = (experts, hidden)
    for place in range(experts):
        found |= _mlp(f"mlp.experts.{place}", hidden, size("moe_intermediate_size"))
    return found


def _mixtral(size: _Sizes, _: int) -> Shapes:
    hidden, width = size("hidden_size"), size("intermediate_size")
    experts = size("num_local_experts", "num_experts")
    found = _attention(size, size.head()) | _norms(hidden, *_TWO)
    found["block_sparse_moe.gate.weight"] = (experts, hidden)
    for place in range(experts):
        for name, shape in (
            ("w1", (width, hidden)),
            ("w2", (hidden, width)),
            ("w3", (width, hidden)),
        ):
            found[f"block_sparse_moe.experts.{place}.{name}.weight"] = shape
    return found


def _gemma2(size: _Sizes, _: int) -> Shapes:
    hidden, width = size("hidden_size"), size("intermediate_size")
    bias = "qkvo" if size.flag("attention_bias") else ""
    names = (*_TWO, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    found = _attention(size, size("head_dim"), bias)
    return found | _mlp("mlp", hidden, width) | _norms(hidden, *names)


def _phi3(size: _Sizes, _: int) -> Shapes:
    hidden, width, head = size("hidden_size"), size("intermediate_size"), size.head()
    q, kv = size("num_attention_heads") * head, size("num_key_value_heads") * head
    found: Shapes = {
        "self_attn.qkv_proj.weight": (q + 2 * kv, hidden), "self_attn.o_proj.weight": (hidden, q),
        "mlp.gate_up_proj.weight": (2 * width, hidden), "mlp.down_proj.weight": (hidden, width),
    }  # fmt: skip
    return found | _norms(hidden, *_TWO)


def _deepseek_v3(size: _Sizes, layer: int) -> Shapes:
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    nope, rope, value = size("qk_nope_head_dim"), size("qk_rope_head_dim"), size("v_head_dim")
    rank = size("kv_lora_rank")
    found: Shapes = {
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_b_proj.weight": (heads * (nope + value), rank),
        "self_attn.o_proj.weight": (hidden, heads * value),
    } | _norms(hidden, *_TWO)  # fmt: skip
    if size.flag("attention_bias"):
        raise KeyError("attention_bias")
    if "q_lora_rank" not in size.config:
        raise KeyError("q_lora_rank")
    if size.config["q_lora_rank"] is None:
        found["self_attn.q_proj.weight"] = (heads * (nope + rope), hidden)
    else:
        low = size("q_lora_rank")
        found |= {
            "self_attn.q_a_proj.weight": (low, hidden), "self_attn.q_a_layernorm.weight": (low,),
            "self_attn.q_b_proj.weight": (heads * (nope + rope), low),
        }  # fmt: skip
    if layer < size("first_k_dense_replace"):
        return found | _mlp("mlp", hidden, size("intermediate_size"))
    experts, width = size("n_routed_experts"), size("moe_intermediate_size")
    found |= {"mlp.gate.weight": (experts, hidden), "mlp.gate.e_score_correction_bias": (experts,)}
    found |= _mlp("mlp.shared_experts", hidden, width * size("n_shared_experts"))
    for place in range(experts):
        found |= _mlp(f"mlp.experts.{place}", hidden, width)
    return found


def _hy_v3(size: _Sizes, layer: int) -> Shapes:
    hidden = size("hidden_size")
    found = _attention(size, size("head_dim"), norms=True) | _norms(hidden, *_TWO)
    kinds = size.config.get("mlp_layer_types")
    dense = kinds[layer] == "dense" if isinstance(kinds, list) else layer == 0
    if dense:
        return found | _mlp("mlp", hidden, size("intermediate_size"))
    experts, width = size("num_experts"), size("moe_intermediate_size", "expert_hidden_dim")
    found |= {"mlp.router.gate.weight": (experts, hidden), "mlp.expert_bias": (experts,)}
    found |= _mlp("mlp.shared_mlp", hidden, width * size("num_shared_experts"))
    for place in range(experts):
        found |= _mlp(f"mlp.experts.{place}", hidden, width)
    return found


_Layer = Callable[[_Sizes, int], Shapes]
# Per architecture: a layer's tensors, whether the head is tied where the config does not say, and
# the names that the class skips (layers for the prediction of several tokens).
_ARCHITECTURES: Mapping[str, tuple[_Layer, bool, str]] = {
    "LlamaForCausalLM": (_llama, False, ""),
    "MistralForCausalLM": (_mistral, False, ""),
    "Qwen2ForCausalLM": (_qwen2, False, ""),
    "Qwen3ForCausalLM": (_qwen3, False, ""),
    "Qwen3MoeForCausalLM": (_qwen3_moe, False, ""),
    "MixtralForCausalLM": (_mixtral, False, ""),
    "Gemma2ForCausalLM": (_gemma2, True, ""),
    "Phi3ForCausalLM": (_phi3, False, ""),
    "DeepseekV3ForCausalLM": (_deepseek_v3, False, r"^model\.layers\.61\."),
    "HYV3ForCausalLM": (_hy_v3, False, r"^model\.layers\.80\."),
}


def expected_tensors(config: Mapping[str, Any]) -> Table | None:
    """The tensors that the class of `config` has; None where no table knows it."""
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    if name not in _ARCHITECTURES or config.get("quantization_config"):
        return None
    layer_of, tied, ignored = _ARCHITECTURES[name]
    size = _Sizes(config)
    try:
        hidden, vocab = size("hidden_size"), size("vocab_size")
        wanted: Shapes = {
            "model.embed_tokens.weight": (vocab, hidden),
            "model.norm.weight": (hidden,),
            "lm_head.weight": (vocab, hidden),
        }
        for number in range(size("num_hidden_layers")):
            layer = layer_of(size, number)
            wanted |= {f"model.layers.{number}.{key}": shape for key, shape in layer.items()}
    except (KeyError, TypeError, IndexError, ZeroDivisionError):
        return None
    optional = {"lm_head.weight"} if config.get("tie_word_embeddings", tied) else set()
    return Table(wanted, frozenset(optional), ignored)
