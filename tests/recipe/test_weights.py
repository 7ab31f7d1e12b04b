"""Packed experts: verl before f66328232 with FSDP and SGLang."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree, find_tree
from reprise.recipe.load import Inputs, load
from reprise.recipe.setup import Known, Setup

from .conftest import ROOT
from .test_rules import verdict

RULE = "rollout-experts"
FSDP = ("rehearsal/platform=gpu", "rehearsal/engine=fsdp", "rehearsal/rollout=sglang")


def before(folder: Path) -> VerlTree:
    """verl as it was at 220e903, in the file that the rule reads."""
    engine = folder / "verl/workers/engine/fsdp"
    engine.mkdir(parents=True)
    whole = find_tree(ROOT, "no-checkout", "0.9.1").source("workers/engine/fsdp/utils.py")
    assert whole is not None
    (engine / "utils.py").write_text(whole[: whole.index("def unfuse_moe_params")])
    return VerlTree(
        folder / "verl", "a test", "0.9.0.dev", "220e9039902c6db56860e2afd659803dc34ec005"
    )


def setup(
    tmp_path: Path,
    tree: VerlTree | None,
    *overrides: str,
    known: Known | None = None,
    **shape: object,
) -> Setup:
    config = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, **shape}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    found = find_tree(ROOT, "no-checkout", "0.9.1")
    lines = [Line(text) for text in (*FSDP, "rehearsal/arch=qwen3-moe", *overrides)]
    made = load(ROOT, "rehearsal", lines, Inputs(verl=found.package, model_config=path))
    assert made.composition.faults == []
    return Setup(made.composition.values, tree, made.model, known or Known())


def test_packed_experts_are_refused_and_the_release_that_fixes_it_is_named(tmp_path: Path) -> None:
    state, text = verdict(RULE, setup(tmp_path, before(tmp_path)))
    assert state == "error"
    assert "220e903990" in text
    assert "f66328232" in text
    assert "qwen3_moe packed (transformers 5 or newer)" in text


@pytest.mark.parametrize("release", ["0.9.0", "0.9.1"])
def test_a_release_with_the_fix_passes(tmp_path: Path, release: str) -> None:
    assert verdict(RULE, setup(tmp_path, find_tree(ROOT, "no-checkout", release)))[0] == "ok"


@pytest.mark.parametrize(
    ("overrides", "shape", "wanted"),
    [
        (("actor_rollout_ref.rollout.name=vllm",), {}, "n/a"),
        (("actor_rollout_ref.actor.strategy=megatron",), {}, "n/a"),
        ((), {"model_type": "qwen3", "num_experts": None, "num_experts_per_tok": None}, "n/a"),
        ((), {"model_type": "gpt_oss"}, "n/a"),
        ((), {"model_type": "qwen2_moe"}, "error"),
        # Its loader was not read: no claim.
        ((), {"model_type": "glm4_moe"}, "warning"),
    ],
)
def test_other_ways_and_models(
    tmp_path: Path, overrides: tuple[str, ...], shape: dict[str, object], wanted: str
) -> None:
    assert verdict(RULE, setup(tmp_path, before(tmp_path), *overrides, **shape))[0] == wanted


def test_a_job_whose_plugins_unpack_passes(tmp_path: Path) -> None:
    known = Known(environment={"REPRISE_EXPERTS": "unpack"})
    assert verdict(RULE, setup(tmp_path, before(tmp_path), known=known))[0] == "ok"
    known = replace(known, environment={"REPRISE_EXPERTS": "packed"})
    assert verdict(RULE, setup(tmp_path, before(tmp_path / "b"), known=known))[0] == "error"


def test_what_is_not_there_is_not_guessed(tmp_path: Path) -> None:
    assert verdict(RULE, setup(tmp_path, None))[0] == "unknown"
    made = setup(tmp_path, before(tmp_path))
    assert verdict(RULE, Setup(made.values, made.tree))[0] == "unknown"
