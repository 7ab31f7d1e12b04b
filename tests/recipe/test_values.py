"""Values that no rule can compute with are told by their key, and never end in a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.core.findings import Severity
from reprise.recipe.check import check
from reprise.recipe.config.overrides import Line
from reprise.recipe.load import load
from reprise.recipe.plan.plan import plan

RULE = "recipe-config-value"
ROLLOUT = "actor_rollout_ref.rollout"
MEGATRON = "actor_rollout_ref.actor.megatron"


@pytest.mark.parametrize(
    "text",
    [
        "trainer.nnodes=0",
        "trainer.nnodes=many",
        "trainer.n_gpus_per_node=true",
        "data.train_batch_size=-1",
        "data.train_batch_size=1.5",
        "data.max_response_length=x",
        f"{ROLLOUT}.tensor_model_parallel_size=0",
        f"{ROLLOUT}.gpu_memory_utilization=7",
        f"{ROLLOUT}.gpu_memory_utilization=most",
        f"{MEGATRON}.pipeline_model_parallel_size=0",
        f"{MEGATRON}.expert_model_parallel_size=[1]",
    ],
)
def test_a_size_that_is_none(root: Path, text: str) -> None:
    loaded = load(root, "hy3", [Line(text)])
    recipes = root / "recipes"
    for report in (
        check(loaded.composition, loaded.known, loaded.model, recipes),
        plan(loaded, recipes=recipes),
        plan(loaded),
    ):
        told = [f for f in report.findings if (f.rule, f.severity) == (RULE, Severity.ERROR)]
        assert f"command line ({text.partition('=')[0]})" in [finding.where for finding in told]
        assert report.exit_code == 1
        if report.command == "recipe plan":
            assert "training" not in report.data, "nothing is computed with it"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data.shuffle=maybe", "expected true or false, found 'maybe'"),
        ("actor_rollout_ref.actor.optim.lr=fast", "expected a number, found 'fast'"),
        ("algorithm.rollout_correction.rollout_is_threshold=0.5_4.0", ""),
        ("trainer.total_training_steps=null", ""),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", ""),
    ],
)
def test_text_where_verl_has_a_number(root: Path, text: str, told: str) -> None:
    loaded = load(root, "hy3", [Line(text)])
    report = check(loaded.composition, loaded.known, loaded.model, root / "recipes")
    found = [finding for finding in report.findings if finding.rule == RULE]
    assert [finding.message for finding in found] == ([told] if told else [])
    assert all(finding.severity is Severity.WARNING for finding in found)
    assert report.exit_code == 0
