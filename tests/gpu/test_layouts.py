"""Parallel sizes of the rehearsal: what each layout sets, what is refused, a visit's commands."""

from __future__ import annotations

import functools
import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.flows.key import recipe_key
from reprise.flows.preconditions import _layout, check_preconditions
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.target import LAYOUTS, Target
from reprise.recipe.check import check
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree
from reprise.recipe.load import Inputs, Loaded, load
from reprise.recipe.setup import Setup
from tests.gpu.leaves import leaves

ROOT = Path(__file__).resolve().parents[2]
ONE_GPU = Target("gpu", "megatron")
LAID_OUT = [name for name in LAYOUTS if name != "one"]
# TP, PP, CP, EP of training; GPUs; TP of the rollout.
SIZES = {
    "one": (1, 1, 1, 1, 1, 1),
    "two": (1, 1, 1, 1, 2, 1),
    "pp2": (1, 2, 1, 1, 2, 1),
    "ep2": (1, 1, 1, 2, 2, 1),
    "tp2": (2, 1, 1, 2, 2, 1),
    "cp2": (1, 1, 2, 1, 2, 1),
    "rollout_tp2": (1, 1, 1, 1, 2, 2),
    "four": (1, 1, 1, 1, 4, 1),
    "pp2_cp2": (1, 2, 2, 2, 4, 1),
    "pp2_ep2": (1, 2, 1, 2, 4, 1),
    "tp2_pp2": (2, 2, 1, 2, 4, 1),
    "rollout_tp4": (1, 1, 1, 1, 4, 4),
    "rollout_2xtp2": (1, 1, 1, 1, 4, 2),
    "separate": (1, 1, 1, 1, 4, 1),
}


@functools.cache
def loaded(layout: str, *more: str) -> Loaded:
    lines = [Line(text) for text in (*Target("gpu", "megatron", layout).overrides(), *more)]
    return load(ROOT, "rehearsal", lines, Inputs(verl=find_tree(ROOT, "verl", "0.9.0").package))


def errors(made: Loaded) -> list[str]:
    report = check(made.composition, made.known, made.model, ROOT / "recipes")
    return [finding.rule for finding in report.errors()]


def test_the_names_are_those_of_the_files() -> None:
    files = {path.stem for path in (ROOT / "recipes/rehearsal/layout").glob("*.yaml")}
    assert files == set(LAYOUTS) == set(SIZES)


def test_one_gpu_is_composed_as_if_there_were_no_layouts() -> None:
    # What the references were recorded with; tests/gpu/test_target.py compares the default's hash.
    tree = find_tree(ROOT, "verl", "0.9.0").package
    plain = load(ROOT, "rehearsal", [Line(t) for t in ONE_GPU.overrides()], Inputs(verl=tree))
    named = loaded("one")
    assert ONE_GPU.overrides() == ["rehearsal/platform=gpu", "rehearsal/engine=megatron"]
    assert recipe_key(plain.composition.values) == recipe_key(named.composition.values)


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_what_its_name_says_and_no_rule_finds_an_error(name: str) -> None:
    made = loaded(name)
    assert made.composition.faults == []
    setup = Setup(made.composition.values)
    found = (setup.tp, setup.pp, setup.cp, setup.ep, setup.all_gpus, setup.rollout_tp)
    assert found == SIZES[name]
    assert setup.etp == 1
    for size in ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor"):
        assert setup.size(size, "ref") == setup.size(size), size
    assert errors(made) == []


@pytest.mark.parametrize("name", LAID_OUT)
def test_a_layout_changes_nothing_but_its_sizes(name: str) -> None:
    here = leaves(loaded(name).composition.values)
    there = leaves(loaded("one").composition.values)
    differing = {key for key in here | there if here.get(key) != there.get(key)}
    sizes = re.compile(
        r".*\.n_gpus_per_node|.*_parallel_size|.*num_layers_in_first_pipeline_stage"
        r"|.*max_token_len_per_gpu"
    )
    own = ("trainer.v1.", "actor_rollout_ref.rollout.nnodes", "actor_rollout_ref.rollout.n_gpus",
           "actor_rollout_ref.rollout.checkpoint_engine.backend")  # fmt: skip
    left = {key for key in differing if not sizes.fullmatch(key)}
    assert {key for key in left if not (name == "separate" and key.startswith(own))} == set()


