"""Parameter formulas against the real classes, and the plan's numbers."""

from __future__ import annotations

import ast
import json
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.core.errors import OperatorError
from reprise.recipe.card import card_of
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import Inputs, load
from reprise.recipe.model import Model, model_from_file
from reprise.recipe.plan.activations import attention_splits
from reprise.recipe.plan.host import machine_memory
from reprise.recipe.plan.memory import (
    GIB,
    checkpoint_bytes,
    host_bytes,
    rollout_memory,
    smallest_rollout_tp,
    training_memory,
)
from reprise.recipe.plan.plan import plan, setup_of
from reprise.recipe.plan.time import MFU, step_compute, update_compute
from reprise.recipe.setup import Setup

# Tiny models of the three families, and the published ones by their own configs.
TINY: dict[str, dict[str, Any]] = {
    "hy_v3": {
        "model_type": "hy_v3", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1,
        "moe_intermediate_size": 32, "tie_word_embeddings": False,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
        "mlp_only_layers": [1], "tie_word_embeddings": False,
    },
    "qwen3": {
        "model_type": "qwen3", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 24, "tie_word_embeddings": True,
    },
    "glm4_moe": {
        "model_type": "glm4_moe", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2,
        "moe_intermediate_size": 40, "first_k_dense_replace": 2, "tie_word_embeddings": False,
        "attention_bias": True, "use_qk_norm": True,
    },
    "llama": {
        "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "attention_bias": True, "tie_word_embeddings": False,
    },
    "qwen2": {
        "model_type": "qwen2", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
BIASED = ("hy_v3", "qwen3", "qwen3_moe")
COUNT = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
answers = {}
for name, config in json.load(sys.stdin).items():
    kind = config.pop("model_type")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config))
    model.tie_weights()
    answers[name] = sum(p.numel() for p in set(model.parameters()))
