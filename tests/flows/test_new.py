"""`reprise new recipe`: the facts that it reads, what it writes, and the check of it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Verdict
from reprise.core.project import Project
from reprise.flows.new.facts import data_facts, machine_facts
from reprise.flows.new.new import NewRecipe, new_recipe
from reprise.flows.recipe import check_recipe
from reprise.lock.read import read_lock
from reprise.lock.rewrite import add_entry
from reprise.machines.registry import machine_named
from reprise.recipe.load import load

ROOT = Path(__file__).resolve().parents[2]
# A dense model of 1.5 thousand million parameters.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 151936,
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 131072,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project with a lock of its own, and a folder of recipes outside it."""
    root = tmp_path / "project"
    root.mkdir()
    for name in ("recipes", "requirements", "runtime_env.yaml", ".venv-rehearsal", "third_party"):
        if (ROOT / name).exists():
            (root / name).symlink_to(ROOT / name)
    (root / ".cache").mkdir()
    for folder in (ROOT / ".cache").glob("verl-*"):
        (root / ".cache" / folder.name).symlink_to(folder)
    (root / "versions.lock").write_bytes((ROOT / "versions.lock").read_bytes())
    (tmp_path / "mine").mkdir()
    (tmp_path / "site.toml").write_text("")
    monkeypatch.setenv("REPRISE_RECIPES", str(tmp_path / "mine"))
    monkeypatch.setenv("SITE", str(tmp_path / "site.toml"))
    for name in ("REPRISE_DATA_DIR", "DATA_DIR", "TRAIN_FILES", "VAL_FILES", "REPRISE_MODEL_DIR"):
        monkeypatch.delenv(name, raising=False)
    return Project(root)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def data(path: Path, lengths: list[int]) -> Path:
    """Prompts of these many characters."""
    prompts = [[{"role": "user", "content": f"{i}".ljust(n, "x")}] for i, n in enumerate(lengths)]
    rewards = [{"style": "rule", "ground_truth": "1"}] * len(lengths)
    table = {"data_source": ["math_dapo"] * len(lengths), "prompt": prompts}
    pq.write_table(pa.table({**table, "reward_model": rewards}), path)
    return path


def lock_it(project: Project, kind: str, name: str, **values: Any) -> None:
    text = project.lock.read_text()
    made = add_entry(text, (kind, name), {"machines": ["h20"], **values}, {})
    project.lock.write_text(made)


def test_a_recipe_of_ones_own_passes_the_check(
    project: Project, model: Path, tmp_path: Path
) -> None:
    train = data(tmp_path / "train.parquet", [300] * 900 + [900] * 100)
    wanted = NewRecipe("mine", "qwen3-8b", "h20", str(model), str(train), response=4096)
    report = new_recipe(project, wanted)
    assert report.verdict is Verdict.OK
    folder = tmp_path / "mine/mine"
    assert report.data["folder"] == str(folder)
    assert [item.rule for item in report.findings] == [
        *("new-recipe-lock", "new-recipe-lock", "new-recipe-length", "new-recipe-decide")
    ]
    loaded = load(project.root, "mine")
    wrong = {f.message.split(" is ")[0] for f in check_recipe(project, loaded).errors()}
    assert wrong == {"model.mine", "data.mine"}
    lock_it(project, "model", "mine", unpinned="a test")
    lock_it(project, "data", "mine", file="t", path="mine/train.parquet", unpinned="a test",
            rows=1000, unique_prompts=1000)  # fmt: skip
    loaded = load(project.root, "mine")
    checked = check_recipe(project, loaded)
    assert [item.message for item in checked.errors()] == []
    assert checked.verdict is Verdict.OK, [c.rule for c in checked.checks if c.state != "passed"]
    values = loaded.composition.values
    assert values["data"]["max_prompt_length"] == 384  # 900 characters are about 300 tokens
    assert "characters / 3" in (folder / "recipe.yaml").read_text()
    assert values["actor_rollout_ref"]["rollout"]["name"] == "vllm"
    assert loaded.card.model.config == {
        key: value for key, value in CONFIG.items() if key not in ("architectures", "torch_dtype")
    }
    layout = report.data["layout"]
    assert layout["nodes"] == values["trainer"]["nnodes"] == 1
    assert len(report.data["others"]) == 2
    assert report.data["others"][1]["nodes"] == 2
    assert "[validation]" in (folder / "judge.toml").read_text()
    assert tomllib.loads((folder / "judge.toml").read_text())["reward"]
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["defaults"][0] == "/ppo_trainer"


@pytest.mark.full
def test_the_bases_own_groups_stay_for_its_family(project: Project, tmp_path: Path) -> None:
    report = new_recipe(project, NewRecipe("hy3-b", "hy3", nodes=16))
    assert report.data["layout"]["nodes"] == 16
    text = (tmp_path / "mine/hy3-b/recipe.yaml").read_text()
    assert "- /hy3/required\n" in text and "- /hy3/variant: as_published\n" in text
    loaded = load(project.root, "hy3-b")
    assert [item.message for item in check_recipe(project, loaded).errors()] == []