def test_three_layers_need_a_first_stage_of_two() -> None:
    key = "actor_rollout_ref.actor.megatron.override_transformer_config"
    even = f"{key}.num_layers_in_first_pipeline_stage=null"
    assert "recipe-parallel-layers" in errors(loaded("pp2", even))


@pytest.mark.parametrize(
    ("layout", "override", "rule"),
    [
        ("pp2", "trainer.n_gpus_per_node=3", "recipe-parallel-world"),
        ("tp2", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3",
         "recipe-parallel-heads"),
        # As the layout was when it ran on two GPUs, and failed.
        ("tp2", "actor_rollout_ref.actor.megatron.expert_model_parallel_size=1",
         "recipe-parallel-experts-gradients"),
        ("ep2", "actor_rollout_ref.actor.megatron.expert_model_parallel_size=3",
         "recipe-parallel-experts-divide"),
        ("rollout_tp2", "actor_rollout_ref.rollout.tensor_model_parallel_size=3",
         "recipe-rollout-replicas"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_divide_are_found(layout: str, override: str, rule: str) -> None:
    assert rule in errors(loaded(layout, override))


def test_qwen3_moe_routes_without_a_bias_with_megatron() -> None:
    made = loaded("ep2", "rehearsal/arch=qwen3-moe")
    node = made.composition.values["actor_rollout_ref"]["actor"]["megatron"]
    assert node["override_transformer_config"]["moe_router_enable_expert_bias"] is False
    assert node["expert_model_parallel_size"] == 2
    with_hy3 = loaded("ep2").composition.values["actor_rollout_ref"]["actor"]["megatron"]
    assert with_hy3["override_transformer_config"]["moe_router_enable_expert_bias"] is True
    fsdp = load(
        ROOT,
        "rehearsal",
        [Line("rehearsal/arch=qwen3-moe")],
        Inputs(verl=find_tree(ROOT, "verl", "0.9.0").package),
    )
    assert "megatron" not in fsdp.composition.values["actor_rollout_ref"]["actor"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RehearsalOptions(place=Target("gpu", "megatron", "pp3")), "unknown layout"),
        (RehearsalOptions(place=Target("gpu", "fsdp", "pp2")), "are Megatron-LM's"),
        (RehearsalOptions(place=Target("cpu", "fsdp", "two")), "are Megatron-LM's"),
        (RehearsalOptions(place=Target("gpu", "megatron", "pp2"), ranks=2), "both set"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(
    options: RehearsalOptions, text: str
) -> None:
    with pytest.raises(OperatorError, match=text) as caught:
        Rehearsal(Project(ROOT), options)
    assert caught.value.rule == "rehearsal-layout"
    report = check_preconditions(Project(ROOT), options, "reproduce")
    assert text in "".join(finding.message for finding in report.errors())


@pytest.fixture
def gpu_project(tmp_path: Path) -> Project:
    """A project whose GPU environment and locked verl are there, by name."""
    for name in ("versions.lock", "runtime_env.yaml", "requirements"):
        target = tmp_path / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target)
        else:
            shutil.copy(ROOT / name, target)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / ".venv-gpu/bin").mkdir(parents=True)
    (tmp_path / ".venv-gpu/bin/python").symlink_to(sys.executable)
    package = tmp_path / "third_party/verl/verl"
    shutil.copytree(find_tree(ROOT, "verl", "0.9.0").package, package)
    locked = (ROOT / "versions.lock").read_text(encoding="utf-8")
    version = re.search(r'\[tree\.verl\].*?^version = "([^"]+)"', locked, re.S | re.M)
    assert version is not None
    (package / "version/version").write_text(version.group(1) + "\n", encoding="utf-8")
    return Project(tmp_path)


@pytest.mark.parametrize(
    ("visible", "override", "expected"),
    [
        ("0", "", ["this layout uses 2 GPUs, 1 are visible (CUDA_VISIBLE_DEVICES=0)"]),
        ("0,1", "actor_rollout_ref.actor.megatron.context_parallel_size=2", ["% 4"]),
    ],
)
def test_the_gpus_and_the_rules_are_looked_at_before_the_run(
    gpu_project: Project,
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
    override: str,
    expected: list[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    report = Report("reproduce")
    options = RehearsalOptions(
        place=Target("gpu", "megatron", "pp2"),
        quiet=True,
        overrides=(override,) if override else (),
    )
    _layout(report, gpu_project, options)
    found = [f"{finding.rule} {finding.message}" for finding in report.errors()]
    if override:
        assert [text.split()[0] for text in found] == ["recipe-parallel-world"]
    else:
        assert [text.partition(" ")[2] for text in found] == expected


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The lists of layouts.py, with what planner.py would have written."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/gpu"))
    visit = ModuleType("visit")
    visit.__dict__.update(runpy.run_path(str(ROOT / "scripts/gpu/visit.py")))
    models = {"hy3": "/m/hy3", "qwen3-moe": "/m/qwen3-moe"}
    (tmp_path / "models.json").write_text(json.dumps(models), encoding="utf-8")
    module = runpy.run_path(str(ROOT / "scripts/gpu/layouts.py"))
    return module["Lists"](visit, tmp_path, {"A": "1"}), module["chosen"]


@pytest.mark.parametrize("stage", ["layouts", "resume", "active", "four"])
def test_the_lists_of_a_visit_are_in_an_order_that_can_be_stopped(lists: Any, stage: str) -> None:
    made, chosen = lists
    jobs: list[dict[str, Any]] = getattr(made, stage)()
    names = [job["name"] for job in jobs]
    assert len(names) == len(set(names)) > 4
    for number, job in enumerate(jobs):
        assert set(job.get("after", ())) <= set(names[:number]), job["name"]
        scripts = [word for word in job["command"] if str(word).startswith(f"{ROOT}/scripts/")]
        assert all(Path(word).is_file() for word in scripts)
        assert all(isinstance(word, str) for word in job["command"])
    # Only what is named, and what it waits for.
    last = names[-1]
    some = chosen(jobs, [last])
    assert some[-1]["name"] == last and len(some) < len(jobs)
    assert chosen(jobs, []) == jobs
    with pytest.raises(SystemExit, match="nothing-of-this"):
        chosen(jobs, ["nothing-of-this"])


def test_a_run_of_a_list_names_its_layout_and_takes_its_cards(lists: Any) -> None:
    jobs = {job["name"]: job for job in lists[0].layouts()}
    hy3, qwen = jobs["run-hy3-pp2"], jobs["run-qwen3-moe-pp2"]
    assert (hy3["cards"], qwen["cards"]) == (2, 2)
    assert "--layout=pp2" in hy3["command"] and "--arch=qwen3-moe" in qwen["command"]
    assert "model" in qwen["after"] and "model" not in hy3["after"]
    rank = jobs["weights-hy3-cp2"]
    assert rank["command"][2] == "2" and "config-megatron-cp2.json" in " ".join(rank["command"])
    four = {job["name"]: job for job in lists[0].four()}["run-hy3-pp2_cp2"]
    assert four["cards"] == 4
    assert "actor_rollout_ref.model.use_fused_kernels=true" in four["command"]


def test_every_pair_of_layouts_is_resumed_in_both_forms_once(lists: Any) -> None:
    pairs = lists[0].pairs()
    assert len(pairs) == len(set(pairs)) == 50
    assert [form for form, _, _ in pairs[:5]] == ["plain"] * 5


def test_no_command_uses_multicast(lists: Any) -> None:
    import yaml

    text = (ROOT / "recipes/rehearsal/runtime_env_gpu.yaml").read_text(encoding="utf-8")
    of_jobs = yaml.safe_load(text)["env_vars"]
    off = runpy.run_path(str(ROOT / "scripts/gpu/layouts.py"))["NO_MULTICAST"]
    three = {"NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"}
    assert three <= set(off)
    assert {name: of_jobs[name] for name in off} == off
