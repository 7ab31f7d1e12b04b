"""Names and shapes of the tensors of some architectures, for machines without transformers.

families.toml says what a class has; here is what follows for the tensors of a config, in the names
that are saved to files. A config that does not state a size which the table needs has no table: a
default would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprise.models.families import Family, Sparse, Tensors, families

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

    def __init__(self, config: Mapping[str, Any], derived: bool) -> None:
        self.config = config
        self.derived = derived

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
        """head_dim; where it may be derived, else hidden_size / heads."""
        if not self.derived or self.config.get("head_dim") is not None:
            return self("head_dim")
        return self("hidden_size") // self("num_attention_heads")

    def flag(self, name: str) -> bool:
        """A switch that is off where it is not stated."""
        return self.config.get(name) is True


def _attention(size: _Sizes, biases: str, norms: bool) -> Shapes:
    """Separate q, k, v and o; `biases` has the letters of the projections with a bias."""
    hidden, head = size("hidden_size"), size.head()
    q, kv = size("num_attention_heads") * head, size("num_key_value_heads") * head
    found: Shapes = {
        "self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, q),
    }  # fmt: skip
    for letter in biases:
        name = f"self_attn.{letter}_proj"
        found[f"{name}.bias"] = found[f"{name}.weight"][:1]
    if norms:
        found |= dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (head,))
    return found


def _fused_attention(size: _Sizes, _: str, __: bool) -> Shapes:
    """q, k and v in one projection."""
    hidden, head = size("hidden_size"), size.head()
    q, kv = size("num_attention_heads") * head, size("num_key_value_heads") * head
    return {
        "self_attn.qkv_proj.weight": (q + 2 * kv, hidden), "self_attn.o_proj.weight": (hidden, q),
    }  # fmt: skip


def _latent_attention(size: _Sizes, _: str, __: bool) -> Shapes:
    """Keys and values (and queries, where the config says so) through a narrow projection."""
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    nope, rope, value = size("qk_nope_head_dim"), size("qk_rope_head_dim"), size("v_head_dim")
    rank = size("kv_lora_rank")
    found: Shapes = {
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_b_proj.weight": (heads * (nope + value), rank),
        "self_attn.o_proj.weight": (hidden, heads * value),
    }
    if size.flag("attention_bias"):
        raise KeyError("attention_bias")
    if "q_lora_rank" not in size.config:
        raise KeyError("q_lora_rank")
    if size.config["q_lora_rank"] is None:
        return found | {"self_attn.q_proj.weight": (heads * (nope + rope), hidden)}
    low = size("q_lora_rank")
    return found | {
        "self_attn.q_a_proj.weight": (low, hidden), "self_attn.q_a_layernorm.weight": (low,),
        "self_attn.q_b_proj.weight": (heads * (nope + rope), low),
    }  # fmt: skip


_ATTENTION: Mapping[str, Callable[[_Sizes, str, bool], Shapes]] = {
    "separate": _attention,
    "fused": _fused_attention,
    "latent": _latent_attention,
}
_GATED = ("gate_proj", "up_proj", "down_proj")


def _mlp(prefix: str, hidden: int, width: int, names: Sequence[str] = _GATED) -> Shapes:
    gate, up, down = (f"{prefix}.{name}.weight" for name in names)
    return {gate: (width, hidden), up: (width, hidden), down: (hidden, width)}


def _dense(size: _Sizes, tensors: Tensors) -> Shapes:
    hidden, width = size("hidden_size"), size("intermediate_size")
    if tensors.mlp == "fused":
        return {
            "mlp.gate_up_proj.weight": (2 * width, hidden),
            "mlp.down_proj.weight": (hidden, width),
        }
    found = _mlp("mlp", hidden, width)
    if tensors.mlp_bias and size.flag(tensors.mlp_bias):
        found |= {name[:-6] + "bias": shape[:1] for name, shape in found.items()}
    return found


def _is_dense(size: _Sizes, sparse: Sparse, layer: int) -> bool:
    """Whether a layer of a model with experts has a dense MLP."""
    config = size.config
    match sparse.dense_layers:
        case "first_k_dense_replace":
            return layer < size("first_k_dense_replace")
        case "mlp_layer_types":
            kinds = config.get("mlp_layer_types")
            return kinds[layer] == "dense" if isinstance(kinds, list) else layer == 0
        case "listed":
            listed = config.get("mlp_only_layers") or []
            few = layer in listed or not size(*sparse.count)
            return few or bool((layer + 1) % size("decoder_sparse_step"))
        case "none":
            return False


def _experts(size: _Sizes, sparse: Sparse) -> Shapes:
    hidden, experts, width = size("hidden_size"), size(*sparse.count), size(*sparse.width)
    found: Shapes = {sparse.router: (experts, hidden)}
    if sparse.router_bias:
        found[sparse.router_bias] = (experts,)
    if sparse.shared:
        found |= _mlp(sparse.shared, hidden, width * size(sparse.shared_count))
    for place in range(experts):
        found |= _mlp(f"{sparse.experts}.{place}", hidden, width, sparse.projections)
    return found


def _layer(size: _Sizes, known: Family, tensors: Tensors, layer: int) -> Shapes:
    biases, norms = known.biases(size.config), known.has_qk_norm(size.config)
    found = _ATTENTION[tensors.attention](size, biases, norms)
    found |= {f"{name}.weight": (size("hidden_size"),) for name in tensors.norms}
    sparse = tensors.sparse
    if sparse is None or _is_dense(size, sparse, layer):
        return found | _dense(size, tensors)
    return found | _experts(size, sparse)


def _of_class(name: str) -> tuple[Family, Tensors] | None:
    for known in families().values():
        if known.tensors is not None and known.tensors.class_name == name:
            return known, known.tensors
    return None


def expected_tensors(config: Mapping[str, Any]) -> Table | None:
    """The tensors that the class of `config` has; None where no table knows it."""
    names = config.get("architectures")
    found = _of_class(str(names[0]) if isinstance(names, list) and names else "")
    if found is None or config.get("quantization_config"):
        return None
    known, tensors = found
    size = _Sizes(config, derived=tensors.head == "derived")
    try:
        hidden, vocab = size("hidden_size"), size("vocab_size")
        wanted: Shapes = {
            "model.embed_tokens.weight": (vocab, hidden),
            "model.norm.weight": (hidden,),
            "lm_head.weight": (vocab, hidden),
        }
        for number in range(size("num_hidden_layers")):
            layer = _layer(size, known, tensors, number)
            wanted |= {f"model.layers.{number}.{key}": shape for key, shape in layer.items()}
    except (KeyError, TypeError, IndexError, ZeroDivisionError):
        return None
    optional = {"lm_head.weight"} if config.get("tie_word_embeddings", tensors.tied) else set()
    return Table(wanted, frozenset(optional), tensors.ignored)
