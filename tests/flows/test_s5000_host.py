"""What would reach a host with Moore Threads S5000: command, variables, Ray's resources.

No such host is to be had here. What is submitted is held against the public four-node page and the
public runtime environment of the vendor's developers; each difference stands below with its reason.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from reprise.cluster.commands import node_command
from reprise.cluster.record import Node
from reprise.cluster.site import Paths, Site
from reprise.core.project import find_project
from reprise.flows.train.job import TrainJob, TrainOptions, prepare_task
from reprise.machines.registry import machine_named
from reprise.recipe.config.compose import compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree
from reprise.recipe.script import read_script
from reprise.runs.supervise.resume import Resume
from tests.cluster.make import record as made_record

pytestmark = pytest.mark.rehearsal

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/recipe/scripts/published_8b.sh"
SITE = Site(paths=Paths(model="/share/Qwen3-8B", data="/share/data", checkpoints="/fast/ckpt"))
MODELS = ("qwen3-8b", "qwen3-30b-a3b")
A = "actor_rollout_ref"

# Of the public runtime environment, what is not the site's (interfaces, libraries, tuning of MCCL).
PUBLISHED = {
    "VERL_PLATFORM": "musa",
    "VERL_USE_EXTERNAL_MODULES": "verl_hardware_plugin",
    "RAY_EXPERIMENTAL_NOSET_MUSA_VISIBLE_DEVICES": "1",
    "MUSA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    "ACCELERATOR_BACKEND": "musa",
    "MUSA_EXECUTION_TIMEOUT": "3000000",
    "MCCL_TIMEOUT": "600000",
    "SGLANG_MUSA_GRAPH_COMPAT": "1",
}
CORRECTED = {
    # verl's list of such switches has no MUSA entry: without it every worker takes GPU 0.
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    # The SGLang server holds no GPU of Ray's and must see all.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
VENDORS = ("VERL_", "MUSA_", "MCCL_", "SGLANG_", "ACCELERATOR_", "RAY_EXPERIMENTAL_", "RAY_ACCEL_")

# Key to (the page's value, ours): the faults of the page, corrected.
FAULTS: dict[str, tuple[Any, Any]] = {
    # 8 stages do not divide 36 layers; TP 2 x PP 2 are those of the public two-node script.
    f"{A}.actor.megatron.pipeline_model_parallel_size": (8, 2),
    f"{A}.actor.megatron.tensor_model_parallel_size": (1, 2),
    # The locked verl asserts it, and then loads Hugging Face weights itself.
    f"{A}.actor.megatron.use_mbridge": (False, True),
    f"{A}.actor.megatron.use_dist_checkpointing": (True, False),
    f"{A}.actor.megatron.dist_checkpointing_path": ("/data/mcore/Qwen3-8B", None),
    # 48 layers at a time of 36.
    f"{A}.actor.megatron.override_transformer_config.recompute_num_layers": (48, 1),
    # The model is dense.
    f"{A}.ref.megatron.expert_model_parallel_size": (8, 1),
    # One server of 32 GPUs instead of 16.
    f"{A}.rollout.data_parallel_size": (16, 1),
}
CHOSEN: dict[str, tuple[Any, Any]] = {
    # The reference is logged and has no weight in the loss, as in the Hy3 run.
    f"{A}.actor.kl_loss_coef": (0.001, 0.0),
}
PLACES = {"data.train_files", "data.val_files", f"{A}.model.path", "trainer.default_local_dir"}


def job(model: str, *overrides: str) -> TrainJob:
    options = TrainOptions(model, overrides=overrides)
    return prepare_task(find_project(), options, SITE, machine_named("s5000"), "python3")


def value(values: dict[str, Any], key: str) -> Any:
    node: Any = values
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def corrected_page(folder: Path) -> list[Line]:
    """The page's overrides, without the comment that ends its command and the missing config."""
    text = PAGE.read_text(encoding="utf-8")
    kept = [
        line
        for line in text.splitlines()
        if "# the reference model" not in line and "--config-" not in line
    ]
    path = folder / "page.sh"
    path.write_text("\n".join(kept) + "\n")
    script = read_script(path)
    return [Line("model_engine=megatron"), *script.lines(script.launches[0])]


