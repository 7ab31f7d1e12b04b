"""Whether two runs can be compared: what differs between them, by what it may do to the curve."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprise.core.findings import State
from reprise.core.nested import flatten
from reprise.curves.reference import Reference
from reprise.curves.result import CheckResult, Difference, Weight, found
from reprise.metrics import MetricTable

__all__ = ["Difference", "Origin", "comparable", "config_differences", "same_run"]

# Hydra keys by what they can do to a curve; the first match decides, anything else may matter.
_NONE = re.compile(
    r"^(trainer\.(project_name|experiment_name|logger|default_local_dir|rollout_data_dir"
    r"|validation_data_dir|log_val_generations|resume_mode|resume_from_path|save_freq"
    r"|max_actor_ckpt_to_keep|max_critic_ckpt_to_keep|del_local_ckpt_after_load|default_hdfs_dir"
    r"|esi_redundant_time|ray_wait_register_center_timeout|total_epochs)"
    r"|ray_kwargs\.|hydra\.|global_profiler\.|.*\.(profiler|checkpoint)\."
    r"|.*\.(path|tokenizer_path|hf_config_path|use_shm|nccl_timeout|local_path|log_level|port)$"
    r"|data\.(train_files|val_files|seed|dataloader_num_workers|filter_overlong_prompts_workers)$"
    r"|.*\.gpu_memory_utilization$|.*(_micro_batch_size|_micro_batch_size_per_gpu)$"
    r"|.*(_max_token_len_per_gpu)$|.*(param_offload|optimizer_offload|grad_offload)$)"
)
_MATTERS = re.compile(
    r"^(algorithm\.|reward|custom_reward_function\.|critic\.optim\."
    r"|data\.(train_batch_size|max_prompt_length|max_response_length|shuffle|sampler|prompt_key"
    r"|filter_overlong_prompts|truncation|return_raw_chat|apply_chat_template_kwargs)"
    r"|trainer\.(total_training_steps|critic_warmup)$"
    r"|actor_rollout_ref\.actor\.(optim\.|ppo_mini_batch_size|ppo_epochs|clip_ratio|entropy_coeff"
    r"|use_kl_loss|kl_loss|loss_agg_mode|policy_loss|grad_clip|freeze)"
    r"|actor_rollout_ref\.rollout\.(n$|temperature|top_p|top_k|response_length|prompt_length"
    r"|dtype|do_sample|val_kwargs|name$|quantization|multi_turn)"
    r"|actor_rollout_ref\.model\.(lora|target_modules|override_config))"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of a run besides its metrics.

    `facts`: hashes by name (model_sha256, data_sha256, lock, recipe, plugins). `config`: its
    resolved configuration. Either is empty where it is not recorded.
    """

    facts: Mapping[str, Any]
    config: Mapping[str, Any]


_FACTS: tuple[tuple[str, Weight], ...] = (
    ("model_sha256", "matters"),
    ("data_sha256", "matters"),
    ("recipe", "matters"),
    ("lock", "may matter"),
    ("plugins", "may matter"),
)


def config_differences(run: Mapping[str, Any], reference: Mapping[str, Any]) -> list[Difference]:
    """The keys in which two resolved configurations differ, those that matter first."""
    ours, theirs = flatten(run), flatten(reference)
    absent = "(absent)"
    order: list[Weight] = ["matters", "may matter", "no effect"]
    found_ = [
        Difference(key, _weight(key), str(ours.get(key, absent)), str(theirs.get(key, absent)))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key, absent) != theirs.get(key, absent)
    ]
    return sorted(found_, key=lambda difference: order.index(difference.weight))


def setting_differences(run: Mapping[str, Any], known: Mapping[str, Any]) -> list[Difference]:
    """Single known settings of a reference, by dotted names, against a resolved configuration."""
    ours = flatten(run)
    return config_differences({key: ours[key] for key in known if key in ours}, known)


def _weight(key: str) -> Weight:
    if _MATTERS.match(key):
        return "matters"
    return "no effect" if _NONE.match(key) else "may matter"


def _differences(origin: Origin, reference: Reference) -> list[Difference]:
    recorded = reference.provenance
    differing = []
    for name, weight in _FACTS:
        ours, theirs = origin.facts.get(name), recorded.get(name)
        if ours is not None and theirs is not None and ours != theirs:
            differing.append(Difference(name, weight, _short(ours), _short(theirs)))
    if origin.config and reference.config:
        config = config_differences(origin.config, reference.config)
        # The hash of the configuration says no more than its keys.
        differing = [item for item in differing if item.name != "recipe"] + config
    elif origin.config and reference.settings:
        differing += setting_differences(origin.config, reference.settings)
    return differing


def _compared(origin: Origin | None, reference: Reference, steps: int) -> str:
    """What a comparison without a difference rests on: nothing is claimed of the unrecorded."""
    parts = [f"length ({steps} steps)"]
    if origin is not None:
        recorded = reference.provenance
        parts += [n for n, _ in _FACTS if None not in (origin.facts.get(n), recorded.get(n))]
        if origin.config and reference.config:
            parts.append("configuration")
        elif origin.config and reference.settings:
            parts.append(f"{len(reference.settings)} known settings")
    text = f"no difference that matters in {', '.join(parts)}"
    return text if len(parts) > 1 else f"{text}; no input is recorded on both sides"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(item)}" for key, item in sorted(value.items()))
    text = str(value)
    return f"{text[:12]}…" if re.fullmatch(r"[0-9a-f]{40,}", text) else text


def comparable(
    origin: Origin | None,
    reference: Reference,
    steps: int,
    accepted: Sequence[str] = (),
) -> tuple[CheckResult, list[Difference]]:
    """Whether the run's inputs and length are those of the reference, and all differences.

    `steps`: how many steps the run was to train. What matters and differs makes the answer
    unknown, unless its name is in `accepted`.
    """
    differing = _differences(origin, reference) if origin is not None else []
    if steps < reference.steps:
        differing.insert(0, Difference("length", "matters", f"{steps} steps", f"{reference.steps}"))
    numbers: dict[str, Any] = {
        "differences": [[d.name, d.weight, d.run, d.reference] for d in differing],
        "accepted": sorted(accepted),
    }
    where = reference.name
    open_ = [d for d in differing if d.weight == "matters" and d.name not in accepted]
    if open_:
        shown = "; ".join(str(d) for d in open_[:5])
        if len(open_) > 5:
            shown += f"; and {len(open_) - 5} more"
        flags = " ".join(f"--accept {d.name}" for d in open_)
        result = found("comparable.differs", where, numbers, differences=shown, flags=flags)
        return result, differing
    text = _compared(origin, reference, steps)
    if accepted and differing:
        named = sorted({d.name for d in differing} & set(accepted))
        text += f"; accepted: {', '.join(named)}" if named else ""
    return CheckResult("comparable", State.PASSED, where, text, "", numbers), differing


def same_run(table: MetricTable, reference: Reference) -> int | None:
    """Index of the reference run that has this run's rewards, step by step; None if no one has.

    At least three steps in common, all equal.
    """
    metric = reference.metrics.reward.metric
    ours = table.series(metric)
    for index, run in enumerate(reference.runs):
        theirs = run.series(metric)
        common = np.intersect1d(ours.steps, theirs.steps)
        if len(common) < max(3, min(len(ours), len(theirs)) // 2):
            continue
        first = ours.values[np.isin(ours.steps, common)]
        second = theirs.values[np.isin(theirs.steps, common)]
        if np.array_equal(first, second, equal_nan=True) and len(np.unique(first)) > 1:
            return index
    return None
