"""Platform and engine of the rehearsal: what each resolves to, and what is refused."""

from __future__ import annotations

import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.project import Project
from reprise.flows.key import recipe_key
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.target import ROLLOUTS, Target, gpu_environment
from reprise.machines import nvidia
from reprise.recipe.check import check
from reprise.recipe.config.compose import compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree
from reprise.recipe.load import Inputs, Loaded, load
from tests.gpu.leaves import leaves

ROOT = Path(__file__).resolve().parents[2]
GPU_FSDP = Target("gpu", "fsdp")
GPU_MEGATRON = Target("gpu", "megatron")


def loaded_at(place: Target, *more: str) -> Loaded:
    """The recipe, composed with the verl that the Hy3 recipe has."""
    lines = [Line(text) for text in (*place.overrides(), *more)]
    tree = find_tree(ROOT, "verl", "0.9.0")
    loaded = load(ROOT, "rehearsal", lines, Inputs(verl=tree.package))
    assert loaded.composition.faults == []
    return loaded


def values(place: Target, *more: str) -> dict[str, Any]:
    return loaded_at(place, *more).composition.values


def test_the_default_is_what_the_committed_runs_were_recorded_with() -> None:
    text = (ROOT / "recipes/rehearsal/reference/reference.toml").read_text(encoding="utf-8")
    tree = find_tree(ROOT, "no-checkout", "0.9.1")
    composed = compose("rehearsal/recipe", tree, [], ROOT / "recipes")
    assert recipe_key(composed.values) == tomllib.loads(text)["provenance"]["recipe"]


def test_megatron_shares_the_transformer_block_of_hy3() -> None:
    hy3 = load(ROOT, "hy3").composition.values["actor_rollout_ref"]["actor"]["megatron"]
    tiny = values(GPU_MEGATRON)["actor_rollout_ref"]["actor"]["megatron"]
    here, there = leaves(tiny), leaves(hy3)
    differing = {key for key in here | there if here.get(key) != there.get(key)}
    # Each of these stands in recipes/rehearsal/engine/megatron.yaml with its reason.
    assert differing == {
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "param_offload",
        "optimizer_offload",
        "grad_offload",
        "override_transformer_config.gradient_accumulation_fusion",
        "override_transformer_config.attention_backend",
    }
    text = (ROOT / "recipes/rehearsal/engine/megatron.yaml").read_text(encoding="utf-8")
    assert all(f"{key.rpartition('.')[2]}:" in text for key in differing)


def test_every_setting_of_the_hy3_groups_is_taken_whole() -> None:
    engine = yaml.safe_load(
        (ROOT / "recipes/rehearsal/engine/megatron.yaml").read_text(encoding="utf-8")
    )
    wanted = ["/common/megatron", "/hy3/required", "/hy3/transformer", "_self_"]
    assert engine["defaults"] == wanted


@pytest.mark.parametrize("place", [GPU_FSDP, GPU_MEGATRON], ids=lambda place: place.name)
def test_a_gpu_place_trains_what_the_cpu_trains(place: Target) -> None:
    cpu, gpu = leaves(values(Target())), leaves(values(place))
    differing = {key for key in cpu.keys() & gpu.keys() if cpu[key] != gpu[key]}
    # Neither the task nor the algorithm: only the engine, the rollout's memory and the steps.
    parts = ("actor_rollout_ref", "critic", "trainer", "model_engine", "data.trust_remote_code")
    assert [key for key in differing if not key.startswith(parts)] == []
    for key in (
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.loss_agg_mode",
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.rollout.dtype",
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
        "trainer.v1.sampler.custom_sampler.name",
    ):
        assert cpu[key] == gpu[key], key
    assert gpu["trainer.device"] == "cuda"


def test_the_learning_rate_stays_constant_when_it_is_set() -> None:
    optim = values(GPU_MEGATRON, "actor_rollout_ref.actor.optim.lr=0")
    assert optim["actor_rollout_ref"]["actor"]["optim"]["min_lr"] == 0