def test_the_settings_are_those_of_the_page_with_its_faults_corrected(tmp_path: Path) -> None:
    lines = corrected_page(tmp_path)
    assert len(lines) > 30
    tree = find_tree(ROOT, "no-checkout", "0.9.1")
    theirs = compose("ppo_trainer", tree, lines)
    assert theirs.faults == []
    ours = job("qwen3-8b").values
    keys = [line.text.lstrip("+").split("=")[0] for line in lines[1:]]
    assert set(FAULTS) | set(CHOSEN) <= set(keys)
    differing = {
        key: (value(theirs.values, key), value(ours, key))
        for key in keys
        if key not in PLACES and value(theirs.values, key) != value(ours, key)
    }
    assert differing == FAULTS | CHOSEN


@pytest.mark.parametrize("model", MODELS)
def test_the_variables_are_the_published_ones_and_two_more(model: str) -> None:
    made = job(model).runtime_env("r1", "/runs/r1", 1, True, None)["env_vars"]
    of_vendor = {
        name: text
        for name, text in made.items()
        if name.startswith(VENDORS) and name != "VERL_FILE_LOGGER_PATH"
    }
    assert of_vendor == PUBLISHED | CORRECTED
    # Everything that depends on the vendor comes from its profile and its file.
    machine = machine_named("s5000")
    for name, text in {
        **machine.profile.ray_variables,
        **machine.accelerator.job_variables,
    }.items():
        assert made[name] == text, name
    assert made["PYTHONPATH"].split(":")[-2:] == [
        "/home/Megatron-LM",
        "/home/megatron-lm-musa-patch",
    ]
    assert "third_party/verl-hardware-plugin" in made["PYTHONPATH"]


@pytest.mark.parametrize("model", MODELS)
def test_the_command(model: str) -> None:
    words = shlex.split(job(model).entrypoint(Resume(None, None, 0), "/runs/r1", 1))
    assert words[:5] == ["exec", "python3", "-m", "reprise.runs.inside", "verl.trainer.main_ppo"]
    assert words[words.index("--config-name") + 1] == f"{model}/recipe"
    assert words[-2:] == ["--config-path", "$PWD/recipes"]


@pytest.mark.parametrize(("model", "servers", "tp"), [("qwen3-8b", 16, 2), ("qwen3-30b-a3b", 8, 4)])
def test_the_job_asks_ray_for_what_the_hosts_offer(model: str, servers: int, tp: int) -> None:
    task = job(model)
    trainer, rollout = task.values["trainer"], task.values[A]["rollout"]
    assert (task.nodes, trainer["n_gpus_per_node"], task.world) == (4, 8, 32)
    assert rollout["tensor_model_parallel_size"] == tp
    assert task.world // (tp * rollout["data_parallel_size"]) == servers
    assert (trainer["device"], rollout["name"]) == ("musa", "sglang")
    assert rollout["engine_kwargs"]["sglang"]["device"] == "musa"
    assert rollout["engine_kwargs"]["sglang"]["attention_backend"] == "fa3"
    names = [f"s5000-{number}" for number in range(task.nodes)]
    nodes = [
        Node(name=name, slots=8, ip=f"10.0.0.{number}", interface="bond0")
        for number, name in enumerate(names, start=1)
    ]
    record = made_record("s5000", nodes, root="/tmp/reprise-c1")
    offered = 0
    for node in nodes:
        command = node_command(record, node, machine_named("s5000"), SITE)
        # Stock Ray counts none of these GPUs itself; its own resource GPU stays.
        assert "--num-gpus=8" in command.words
        assert not [word for word in command.words if word.startswith("--resources")]
        assert dict(command.variables) | CORRECTED == dict(command.variables)
        assert command.variables["VERL_PLATFORM"] == "musa"
        for name in ("MCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            assert command.variables[name] == "bond0"
        offered += node.slots
    assert offered == task.world