print(json.dumps(answers))
"""


@pytest.mark.rehearsal
def test_parameters_are_those_of_the_real_classes(root: Path, recipes: Path) -> None:
    configs = dict(TINY)
    # Only the switch of the biases differs.
    configs |= {f"{name} biased": TINY[name] | {"attention_bias": True} for name in BIASED}
    for name in ("hy3", "qwen3-30b-a3b", "qwen3-8b"):
        shape = card_of(recipes, name).model_shape()
        assert shape is not None
        configs[name] = shape.config
    answer = subprocess.run(
        [str(root / ".venv-rehearsal/bin/python"), "-c", COUNT],
        input=json.dumps(configs), capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    real = json.loads(answer.stdout.splitlines()[-1])
    ours = {}
    for name, config in configs.items():
        counts = Model(config, name).parameters()
        assert counts is not None
        ours[name] = counts.total
    assert ours == real


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("hy3", 295.03e9, 20.68e9),
        ("qwen3-30b-a3b", 30.53e9, 3.35e9),
        ("qwen3-8b", 8.19e9, 8.19e9),
    ],
)
def test_published_sizes(recipes: Path, name: str, total: float, active: float) -> None:
    shape = card_of(recipes, name).model_shape()
    counts = shape.parameters() if shape is not None else None
    assert counts is not None
    assert counts.total == pytest.approx(total, rel=1e-3)
    assert counts.active == pytest.approx(active, rel=1e-3)


def test_an_unknown_family_is_not_guessed() -> None:
    assert Model({"model_type": "new", "num_hidden_layers": 2}, "x").parameters() is None
    assert Model({}, "x").experts is None
    assert Model({"model_type": "llama"}, "x").experts == 0


@pytest.mark.parametrize(("memory", "tp"), [(95.6, 16), (140.4, 8), (30, 32), (6, None)])
def test_smallest_rollout_tp_of_hy3(root: Path, memory: float, tp: int | None) -> None:
    assert smallest_rollout_tp(setup_of(load(root, "hy3")), memory) == tp


def test_the_memory_rule_gives_the_smallest_tp(root: Path) -> None:
    from reprise.recipe.check import check

    key = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    loaded = load(root, "hy3", [Line(f"{key}=8")])
    report = check(loaded.composition, loaded.known, loaded.model, root / "recipes")
    found = [f for f in report.errors() if f.rule == "recipe-memory-rollout"]
    assert [f.fix for f in found] == [f"{key}=16"]
    assert "TP 8" in found[0].message


def test_terms_of_hy3(root: Path) -> None:
    setup = setup_of(load(root, "hy3"))
    training = training_memory(setup)
    # The last stages: 5 sparse layers of 24 experts a rank, the head on the last one.
    counts = setup.model.parameters() if setup.model is not None else None
    assert counts is not None
    experts = 5 * 24 * counts.expert
    assert training.terms["weights"] > 2 * experts
    # Through Megatron-Bridge they are summed in bfloat16, as the weights are stored.
    assert training.terms["gradients"] == training.terms["weights"]
    # Expert DP is 1: their optimizer state is not shared out; the rest is, over CP 8.
    assert training.terms["optimizer"] > 12 * experts
    assert training.total < 95.6 * GIB
    rollout, tokens = rollout_memory(setup, 95.6)
    assert rollout.total == pytest.approx(0.65 * 95.6 * GIB, rel=1e-6)
    assert rollout.terms["weights"] == pytest.approx(2 * counts.total / 16, rel=0.02)
    assert tokens > 10240
    assert checkpoint_bytes(setup).total == 14 * counts.total
    assert set(host_bytes(setup).terms) == {"actor weights", "optimizer", "reference weights"}


@pytest.mark.parametrize(
    ("override", "term", "changes"),
    [
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=15360", "activations kept", "less"),
        ("actor_rollout_ref.model.use_fused_kernels=False", "total", "more"),
        ("++actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True",
         "optimizer", "less"),
        ("actor_rollout_ref.actor.megatron.expert_model_parallel_size=4", "weights", "more"),
    ],
)  # fmt: skip
def test_each_advice_moves_its_term(root: Path, override: str, term: str, changes: str) -> None:
    before = plan(load(root, "hy3")).data["training"][term]
    after = plan(load(root, "hy3", [Line(override)])).data["training"][term]
    assert after < before if changes == "less" else after > before


def test_offload_decides_what_the_host_holds(root: Path) -> None:
    node = "actor_rollout_ref.actor.megatron"
    lines = [Line(f"{node}.{what}_offload=False") for what in ("param", "optimizer")]
    data = plan(load(root, "hy3", lines)).data
    assert data["host"] == {"total": 0.0}
    assert "actor weights (not offloaded)" in data["rollout"]


def test_what_does_not_fit_is_said_with_the_advice_in_order(root: Path) -> None:
    report = plan(load(root, "hy3"), gpu_memory=40)
    found = {f.rule: f.fix for f in report.errors()}
    assert set(found) == {"recipe-plan-training", "recipe-plan-rollout"}
    parts = ["ppo_max_token_len_per_gpu", "ppo_micro_batch_size_per_gpu", "log_prob_max_token_len",
             "context_parallel_size"]  # fmt: skip
    places = [found["recipe-plan-training"].index(part) for part in parts]
    assert places == sorted(places)
    assert report.exit_code == 1


def test_disk_and_time(root: Path) -> None:
    data = plan(load(root, "hy3"), throughput=100.0).data
    assert data["disk"]["checkpoint_tb"] == pytest.approx(4.13, abs=0.01)
    assert (data["disk"]["written"], data["disk"]["kept"]) == (10, 2)
    assert data["disk"]["all_tb"] == pytest.approx(41.3, abs=0.1)
    # 20,971,520 tokens at 100 a second and GPU.
    assert data["time"]["gpu_hours_step"] == pytest.approx(20_971_520 / 100 / 3600, abs=0.01)
    assert data["time"]["gpu_hours_run"] == pytest.approx(20_971_520 / 100 / 3600 * 189, rel=1e-3)
    without = plan(load(root, "hy3"))
    assert "gpu_hours_step" not in without.data["time"]
    assert any(f.rule == "recipe-plan-time" for f in without.findings)


def test_fsdp_terms(root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY["hy_v3"]))
    loaded = load(root, "rehearsal", [], Inputs(model_config=tmp_path))
    data = plan(loaded, gpu_memory=8).data
    counts = model_from_file(tmp_path).parameters()
    assert counts is not None
    assert data["parameters"]["total"] == counts.total
    assert data["training"]["optimizer"] == round(8 * counts.total / GIB, 2)


def test_without_a_card_the_hosts_memory_counts(root: Path) -> None:
    loaded = load(root, "rehearsal", [Line("trainer.n_gpus_per_node=2")])
    fine = plan(loaded)
    assert fine.exit_code == 0
    terms = fine.data["training"]
    assert "context and buffers" not in terms and "gpu_memory" not in fine.data
    assert fine.data["host_memory"] == pytest.approx(machine_memory(), abs=0.01)
    (told,) = [f for f in fine.findings if f.rule == "recipe-plan-host"]
    assert "is unknown" in told.message
    # Both ranks lie in one host's memory.
    assert plan(loaded, host_memory=1.5 * terms["total"]).exit_code == 1
    on_card = plan(load(root, "rehearsal", [Line("rehearsal/platform=gpu")]))
    assert [f.fix for f in on_card.findings if f.rule == "recipe-plan-training"] == [
        "--gpu-memory GIB"
    ]


@pytest.mark.parametrize(("text", "gib"), [(f"{GIB}\n", 1.0), ("max\n", None), (None, None)])
def test_a_containers_limit_is_its_memory(
    tmp_path: Path, text: str | None, gib: float | None
) -> None:
    if text is not None:
        (tmp_path / "limit").write_text(text)
    assert machine_memory((tmp_path / "limit",)) == (gib or machine_memory(()))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "model_type is ''"),
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        (
            {"hidden_size": -3, "vocab_size": "x"},
            "expected a positive integer for hidden_size, vocab_size",
        ),
    ],
)
def test_what_a_models_config_lacks_is_named(
    root: Path, tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    whole = TINY["hy_v3"] if "hidden_size" in config else {}
    (tmp_path / "config.json").write_text(json.dumps(whole | config))
    report = plan(load(root, "hy3", [], Inputs(model_config=tmp_path)))
    (told,) = [f for f in report.findings if f.rule == "recipe-plan-model"]
    assert f"{tmp_path / 'config.json'}: {said}" in told.message
    assert report.exit_code == 2


def test_a_model_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OperatorError):
        model_from_file(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(OperatorError, match="JSON object"):
        model_from_file(tmp_path)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "query", "parts"),
    [
        # As the memory of the server on an H200 showed for the first two (docs/gpu.md).
        (8, 1, 1024, 2),
        (12, 1, 1024, 4),
        # A card is filled by enough rows or heads; short keys are never split.
        (16, 2, 1024, 1),
        (8, 1, 2048, 1),
        (8, 1, 512, 1),
    ],
)
def test_attention_is_split_where_its_heads_do_not_fill_a_card(
    heads: int, kv_heads: int, query: int, parts: int
) -> None:
    assert attention_splits(heads, kv_heads, query) == parts


def _verls_counter(tree: VerlTree, name: str) -> Any:
    """A function of verl's own FLOPs counter, taken from its source without its imports."""
    source = tree.source("utils/flops_counter.py")
    assert source is not None
    found = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_estimate")
    ]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(found, []), "flops_counter.py", "exec"), names)
    return names.get(name)


