"""The shape of a decoder as its Hugging Face config.json states it, and its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.models.families import Family, families, family

__all__ = ["Model", "Parameters", "model_from_file"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts by part; `active` are those that one token uses."""

    embedding: int
    head: int
    attention_layer: int
    dense_mlp: int
    expert: int
    router_layer: int
    shared_layer: int
    norms_layer: int
    final_norm: int
    dense_layers: int
    sparse_layers: int
    experts: int
    experts_per_token: int

    @property
    def layers(self) -> int:
        """The number of decoder layers."""
        return self.dense_layers + self.sparse_layers

    @property
    def routed(self) -> int:
        """All routed experts of all layers."""
        return self.sparse_layers * self.experts * self.expert

    @property
    def total(self) -> int:
        """Every trainable parameter of the causal language model (no MTP layers)."""
        return (
            self.embedding
            + self.head
            + self.final_norm
            + self.routed
            + self.layers * (self.attention_layer + self.norms_layer)
            + self.dense_layers * self.dense_mlp
            + self.sparse_layers * (self.router_layer + self.shared_layer)
        )

    @property
    def active(self) -> int:
        """Parameters that one token uses: all but the routed experts it is not sent to."""
        idle = self.experts - self.experts_per_token
        return self.total - self.sparse_layers * idle * self.expert


class Model:
    """Reads a Hugging Face config; a missing field is None, never guessed."""

    def __init__(self, config: Mapping[str, Any], origin: str) -> None:
        self.config = dict(config)
        self.origin = origin

    def _int(self, *names: str) -> int | None:
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def family(self) -> str:
        """The `model_type`; empty when not stated."""
        return str(self.config.get("model_type", ""))

    @property
    def known(self) -> Family:
        """What families.toml says of the family; nothing for an unknown one."""
        return family(self.config)

    @property
    def layers(self) -> int | None:
        """Decoder layers, without multi-token-prediction layers."""
        return self._int("num_hidden_layers")

    @property
    def hidden(self) -> int | None:
        """Width of the residual stream."""
        return self._int("hidden_size")

    @property
    def heads(self) -> int | None:
        """Query heads."""
        return self._int("num_attention_heads")

    @property
    def kv_heads(self) -> int | None:
        """Key and value heads; all heads when the config does not say."""
        return self._int("num_key_value_heads") or self.heads

    @property
    def head_dim(self) -> int | None:
        """Width of one head."""
        stated = self._int("head_dim")
        if stated is None and self.hidden and self.heads:
            return self.hidden // self.heads
        return stated

    @property
    def experts(self) -> int | None:
        """Routed experts of a sparse layer; 0 for a dense model that states its family."""
        stated = self._int("num_experts", "num_local_experts", "n_routed_experts")
        if stated is None and self.family and "moe" not in self.family:
            return 0
        return stated

    @property
    def max_positions(self) -> int | None:
        """Context length of the model, in tokens."""
        return self._int("max_position_embeddings")

    @property
    def vocab(self) -> int | None:
        """Rows of the embedding."""
        return self._int("vocab_size")

    def dense_layers(self) -> int:
        """How many layers have a dense MLP."""
        layers = self.layers or 0
        kinds = self.config.get("mlp_layer_types")
        if isinstance(kinds, list):
            return sum(kind == "dense" for kind in kinds)
        if not self.experts:
            return layers
        first = self._int("first_k_dense_replace")
        if first is not None:
            return first
        if self.known.first_dense is not None:
            return min(self.known.first_dense, layers)
        only = self.config.get("mlp_only_layers") or []
        return len(only)

    def _shape(self) -> dict[str, int | None]:
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
        }

    def _widths(self) -> dict[str, int | None]:
        """Sizes of the MLPs that the model has; a missing one is not 0."""
        if self.experts is None:
            return {"num_experts": None}
        sparse = self.experts > 0
        dense = self.dense_layers() if sparse else self.layers or 0
        widths = {"intermediate_size": self._int("intermediate_size")} if dense else {}
        if sparse:
            widths["moe_intermediate_size"] = self._int("moe_intermediate_size")
            widths["num_experts_per_tok"] = self._int("num_experts_per_tok")
        return widths

    def lacks(self) -> str:
        """Why the parameters cannot be counted; empty when they can."""
        if not self.known.counted:
            counted = ", ".join(sorted(name for name, known in families().items() if known.counted))
            return f"model_type is {self.family!r}; expected one of {counted}"
        needed = self._shape() | self._widths()
        lacking = [name for name, value in needed.items() if value is None or value < 1]
        return f"expected a positive integer for {', '.join(lacking)}" if lacking else ""

    def parameters(self) -> Parameters | None:
        """Counts by part, equal to those of the transformers class; None for unknown families.

        Confirmed against transformers 5.6.0 (tests/recipe) for the families that it counts.
        """
        if self.lacks():
            return None
        layers, hidden, heads, kv_heads, head_dim, vocab = (
            value or 0 for value in self._shape().values()
        )
        experts = self.experts or 0
        dense = self.dense_layers()
        query, key = heads * head_dim, kv_heads * head_dim
        attention = hidden * query * 2 + hidden * key * 2
        widths = {"q": query, "k": key, "v": key, "o": hidden}
        attention += sum(widths[letter] for letter in self.known.biases(self.config))
        norms = 2 * hidden + (2 * head_dim if self.known.has_qk_norm(self.config) else 0)
        expert_width = self._int("moe_intermediate_size") or 0
        shared = self._int("num_shared_experts", "n_shared_experts") or 0
        return Parameters(
            embedding=vocab * hidden,
            head=0 if self.config.get("tie_word_embeddings") else vocab * hidden,
            attention_layer=attention,
            dense_mlp=3 * hidden * (self._int("intermediate_size") or 0),
            expert=3 * hidden * expert_width,
            router_layer=hidden * experts,
            shared_layer=3 * hidden * expert_width * shared,
            norms_layer=norms,
            final_norm=hidden,
            dense_layers=dense,
            sparse_layers=layers - dense,
            experts=experts,
            experts_per_token=self._int("num_experts_per_tok") or 0,
        )


def model_from_file(path: Path) -> Model:
    """The model of a config.json, or of the folder that holds one.

    Raises OperatorError when the file is missing or not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OperatorError("recipe-model-config.not-readable", str(file), reason=error) from error
    if not isinstance(config, dict):
        raise OperatorError("recipe-model-config.not-an-object", str(file))
    return Model(config, str(file))
