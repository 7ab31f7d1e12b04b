"""Bridge and overrides of training, settings of the rollout engine, needs of a family of models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from reprise.core.nearby import meant_word
from reprise.machines.registry import accelerators
from reprise.recipe.names import Names
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["RULES", "required"]

_MEGATRON = "actor_rollout_ref.actor.megatron"
_OVERRIDE = f"{_MEGATRON}.override_transformer_config"
_ROLLOUT = "actor_rollout_ref.rollout"
# Command-line switches of Megatron, and the provider attribute that each one sets.
_SWITCHES = {
    "no_masked_softmax_fusion": "masked_softmax_fusion=False",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion=False",
    "no_bias_swiglu_fusion": "bias_activation_fusion=False",
    "no_bias_gelu_fusion": "bias_activation_fusion=False",
    "no_bias_dropout_fusion": "bias_dropout_fusion=False",
    "no_rope_fusion": "apply_rope_fusion=False",
    "no_persist_layer_norm": "persist_layer_norm=False",
    "swiglu": "",
    "accumulate_allreduce_grads_in_fp32": "",
}


def _bridge(setup: Setup, out: Judgement) -> None:
    if not setup.megatron:
        raise NotApplicable("the actor does not train with Megatron")
    roles = ["actor"] + (["ref"] if setup.reference else [])
    for role in roles:
        node = f"actor_rollout_ref.{role}.megatron"
        use = bool(setup.get(f"{node}.use_mbridge", True))
        out.show(f"{role}: use_mbridge {use} == True")
        if not use:
            out.error(f"{node}.use_mbridge", "recipe-engine-bridge.off", node=node)
        dist = bool(setup.get(f"{node}.use_dist_checkpointing", False))
        if dist and not setup.get(f"{node}.dist_checkpointing_path"):
            out.error(f"{node}.dist_checkpointing_path", "recipe-engine-bridge.no-path", node=node)
        elif dist:
            out.note(f"{node}.use_dist_checkpointing", "recipe-engine-bridge.mcore-weights")
    if setup.get(f"{_MEGATRON}.vanilla_mbridge", False):
        out.note(f"{_MEGATRON}.vanilla_mbridge", "recipe-engine-bridge.older-bridge")


def _provider(setup: Setup, out: Judgement) -> None:
    if not setup.megatron:
        raise NotApplicable("the actor does not train with Megatron")
    if setup.get(f"{_MEGATRON}.vanilla_mbridge", False):
        raise NotApplicable("vanilla_mbridge passes any key on")
    known = _names(setup, "provider")
    out.show(f"{len(setup.override)} override keys are attributes of the provider of {known.of}")
    for name in setup.override:
        key = f"{_OVERRIDE}.{name}"
        attribute = None if setup.known.foreign else _SWITCHES.get(name)
        if name in known.names:
            continue
        if attribute:
            out.error(key, "recipe-engine-overrides.switch", attribute=attribute)
        elif attribute is not None:
            out.error(key, "recipe-engine-overrides.switch-set-by-bridge", setting=key)
        else:
            _not_known(setup, out, known, key, setup.override[name], _OVERRIDE_TEXTS)


class _Texts(NamedTuple):
    """What is said of a setting that an engine does not have."""

    other_version: str
    misspelt: str
    unknown: str


_OVERRIDE_TEXTS = _Texts(
    "recipe-engine-overrides.other-version",
    "recipe-engine-overrides.misspelt",
    "recipe-engine-overrides.unknown",
)
_KWARGS_TEXTS = _Texts(
    "recipe-engine-kwargs.other-version",
    "recipe-engine-kwargs.misspelt",
    "recipe-engine-kwargs.unknown",
)


def _not_known(
    setup: Setup, out: Judgement, known: Names, key: str, value: object, texts: _Texts
) -> None:
    """Report a setting that the engine in `known` lacks; a job of another version may have it."""
    node, _, name = key.rpartition(".")
    meant = meant_word(name, known.names)
    found: dict[str, object] = {"of": known.of, "name": name, "source": known.source}
    found |= {"setting": key, "value": value, "meant": f"{node}.{meant}"}
    if setup.known.foreign:
        out.warn(key, texts.other_version, **found)
    else:
        out.error(key, texts.misspelt if meant else texts.unknown, **found)


def _names(setup: Setup, engine: str) -> Names:
    names = setup.known.names.get(engine)
    if not isinstance(names, Names):
        raise Undecided(f"the settings of {engine} are not given")
    return names


def _engine_kwargs(setup: Setup, out: Judgement) -> None:
    given = setup.get(f"{_ROLLOUT}.engine_kwargs.{setup.engine}")
    if not isinstance(given, Mapping) or not given:
        out.show(f"engine_kwargs for {setup.engine} is empty")
        return
    known = _names(setup, setup.engine)
    out.show(f"{', '.join(map(str, given))} are settings of {known.of}")
    for name in given:
        if name not in known.names:
            key = f"{_ROLLOUT}.engine_kwargs.{setup.engine}.{name}"
            _not_known(setup, out, known, key, given[name], _KWARGS_TEXTS)


@cache
def required() -> Mapping[str, Any]:
    """What families of models need: `model_type`, then engine, then `source`, `set`, `equal`."""
    text = resources.files("reprise.recipe").joinpath("required.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _required(setup: Setup, out: Judgement) -> None:
    family = setup.model.family if setup.model else ""
    if not family:
        raise Undecided("the model's model_type is unknown (--model-config)")
    if family not in required():
        raise NotApplicable(f"no settings are recorded that {family} needs")
    needs = required()[family].get("megatron" if setup.megatron else "fsdp")
    if needs is None:
        raise NotApplicable("what is recorded for this model is for another training engine")
    missing = {key: (None, value) for key, value in needs["set"].items() if not setup.get(key)} | {
        key: (setup.get(key), value)
        for key, value in needs["equal"].items()
        if setup.get(key) != value
    }
    for key, (have, value) in missing.items():
        out.error(
            key,
            "recipe-family-required.missing",
            found="not set" if have is None else repr(have),
            plus="" if setup.has(key) else "+",
            setting=key,
            value=value,
            source=needs["source"],
        )
    count = len(needs["set"]) + len(needs["equal"])
    out.show(f"{count - len(missing)} of {count} settings that {family} needs")


def _device(setup: Setup, out: Judgement) -> None:
    device = str(setup.get("trainer.device", "cuda"))
    environment = setup.known.environment
    out.show(f"trainer.device {device}; VERL_PLATFORM={environment.get('VERL_PLATFORM', '')}")
    found = [item for item in accelerators() if item.torch_device == device]
    wanted = {name: value for item in found for name, value in item.job_variables.items()}
    if not wanted:
        return
    if setup.known.runtime_env is None and "VERL_PLATFORM" not in environment:
        raise Undecided("the environment of the job is not given (--runtime-env FILE)")
    for name, value in wanted.items():
        if environment.get(name) != value:
            out.error(
                "trainer.device",
                "recipe-engine-platform.wrong",
                device=device,
                name=name,
                found=environment.get(name) or "not set",
                value=value,
            )


RULES = (
    Rule(
        "recipe-engine-bridge",
        Source("workers/engine/megatron/transformer_impl.py", "assert self.engine_config.use_mbri"),
        _bridge,
    ),
    Rule(
        "recipe-engine-overrides",
        Source("Megatron-Bridge models/model_provider.py: apply_overrides_and_finalize"),
        _provider,
    ),
    Rule(
        "recipe-engine-kwargs",
        Source("workers/rollout/vllm_rollout/vllm_async_server.py", "**engine_kwargs,"),
        _engine_kwargs,
    ),
    Rule(
        "recipe-engine-platform",
        Source("plugin/platform/platform_manager.py", 'os.environ.get("VERL_PLATFORM"'),
        _device,
    ),
    Rule("recipe-family-required", Source("reprise/recipe/required.toml: its sources"), _required),
)
