"""Suggested fixes: each is tried against all rules, and keys keep their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reprise.core.findings import Finding, Report
from reprise.core.nearby import is_slip, meant_word
from reprise.recipe.check import check
from reprise.recipe.config.changes import Changes
from reprise.recipe.config.compose import compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.fixes import checked, first_settings
from reprise.recipe.setup import Known

from .conftest import A, M, R

FULL = (
    "algorithm.adv_estimator=grpo", f"{R}.name=vllm", f"{R}.n=8", f"{A}.use_dynamic_bsz=True",
    "data.train_batch_size=64", f"{A}.ppo_mini_batch_size=16", "trainer.nnodes=1",
    "trainer.n_gpus_per_node=8", f"{R}.tensor_model_parallel_size=2",
    "data.max_prompt_length=512", "data.max_response_length=1024",
)  # fmt: skip


def report_of(tree: VerlTree, *texts: str, **known: object) -> Report:
    made = compose("ppo_trainer", tree, [Line(text, "run.sh:1") for text in (*FULL, *texts)])
    return check(made, Known(foreign=True, **known))  # type: ignore[arg-type]


def found(report: Report, rule: str) -> list[Finding]:
    return [
        finding
        for finding in report.findings
        if finding.rule == f"recipe-{rule}" and "not evaluated" not in finding.message
    ]


@pytest.mark.parametrize(
    ("fix", "good", "wanted"),
    [
        ("a.b=4 (or 1, 2)", {"4", "1", "2"}, "a.b=4 (or 1, 2)"),
        ("a.b=4 (or 1, 2)", {"1", "2"}, "a.b=1 (or 2)"),
        ("a.b=4 (or 1, 2)", {"2"}, "a.b=2"),
        ("a.b=4, or c.d=5", {"5"}, "c.d=5"),
        ("a.b=4 or less", {"4"}, "a.b=4 or less"),
        ("a.b=4 (8 to 16 are usual)", {"4"}, "a.b=4 (8 to 16 are usual)"),
        ("remove a.b, or set the path", set(), "remove a.b, or set the path"),
        ("a.b=4", set(), "reprise explain r (no single setting is enough here)"),
    ],
)
def test_only_what_passes_is_printed(fix: str, good: set[str], wanted: str) -> None:
    def trial(settings: Mapping[str, str]) -> int | None:
        return 0 if all(value in good for value in settings.values()) else None

    assert checked(fix, "r", trial) == wanted


def test_the_settings_of_a_fix() -> None:
    assert first_settings("+a.b=1 c.d='2_3', or e.f=4") == {"a.b": "1", "c.d": "'2_3'"}
    assert first_settings("a.b=1 (and remove c.d)") == {"c.d": "null", "a.b": "1"}
    assert first_settings("reprise recipe plan") == {}


def test_a_batch_that_breaks_another_rule_is_not_suggested(tree: VerlTree) -> None:
    # 66 x 8 is divisible by 8 GPUs as well, and no multiple of the mini batch 16.
    report = report_of(tree, "data.train_batch_size=65", f"{R}.n=1", "trainer.n_gpus_per_node=4")
    (finding,) = found(report, "batch-divisible")
    assert finding.fix == "data.train_batch_size=64 (or 80)"


def test_a_budget_without_slack_is_not_suggested(tree: VerlTree) -> None:
    # The exact budget passes its own rule with a warning of another kind.
    (finding,) = found(report_of(tree, f"{A}.ppo_max_token_len_per_gpu=1024"), "tokens-actor")
    for key, text in first_settings(finding.fix).items():
        report = report_of(tree, f"{A}.ppo_max_token_len_per_gpu=1024", f"{key}={text}")
        assert found(report, "tokens-actor") == [], finding.fix


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        (["trainer.n_gpus_per_node=6"], {}),
        ([f"{A}.ppo_mini_batch_size=24"], {}),
        ([f"{A}.ppo_mini_batch_size=128"], {}),
        ([f"{R}.tensor_model_parallel_size=3"], {}),
        ([f"{R}.max_model_len=1000"], {}),
        ([f"{R}.temperature=0"], {}),
        ([f"{A}.policy_loss.loss_mode=gspo"], {}),
        ([f"{A}.ulysses_sequence_parallel_size=3"], {}),
        (["trainer.total_training_steps=100", "trainer.total_epochs=1"], {"rows": 640}),
        (["trainer.save_freq=50", "trainer.total_training_steps=20"], {"rows": 6400}),
        (["model_engine=megatron", f"{M}.tensor_model_parallel_size=3"], {}),
        (["model_engine=megatron", f"{M}.context_parallel_size=3",
          f"{M}.tensor_model_parallel_size=1"], {}),
        ([f"{A}.use_dynamic_bsz=False"], {}),
        ([f"{R}.val_kwargs.n=4"], {}),
        (["reward_model.reward_manager=dapo",
          "+reward_model.reward_kwargs.max_resp_len=1024"], {}),
    ],
)  # fmt: skip
def test_every_printed_setting_passes(
    tree: VerlTree, texts: list[str], known: dict[str, object]
) -> None:
    """The property itself: type what is printed, and nothing new is wrong."""
    before = report_of(tree, *texts, **known)
    old = {(one.rule, one.message) for one in before.findings}
    tried = 0
    for finding in before.findings:
        settings = first_settings(finding.fix)
        # Settings of one rule for several keys belong together.
        for other in found(before, finding.rule.removeprefix("recipe-")):
            settings = first_settings(other.fix) | settings
        if not settings or "not evaluated" in finding.message or finding.severity == "note":
            continue
        tried += 1
        after = report_of(
            tree, *texts, *(f"++{key}={value}" for key, value in settings.items()), **known
        )
        new = [
            one
            for one in after.findings
            if (one.rule, one.message) not in old
            and one.rule not in ("recipe-override-repeated", finding.rule)
            and one.severity != "note"
        ]
        assert new == [], (finding.fix, new)
        assert finding.message not in [one.message for one in after.findings], finding.fix
    assert tried, "nothing was suggested at all"


def test_a_change_is_followed_by_what_refers_to_it(tree: VerlTree) -> None:
    made = compose("ppo_trainer", tree, [Line(text) for text in FULL])
    values = Changes(made).values({"data.max_response_length": "2048"})
    assert values is not None
    assert values["actor_rollout_ref"]["rollout"]["response_length"] == 2048
    assert made.values["actor_rollout_ref"]["rollout"]["response_length"] == 1024
    whole = compose(
        "ppo_trainer", tree, [Line(t) for t in (*FULL, "++data.max_response_length=2048")]
    )
    assert values == whole.values
    assert Changes(made).values({"data.train_batch_size": "[1"}) is None


@pytest.mark.parametrize(
    ("texts", "unknown", "judged"),
    [
        # The value that was meant is not the default in its place.
        (["data.train_batch_sise=65"], ["batch-divisible", "batch-mini-in-train"],
         ["rollout-temperature"]),
        # Without its engine, nothing that depends on the engine is judged.
        ([f"{M}.tensor_model_parallel_size=3", "trainer.n_gpus_per_node=7"],
         ["batch-divisible", "batch-mini-splits", "parallel-world"], ["length-max-model-len"]),
        (["trainer.n_gpus_per_node=8x[", f"{R}.temperature=0"], ["parallel-world"],
         ["batch-mini-in-train"]),
        (["trainer.colour=1"], [], ["batch-divisible"]),
    ],
)  # fmt: skip
def test_what_hydra_refuses_is_not_judged(
    tree: VerlTree, texts: list[str], unknown: list[str], judged: list[str]
) -> None:
    report = report_of(tree, *texts)
    states = {check.rule.removeprefix("recipe-"): check.state.value for check in report.checks}
    assert report.exit_code == 1, "the refusal itself is an error"
    assert {rule: states[rule] for rule in unknown} == dict.fromkeys(unknown, "unknown")
    assert all(states[rule] != "unknown" for rule in judged)
    for rule in unknown:
        assert found(report, rule) == []


def test_a_refused_choice_leaves_everything_open(root: Path, recipes: Path, tree: VerlTree) -> None:
    made = compose("hy3/recipe", tree, [Line("algorithms=nope")], recipes)
    report = check(made, Known())
    assert {one.rule for one in report.errors()} == {"recipe-override-group"}


@pytest.mark.parametrize(
    ("word", "other"),
    [("gpro", "grpo"), ("wandbb", "wandb"), ("token-men", "token-mean"), ("vlm", "vllm"),
     ("max_promt_length", "max_prompt_length"), ("trainBatchSize", "train_batch_size"),
     ("temprature", "temperature"), ("gpu_memory_utilisation", "gpu_memory_utilization")],
)  # fmt: skip
def test_a_slip(word: str, other: str) -> None:
    assert is_slip(word, other)


@pytest.mark.parametrize(
    ("word", "other"),
    [("use_flash_attn", "use_kitchen_attention"), ("top_p", "top_k"), ("min_lr", "max_lr"),
     ("clip_ratio_low", "clip_ratio_high"), ("async", "sync"), ("encoder", "decoder"),
     ("grpo", "gae"), ("param_offload", "optimizer_offload"), ("same", "same")],
)  # fmt: skip
def test_another_word_is_no_slip(word: str, other: str) -> None:
    assert not is_slip(word, other)


def test_two_slips_are_no_suggestion() -> None:
    assert meant_word("vllmm", ["vllm", "vllms"]) == ""
