"""The files of a new recipe: card.toml, recipe.yaml, judge.toml, runtime_env.yaml."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
import yaml

from reprise.flows.new.facts import DataFacts, ModelFacts
from reprise.recipe.card import MachinePart, VerlPart
from reprise.recipe.plan.search import Layout

__all__ = ["Draft", "card_text", "judge_text", "recipe_text"]

# Settings that are taken over from the base, with what they decide.
KEPT: Mapping[str, str] = {
    "data.train_batch_size": "Prompts of a step.",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "Prompts of one update.",
    "actor_rollout_ref.actor.optim.lr": "",
    "actor_rollout_ref.rollout.n": "Answers of each prompt.",
    "actor_rollout_ref.rollout.temperature": "",
    "actor_rollout_ref.rollout.top_p": "",
    "actor_rollout_ref.rollout.top_k": "",
    "actor_rollout_ref.rollout.gpu_memory_utilization": "The rollout's share of a GPU.",
    "actor_rollout_ref.rollout.val_kwargs.temperature": "",
    "actor_rollout_ref.rollout.val_kwargs.top_p": "",
    "actor_rollout_ref.rollout.val_kwargs.top_k": "",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": "",
    "actor_rollout_ref.rollout.val_kwargs.n": "",
    "trainer.total_epochs": (
        "Decide: training ends with these epochs, or with total_training_steps where it is set."
    ),
    "trainer.total_training_steps": "",
    "trainer.save_freq": "Steps between two checkpoints.",
    "trainer.max_actor_ckpt_to_keep": "",
    "trainer.test_freq": "Steps between two validations.",
    "trainer.project_name": "",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """All that the files are written from; `kept` are settings of the base, `response` tokens."""

    name: str
    base: str
    title: str
    model: ModelFacts
    train: DataFacts
    validation: DataFacts
    machine: MachinePart
    verl: VerlPart
    algorithm: str
    groups: Sequence[str]
    kept: Mapping[str, Any]
    prompt: int
    prompt_from: str
    response: int
    nodes_gpus: int
    layout: Layout
    proposal: Sequence[str] = ()
    notes: Sequence[str] = ()
    status: str = "not run"

    @property
    def length(self) -> int:
        """Prompt and response, in tokens."""
        return self.prompt + self.response


def card_text(draft: Draft) -> str:
    """card.toml: facts that are not settings of verl."""
    document = tomlkit.document()
    document.add("title", tomlkit.item(draft.title))
    summary = f"Made by `reprise new recipe` from {draft.base}."
    document.add("summary", tomlkit.item(summary))
    document.add("status", tomlkit.item(draft.status))
    if draft.notes:
        notes = tomlkit.array().multiline(True)
        notes.extend(draft.notes)
        document.add("notes", notes)
    document.add("train", tomlkit.item(draft.train.lock))
    document.add("validation", tomlkit.item(draft.validation.lock))
    machine = {key: value for key, value in draft.machine.model_dump().items() if value}
    document.add("machine", tomlkit.item(machine))
    document.add("verl", tomlkit.item({"lock": draft.verl.lock, "release": draft.verl.release}))
    model = tomlkit.table()
    model.add("lock", draft.model.lock)
    document.add("model", model)
    config = tomlkit.table()
    config.comment(f"read from {draft.model.origin}")
    for key, value in draft.model.config.items():
        config.add(key, value)
    model.add("config", config)
    return tomlkit.dumps(document)


def _set(made: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for part in parents:
        made = made.setdefault(part, {})
    made[last] = value


def recipe_text(draft: Draft) -> str:
    """recipe.yaml: the groups, then the settings, each with what it is for."""
    values: dict[str, Any] = {}
    comments: dict[str, str] = {key: text for key, text in KEPT.items() if text}
    for key, value in draft.kept.items():
        _set(values, key, value)
    own: list[tuple[str, Any, str]] = [
        ("data.train_files", _file("TRAIN_FILES", draft.train.path), ""),
        ("data.val_files", _file("VAL_FILES", draft.validation.path),
         "Decide: a validation set of your own, or keep this one."),
        ("data.max_prompt_length", draft.prompt, draft.prompt_from),
        ("data.max_response_length", draft.response,
         f"Decide: {draft.base} has it; longer answers are cut, and cost memory and time."),
        ("actor_rollout_ref.model.path", "${oc.env:REPRISE_MODEL_DIR}", ""),
        ("actor_rollout_ref.rollout.max_model_len", draft.length, "Prompt and response."),
        ("actor_rollout_ref.rollout.max_num_batched_tokens", max(8192, draft.length), ""),
        ("trainer.n_gpus_per_node", draft.nodes_gpus, ""),
        ("trainer.experiment_name", draft.name, ""),
    ]  # fmt: skip
    layout = draft.layout.settings()
    own += [(key, value, "") for key, value in layout.items()]
    for key, value, text in own:
        _set(values, key, value)
        if text:
            comments[key] = text
    comments |= {
        "trainer.nnodes": "Decide: the fewest nodes on which a legal layout fits.",
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": "; ".join(draft.proposal),
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": (
            "Two of the longest sequences a micro batch."
        ),
    }
    groups = "".join(f"  - {group}\n" for group in draft.groups)
    head = (
        "# @package _global_\n"
        f"# Made by `reprise new recipe {draft.name} --from {draft.base}`. Settings are those of "
        f'{draft.base} where\n# nothing else is said; lines with "Decide" need a decision.\n'
        "hydra:\n  searchpath:\n    - pkg://verl.trainer.config\n"
        f"defaults:\n{groups}\n"
    )
    return head + "\n".join(_lines(values, comments)) + "\n"


def _file(variable: str, path: str) -> str:
    return "${oc.env:" + variable + ',"${oc.env:REPRISE_DATA_DIR}/' + path + '"}'


def _lines(node: Mapping[str, Any], comments: Mapping[str, str], path: str = "") -> list[str]:
    """YAML with a comment line above a key that has one."""
    found: list[str] = []
    indent = "  " * path.count(".") if path else ""
    for key, value in node.items():
        full = f"{path}{key}"
        if text := comments.get(full):
            found += [f"{indent}# {line}" for line in textwrap.wrap(text, 96 - len(indent))]
        if isinstance(value, Mapping):
            found += [f"{indent}{key}:", *_lines(value, comments, f"{full}.")]
        else:
            dumped = yaml.safe_dump({key: value}, width=10_000, allow_unicode=True)
            found.append(indent + dumped.rstrip("\n"))
    return found


def judge_text(draft: Draft) -> str:
    """judge.toml: what a comparison with reference runs looks at."""
    head = (
        "# How runs of this recipe are compared with reference runs (docs/curves.md).\n"
        '[reward]\nmetric = "critic/rewards/mean"\n'
        "# Decide: the smallest and the largest reward of the scorer, where they are known.\n"
        "# range = [0, 1]\n"
    )
    sources = draft.validation.sources
    if len(sources) == 1:
        key = f"val-core/{sources[0]}/acc/mean@1"
        head += "\n# verl names the metric after the data_source of the file.\n"
        head += f"[validation]\nmetric = {tomlkit.item(key).as_string()}\n"
        if draft.validation.rows and draft.validation.prompts:
            samples = int(draft.kept.get("actor_rollout_ref.rollout.val_kwargs.n", 1))
            head += f"rows = {draft.validation.rows}\nprompts = {draft.validation.prompts}\n"
            head += f"samples = {samples}\n"
    else:
        head += (
            "\n# Decide: the validation metric, val-core/DATA_SOURCE/acc/mean@1 of the first run.\n"
            '# [validation]\n# metric = "val-core/DATA_SOURCE/acc/mean@1"\n'
        )
    return head
