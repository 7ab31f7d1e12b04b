"""What is known of a recipe by name, and the lock's contradictions that it trips or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reprise.core.findings import Severity
from reprise.core.project import Project
from reprise.flows.recipe import check_recipe
from reprise.recipe.config.overrides import Line
from reprise.recipe.facts import FLASH_ATTENTION, facts_of
from reprise.recipe.load import Inputs, load
from reprise.recipe.setup import Setup

from .conftest import QWEN3_8B, ROOT, A

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
CRITIC = {"algorithm.adv_estimator": "gae", f"{A}.strategy": "megatron"}
RULE = "recipe-contradiction"


@pytest.mark.parametrize(
    ("settings", "model", "part"),
    [
        ({f"{A}.strategy": "fsdp"}, QWEN3_8B, "strategy=fsdp, attention flash_attention_2"),
        ({f"{A}.strategy": "fsdp2", ATTENTION: "flash_attention_3"}, None, "flash_attention_3"),
        ({f"{A}.strategy": "fsdp2", ATTENTION: "sdpa"}, QWEN3_8B, None),
        ({f"{A}.strategy": "megatron"}, QWEN3_8B, None),
        ({f"{A}.strategy": "fsdp"}, {"model_type": "gpt_oss"}, None),
        (CRITIC | {"critic.strategy": "fsdp"}, QWEN3_8B, "critic.strategy=fsdp"),
        (CRITIC | {"critic.strategy": "megatron"}, QWEN3_8B, None),
        (CRITIC | {"critic.strategy": "fsdp", "critic.enable": False}, QWEN3_8B, None),
        (
            CRITIC
            | {
                "critic.strategy": "fsdp",
                "critic.model._target_": "reprise_plugins.critic.CriticModel",
                "critic.model.override_config.attn_implementation": "sdpa",
            },
            QWEN3_8B,
            None,
        ),
    ],
)
def test_who_trains_through_transformers_flash_attention(
    setup_of: Callable[..., Setup],
    settings: dict[str, Any],
    model: dict[str, Any] | None,
    part: str | None,
) -> None:
    found = facts_of(setup_of(settings, model))
    assert (FLASH_ATTENTION in found) is (part is not None)
    assert part is None or part in found[FLASH_ATTENTION]


def test_trackers_are_facts(setup_of: Callable[..., Setup]) -> None:
    found = facts_of(setup_of({"trainer.logger": ["console", "wandb"], f"{A}.strategy": "x"}))
    assert set(found) == {"tracker-console", "tracker-wandb"}
    assert "tracker-wandb" in facts_of(setup_of({"trainer.logger": "wandb"}))


@pytest.mark.parametrize(
    ("name", "overrides", "hit"),
    [
        ("hy3", [], []),
        ("hy3", ["algorithm.adv_estimator=gae", "critic.strategy=fsdp"],
         ["contradiction.transformers-verl"]),
        ("rehearsal", [], []),
        ("rehearsal", [f"{ATTENTION}=flash_attention_2"], ["contradiction.rehearsal-transformers"]),
        ("rehearsal", ["trainer.logger=[console,wandb]"], ["contradiction.rehearsal-wandb"]),
        ("qwen3-8b", [], []),
    ],
)  # fmt: skip
def test_the_check_of_a_recipe_names_what_it_trips(
    name: str, overrides: list[str], hit: list[str]
) -> None:
    loaded = load(ROOT, name, [Line(text) for text in overrides])
    report = check_recipe(Project(ROOT), loaded)
    findings = [item for item in report.findings if item.rule == RULE]
    assert [item.where for item in findings if item.severity is Severity.ERROR] == hit
    assert all(item.severity is not Severity.WARNING for item in findings)
    assert RULE in {check.rule for check in report.checks}


def test_the_lock_says_nothing_of_a_script_without_a_recipe() -> None:
    loaded = load(ROOT, "", [Line(f"{A}.strategy=fsdp")], Inputs(config="ppo_trainer"))
    report = check_recipe(Project(ROOT), loaded)
    assert report.data["machine"] is None
    assert not any(item.where.startswith("contradiction.") for item in report.findings)