@pytest.mark.parametrize("length", [1024, 32768])
@pytest.mark.parametrize(
    ("recipe", "counter"),
    [
        ("qwen3-8b", "_estimate_qwen2_flops"),
        ("qwen3-30b-a3b", "_estimate_qwen2_moe_flops"),
        ("hy3", "_estimate_hy_v3_flops"),
    ],
)
def test_compute_is_what_verl_counts(
    root: Path, tree: VerlTree, recipe: str, counter: str, length: int
) -> None:
    shape = card_of(root / "recipes", recipe).model_shape()
    theirs = _verls_counter(tree, counter)
    if theirs is None:
        pytest.skip(f"{tree.label()} does not count {recipe}")
    assert shape is not None
    counts = shape.parameters()
    assert counts is not None
    defaults = {"num_shared_experts": 0, "first_k_dense_replace": 0, "head_dim": shape.head_dim}
    config = SimpleNamespace(**(defaults | shape.config))
    values = {
        "data": {"max_prompt_length": 512, "max_response_length": length - 512},
        "actor_rollout_ref": {
            "actor": {"ppo_mini_batch_size": 2, "strategy": "megatron"},
            "rollout": {"n": 2},
        },
    }
    ours = update_compute(Setup(values, tree, shape), shape, counts)
    assert ours.total == pytest.approx(
        theirs(config, 4 * length, [length] * 4, 1.0) * 1e12, rel=5e-4
    )
    assert ours.attention / ours.total > (0.3 if length > 30000 else 0.01)


