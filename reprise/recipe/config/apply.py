"""Apply override lines to a config one by one, and say why Hydra refuses a line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from reprise.core.nearby import did_you_mean
from reprise.recipe.config.meaning import Keys
from reprise.recipe.config.overrides import Fault, Line, fault

__all__ = ["Target", "apply", "is_plain_add", "repeated"]

_SUGGESTIONS = 200


class Target:
    """A config while overrides are applied, and how it was before."""

    def __init__(
        self,
        config: DictConfig,
        before: Callable[[], DictConfig],
        engines: Collection[str] = (),
        is_group: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.config, self.engines, self.is_group = config, engines, is_group
        self._before = before
        self._left = _SUGGESTIONS

    def lacking_engine(self, key: str) -> str:
        """The engine whose node in `key` the config does not have; '' for any other key."""
        node: object = self.config
        for part in key.split("."):
            if not isinstance(node, DictConfig) or part not in node:
                return part if part in self.engines else ""
            node = node._get_node(part)
        return ""

    def meant(self, key: str) -> list[str]:
        """The key that was meant; not after many wrong keys, since each takes a millisecond."""
        self._left -= 1
        return self.keys.meant(key) if self._left >= 0 else []

    @cached_property
    def keys(self) -> Keys:
        """The keys without the overrides: what one of them adds is never suggested."""
        plain = OmegaConf.to_container(self._before(), resolve=False)
        assert isinstance(plain, dict)
        return Keys({str(key): value for key, value in plain.items()})


def is_plain_add(override: Override) -> bool:
    """Whether it adds a key outside Hydra's own node, whose structure is fixed."""
    adds = override.is_add() or override.is_force_add()
    return adds and override.package is None and not override.key_or_group.startswith("hydra")


def apply(target: Target, line: Line, override: Override, opened: bool = False) -> Fault | None:
    """Apply one value override exactly as Hydra does, or say why Hydra refuses it.

    `opened`: it adds a key, and the config takes new keys as it is.
    """
    key, config = override.key_or_group, target.config
    try:
        there = opened and override.is_add() and OmegaConf.select(
            config, key, throw_on_missing=False
        ) is not None  # fmt: skip
        if opened and not (there and not isinstance(override.value(), dict | list)):
            OmegaConf.update(config, key, override.value(), merge=True)
        else:
            ConfigLoaderImpl._apply_overrides_to_config([override], config)
    except (HydraException, OmegaConfBaseException) as error:
        bare = line.text.lstrip("+~")
        if override.is_add():
            return fault("recipe-override-plus.key-exists", line, setting=key, text=bare)
        if override.is_delete():
            reason = " ".join(str(error).split())
            return fault("recipe-override-unknown-key.cannot-delete", line, reason=reason)
        if _is_unknown_key(error):
            return _unknown(target, line, key, bare)
        reason = " ".join(str(error).split())
        return fault("recipe-override-value.wrong-type", line, reason=reason, setting=key)
    return None


def _is_unknown_key(error: Exception) -> bool:
    """Whether Hydra refuses a plain override because the config has no such key.

    Hydra raises such an error from OmegaConf's own; with any other cause the value is refused.
    """
    return isinstance(error, ConfigCompositionException) and isinstance(
        error.__cause__, ConfigAttributeError | ConfigKeyError
    )


def _unknown(target: Target, line: Line, key: str, bare: str) -> Fault:
    last, value = key.rpartition(".")[2], bare.partition("=")[2]
    if "." in key and target.is_group(last):
        return fault("recipe-override-unknown-key.a-group", line, setting=last, value=value)
    if engine := target.lacking_engine(key):
        return fault("recipe-override-unknown-key.other-engine", line, setting=key, engine=engine)
    close = target.meant(key)
    if _is_open(target.config, key):
        return fault("recipe-override-missing-plus.new-key", line, setting=key, text=bare)
    if not close:
        return fault("recipe-override-unknown-key.unknown", line, setting=key)
    return fault(
        "recipe-override-unknown-key.misspelt",
        line,
        meant=close,
        setting=key,
        near=did_you_mean(close),
        nearest=close[0],
        value=value,
    )


def _is_open(config: DictConfig, key: str) -> bool:
    """Whether `key` is in a node that verl passes on unchanged, so any key may be added."""
    parents = key.split(".")[:-1]
    return (
        any(part.startswith("override_") or part in _OPEN_NODES for part in parents)
        and OmegaConf.select(config, parents[0], throw_on_missing=False) is not None
    )


_OPEN_NODES = frozenset({"engine_kwargs", "reward_kwargs", "ray_init", "env_vars"})


def repeated(parsed: Sequence[tuple[Line, Override]]) -> list[Fault]:
    """A warning for each key that two lines set differently."""
    seen: dict[str, Line] = {}
    faults = []
    for line, override in parsed:
        key = override.key_or_group
        if key in seen and seen[key].text != line.text:
            faults.append(
                fault(
                    "recipe-override-repeated.repeated",
                    line,
                    fatal=False,
                    setting=key,
                    first=seen[key].where,
                    text=seen[key].text,
                )
            )
        seen[key] = line
    return faults
