"""The rehearsal with SGLang: what it takes whole of the S5000 recipes, and what is refused."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.flows.baseline import BaselineOptions
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.target import Target
from reprise.recipe.check import check
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree
from reprise.recipe.load import Inputs, Loaded, load
from tests.gpu.leaves import leaves

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/rehearsal"
SGLANG = Target("gpu", "megatron", rollout="sglang")
SHAPES = {"qwen3": "qwen3-8b", "qwen3-moe": "qwen3-30b-a3b"}
# The files in which each difference from the recipes stands with its reason.
FILES = (
    "engine/megatron-s5000",
    "rollout/sglang",
    "shape/sglang_qwen3",
)
# What a rehearsal is, whatever its rollout: recipe.yaml says it.
TINY = {
    "actor_rollout_ref.rollout.agent.num_workers",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
    "actor_rollout_ref.rollout.enable_prefix_caching",
    "actor_rollout_ref.rollout.max_num_batched_tokens",
    "actor_rollout_ref.rollout.max_num_seqs",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "data.dataloader_num_workers",
    "data.max_response_length",
    "data.seed",
    "data.train_files",
    "data.val_files",
    "reward.custom_reward_function.path",
    "reward.num_workers",
    "trainer.experiment_name",
    "trainer.logger",
    "trainer.resume_mode",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "trainer.v1.sampler.custom_sampler.name",
    "trainer.v1.sampler.custom_sampler.path",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units",
}
PLATFORM = {
    "actor_rollout_ref.rollout.engine_kwargs.vllm",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes",
    "trainer.device",
}


def loaded(recipe: str, *overrides: str, shape: Path | None = None) -> Loaded:
    tree = find_tree(ROOT, "verl", "0.9.0")
    inputs = Inputs(verl=tree.package, model_config=shape)
    made = load(ROOT, recipe, [Line(text) for text in overrides], inputs)
    assert made.composition.faults == []
    return made


def rehearsed(arch: str, *more: str) -> Loaded:
    return loaded("rehearsal", *SGLANG.overrides(), f"rehearsal/arch={arch}", *more)


def own(node: object) -> dict[str, object]:
    """Leaves that an interpolation does not copy from another key."""
    found = leaves(node)
    copies = ("actor_rollout_ref.ref.megatron.", "critic.", "distillation.")
    skipped = ("rollout.n_gpus_per_node", "rollout.prompt_length", "rollout.response_length")
    return {
        key: value
        for key, value in found.items()
        if not key.startswith(copies) and not key.endswith(skipped) and ".trace." not in key
    }


@pytest.mark.parametrize("arch", SHAPES)
def test_each_difference_from_the_recipe_stands_in_a_file_with_its_reason(arch: str) -> None:
    here = own(rehearsed(arch).composition.values)
    there = own(loaded(SHAPES[arch]).composition.values)
    differing = {key for key in here | there if here.get(key, "") != there.get(key, "")}
    texts = {name: (RECIPE / f"{name}.yaml").read_text(encoding="utf-8") for name in FILES}
    unexplained = []
    for key in sorted(differing - TINY - PLATFORM):
        name = key.rpartition(".")[2]
        words = (f"{name}:", f"{name} of ", f"{key.split('.')[-2]} of ")
        if not any(word in text for word in words for text in texts.values()):
            unexplained.append(key)
    assert unexplained == []
    # And the other way: nothing is explained that is the same.
    named = {
        key
        for name in FILES
        for key in leaves(yaml.safe_load(texts[name]))
        if not key.startswith("defaults")
    }
    same = {key for key in named if here.get(key, "") == there.get(key, "")}
    other = own(loaded(SHAPES["qwen3" if arch == "qwen3-moe" else "qwen3-moe"]).composition.values)
    assert {key for key in same if here.get(key, "") == other.get(key, "")} <= {
        # Said, since the rehearsals of Hy3 and of a checkpoint that is loaded say another value.
        "actor_rollout_ref.actor.megatron.context_parallel_size",
        "actor_rollout_ref.actor.megatron.grad_offload",
        "actor_rollout_ref.rollout.name",
    }


@pytest.mark.parametrize("arch", SHAPES)
def test_every_group_of_the_recipes_is_taken_whole(arch: str) -> None:
    there = yaml.safe_load((ROOT / f"recipes/{SHAPES[arch]}/recipe.yaml").read_text("utf-8"))
    groups = [entry if isinstance(entry, str) else next(iter(entry)) for entry in there["defaults"]]
    # Of the cluster and its data; /common/musa part by part (rollout/sglang).
    apart = {
        *("/ppo_trainer", "_self_", "/common/dapo_math", "/common/cluster", "/common/tracker"),
        *("/common/placement", "optional /common/megatron_algorithm", "/common/musa"),
    }
    texts = [RECIPE / "recipe.yaml", *(RECIPE / f"{name}.yaml" for name in FILES)]
    taken = "\n".join(path.read_text(encoding="utf-8") for path in texts)
    for group in set(groups) - apart:
        assert f"- {group}\n" in taken or f"- {group}:" in taken, group
    musa = leaves(yaml.safe_load((ROOT / "recipes/common/musa.yaml").read_text("utf-8")))
    assert {key.rpartition(".")[2] for key in musa if not key.startswith("defaults")} == {
        *("vanilla_mbridge", "name", "device", "attention_backend"),
    }
    assert "- /common/sglang: careful" in taken


@pytest.mark.parametrize("option", ["careful", "all", "eager"])
def test_the_options_of_sglang_are_chosen_as_in_the_recipes(option: str) -> None:
    def switches(made: Loaded) -> dict[str, Any]:
        rollout = made.composition.values["actor_rollout_ref"]["rollout"]
        names = ("disable_piecewise_cuda_graph", "disable_radix_cache", "disable_overlap_schedule")
        own = rollout["engine_kwargs"]["sglang"]
        return {"enforce_eager": rollout["enforce_eager"], **{name: own[name] for name in names}}

    here = switches(rehearsed("qwen3", f"common/sglang={option}"))
    assert here == switches(loaded("qwen3-8b", f"common/sglang={option}"))


@pytest.mark.parametrize("arch", SHAPES)
@pytest.mark.parametrize("engine", ["megatron", "fsdp"])
def test_no_rule_finds_an_error(arch: str, engine: str, tmp_path: Path) -> None:
    place = Target("gpu", engine, rollout="sglang")
    # As build_model.py writes it.
    tiny = {
        "model_type": arch.replace("-", "_"),
        "vocab_size": 128,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    sparse = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(tiny | (sparse if arch == "qwen3-moe" else {})))
    chosen = (*place.overrides(), f"rehearsal/arch={arch}")
    made = loaded("rehearsal", *chosen, shape=config)
    report = check(made.composition, made.known, made.model, ROOT / "recipes")
    assert [f"{f.rule} {f.where}: {f.message}" for f in report.errors()] == []


def test_the_true_size_keeps_the_settings_of_the_recipe() -> None:
    here = rehearsed("qwen3", "rehearsal/size=8b").composition.values["actor_rollout_ref"]
    there = loaded("qwen3-8b").composition.values["actor_rollout_ref"]
    for keys in (
        ("actor", "ppo_max_token_len_per_gpu"),
        ("actor", "megatron", "param_offload"),
        ("actor", "megatron", "optimizer_offload"),
        ("actor", "megatron", "override_transformer_config", "recompute_granularity"),
        ("actor", "optim", "lr"),
        ("ref", "log_prob_max_token_len_per_gpu"),
        ("rollout", "gpu_memory_utilization"),
        ("rollout", "checkpoint_engine", "update_weights_bucket_megabytes"),
        ("rollout", "n"),
        ("rollout", "temperature"),
    ):
        a: Any = here
        b: Any = there
        for key in keys:
            a, b = a[key], b[key]
        assert a == b, keys


@pytest.mark.parametrize(
    ("place", "arch", "text"),
    [
        (Target("cpu", "fsdp", rollout="sglang"), "qwen3", "needs a GPU"),
        (Target("gpu", "megatron", rollout="tgi"), "qwen3", "unknown rollout engine"),
        (SGLANG, "hy3", "heads of 64"),
    ],
)
def test_what_sglang_cannot_run_is_refused(place: Target, arch: str, text: str) -> None:
    with pytest.raises(OperatorError, match=text) as caught:
        Rehearsal(Project(ROOT), RehearsalOptions(place=place, arch=arch, quiet=True))
    assert caught.value.rule == "rehearsal-rollout"
    assert caught.value.fix


def test_a_job_with_sglang_has_its_own_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = SGLANG.runtime_env(RECIPE)
    variables = yaml.safe_load(path.read_text(encoding="utf-8"))["env_vars"]
    assert variables["SGLANG_IS_FLASHINFER_AVAILABLE"] == "false"
    # As the plug-ins spell them.
    assert (variables["REPRISE_EXPERTS"], variables["REPRISE_WRITTEN"]) == ("unpack", "fail")
    project = Project(tmp_path)
    assert SGLANG.variables(project) == {}
    folder = tmp_path / ".venv-gpu-sglang/lib/python3.12/site-packages/nvidia/cu13/lib"
    folder.mkdir(parents=True)
    (folder / "libcudart.so.13").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/site/lib")
    assert SGLANG.variables(project) == {"LD_LIBRARY_PATH": f"{folder}:/site/lib"}
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert SGLANG.variables(project) == {"LD_LIBRARY_PATH": str(folder)}
    assert Target("gpu", "megatron").variables(project) == {}


def test_each_shape_has_a_reference_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = [SGLANG.reference(project, "rehearsal", arch).name for arch in SHAPES]
    assert names == [
        "reference-gpu-megatron-sglang-qwen3",
        "reference-gpu-megatron-sglang-qwen3-moe",
    ]
    assert Target().reference(project, "rehearsal", "qwen3").name == "reference-qwen3"
    options = BaselineOptions(place=SGLANG, arch="qwen3-moe").rehearsal()
    assert (options.place, options.arch) == (SGLANG, "qwen3-moe")
    assert SGLANG.options == "--platform gpu --engine megatron --rollout sglang"


def test_every_job_of_a_visit_is_composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/gpu"))
    visit = importlib.import_module("visit_sglang")
    monkeypatch.setattr(visit, "prepare", lambda _: None)
    (tmp_path / "variables-sglang.json").write_text("{}", encoding="utf-8")
    kinds: dict[str, list[str]] = {}
    for job in visit.both(tmp_path):
        words = job["command"]
        if "reproduce" not in words:
            continue
        words = words[words.index("reproduce") :]
        engine, arch = (words[words.index(name) + 1] for name in ("--engine", "--arch"))
        overrides = words[words.index("--") + 1 :] if "--" in words else []
        rollout = words[words.index("--rollout") + 1]
        place = Target("gpu", engine, rollout=rollout)
        chosen = [*place.overrides(), f"rehearsal/arch={arch}", *overrides]
        kinds.setdefault(json.dumps(chosen), []).append(job["name"])
    assert len(kinds) > 8
    for text in kinds:
        values = loaded("rehearsal", *json.loads(text)).composition.values
        wanted = "sglang" if "rehearsal/rollout=sglang" in text else "vllm"
        assert values["actor_rollout_ref"]["rollout"]["name"] == wanted
        # What replaces a variable of the job is text, as Ray wants it.
        job_env = (values["ray_kwargs"]["ray_init"].get("runtime_env") or {}).get("env_vars", {})
        assert all(isinstance(value, str) for value in job_env.values())
    assert os.environ.get("REPRISE_WRITTEN") is None


@pytest.mark.parametrize("arch", SHAPES)
def test_the_start_models_are_shipped(arch: str, tmp_path: Path) -> None:
    from reprise.flows.start_model import start_model

    model = start_model(Project(ROOT), arch)
    config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    made = json.loads((model.path / "provenance.json").read_text(encoding="utf-8"))
    assert made["weights_sha256"] == model.sha256
    assert (made["settings"]["arch"], config["model_type"]) == (arch, arch.replace("-", "_"))
    # SGLang's rotary kernel is taken by the sparse class alone.
    assert config["head_dim"] == (64 if arch == "qwen3-moe" else 32)
    assert 0.2 < made["expected_reward"] < 0.4
    (tmp_path / "versions.lock").write_bytes((ROOT / "versions.lock").read_bytes())
    with pytest.raises(OperatorError, match=r"model\.safetensors does not exist"):
        start_model(Project(tmp_path), arch)
