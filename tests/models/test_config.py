"""The two vocabularies of hy_v3, each rule on both sides of its edge; and the real readers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reprise.core.findings import Severity
from reprise.models.config import config_faults

from .weights import CONFIG

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"


def faults(**changes: Any) -> list[str]:
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    return [item.message for item in config_faults(config) if item.severity is Severity.ERROR]


def test_a_config_in_both_vocabularies_is_fine() -> None:
    assert config_faults(CONFIG) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_hidden_dim": 8}, "the width of an expert is 4 in transformers"),
        ({"moe_intermediate_size": 8}, "the width of an expert is 8 in transformers"),
        ({"first_k_dense_replace": 2}, "the number of dense layers"),
        ({"mlp_layer_types": ["dense", "dense", "sparse"]}, "the number of dense layers"),
        ({"mlp_layer_types": ["sparse", "dense"]}, "a pattern that is not dense layers first"),
        ({"router_scaling_factor": None}, "router_scaling_factor is missing"),
        ({"qk_norm": False}, "qk_norm is false"),
        ({"route_norm": False}, "route_norm is false"),
        ({"model_type": None}, "model_type is missing"),
    ],
)
def test_disagreements(changes: dict[str, Any], words: str) -> None:
    assert any(words in message for message in faults(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"mlp_layer_types": ["dense", "sparse"]},
        {"expert_hidden_dim": None, "moe_intermediate_size": None},
        {"qk_norm": True},
        {"first_k_dense_replace": None},
    ],
)
def test_agreements(changes: dict[str, Any]) -> None:
    assert faults(**changes) == []


def test_a_missing_switch_is_a_warning() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "enable_moe_fp32_combine"}
    (fault,) = config_faults(config)
    assert fault.severity is Severity.WARNING


def test_the_width_that_transformers_does_not_save_is_a_warning() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "expert_hidden_dim"}
    (fault,) = config_faults(config)
    assert fault.severity is Severity.WARNING
    assert "width 1536" in fault.message


def layers(*numbers: int) -> dict[str, Any]:
    return {f"model.layers.{number}.input_layernorm.weight": ["BF16", [2]] for number in numbers}


def test_config_against_weights() -> None:
    embedding = {"model.embed_tokens.weight": ["BF16", [9, 2]]}
    (fault,) = config_faults(CONFIG, embedding | layers(0, 1))
    assert "[9, 2]" in fault.message
    (fault,) = config_faults(CONFIG, layers(0))
    assert "without tensors: 1 (of 2)" in fault.message


def test_a_nested_config_of_a_model_with_images() -> None:
    """gemma3: sizes in text_config, some of them left out; layers of a vision tower."""
    config = {"model_type": "gemma3", "text_config": {"hidden_size": 2, "num_hidden_layers": 1}}
    tensors = {
        "language_model.model.embed_tokens.weight": ["BF16", [9, 2]],
        "language_model.model.layers.0.input_layernorm.weight": ["BF16", [2]],
        "vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight": ["BF16", [5, 5]],
    }
    assert config_faults(config, tensors) == []
    tensors["language_model.model.embed_tokens.weight"] = ["BF16", [9, 3]]
    assert len(config_faults(config, tensors)) == 1


_READERS = """
import json, sys
from transformers.models.hy_v3 import HYV3Config as A
from vllm.transformers_utils.configs.hy_v3 import HYV3Config as B
given = json.loads(sys.argv[1])
a, b = A(**given), B(**given)
print(json.dumps([a.moe_intermediate_size, b.expert_hidden_dim, a.mlp_layer_types.count("dense"),
                  b.first_k_dense_replace, a.router_scaling_factor, b.router_scaling_factor,
                  a.enable_moe_fp32_combine, b.enable_moe_fp32_combine]))
"""


@pytest.mark.rehearsal
def test_the_real_readers_take_what_the_rules_say() -> None:
    """The defaults that the rules rest on are those of the locked transformers and vLLM."""
    answer = subprocess.run(
        [str(PYTHON), "-c", _READERS, json.dumps({"num_hidden_layers": 3})],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout.splitlines()[-1]) == [
        1536, 1536, 1, 1, 2.826, None, True, False,
    ]  # fmt: skip