def test_a_machine_without_a_recipe_has_the_facts_of_its_profile(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprise.flows.new.facts.recipe_names", lambda _: [])
    part = machine_facts(project, read_lock(project.lock), machine_named("mi300x"))
    assert (part.gpu, part.image) == ("AMD Instinct MI300X (192 GB)", "")
    assert (part.gpu_memory, part.bf16_tflops) == (191.4, 1307.0)
    unknown = machine_facts(project, read_lock(project.lock), machine_named("s5000"))
    assert unknown.bf16_tflops is None, "no maker's figure in its profile: never a guess"


def test_outliers_do_not_set_the_limit(project: Project, tmp_path: Path) -> None:
    lock = read_lock(project.lock)
    file = data(tmp_path / "a.parquet", [300] * 999 + [30000])
    found = data_facts(project, lock, "mine", str(file), None)
    assert (found.limit, found.longest, found.over) == (128, 10000, 1)
    file = data(tmp_path / "b.parquet", [300, 500])
    assert data_facts(project, lock, "mine", str(file), None).limit == 256


def test_a_file_that_is_locked_keeps_its_name(project: Project, tmp_path: Path) -> None:
    file = data(tmp_path / "a.parquet", [300])
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    lock_it(project, "data", "other", file="t", path="x/y.parquet", sha256=digest)
    found = data_facts(project, read_lock(project.lock), "mine", str(file), None)
    assert (found.lock, found.path, found.rows) == ("other", "x/y.parquet", 1)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"name": "Mine"}, OperatorError, "lower-case"),
        ({"name": "../x"}, OperatorError, "lower-case"),
        ({"name": "hy3"}, OperatorError, "exists"),
        ({"base": "nowhere"}, OperatorError, "unknown recipe"),
        ({"machine": "toaster"}, OperatorError, "toaster"),
        ({"machine": "cpu"}, OperatorError, "no settings"),
        ({"model": "/nowhere"}, OperatorError, "neither"),
        ({"model": "Qwen/Qwen3-32B"}, CannotTell, "hub"),
        ({"data": "nowhere.parquet"}, OperatorError, "neither"),
        ({"response": 10**6}, OperatorError, "positions"),
        ({"base": "rehearsal", "machine": "h20"}, OperatorError, ""),
    ],
)
def test_what_cannot_be_made_writes_nothing(
    project: Project, tmp_path: Path, change: dict[str, Any], error: type, words: str
) -> None:
    wanted = NewRecipe(**{"name": "mine", "base": "qwen3-8b", "machine": "h20", **change})
    with pytest.raises(error) as raised:
        new_recipe(project, wanted)
    assert words in str(raised.value) and raised.value.fix
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"model_type": "gpt2"}, "gpt2"),
        ({"hidden_size": "big"}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_a_size_is_never_invented(
    project: Project, model: Path, change: dict[str, Any], words: str
) -> None:
    (model / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(OperatorError, match=words):
        new_recipe(project, NewRecipe("mine", "qwen3-8b", "h20", str(model)))


# Public models, as their config.json names them; none was made for these tests.
PUBLIC: dict[str, dict[str, Any]] = {
    "dense": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 32768,
        "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    },
    "odd-heads": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 7168,
        "intermediate_size": 20480, "num_hidden_layers": 60, "num_attention_heads": 56,
        "num_key_value_heads": 8, "vocab_size": 64000, "max_position_embeddings": 4096,
        "rope_theta": 5000000.0, "tie_word_embeddings": False,
    },
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "gemma2": {"head_dim": 256, "final_logit_softcapping": 30.0, "sliding_window": 4096},
    "phi3": {"sliding_window": 2047, "original_max_position_embeddings": 4096},
    "deepseek_v2": {"n_routed_experts": 64, "kv_lora_rank": 512, "moe_intermediate_size": 1408},
    "qwen2_moe": {"num_experts": 60, "shared_expert_intermediate_size": 5632},
    "internlm2": {"auto_map": {"AutoModelForCausalLM": "modeling_internlm2.InternLM2ForCausalLM"}},
    "olmo2": {"attention_bias": False},
    "granite": {"attention_multiplier": 0.015625, "logits_scaling": 8.0},
    "falcon": {"multi_query": True, "parallel_attn": True},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_model_gets_a_recipe_or_a_reason(
    project: Project, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "public"
    folder.mkdir()
    sizes = {key: PUBLIC["dense"][key] for key in PUBLIC["dense"] if key != "architectures"}
    config = PUBLIC[name] if "hidden_size" in PUBLIC[name] else sizes | PUBLIC[name]
    config = {**config, "model_type": PUBLIC[name].get("model_type", name)}
    (folder / "config.json").write_text(json.dumps(config))
    wanted = NewRecipe("mine", "qwen3-8b", "h20", str(folder), response=2048)
    if name in ("dense", "odd-heads"):
        report = new_recipe(project, wanted)
        assert report.verdict is Verdict.OK and report.data["layout"]
        return
    with pytest.raises(CannotTell, match=f"'{name}'.*no layout") as caught:
        new_recipe(project, wanted)
    assert "families.toml" in caught.value.fix and not (tmp_path / "mine/mine").exists()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        # A missing size is not 0: an MLP without a width would make a model of a third of its size.
        ({"intermediate_size": None}, OperatorError, "intermediate_size"),
        ({"num_hidden_layers": "28"}, OperatorError, "num_hidden_layers"),
        ({"quantization_config": {"quant_method": "gptq"}}, CannotTell, "gptq"),
        ({"architectures": ["Qwen2ForSequenceClassification"]}, CannotTell, "Qwen2ForSequence"),
        ({"architectures": ["LlavaQwenForCausalLM"], "vision_config": {}}, CannotTell, "LlavaQwen"),
        ({"model_type": None}, CannotTell, "not stated"),
        ({"model_type": "qwen3_moe", "architectures": None}, OperatorError, "num_experts"),
        (
            {"model_type": "qwen3_moe", "architectures": None, "num_experts": 8},
            OperatorError,
            "moe_intermediate_size, num_experts_per_tok",
        ),
    ],
)
def test_what_config_does_not_say_is_not_made_up(
    project: Project,
    model: Path,
    change: dict[str, Any],
    error: type[OperatorError],
    said: str,
) -> None:
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=said):
        new_recipe(project, NewRecipe("mine", "qwen3-8b", "h20", str(model), response=2048))
