"""Trees of verl for the tests: those that the recipes themselves would use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.recipe.config.verltree import VerlTree, find_tree
from reprise.recipe.load import Loaded, load
from reprise.recipe.model import Model
from reprise.recipe.setup import Known, Setup

ROOT = Path(__file__).resolve().parents[2]

HY3 = {"model_type": "hy_v3", "num_attention_heads": 64, "num_key_value_heads": 8,
       "num_hidden_layers": 80, "num_experts": 192, "max_position_embeddings": 262144}  # fmt: skip
QWEN3_8B = {"model_type": "qwen3", "num_attention_heads": 32, "num_key_value_heads": 8,
            "num_hidden_layers": 36, "max_position_embeddings": 40960}  # fmt: skip


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def recipes() -> Path:
    return ROOT / "recipes"


@pytest.fixture(scope="session")
def tree() -> VerlTree:
    """What the Hy3 recipe is composed with: 220e903 when it is checked out, else 0.9.0."""
    return load(ROOT, "hy3").tree


@pytest.fixture(scope="session")
def tree_091() -> VerlTree:
    return find_tree(ROOT, "no-checkout", "0.9.1")


@pytest.fixture(scope="session")
def hy3() -> Loaded:
    return load(ROOT, "hy3")


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as the mapping that Hydra would make of them."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        node = made
        *parents, last = key.split(".")
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    return made


A = "actor_rollout_ref.actor"
M = f"{A}.megatron"
R = "actor_rollout_ref.rollout"


@pytest.fixture
def setup_of(tree: VerlTree) -> Callable[..., Setup]:
    """Settings (dotted) to a Setup; `model` is a config.json, `known` what is known beside."""

    def make(
        settings: Mapping[str, Any], model: Mapping[str, Any] | None = None, **known: Any
    ) -> Setup:
        shape = Model(model, "config.json") if model is not None else None
        return Setup(nested(settings), tree, shape, Known(**known))

    return make
