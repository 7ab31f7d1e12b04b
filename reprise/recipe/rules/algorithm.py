"""Algorithm settings: estimators, losses, what the trainer supports, importance sampling, KL."""

from __future__ import annotations

import re

from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.rules.base import (
    Judgement,
    NotApplicable,
    Rule,
    Source,
    Undecided,
    choice_of,
)
from reprise.recipe.setup import Setup

__all__ = ["RULES", "estimators", "losses"]

_ACTOR = "actor_rollout_ref.actor"
# GSPO's ratio is the geometric mean over a sequence: its authors clip at 3e-4 and 4e-4 (arXiv
# 2507.18071, 5.1; verl's examples/gspo_trainer). PPO's bounds of a token are far wider.
_SEQUENCE_CLIP = 0.02
_CORRECTION = "algorithm.rollout_correction"
_LOSS = f"{_ACTOR}.policy_loss.loss_mode"
_AGGREGATIONS = (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)


def _core(tree: VerlTree | None) -> str:
    source = tree.source("trainer/ppo/core_algos.py") if tree else None
    if source is None:
        raise Undecided("core_algos.py is not in this verl tree")
    return source


def estimators(tree: VerlTree | None) -> list[str]:
    """Names of the advantage estimators that this verl registers."""
    source = _core(tree)
    names = dict(re.findall(r"^    ([A-Z_]+) = \"(\w+)\"$", source, re.MULTILINE))
    used = re.findall(r"@register_adv_est\(\s*AdvantageEstimator\.([A-Z_]+)", source)
    return sorted({names[name] for name in used if name in names})


def losses(tree: VerlTree | None) -> list[str]:
    """Names of the policy losses that this verl registers."""
    return sorted(set(re.findall(r"@register_policy_loss\(\"(\w+)\"\)", _core(tree))))


def _trainer_text(setup: Setup) -> str:
    """The sources of the trainer that runs: the V1 trainer's, or the legacy one's."""
    if setup.tree is None:
        raise Undecided("the verl tree is unknown")
    if setup.get("trainer.use_v1", True):
        folder = setup.tree.package / "trainer" / "ppo" / "v1"
        return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    return setup.tree.source("trainer/ppo/ray_trainer.py") or ""


def _estimator(setup: Setup, out: Judgement) -> None:
    key, known = "algorithm.adv_estimator", estimators(setup.tree)
    name = str(setup.get(key))
    out.show(f"adv_estimator {name} is one of {', '.join(known)}")
    if name not in known:
        out.error(
            key,
            "recipe-algorithm-estimator.unknown",
            name=name,
            fix=choice_of(key, name, known),
        )


def _loss(setup: Setup, out: Judgement) -> None:
    known, name = losses(setup.tree), str(setup.get(_LOSS, "vanilla"))
    mode = str(setup.get(f"{_ACTOR}.loss_agg_mode"))
    out.show(f"loss_mode {name} is one of {', '.join(known)}; loss_agg_mode {mode}")
    if name not in known:
        out.error(
            _LOSS,
            "recipe-algorithm-loss.unknown",
            name=name,
            fix=choice_of(_LOSS, name, known),
        )
    if mode not in _AGGREGATIONS:
        key = f"{_ACTOR}.loss_agg_mode"
        out.error(
            key,
            "recipe-algorithm-loss.unknown-aggregation",
            mode=mode,
            known=", ".join(_AGGREGATIONS),
            fix=choice_of(key, mode, _AGGREGATIONS),
        )


def _remax(setup: Setup, out: Judgement) -> None:
    if setup.get("algorithm.adv_estimator") != "remax":
        raise NotApplicable("only remax needs a greedy baseline")
    made = "reward_baselines" in _trainer_text(setup)
    trainer = "V1 trainer" if setup.get("trainer.use_v1", True) else "legacy trainer"
    out.show(f"remax needs reward_baselines; the {trainer} computes them: {made}")
    if not made:
        out.error("algorithm.adv_estimator", "recipe-algorithm-remax.no-baseline", trainer=trainer)


