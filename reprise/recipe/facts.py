"""Facts of a recipe that something outside it may depend on, by name."""

from __future__ import annotations

from reprise.recipe.setup import Setup

__all__ = ["FLASH_ATTENTION", "facts_of", "lacking"]

FLASH_ATTENTION = "transformers-flash-attention"
"""The recipe trains a model without attention sinks through transformers' flash-attention."""

# verl's FSDP engine takes the attention from the model's override_config, and flash_attention_2
# where that is silent (workers/config/model.py); a critic is always loaded with that
# (utils/model.py: load_valuehead_model), but where the plug-in loads it (docs/plugins.md).
_DEFAULT = "flash_attention_2"
_CRITIC = "critic.model"
_OWN_CRITIC = "reprise_plugins.critic."
_THROUGH_TRANSFORMERS = ("fsdp", "fsdp2")


def facts_of(setup: Setup) -> dict[str, str]:
    """What holds of a composed recipe: {fact: the setting that makes it so}.

    Facts are "transformers-flash-attention" and, for each tracker that it logs to,
    "tracker-<name>" (wandb, tensorboard, …).
    """
    facts: dict[str, str] = {}
    loggers = setup.get("trainer.logger", [])
    for logger in [loggers] if isinstance(loggers, str) else loggers:
        facts[f"tracker-{logger}"] = f"trainer.logger names {logger}"
    sinks = setup.model is not None and setup.model.known.sinks
    if not sinks and (reason := _flash_attention(setup)):
        facts[FLASH_ATTENTION] = reason
    return facts


def lacking(setup: Setup, fact: str) -> str:
    """The settings by which `fact` does not hold of a recipe; '' for an unknown fact."""
    if fact.startswith("tracker-"):
        loggers = setup.get("trainer.logger", [])
        shown = loggers if isinstance(loggers, str) else ", ".join(map(str, loggers))
        return f"trainer.logger is {shown}"
    if fact != FLASH_ATTENTION:
        return ""
    if setup.model is not None and setup.model.known.sinks and _flash_attention(setup):
        return "its model has attention sinks"
    engines = {strategy: str(setup.get(strategy)) for _, strategy in _roles(setup)}
    stated = ", ".join(f"{strategy}={engine}" for strategy, engine in engines.items())
    through = any(engine in _THROUGH_TRANSFORMERS for engine in engines.values())
    return stated + (", with another attention" if through else "")


def _flash_attention(setup: Setup) -> str:
    """The settings by which a role runs transformers' flash-attention, or ''."""
    for role, strategy in _roles(setup):
        engine = str(setup.get(strategy))
        key = f"{role}.override_config.attn_implementation"
        attention = str(setup.get(key, _DEFAULT))
        if role == _CRITIC and not str(setup.get(f"{role}._target_")).startswith(_OWN_CRITIC):
            key, attention = "verl's own loader of critics", _DEFAULT
        if engine in _THROUGH_TRANSFORMERS and "flash" in attention:
            return f"{strategy}={engine}, attention {attention} ({key})"
    return ""


def _roles(setup: Setup) -> list[tuple[str, str]]:
    """Where each trained role has its model, and where its engine."""
    roles = [("actor_rollout_ref.model", "actor_rollout_ref.actor.strategy")]
    return [*roles, (_CRITIC, "critic.strategy")] if setup.critic else roles
