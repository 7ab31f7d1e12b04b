"""Facts of the families of models, by `model_type`: families.toml says them, code asks for them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Family", "Readers", "Sparse", "Tensors", "families", "family"]

_ALWAYS = "always"


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sparse(_Facts):
    """The tensors of a layer with experts; `projections` are gate, up and down of an expert."""

    dense_layers: Literal["none", "listed", "first_k_dense_replace", "mlp_layer_types"]
    router: str
    router_bias: str = ""
    experts: str
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    count: tuple[str, ...]
    width: tuple[str, ...]
    shared: str = ""
    shared_count: str = ""


class Tensors(_Facts):
    """How the tensors of a class are named in files, and what their shapes follow from."""

    class_name: str
    attention: Literal["separate", "fused", "latent"] = "separate"
    mlp: Literal["separate", "fused"] = "separate"
    head: Literal["stated", "derived"] = "stated"
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    mlp_bias: str = ""
    tied: bool = False
    ignored: str = ""
    sparse: Sparse | None = None


class Readers(_Facts):
    """Keys of one config.json that transformers and vLLM name differently."""

    expert_width: tuple[str, str]
    default_width: int
    dense_kinds: str
    dense_count: str
    default_dense: int
    factor: str
    built_in: tuple[str, ...]
    unlike: str


class Family(_Facts):
    """What is known of one family; the head of families.toml explains each key."""

    counted: bool = False
    qk_norm: str = ""
    bias: str = ""
    biased: str = ""
    first_dense: int | None = None
    sinks: bool = False
    converted: bool = False
    experts: Literal["packed", "own"] = "packed"
    sglang_drops: bool = False
    tensors: Tensors | None = None
    readers: Readers | None = None

    def has_qk_norm(self, config: Mapping[str, Any]) -> bool:
        """Whether q and k have norms in a model of this config."""
        return _holds(self.qk_norm, config)

    def biases(self, config: Mapping[str, Any]) -> str:
        """The letters of the projections (q, k, v, o) with a bias in a model of this config."""
        return self.biased if _holds(self.bias, config) else ""


def _holds(switch: str, config: Mapping[str, Any]) -> bool:
    return switch == _ALWAYS or (bool(switch) and config.get(switch) is True)


@cache
def families() -> Mapping[str, Family]:
    """All families, by `model_type`."""
    text = resources.files("reprise.models").joinpath("families.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    for table in found.values():
        if "tensors" in table:  # `class` is a word of Python
            table["tensors"]["class_name"] = table["tensors"].pop("class")
    return {name: Family(**table) for name, table in found.items()}


def family(config: Mapping[str, Any]) -> Family:
    """The family of a config.json; one without facts where `model_type` is unknown or missing."""
    return families().get(str(config.get("model_type", "")), Family())