def _filter_groups(setup: Setup, out: Judgement) -> None:
    enabled = bool(setup.get("algorithm.filter_groups.enable", False))
    consumed = "filter_groups" in _trainer_text(setup)
    out.show(f"filter_groups.enable {enabled}; read by the trainer of this verl: {consumed}")
    key = "algorithm.filter_groups.enable"
    if enabled and not consumed:
        out.error(key, "recipe-algorithm-filter-groups.ignored")
    if setup.known.algorithm == "dapo" and not enabled:
        out.note(key, "recipe-algorithm-filter-groups.off-for-dapo")
    if enabled and consumed and setup.known.locked_verl:
        raise Undecided(
            f"the locked verl {setup.known.locked_verl} is not here, and only another verl was "
            "checked, which reads filter_groups (make setup, or --verl DIR)"
        )
    sampler = setup.get("trainer.v1.sampler.custom_sampler.path")
    if enabled and consumed and sampler:
        out.warn(key, "recipe-algorithm-filter-groups.custom-sampler", sampler=sampler)


def _icepop(setup: Setup, out: Judgement) -> None:
    level = setup.get(f"{_CORRECTION}.rollout_is")
    if level is None:
        raise NotApplicable("rollout_correction.rollout_is is not set")
    key = f"{_CORRECTION}.rollout_is_threshold"
    spec = setup.get(key, 2.0)
    if level not in ("token", "sequence"):
        name = f"{_CORRECTION}.rollout_is"
        out.error(name, "recipe-algorithm-rollout-correction.unknown-level", level=level)
    bounds = _bounds(spec)
    if bounds is None:
        out.error(key, "recipe-algorithm-rollout-correction.not-a-band", band=spec)
        return
    low, high = bounds
    kind = "IcePop: outside the band a token has no gradient" if low is not None else "truncation"
    out.show(f"rollout_is {level}, band {low if low is not None else 0}..{high} ({kind})")
    if high <= 0 or (low is not None and (low <= 0 or low > high)):
        out.error(key, "recipe-algorithm-rollout-correction.band-order", band=spec)
    elif high < 1 or (low is not None and low > 1):
        if isinstance(spec, float):
            out.error(key, "recipe-algorithm-rollout-correction.unquoted-band", band=spec)
        else:
            out.error(key, "recipe-algorithm-rollout-correction.excludes-one", band=spec)
    if not setup.get("actor_rollout_ref.rollout.calculate_log_probs", False):
        wanted = "actor_rollout_ref.rollout.calculate_log_probs"
        out.error(wanted, "recipe-algorithm-rollout-correction.no-log-probs")
    if setup.get(f"{_CORRECTION}.bypass_mode", False):
        out.note(f"{_CORRECTION}.bypass_mode", "recipe-algorithm-rollout-correction.bypass-mode")


def _bounds(spec: object) -> tuple[float | None, float] | None:
    """(low, high) as verl's _parse_rollout_is_threshold reads it; None when it cannot."""
    if isinstance(spec, bool) or not isinstance(spec, int | float | str):
        return None
    low_text, underscore, high_text = str(spec).strip().partition("_")
    if isinstance(spec, int | float) or not underscore:
        low_text, high_text = "", low_text
    try:
        return (float(low_text) if low_text else None, float(high_text))
    except ValueError:
        return None


def _idle_reference(setup: Setup, out: Judgement) -> None:
    key = f"{_ACTOR}.use_kl_loss"
    use, coefficient = bool(setup.get(key)), float(setup.get(f"{_ACTOR}.kl_loss_coef", 0))
    in_reward = bool(setup.get("algorithm.use_kl_in_reward"))
    out.show(f"use_kl_loss {use}, kl_loss_coef {coefficient:g}, use_kl_in_reward {in_reward}")
    if use and coefficient == 0 and not in_reward:
        out.warn(key, "recipe-algorithm-idle-reference.zero-loss-coefficient")
    penalty = float(setup.get("algorithm.kl_ctrl.kl_coef", 0))
    if use and in_reward and coefficient and penalty:
        out.warn(
            key,
            "recipe-algorithm-idle-reference.counted-twice",
            coefficient=coefficient,
            penalty=penalty,
            setting=key,
        )
    if in_reward and penalty == 0:
        out.warn(
            "algorithm.use_kl_in_reward", "recipe-algorithm-idle-reference.zero-reward-coefficient"
        )


