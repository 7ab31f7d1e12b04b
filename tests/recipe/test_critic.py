"""PPO's critic: the rules about it, and what it adds to the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.recipe.config.overrides import Line
from reprise.recipe.load import Loaded, load
from reprise.recipe.plan.plan import plan
from reprise.recipe.setup import Known, Setup

from .conftest import ROOT
from .test_rules import LONG, machine, megatron, verdict

PPO = {"algorithm.adv_estimator": "gae"}
BUDGET = "critic.ppo_infer_max_token_len_per_gpu"
ON_CARD = ["critic.megatron.param_offload=False", "critic.megatron.optimizer_offload=False"]


def loaded(recipe: str, *overrides: str) -> Loaded:
    return load(ROOT, recipe, [Line(text) for text in ("algorithms=ppo", *overrides)])


def judged(rule: str, made: Loaded, card: float | None) -> tuple[str, str]:
    known = Known(gpu_memory=card)
    return verdict(rule, Setup(made.composition.values, made.tree, made.model, known))


@pytest.mark.parametrize("recipe", ["hy3", "qwen3-30b-a3b", "qwen3-8b"])
def test_a_recipes_critic_has_the_actors_sizes_and_offload(recipe: str) -> None:
    values = loaded(recipe).composition.values
    actor, critic = values["actor_rollout_ref"]["actor"]["megatron"], values["critic"]["megatron"]
    assert critic == actor
    assert critic["param_offload"] and critic["optimizer_offload"]
    assert values["trainer"]["max_critic_ckpt_to_keep"] == 2


def test_other_algorithms_leave_verls_critic_alone(hy3: Loaded) -> None:
    assert hy3.composition.values["critic"]["megatron"]["pipeline_model_parallel_size"] == 1
    values = load(ROOT, "rehearsal").composition.values
    assert values["critic"]["model"]["_target_"] == "verl.workers.config.HFModelConfig"


def test_the_rehearsals_critic_is_trained_as_its_actor() -> None:
    made = load(ROOT, "rehearsal", [Line("algorithms=ppo")])
    actor, critic = made.composition.values["actor_rollout_ref"], made.composition.values["critic"]
    assert (critic["strategy"], critic["fsdp"]) == ("fsdp2", actor["actor"]["fsdp_config"])
    assert critic["model"]["_target_"] == "reprise_plugins.critic.CriticModel"
    assert critic["model"]["override_config"] == {"attn_implementation": "sdpa"}
    assert critic["model"]["path"] == actor["model"]["path"]


@pytest.mark.parametrize(
    ("sizes", "wanted", "part"),
    [
        ({"pipeline_model_parallel_size": 16, "context_parallel_size": 8}, "ok", ""),
        ({"context_parallel_size": 8}, "error", "pipeline_model_parallel_size=16"),
        ({}, "error", "context_parallel_size=8"),
    ],
)
def test_the_groups_of_one_process(
    setup_of: Callable[..., Setup], sizes: dict[str, int], wanted: str, part: str
) -> None:
    settings = machine(16, 8) | megatron(1, 16, 8, etp=1) | PPO
    settings |= {"critic.megatron.tensor_model_parallel_size": 1}
    settings |= {"critic.megatron.expert_model_parallel_size": 1}
    settings |= {f"critic.megatron.{name}": size for name, size in sizes.items()}
    state, text = verdict("critic-sizes", setup_of(settings))
    assert (state, part in text) == (wanted, True), text


def test_without_a_critic_nothing_is_said(setup_of: Callable[..., Setup]) -> None:
    for rule in ("critic-sizes", "critic-tokens", "critic-memory"):
        state, _ = verdict(rule, setup_of({"algorithm.adv_estimator": "grpo"}))
        assert state == "n/a"
    state, _ = verdict("critic-tokens", setup_of({"critic.enable": False} | PPO))
    assert state == "n/a"


@pytest.mark.parametrize(
    ("settings", "wanted", "part"),
    [
        ({BUDGET: 1280}, "ok", "1280 x CP 8 >= longest sequence 10240"),
        ({BUDGET: 1279}, "error", f"{BUDGET}=1280"),
        ({}, "ok", "32768"),
        ({BUDGET: 1280, "critic.ppo_max_token_len_per_gpu": 1280}, "ok", ""),
        ({BUDGET: 1280, "critic.ppo_max_token_len_per_gpu": 2560}, "warning", "ignored"),
        ({BUDGET: 1280, "critic.ppo_max_token_len_per_gpu": 2560, "trainer.use_v1": False}, "ok",
         ""),
        ({"critic.ppo_max_token_len_per_gpu": 2560}, "warning", f"+{BUDGET}=2560"),
    ],
)  # fmt: skip
def test_the_budget_that_is_read(
    setup_of: Callable[..., Setup], settings: dict[str, Any], wanted: str, part: str
) -> None:
    everything = machine(16, 8) | megatron(1, 16, 8) | LONG | PPO | settings
    state, text = verdict("critic-tokens", setup_of(everything))
    assert (state, part in text) == (wanted, True), text


def test_a_critic_on_the_card(hy3: Loaded) -> None:
    assert judged("critic-memory", loaded("hy3"), 95.6)[0] == "ok"
    state, text = judged("critic-memory", loaded("hy3", *ON_CARD), 95.6)
    assert state == "warning"
    assert "critic.megatron.param_offload=True" in text
    assert judged("critic-memory", loaded("hy3", *ON_CARD), 140.4)[0] == "ok"
    assert judged("critic-memory", loaded("hy3"), None)[0] == "unknown"


def test_the_plan_counts_the_critic(hy3: Loaded) -> None:
    without, offloaded = plan(hy3).data, plan(loaded("hy3")).data
    held = plan(loaded("hy3", *ON_CARD), gpu_memory=140.4).data
    state = sum(without["training"][name] for name in ("weights", "gradients", "optimizer"))
    assert "critic (not offloaded)" not in without["training"]
    assert offloaded["training"]["total"] == without["training"]["total"]
    assert held["training"]["critic (not offloaded)"] == pytest.approx(state, abs=0.05)
    for term in ("weights", "optimizer"):
        actors = without["host"]["optimizer" if term == "optimizer" else "actor weights"]
        assert offloaded["host"][f"critic's {term}"] == actors
        assert f"critic's {term}" not in held["host"]
    checkpoint = without["disk"]["checkpoint_tb"]
    assert offloaded["disk"]["checkpoint_tb"] == pytest.approx(2 * checkpoint, abs=0.02)
    assert offloaded["time"]["training_seconds"] > without["time"]["training_seconds"]


def test_checkpoints_of_a_critic_that_are_all_kept() -> None:
    made = loaded("hy3", "trainer.max_critic_ckpt_to_keep=null")
    state, text = judged("steps-checkpoints-kept", made, 95.6)
    assert state == "warning"
    assert "checkpoints of the critic stay" in text
    assert judged("steps-checkpoints-kept", loaded("hy3"), 95.6)[0] == "ok"


def test_algorithm_files_of_the_rehearsal_belong_to_an_algorithm() -> None:
    algorithms = {path.stem for path in (ROOT / "recipes/algorithms").glob("*.yaml")}
    own = [*Path(ROOT / "recipes/rehearsal/algorithm").glob("*.yaml")]
    own += [*Path(ROOT / "recipes/common/megatron_algorithm").glob("*.yaml")]
    assert own
    assert {path.stem for path in own} <= algorithms
    engines = {path.stem for path in (ROOT / "recipes/rehearsal/engine").glob("*.yaml")}
    for path in (ROOT / "recipes/rehearsal/critic").glob("*.yaml"):
        engine, _, algorithm = path.stem.partition("_")
        assert engine in engines and algorithm in algorithms