def test_attention_in_the_plan(root: Path) -> None:
    """Long answers: without the scores the 30B's step would be a third of it."""
    loaded = load(root, "qwen3-30b-a3b")
    setup, shape = setup_of(loaded), loaded.model
    assert shape is not None
    counts = shape.parameters()
    assert counts is not None
    compute = step_compute(setup, shape, counts)
    data = plan(loaded).data["time"]
    assert data["attention_share"] == pytest.approx(compute.attention / compute.total, abs=1e-3)
    tflops = loaded.card.machine.bf16_tflops
    assert tflops is not None
    assert data["training_seconds"] == pytest.approx(
        compute.seconds(setup.world, tflops, MFU), abs=0.1
    )
    half = [Line(f"data.max_response_length={setup.response // 2}")]
    shorter = setup_of(load(root, "qwen3-30b-a3b", half))
    less = step_compute(shorter, shape, counts)
    ratio = setup.length / shorter.length
    assert compute.weights / less.weights == pytest.approx(ratio)
    assert compute.attention / less.attention == pytest.approx(ratio**2)


def test_compute_against_the_gpu(root: Path) -> None:
    """The one size measured on a GPU whose layers are as wide as a real model's (docs/gpu.md)."""
    rows = json.loads((root / "benchmarks/gpu/measured.json").read_text(encoding="utf-8"))[
        "1.8B-megatron"
    ]
    found = {name: row["seconds"] for name, row in rows["variants"].items()}
    shape = Model(
        {"model_type": "hy_v3", "vocab_size": 120832, "hidden_size": 4096,
         "intermediate_size": 13312, "num_hidden_layers": 2, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 128, "num_experts": 24, "num_experts_per_tok": 8,
         "num_shared_experts": 1, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
         "tie_word_embeddings": False}, "1.8B")  # fmt: skip
    counts = shape.parameters()
    assert counts is not None
    assert counts.total == pytest.approx(rows["parameters"], rel=1e-3)
    for variant, again in (("plain", None), ("recompute", "full")):
        values = {
            "data": {"max_prompt_length": 512, "max_response_length": 512},
            "actor_rollout_ref": {
                "actor": {
                    "ppo_mini_batch_size": 2 * rows["tokens"] // 1024,
                    "strategy": "megatron",
                    "megatron": {"override_transformer_config": {"recompute_granularity": again}},
                },
                "rollout": {"n": 1},
            },
        }
        compute = update_compute(Setup(values, None, shape), shape, counts)
        planned = compute.seconds(1, 989, MFU)
        assert math.log2(found[variant] / planned) == pytest.approx(0, abs=0.5), variant
        assert found[variant] > compute.seconds(1, 989), "faster than the GPU's peak"