def _clip(setup: Setup, out: Judgement) -> None:
    loss = str(setup.get(_LOSS, "vanilla"))
    if loss in ("cispo", "gpg"):
        raise NotApplicable(f"{loss} does not clip the ratio of the update")
    low = float(setup.get(f"{_ACTOR}.clip_ratio_low", 0.2))
    high = float(setup.get(f"{_ACTOR}.clip_ratio_high", 0.2))
    dual = float(setup.get(f"{_ACTOR}.clip_ratio_c", 3.0))
    out.show(f"0 < clip low {low:g} <= high {high:g}; dual clip {dual:g} > 1")
    if loss == "gspo" and min(low, high) >= _SEQUENCE_CLIP:
        # Two settings: one without the other is refused as low > high or does half of it.
        out.warn(f"{_ACTOR}.clip_ratio_low", "recipe-algorithm-clip.sequence", low=low, high=high)
        return
    if not 0 < low <= high:
        out.warn(
            f"{_ACTOR}.clip_ratio_high",
            "recipe-algorithm-clip.low-above-high",
            low=low,
            high=high,
            suggested=max(low, high),
        )
    if dual <= 1:
        key = f"{_ACTOR}.clip_ratio_c"
        out.error(key, "recipe-algorithm-clip.dual-too-low", dual=dual)


def _mode(setup: Setup, out: Judgement) -> None:
    mode = setup.get("trainer.v1.trainer_mode", "sync")
    if not setup.get("trainer.use_v1", True):
        raise NotApplicable("the legacy trainer has no modes: it always colocates")
    known = ("sync", "colocate_async", "separate_async")
    out.show(f"trainer_mode {mode} is one of {', '.join(known)}")
    key = "trainer.v1.trainer_mode"
    if mode not in known:
        out.error(
            key,
            "recipe-trainer-mode.unknown",
            mode=mode,
            known=", ".join(known),
            fix=choice_of(key, str(mode), known),
        )
    if mode != "separate_async":
        return
    sync = setup.integer("trainer.v1.separate_async.parameter_sync_step", 1)
    need = sync * setup.mini_batch
    out.show(f"train batch {setup.train_batch} == sync step {sync} x mini {setup.mini_batch}")
    if setup.train_batch != need:
        out.error(
            "data.train_batch_size",
            "recipe-trainer-mode.batch",
            train_batch=setup.train_batch,
            sync=sync,
            mini_batch=setup.mini_batch,
            need=need,
        )
    nodes = "actor_rollout_ref.rollout.nnodes"
    if setup.integer(nodes) <= 0:
        out.error(nodes, "recipe-trainer-mode.no-rollout-nodes")
    backend = "actor_rollout_ref.rollout.checkpoint_engine.backend"
    if setup.get(backend, "naive") == "naive":
        out.error(backend, "recipe-trainer-mode.naive-backend")


_V1 = "trainer/ppo/v1/trainer_base.py"
RULES = (
    Rule(
        "recipe-algorithm-estimator",
        Source("trainer/ppo/core_algos.py", "def get_adv_estimator_fn("),
        _estimator,
    ),
    Rule(
        "recipe-algorithm-loss",
        Source("trainer/ppo/core_algos.py", "def get_policy_loss_fn("),
        _loss,
    ),
    Rule(
        "recipe-algorithm-remax",
        Source("trainer/ppo/core_algos.py", "advantages = returns - reward_baselines"),
        _remax,
    ),
    Rule(
        "recipe-algorithm-filter-groups",
        Source("trainer/config/algorithm.py", "filter_groups: Optional[FilterGroupsConfig]"),
        _filter_groups,
    ),
    Rule(
        "recipe-algorithm-rollout-correction",
        Source("trainer/ppo/rollout_corr_helper.py", "def _parse_rollout_is_threshold("),
        _icepop,
    ),
    Rule(
        "recipe-algorithm-idle-reference",
        Source("trainer/ppo/utils.py", "def need_reference_policy("),
        _idle_reference,
    ),
    Rule("recipe-algorithm-clip", Source("trainer/ppo/core_algos.py", "clip_ratio_c > 1.0"), _clip),
    Rule(
        "recipe-trainer-mode",
        Source(
            "trainer/ppo/v1/trainer_separate_async.py", "train_batch_size == parameter_sync_step"
        ),
        _mode,
    ),
)