@pytest.mark.parametrize("place", [Target(), GPU_FSDP, GPU_MEGATRON], ids=lambda place: place.name)
def test_no_rule_finds_an_error(place: Target) -> None:
    loaded = loaded_at(place)
    report = check(loaded.composition, loaded.known, loaded.model, ROOT / "recipes")
    assert [f"{f.rule} {f.where}: {f.message}" for f in report.errors()] == []


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        (Target("tpu", "fsdp"), "rehearsal-platform"),
        (Target("gpu", "deepspeed"), "rehearsal-engine"),
        (Target("cpu", "megatron"), "rehearsal-engine"),
    ],
)
def test_what_there_is_not_is_refused(place: Target, rule: str) -> None:
    with pytest.raises(OperatorError) as caught:
        Rehearsal(Project(ROOT), RehearsalOptions(place=place, quiet=True))
    assert caught.value.rule == rule
    assert caught.value.fix


def test_another_verl_than_the_locked_one_cannot_run_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "versions.lock").write_bytes((ROOT / "versions.lock").read_bytes())
    other = find_tree(ROOT, "no-checkout", "0.9.1")
    (tmp_path / "third_party/verl").mkdir(parents=True)
    (tmp_path / "third_party/verl/verl").symlink_to(other.package)
    with pytest.raises(CannotTell, match=r"expected verl 0\.9\.0\.dev .*, found verl 0\.9\.1"):
        GPU_FSDP.tree("0.9.1", Project(tmp_path))


def test_a_gpu_place_has_its_own_environment_variables_and_reference(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert Target().reference(project, "rehearsal").name == "reference"
    assert GPU_MEGATRON.reference(project, "rehearsal").name == "reference-gpu-megatron"
    recipe = ROOT / "recipes/rehearsal"
    cpu, gpu = (
        yaml.safe_load(place.runtime_env(recipe).read_text(encoding="utf-8"))["env_vars"]
        for place in (Target(), GPU_FSDP)
    )
    assert (cpu["VERL_PLATFORM"], gpu["VERL_PLATFORM"]) == ("cpu", "nvidia")
    # What the bridges of a GPU are called, as the plug-in spells them.
    assert gpu["REPRISE_BRIDGES"] == "hy_v3_names,padding"
    with pytest.raises(CannotTell, match=r"\.venv-gpu/"):
        GPU_FSDP.python(project)


def test_each_rollout_engine_has_an_environment_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path)
    sglang = Target("gpu", "megatron", rollout="sglang")
    with pytest.raises(CannotTell, match=r"\.venv-gpu-sglang/") as caught:
        sglang.python(project)
    assert caught.value.fix.startswith("scripts/gpu/env.py --rollout sglang")
    for rollout in ROLLOUTS:
        python = tmp_path / gpu_environment(rollout) / "bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
        (python.parents[1] / "provided.json").write_text(json.dumps({"rollout": rollout}))
        place = Target("gpu", "megatron", rollout=rollout)
        assert place.python(project) == python
        device = place.device(project)
        assert device is not None
        assert device["provided"] == {"rollout": rollout}


def test_what_the_machine_provides_is_recorded(tmp_path: Path) -> None:
    (tmp_path / ".venv-gpu").mkdir()
    (tmp_path / ".venv-gpu/provided.json").write_text(json.dumps({"torch": "2.11.0+cu130"}))
    device = GPU_FSDP.device(Project(tmp_path))
    assert device is not None
    assert device["provided"] == {"torch": "2.11.0+cu130"}
    assert Target().device(Project(tmp_path)) is None


def test_a_driver_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexec sleep 300\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvidia, "_INVENTORY_SECONDS", 0.5)
    began = time.monotonic()
    assert GPU_FSDP.device(Project(tmp_path)) == {"cards": [], "provided": {}}
    assert time.monotonic() - began < 100
