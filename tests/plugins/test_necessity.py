"""Each bridge left out: what then fails. Run once a release of verl or vLLM, not in CI."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PROBES
from .test_rehearsal import TREES

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

Run = Callable[..., subprocess.CompletedProcess[str]]

GROUP = "RANK=0 WORLD_SIZE=1 DIST_INIT_METHOD=tcp://127.0.0.1:0 OMP_NUM_THREADS=1"
BARE = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "none"}
BARE |= dict(setting.split("=", 1) for setting in GROUP.split())

PINNED = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
import torch
model = torch.nn.Linear(4, 4)
fully_shard(model, mesh=init_device_mesh("cpu", (1,)),
            offload_policy=CPUOffloadPolicy(pin_memory=True))
model(torch.randn(2, 4))
"""

#: (bridge, what is run without it, what it must die of)
CASES = [
    (
        "platform",
        "import verl; from verl.utils.device import get_device_name as n; n()",
        "Unknown platform 'cpu'",
    ),
    (
        "vllm-name",
        "import reprise_plugins.platform_cpu; import verl.third_party.vllm",
        "vllm version None not supported",
    ),
    (
        "process-group",
        "import reprise_plugins.platform_cpu; from verl.utils import distributed as d;"
        "d.initialize_global_process_group_ray()",
        "cpu:gloo,cpu:gloo",
    ),
    (
        "engine",
        "import reprise_plugins.platform_cpu; from verl.workers.engine import EngineRegistry as e;"
        "e.get_engine_cls('language_model', 'fsdp2')",
        "No engine registered for device='cpu'",
    ),
    ("engine (offload to pinned memory)", PINNED, "pin"),
]


@pytest.mark.parametrize(("bridge", "code", "message"), CASES, ids=[case[0] for case in CASES])
def test_without_it(rehearse: Run, bridge: str, code: str, message: str) -> None:
    run = rehearse("-c", code, **BARE)
    assert run.returncode != 0
    assert message in run.stderr.splitlines()[-1] or message in run.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import reprise_plugins.platform_cpu, torch; from verl.utils.attention_utils import *;"
            "unpad_input(torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))",
            "No module named 'flash_attn'",
        ),
        (
            "from reprise_plugins import vllm_name; vllm_name.install();"
            "import reprise_plugins.platform_cpu; import verl.utils.vllm.vllm_fp8_utils",
            "cannot import name 'FusedMoE'",
        ),
    ],
    ids=["padding", "fused-moe-name"],
)
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_without_it_in_the_older_tree(rehearse: Run, tree: Path, code: str, message: str) -> None:
    run = rehearse("-c", code, tree=tree, **BARE)
    assert run.returncode != 0
    assert message in run.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ((), {"VLLM_PLUGINS": ""}, "into parameter (torch.Size([0]))"),
        (("--stock-experts",), {}, "'Parameter' object has no attribute 'weight_loader'"),
        (("--runtime-names",), {}, "KeyError: 'layers.1.mlp.e_score_correction_bias'"),
    ],
    ids=["live-weights (linear)", "live-weights (experts)", "engine (names of Hy3 weights)"],
)
def test_without_it_a_weight_update_fails(
    rehearse: Run, tiny: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    run = rehearse(PROBES / "live_update.py", tiny, "float32", *arguments, **environment)
    assert run.returncode != 0
    assert message in run.stdout + run.stderr


def test_one_seed_for_all_samples_makes_them_equal(rehearse: Run, tiny: Path) -> None:
    """What verl's rollout.full_determinism does: one seed a replica (vllm_async_server.py)."""
    run = rehearse(PROBES / "same_seed.py", tiny, OMP_NUM_THREADS="1")
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("distinct")]
    assert lines == ["distinct with one seed: 1", "distinct with sample_seed: 8"], os.linesep.join(
        lines
    )
