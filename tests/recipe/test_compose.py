"""Composition with verl's real config files, and the diagnosis of single overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprise.core.errors import OperatorError
from reprise.core.findings import State
from reprise.curves.checks.comparable import Origin, comparable
from reprise.curves.reference import load_reference
from reprise.recipe.config.compose import Composition, compose
from reprise.recipe.config.origin import Origins
from reprise.recipe.config.overrides import Fault, Line, parse, read_lines
from reprise.recipe.config.schema import Schema, unknown_keys
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import load
from reprise.recipe.ruleset import ALL_RULES

MEGATRON = Line("model_engine=megatron")
TRANSFORMER = "actor_rollout_ref.actor.megatron.override_transformer_config"


def one(tree: VerlTree, *texts: str) -> Composition:
    return compose("ppo_trainer", tree, [MEGATRON, *(Line(text) for text in texts)])


@pytest.mark.parametrize(
    ("text", "rule", "fix"),
    [
        ("actor_rollout_ref.actor.fsdp_config.grad_offload=False", "recipe-override-unknown-key",
         "grad_offload"),
        ("+trainer.val_before_train=False", "recipe-override-plus",
         "write trainer.val_before_train"),
        ("+data.train_batch_size=64", "recipe-override-plus", "write data.train_batch_size=64"),
        ("++data.train_batch_size=64", "", ""),
        ("actor_rollout_ref.rollout.tensor_parallel_size=8", "recipe-override-unknown-key",
         "write actor_rollout_ref.rollout.tensor_model_parallel_size=8"),
        ("actor_rollout_ref.actor.ppo_max_token_len=16384", "recipe-override-unknown-key",
         "ppo_max_token_len_per_gpu=16384"),
        (f"{TRANSFORMER}.moe_router_bias_update_rate=0", "recipe-override-missing-plus",
         f"write +{TRANSFORMER}.moe_router_bias_update_rate=0"),
        (f"+{TRANSFORMER}.moe_router_bias_update_rate=0", "", ""),
        ("data.train_files=/data/run=1/train.parquet", "recipe-override-syntax",
         "\"data.train_files='/data/run=1/train.parquet'\""),
        ("data.train_files='/data/run=1/train.parquet'", "", ""),
        ("data.train_batch_size=1,2", "recipe-override-syntax", "[a,b]"),
        ("data.train_batch_size", "recipe-override-syntax", "KEY=VALUE"),
        ("data.train_files='a", "recipe-override-syntax", "close the quotes"),
        ("~data.nothing", "recipe-override-unknown-key", "remove the line"),
        ("model_engine=megatorn", "recipe-override-group", "megatron"),
        # Nothing is suggested that means something else.
        ("actor_rollout_ref.model.use_flash_attn=True", "recipe-override-unknown-key",
         "remove the line"),
        ("critic.policy_loss.loss_mode=gspo", "recipe-override-unknown-key", "remove the line"),
        ("actor_rollout_ref.rollout.top_q=1", "recipe-override-unknown-key", "remove the line"),
        ("actor_rollout_ref.model.use_kl_loss=True", "recipe-override-unknown-key",
         "remove the line"),
        ("algorithm.use_kl_loss=True", "recipe-override-unknown-key",
         "write actor_rollout_ref.actor.use_kl_loss=True"),
        ("data.maxPromptLength=9", "recipe-override-unknown-key", "write data.max_prompt_length=9"),
    ],
)  # fmt: skip
def test_each_line_is_judged(tree: VerlTree, text: str, rule: str, fix: str) -> None:
    faults = one(tree, text).faults
    assert [fault.rule for fault in faults if fault.fatal] == ([rule] if rule else [])
    assert all(fix in fault.fix for fault in faults if fault.fatal)


def test_all_errors_come_in_one_pass_and_the_rest_is_kept(tree: VerlTree) -> None:
    made = one(tree, "a.b=1", "data.train_batch_size=7", "+data.shuffle=True", "c=[")
    assert [fault.line.text for fault in made.faults] == ["a.b=1", "+data.shuffle=True", "c=["]
    assert made.values["data"]["train_batch_size"] == 7


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("rehearsal/arch=qwen3", False),
        # The recipe's own choice has no file: nothing is added to it.
        ("rehearsal/arch=hy3", False),
        ("rehearsal/arch=qwen", True),
        ("rehearsal/critic=nope", True),
        ("algorithms=nope", True),
    ],
)
def test_a_choice_that_hydra_passes_over_is_refused(
    root: Path, recipes: Path, text: str, refused: bool
) -> None:
    tree = load(root, "rehearsal").tree
    made = compose("rehearsal/recipe", tree, [Line(text)], recipes)
    assert [fault.rule for fault in made.faults] == ["recipe-override-group"] * refused
    assert [line.text for line in made.lines] == [] if refused else [text]


def test_a_key_set_twice(tree: VerlTree) -> None:
    made = one(tree, "data.train_batch_size=7", "data.train_batch_size=8")
    assert made.values["data"]["train_batch_size"] == 8
    assert [fault.rule for fault in made.faults] == ["recipe-override-repeated"]
    assert not made.faults[0].fatal


def test_an_added_key_can_be_set_again(tree: VerlTree) -> None:
    made = one(tree, f"+{TRANSFORMER}.x=1", f"{TRANSFORMER}.x=2")
    assert [fault.rule for fault in made.faults if fault.fatal] == []


def test_an_unset_variable_is_shown_as_such(
    tree: VerlTree, recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REPRISE_RUN_DIR", raising=False)
    made = compose("hy3/recipe", tree, [], recipes)
    assert "REPRISE_RUN_DIR" in made.unset
    assert made.values["trainer"]["default_local_dir"] == "/<REPRISE_RUN_DIR>/checkpoints"
    monkeypatch.setenv("REPRISE_RUN_DIR", "/share/run")
    made = compose("hy3/recipe", tree, [], recipes)
    assert made.values["trainer"]["default_local_dir"] == "/share/run/checkpoints"


def test_a_slip_in_a_recipe_is_found(tree: VerlTree, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(
        "# @package _global_\ndefaults:\n  - /ppo_trainer\n  - _self_\n"
        "data:\n  train_batchsize: 3\n"
        "actor_rollout_ref:\n  rollout:\n    tensor_parallel: 2\n    enable_sleep_mode: false\n"
        "    engine_kwargs:\n      vllm:\n        anything: 1\n"
        "reward:\n  reward_kwargs:\n    max_resp_len: 1\n"
    )
    made = compose("x/recipe", tree, [], tmp_path)
    found = list(unknown_keys(made.values, made.base, Schema(tree)))
    assert found == ["actor_rollout_ref.rollout.tensor_parallel", "data.train_batchsize"]
    assert Origins(made, tmp_path).where(found[1]).startswith(f"{tmp_path.name}/x/recipe.yaml:6")


def test_a_broken_recipe_is_an_operators_error(tree: VerlTree, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("defaults:\n  - /no_such_config\n")
    with pytest.raises(OperatorError, match="no_such_config"):
        compose("recipe", tree, [], tmp_path)


def test_where_a_value_comes_from(tree: VerlTree, recipes: Path) -> None:
    made = compose("hy3/recipe", tree, [Line("data.shuffle=False", "o.txt:3")], recipes)
    origins = Origins(made, recipes)
    assert origins.where("data.shuffle") == "o.txt:3 (data.shuffle)"
    assert origins.where("data.truncation").startswith("recipes/common/data.yaml:")
    assert origins.where("critic.enable") == "verl's default (critic.enable)"


def test_overrides_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "o.txt"
    file.write_text("# comment\n\n  a=1  \nb=2\n")
    assert read_lines(file) == [Line("a=1", f"{file}:3"), Line("b=2", f"{file}:4")]
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(OperatorError):
        read_lines(file)
    with pytest.raises(OperatorError):
        read_lines(tmp_path / "none")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=40))
def test_no_text_makes_a_traceback(text: str) -> None:
    from reprise.recipe.config.overrides import parse

    parse(Line(text))


def test_sources_are_where_the_rules_say(tree: VerlTree, tree_091: VerlTree) -> None:
    # In the other release a line may have moved on; then it is cited without its number.
    lost = [rule.id for rule in ALL_RULES if rule.source.text and not rule.source.line(tree)]
    assert lost == []
    found = [rule.source.cite(tree_091) for rule in ALL_RULES if rule.source.text]
    assert sum(":" in text for text in found) >= len(found) - 3


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["", "+", "++"]),
    st.from_regex(r"[a-z_][a-z0-9_]{0,3}(\.[a-z_][a-z0-9_]{0,3}){0,2}", fullmatch=True),
    st.from_regex(
        r"-?[0-9]{1,4}|[A-Za-z_][A-Za-z0-9_]{0,6}|[Tt]rue|FALSE|[nN]ull|nan|Inf"
        r"|-?[0-9]{1,3}\.[0-9]{1,3}|[1-9][0-9]?(\.[0-9])?e-?[0-9]{1,2}"
        r"|/?([a-z_][a-z0-9_.-]{0,4}/){1,3}[a-z0-9_.-]{0,8}",
        fullmatch=True,
    ),
)
def test_a_simple_line_is_read_as_hydra_reads_it(plus: str, key: str, value: str) -> None:
    text = f"{plus}{key}={value}"
    theirs = OverridesParser.create().parse_override(text)
    ours = parse(Line(text))
    assert not isinstance(ours, Fault)
    for one in (ours, theirs):
        one.config_loader = None
    assert (ours.type, ours.key_or_group, ours.package) == (
        theirs.type, theirs.key_or_group, theirs.package,
    )  # fmt: skip
    assert repr(ours.value()) == repr(theirs.value())
    assert ours.get_value_element_as_str() == theirs.get_value_element_as_str()


@pytest.mark.parametrize(("variant", "differing"), [("as_published", []), ("as_documented", None)])
def test_the_published_curve_judges_the_published_variant_alone(
    tree: VerlTree, recipes: Path, variant: str, differing: list[str] | None
) -> None:
    made = compose("hy3/recipe", tree, [Line(f"hy3/variant={variant}")], recipes)
    reference = load_reference(recipes / "hy3/reference")
    check, found = comparable(Origin({}, made.values), reference, 189)
    named = [difference.name for difference in found]
    assert named == (["reward.reward_manager.name"] if differing is None else differing)
    assert check.state is (State.UNKNOWN if differing is None else State.PASSED)
    if differing is not None:
        assert "7 known settings" in check.message
