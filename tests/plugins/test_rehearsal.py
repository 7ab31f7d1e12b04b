"""The bridges in the rehearsal's environment: real verl, real vLLM, no Ray."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PROBES, REPOSITORY, result

pytestmark = pytest.mark.rehearsal

Run = Callable[..., subprocess.CompletedProcess[str]]

#: Trees of verl beside the installed one: the locked checkout, or one that the caller names.
TREES = [
    tree
    for tree in (
        Path(os.environ.get("REPRISE_TEST_VERL_TREE", REPOSITORY / "third_party" / "verl")),
    )
    if (tree / "verl" / "__init__.py").is_file()
]
VERLS = [None, *TREES]


def verl_id(tree: Path | None) -> str:
    return "installed" if tree is None else tree.name


@pytest.mark.parametrize("tree", VERLS, ids=verl_id)
def test_every_assertion_holds(rehearse: Run, tree: Path | None) -> None:
    run = rehearse("-m", "reprise_plugins", "--json", "--all", *(["--tree", tree] if tree else []))
    assert run.returncode == 0, run.stdout + run.stderr
    bridges = {bridge["name"]: bridge for bridge in json.loads(run.stdout)["bridges"]}
    needed = {name for name, bridge in bridges.items() if bridge["state"] == "applies"}
    assert {"platform", "vllm-name", "process-group", "live-weights", "engine"} <= needed
    assert {"seeds", "sampler"} <= needed


ACTIVATED = """
import json
import verl
from importlib.metadata import version
from verl.utils.device import get_device_name, get_device_id, is_support_ipc
from verl.utils.distributed import initialize_global_process_group_ray as start
from verl.workers.rollout.vllm_rollout import ServerAdapter
from verl.workers.config import HFModelConfig
import reprise_plugins.engine
from verl.workers.engine import EngineRegistry
from verl.utils.import_utils import load_extern_type
from verl.utils.attention_utils import pad_input, unpad_input
import torch, torch.distributed
start()
rows, mask = torch.randn(2, 3, 4), torch.tensor([[1, 1, 0], [1, 1, 1]])
flat, where, lengths, longest, _ = unpad_input(rows, mask)
back = pad_input(flat, where, 2, 3)
from reprise_plugins.rollout import SeededAgentLoopManager
print("RESULT " + json.dumps({
    "verl": verl.__file__,
    "vllm": version("vllm"),
    "device": [get_device_name(), str(torch.zeros(1).to(get_device_id()).device)],
    "named": f"{get_device_name()}:{get_device_id()}",
    "ipc": is_support_ipc(),
    "backend": torch.distributed.get_backend(),
    "engines": [
        EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__,
        EngineRegistry.get_engine_cls("value_model", "fsdp2").__name__,
    ],
    "sampler": load_extern_type("pkg://reprise_plugins.sampler", "FastReplayBuffer").__name__,
    "padding": [torch.equal(back, rows * mask[..., None]), lengths.tolist(), longest],
    "manager": SeededAgentLoopManager.__mro__[1].__name__,
}))
"""


@pytest.mark.parametrize("tree", VERLS, ids=verl_id)
def test_verl_with_the_platform_of_a_cpu(rehearse: Run, tree: Path | None) -> None:
    run = rehearse(
        "-c",
        ACTIVATED,
        tree=tree,
        VERL_PLATFORM="cpu",
        RANK="0",
        WORLD_SIZE="1",
        DIST_INIT_METHOD="tcp://127.0.0.1:0",
        OMP_NUM_THREADS="1",
    )
    answer = result(run)
    if tree is not None:
        assert answer["verl"].startswith(str(tree))
    assert answer["vllm"].endswith("+cpu")
    assert answer["device"] == ["cpu", "cpu"] and answer["named"] == "cpu:0"
    assert answer["ipc"] is False and answer["backend"] == "cpu:gloo"
    assert answer["engines"] == ["BridgedLanguageModelEngine", "BridgedValueModelEngine"]
    assert answer["sampler"] == "FastReplayBuffer"
    assert answer["padding"] == [True, [0, 2, 5], 3]
    assert answer["manager"] == "AgentLoopManagerTQ"


def test_a_changed_verl_is_refused_with_what_to_install(rehearse: Run, tmp_path: Path) -> None:
    where = rehearse("-c", "import importlib.util as u; print(u.find_spec('verl').origin)")
    package = Path(where.stdout.strip()).parent
    (tmp_path / "verl").mkdir()
    for entry in package.iterdir():
        if entry.name != "utils":
            (tmp_path / "verl" / entry.name).symlink_to(entry)
    (tmp_path / "verl" / "utils").mkdir()
    for entry in (package / "utils").iterdir():
        if entry.name != "distributed.py":
            (tmp_path / "verl" / "utils" / entry.name).symlink_to(entry)
    text = (package / "utils" / "distributed.py").read_text(encoding="utf-8")
    changed = text.replace("    if not torch.distributed.is_initialized():\n", "    if True:\n")
    assert changed != text
    (tmp_path / "verl" / "utils" / "distributed.py").write_text(changed)
    run = rehearse("-c", "import verl", tree=tmp_path, VERL_PLATFORM="cpu")
    assert run.returncode == 1
    assert "bridge P1 (process-group)" in run.stderr and "verl==0.9.1" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_live_weight_update_changes_what_vllm_computes(
    rehearse: Run, tiny: Path, dtype: str
) -> None:
    answer = result(rehearse(PROBES / "live_update.py", tiny, dtype))
    expected = json.loads((tiny / "expected.json").read_text(encoding="utf-8"))

    def distance(one: list[list[float]], other: list[list[float]]) -> float:
        pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
        return sum(abs(a - b) for a, b in pairs) / len(pairs)

    # The update is large: it cannot be mistaken for rounding.
    moved = distance(expected["before"], expected["after"])
    assert moved > 0.5
    bound = {"float32": 1e-5, "bfloat16": 0.1}[dtype]
    assert distance(answer["before"], expected["before"]) < bound
    assert distance(answer["after"], expected["after"]) < bound
    # The same prompt with the same seed, whatever else is in the batch: tokens and log-probs.
    assert answer["batches_that_differ"] == 0
