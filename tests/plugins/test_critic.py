"""The critic's engine in the rehearsal's environment: real verl, real transformers, no Ray."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PROBES, result
from .test_rehearsal import VERLS, verl_id

pytestmark = pytest.mark.rehearsal

Run = Callable[..., subprocess.CompletedProcess[str]]

ALONE = {
    "VERL_PLATFORM": "cpu",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "DIST_INIT_METHOD": "tcp://127.0.0.1:0",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
QWEN = """
import sys
from transformers import Qwen3Config, Qwen3ForCausalLM
config = Qwen3Config(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                     num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                     tie_word_embeddings=False, dtype="float32")
config.architectures = ["Qwen3ForCausalLM"]
Qwen3ForCausalLM(config).float().save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def models(rehearse: Run, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("qwen")
    made = rehearse("-c", QWEN, folder)
    assert made.returncode == 0, made.stderr
    return {"HYV3": tiny / "model", "Qwen3": folder}


@pytest.mark.parametrize("family", ["HYV3", "Qwen3"])
@pytest.mark.parametrize("tree", VERLS, ids=verl_id)
def test_a_critic_is_loaded_and_learns(
    rehearse: Run, models: dict[str, Path], family: str, tree: Path | None
) -> None:
    answer = result(rehearse(PROBES / "critic.py", models[family], tree=tree, **ALONE))
    assert answer["engine"] == "CriticEngine"
    assert answer["module"] == f"{family}ForTokenClassification"
    assert answer["attention"] == "sdpa"
    assert answer["shape"] == [3, 7, 1]
    first, second = answer["losses"]
    assert second < first
    # The settings that verl goes on with are those that it gave.
    assert answer["settings"] == ["value_model", [f"{family}ForCausalLM"]]
    assert answer["same"] is True


@pytest.mark.parametrize("family", ["HYV3", "Qwen3"])
def test_without_it_verl_asks_for_another_package(
    rehearse: Run, models: dict[str, Path], family: str
) -> None:
    run = rehearse(PROBES / "critic.py", models[family], "--stock", **ALONE)
    assert run.returncode != 0
    assert "is not a value head model, please install trl" in run.stderr
