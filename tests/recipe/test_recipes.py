"""The recipes of the project: they compose, they pass, they share, and nothing is said twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report, Verdict
from reprise.recipe.card import card_of
from reprise.recipe.check import check
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree, tree_at
from reprise.recipe.folders import recipe_names
from reprise.recipe.load import Inputs, Loaded, load, verl_tree
from reprise.recipe.rules.engine import required
from reprise.recipe.show import command_line, differences, without_secrets
from reprise.rehearsal.toy import write_toy

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["hy3", "qwen3-30b-a3b", "qwen3-8b"]
ALGORITHMS = sorted(path.stem for path in (ROOT / "recipes/algorithms").glob("*.yaml"))


def checked(name: str, *overrides: str) -> tuple[Report, Loaded]:
    loaded = load(ROOT, name, [Line(text) for text in overrides])
    return check(loaded.composition, loaded.known, loaded.model, ROOT / "recipes"), loaded


def problems(report: Report) -> list[str]:
    return [f"{f.rule} {f.where}: {f.message}" for f in report.errors()]


@pytest.mark.parametrize("name", MODELS)
def test_a_recipe_passes(name: str) -> None:
    report, loaded = checked(name)
    assert problems(report) == []
    assert report.verdict is Verdict.OK, [c.rule for c in report.checks if c.state != "passed"]
    assert loaded.composition.faults == []


def test_the_rehearsal_passes_with_the_rows_that_it_writes(tmp_path: Path) -> None:
    report, loaded = checked("rehearsal")
    assert problems(report) == []
    assert report.verdict is Verdict.OK, [c.rule for c in report.checks if c.state != "passed"]
    data = write_toy(tmp_path, seed=0)
    known = loaded.known
    assert (known.rows, known.val_rows) == (data.train_rows, data.val_rows)
    for rows, prompts, file in (
        (known.rows, known.prompts, data.train),
        (known.val_rows, known.val_prompts, data.val),
    ):
        asked = [row[0]["content"] for row in pq.read_table(file)["prompt"].to_pylist()]
        assert (rows, prompts) == (len(asked), len(set(asked)))


def test_the_rows_of_another_file_are_not_taken_from_the_card() -> None:
    _, loaded = checked("rehearsal", "data.train_files=/share/train.parquet")
    assert (loaded.known.rows, loaded.known.val_rows) == (None, 256)


def test_the_musa_recipes_are_composed_with_the_release_that_the_plug_in_names() -> None:
    assert load(ROOT, "qwen3-8b").tree.version == "0.9.1"
    assert load(ROOT, "hy3").tree.version in ("0.9.0", "0.9.0.dev")


@pytest.mark.parametrize(
    ("override", "loggers"),
    [
        ("common/tracker=wandb", ["console", "file", "tensorboard", "wandb"]),
        ("common/tracker=swanlab", ["console", "file", "tensorboard", "swanlab"]),
        ("common/tracker=none", ["console", "file", "tensorboard"]),
    ],
)
def test_trackers_are_one_option_and_offline(override: str, loggers: list[str]) -> None:
    report, loaded = checked("hy3", override)
    assert problems(report) == []
    assert loaded.composition.values["trainer"]["logger"] == loggers
    for name in ("wandb", "swanlab"):
        variable = loaded.known.environment.get(f"{name.upper()}_MODE")
        assert variable == ("offline" if name in loggers else None)


def test_both_variants_of_hy3() -> None:
    _, published = checked("hy3")
    report, documented = checked("hy3", "hy3/variant=as_documented")
    assert problems(report) == []
    assert published.composition.values["reward"]["reward_manager"]["name"] == "naive"
    reward = documented.composition.values["reward"]
    assert reward["reward_manager"]["name"] == "dapo"
    assert reward["reward_kwargs"]["overlong_buffer_cfg"]["len"] == 4096
    assert reward["reward_kwargs"]["max_resp_len"] == 8192


def test_the_nine_settings_stand_in_one_group() -> None:
    text = (ROOT / "recipes/hy3/required.yaml").read_text(encoding="utf-8")
    needs = required()["hy_v3"]["megatron"]
    leaves = [key.rsplit(".", 1)[-1] for key in (*needs["set"], *needs["equal"])]
    assert len(leaves) == 9
    assert all(re.search(rf"^ +{leaf}:", text, re.MULTILINE) for leaf in set(leaves))
    others = [
        path
        for path in (ROOT / "recipes").rglob("*.yaml")
        if path.name != "required.yaml"
        and "moe_router_enable_expert_bias" in path.read_text(encoding="utf-8")
    ]
    # Another shape in the same engine turns Hy3's bias off again.
    assert [path.name for path in others] == ["megatron_qwen3-moe.yaml"]


# Every algorithm with one recipe and every recipe with one algorithm; `make test-full`: all pairs.
_PAIRS = [(name, algorithm) for name in MODELS for algorithm in ALGORITHMS]
_FEW = [pair for i, pair in enumerate(_PAIRS) if i % len(MODELS) == MODELS.index(pair[0])]


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [pytest.param(*pair, marks=() if pair in _FEW else pytest.mark.full) for pair in _PAIRS],
)
def test_algorithms_compose_or_are_refused_with_a_reason(name: str, algorithm: str) -> None:
    report, loaded = checked(name, f"algorithms={algorithm}")
    found = problems(report)
    if algorithm == "dapo_filtered":
        trainer = loaded.tree.package / "trainer/ppo/v1"
        reads = any(
            "filter_groups" in path.read_text(encoding="utf-8") for path in trainer.glob("*.py")
        )
        assert (found == []) is reads
        assert reads or found[0].startswith("recipe-algorithm-filter-groups")
    else:
        assert found == []


def test_dapo_says_that_it_has_no_dynamic_sampling() -> None:
    report, _ = checked("qwen3-8b", "algorithms=dapo")
    assert any("DAPO without dynamic sampling" in f.message for f in report.findings)
    report, _ = checked("qwen3-8b", "algorithms=dapo_filtered")
    assert not any("dynamic sampling" in f.message for f in report.findings)
    report, _ = checked("qwen3-8b", "algorithms=grpo")
    assert not any("dynamic sampling" in f.message for f in report.findings)


def test_what_a_stand_in_reads_says_nothing_of_the_locked_verl(tmp_path: Path) -> None:
    wheel = find_tree(ROOT, "", "0.9.0").package.parent
    root = tmp_path / "project"
    (root / "third_party").mkdir(parents=True)
    (root / "recipes").symlink_to(ROOT / "recipes")
    (root / ".venv-rehearsal").symlink_to(ROOT / ".venv-rehearsal")
    for name in ("requirements", ".cache", "runtime_env.yaml"):
        (root / name).symlink_to(ROOT / name)
    lock = '[tree.verl]\npath = "third_party/verl"\nversion = "{}"\ncommit = "' + "a" * 40 + '"\n'
    for version, explicit, wanted in (
        ("0.9.0.dev", None, Verdict.UNKNOWN),
        ("0.9.0", None, Verdict.OK),
        ("0.9.0.dev", wheel, Verdict.OK),
    ):
        (root / "versions.lock").write_text(lock.format(version))
        inputs = Inputs(verl=explicit)
        made = load(root, "hy3", [Line("algorithms=dapo_filtered")], inputs)
        known = replace(made.known, rows=1000, val_rows=100)
        report = check(made.composition, known, made.model, ROOT / "recipes")
        assert report.verdict is wanted, [f.message for f in report.errors()]
        said = [f.message for f in report.findings if f.rule == "recipe-verl-tree"]
        assert ["instead of the locked verl" in text for text in said] == (
            [] if wanted is Verdict.OK else [True]
        )


def test_the_rehearsal_is_composed_with_what_it_runs(tmp_path: Path) -> None:
    package = tmp_path / "third_party/verl/verl/trainer/config"
    package.mkdir(parents=True)
    (package / "ppo_trainer.yaml").write_text("a: 1\n")
    (tmp_path / ".venv-rehearsal").symlink_to(ROOT / ".venv-rehearsal")
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    (tmp_path / ".cache").symlink_to(ROOT / ".cache")
    tree = verl_tree(tmp_path, card_of(ROOT / "recipes", "rehearsal"), None, lambda _: None)
    assert tree.version == "0.9.1"
    assert not tree.origin.startswith("third_party")


@pytest.mark.parametrize(
    ("arch", "recipe"), [("qwen3", "qwen3-8b"), ("qwen3-moe", "qwen3-30b-a3b")]
)
def test_the_rehearsal_of_a_shape_samples_as_its_recipe(arch: str, recipe: str) -> None:
    _, rehearsed = checked("rehearsal", f"rehearsal/arch={arch}")
    _, real = checked(recipe)
    a, b = (made.composition.values["actor_rollout_ref"]["rollout"] for made in (rehearsed, real))
    for key in ("n", "temperature", "top_k", "top_p"):
        assert a[key] == b[key]
        assert key == "n" or a["val_kwargs"][key] == b["val_kwargs"][key]
    assert a["top_p"] == 0.95


def test_an_algorithm_wins_over_the_shared_loss() -> None:
    _, loaded = checked("hy3", "algorithms=gspo")
    actor = loaded.composition.values["actor_rollout_ref"]["actor"]
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"]) == (3e-4, 4e-4)
    assert actor["policy_loss"]["loss_mode"] == "gspo"


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (("common/placement=colocated_async",), []),
        (("common/placement=separate",), ["recipe-trainer-mode", "recipe-trainer-mode"]),
        (
            (
                "common/placement=separate",
                "trainer.nnodes=16",
                "actor_rollout_ref.rollout.nnodes=8",
                "data.train_batch_size=512",
            ),
            [],
        ),
    ],
)
def test_placements(overrides: tuple[str, ...], wanted: list[str]) -> None:
    report, _ = checked("hy3", *overrides)
    assert [f.rule for f in report.errors()] == wanted


@pytest.mark.parametrize("option", ["careful", "all", "eager"])
def test_sglang_switches(option: str) -> None:
    report, loaded = checked("qwen3-30b-a3b", f"common/sglang={option}")
    assert problems(report) == []
    rollout = loaded.composition.values["actor_rollout_ref"]["rollout"]
    switches = rollout["engine_kwargs"]["sglang"]
    assert switches["attention_backend"] == "fa3"
    assert switches["disable_radix_cache"] is (option != "all")
    assert rollout["enforce_eager"] is (option == "eager")


def leaves(node: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(node, dict):
        return {prefix: node}
    found: dict[str, object] = {}
    for key, value in node.items():
        found |= leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_no_value_is_written_twice(name: str) -> None:
    # A recipe repeats no key that one of its shared groups has already set to the same value.
    loaded = load(ROOT, name)
    seen: dict[str, tuple[str, object]] = {}
    twice = []
    for file, _ in loaded.composition.files:
        path = ROOT / "recipes" / f"{file}.yaml"
        if not path.is_file():
            continue
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for dropped in ("defaults", "hydra"):
            content.pop(dropped, None)
        for key, value in leaves(content).items():
            # The nine settings of Hy3 stand together in one group, whatever else holds them.
            if key in seen and seen[key][1] == value and "required" not in file + seen[key][0]:
                twice.append(f"{key}: {seen[key][0]} and {file}")
            seen[key] = (file, value)
    assert twice == []


@pytest.mark.parametrize("name", MODELS)
def test_no_path_of_a_site_stands_in_a_recipe(name: str) -> None:
    loaded = load(ROOT, name)
    texts = [str(value) for value in leaves(loaded.composition.values).values()]
    absolute = [text for text in texts if text.startswith("/") and not text.startswith("/<")]
    assert [text for text in absolute if not text.startswith("/tmp/ray")] == []


def test_cards() -> None:
    assert set(MODELS) <= set(recipe_names(ROOT / "recipes"))
    for name in MODELS:
        card = card_of(ROOT / "recipes", name)
        assert card.status == "checked statically"
        assert card.train == "dapo-math-17k"
    with pytest.raises(OperatorError, match="available: "):
        card_of(ROOT / "recipes", "none")


def test_a_damaged_card(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("")
    assert card_of(tmp_path, "x").status == "not run"
    for text, part in (("a = ", "not valid TOML: "), ("title = 3", "invalid entries: ")):
        (folder / "card.toml").write_text(text)
        with pytest.raises(OperatorError) as caught:
            card_of(tmp_path, "x")
        assert caught.value.message.startswith(part)


def test_show_masks_credentials_and_names_the_origin() -> None:
    from reprise.recipe.config.origin import Origins

    lines = [Line("data.train_batch_size=64"), Line("+trainer.hub_token=hf_0123456789abcdef")]
    loaded = load(ROOT, "hy3", lines)
    rows = {row["key"]: row for row in differences(loaded, Origins(loaded.composition, None))}
    assert rows["data.train_batch_size"]["where"].startswith("command line")
    assert "hf_0123" not in str(without_secrets(loaded.composition.values))
    text = command_line("hy3", loaded.composition.lines)
    assert "hf_0123" not in text
    assert text.startswith("python3 -m verl.trainer.main_ppo --config-name hy3/recipe ")
    assert "data.train_batch_size=64" in text


def test_trees_of_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperatorError, match="ppo_trainer"):
        find_tree(tmp_path, "verl", "0.9.1", tmp_path)
    with pytest.raises(CannotTell, match="with its hashes"):
        find_tree(tmp_path, "verl", "0.9.1")
    # A line whose hash is not that of the wheel is refused, and leaves nothing behind.
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/x.txt").write_text(f"verl==0.9.1 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(CannotTell, match="could not be fetched"):
        find_tree(tmp_path, "verl", "0.9.1")
    assert list((tmp_path / ".cache").iterdir()) == []
    # A checkout at another commit than the locked one is passed over.
    package = tmp_path / "third_party/verl/verl/trainer/config"
    package.mkdir(parents=True)
    (package / "ppo_trainer.yaml").write_text("a: 1\n")
    found = find_tree(tmp_path, "verl", "0.9.1")
    assert found.origin == "third_party/verl"
    assert found.version == "unknown"
    with pytest.raises(CannotTell):
        find_tree(tmp_path, "verl", "0.9.1", commit="0" * 40)
    assert tree_at(tmp_path, "nothing") is None


def test_rows_of_another_file_are_its_own(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "train.parquet"
    pq.write_table(pa.table({"prompt": list(range(300))}), file)
    report, loaded = checked("hy3", f"data.train_files={file}")
    assert (loaded.known.rows, loaded.known.prompts) == (300, None)
    assert any("2 steps per epoch, 44 rows" in f.message for f in report.findings)
    file.write_bytes(b"no parquet")
    _, loaded = checked("hy3", f"data.train_files={file}")
    assert loaded.known.rows is None
    report, loaded = checked("hy3", "data.train_files=/elsewhere/train.parquet")
    assert loaded.known.rows is None
    assert report.verdict is Verdict.UNKNOWN
