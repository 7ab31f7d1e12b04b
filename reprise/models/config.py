"""What transformers and vLLM make of one config.json: the two read hy_v3 by different names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprise.core.findings import Severity

__all__ = ["ConfigFault", "config_faults"]


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """A disagreement about the config: its severity, message and fix."""

    severity: Severity
    message: str
    fix: str


def config_faults(
    config: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]] | None = None,
    layers: Sequence[int] = (),
) -> list[ConfigFault]:
    """Everything in which config, weights and the two readers disagree.

    `shapes` are the embedding's and head's, `layers` the layer numbers found in tensor names.
    """
    found = _against_weights(config, shapes or {}, layers)
    if not config.get("model_type"):
        found.append(_error("model_type is missing", "restore the published config.json"))
    if config.get("model_type") == "hy_v3":
        found += _hy_v3(config)
    return found


def _error(message: str, fix: str) -> ConfigFault:
    return ConfigFault(Severity.ERROR, message, fix)


def _against_weights(
    config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], layers: Sequence[int]
) -> list[ConfigFault]:
    found = []
    for name, shape in shapes.items():
        wanted = [config.get("vocab_size"), config.get("hidden_size")]
        if name.endswith(("embed_tokens.weight", "lm_head.weight")) and list(shape) != wanted:
            text = f"{name} has shape {list(shape)}, vocab_size x hidden_size is {wanted}"
            found.append(_error(text, "weights and config.json are of different models"))
    count = config.get("num_hidden_layers")
    if isinstance(count, int) and layers:
        missing = sorted(set(range(count)) - set(layers))
        if missing:
            text = f"layers without any tensor: {missing[:8]} of {count}"
            found.append(_error(text, "fetch the weights again: reprise model fetch NAME"))
    return found


# Keys that only vLLM's class reads, and that transformers' class has built in as true
# (transformers 5.6 modeling_hy_v3.py; vLLM 0.23 to 0.27 transformers_utils/configs/hy_v3.py).
_BUILT_IN = ("qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias")


def _hy_v3(config: Mapping[str, Any]) -> list[ConfigFault]:
    """The two vocabularies of hy_v3: sizes and switches that one of the readers misses."""
    found = []
    expert = {
        "transformers": ("moe_intermediate_size", config.get("moe_intermediate_size", 1536)),
        "vLLM": ("expert_hidden_dim", config.get("expert_hidden_dim", 1536)),
    }
    if expert["transformers"][1] != expert["vLLM"][1]:
        found.append(_differs("the width of an expert", expert))
    dense = {
        "transformers": ("mlp_layer_types", _dense_layers(config)),
        "vLLM": ("first_k_dense_replace", config.get("first_k_dense_replace", 1)),
    }
    if dense["transformers"][1] != dense["vLLM"][1]:
        found.append(_differs("the number of dense layers before the sparse ones", dense))
    if config.get("router_scaling_factor") is None:
        found.append(
            _error(
                "router_scaling_factor is missing: transformers takes 2.826, vLLM none",
                "write the model's router_scaling_factor into config.json",
            )
        )
    for key in _BUILT_IN:
        if config.get(key) is False:
            text = f"{key} is false: vLLM obeys, transformers (and training) does not know the key"
            found.append(_error(text, f"remove {key} or set it to true"))
    if "enable_moe_fp32_combine" not in config:
        found.append(
            ConfigFault(
                Severity.WARNING,
                "enable_moe_fp32_combine is missing: true in transformers, false in vLLM",
                "state it, so that rollout and training round alike",
            )
        )
    return found


def _differs(what: str, readers: Mapping[str, tuple[str, object]]) -> ConfigFault:
    told = " and ".join(f"{value} to {who} ({key})" for who, (key, value) in readers.items())
    keys = " and ".join(key for key, _ in readers.values())
    return _error(f"{what} is {told}", f"write both {keys} into config.json, saying the same")


def _dense_layers(config: Mapping[str, Any]) -> int | str:
    """How many leading layers transformers makes dense; words when the pattern is another one."""
    kinds = config.get("mlp_layer_types")
    if not isinstance(kinds, list):
        return 1
    count = next((place for place, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    return count if "dense" not in kinds[count:] else "a pattern that is not dense layers first"
