"""The settings of a recipe that matter to a data file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import OperatorError

__all__ = ["Settings", "existing", "read_overrides", "refuse_misspelt"]

# Field of Settings: the key of verl's ppo_trainer config (220e903).
_KEYS = {
    "prompt_key": "data.prompt_key",
    "train_files": "data.train_files",
    "val_files": "data.val_files",
    "train_batch_size": "data.train_batch_size",
    "train_max_samples": "data.train_max_samples",
    "val_max_samples": "data.val_max_samples",
    "max_prompt_length": "data.max_prompt_length",
    "filter_overlong": "data.filter_overlong_prompts",
    "truncation": "data.truncation",
    "custom_reward": "reward.custom_reward_function.path",
    "reward_name": "reward.custom_reward_function.name",
    "reward_workers": "reward.num_workers",
    "sandbox_url": "reward.sandbox_fusion.url",
    "sandbox_memory": "reward.sandbox_fusion.memory_limit_mb",
    "samples": "actor_rollout_ref.rollout.n",
    "val_samples": "actor_rollout_ref.rollout.val_kwargs.n",
    "epochs": "trainer.total_epochs",
    "total_steps": "trainer.total_training_steps",
    "save_freq": "trainer.save_freq",
    "test_freq": "trainer.test_freq",
}
# Fields that must be positive, and the values of data.truncation.
_FROM_ONE = ("train_batch_size", "max_prompt_length", "reward_workers", "samples", "val_samples",
             "epochs", "total_steps")  # fmt: skip
_TRUNCATIONS = ("error", "left", "right", "middle")
_KWARGS = "reward.custom_reward_function.reward_kwargs."
_LEGACY = {
    "custom_reward_function.path": "custom_reward",
    "sandbox_fusion.url": "sandbox_url",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """None means not stated: the rules that need it do not run.

    Counts are in prompts (batch, max_samples), tokens (max_prompt_length), steps (the frequencies)
    or samples a prompt (samples, val_samples). Files are as the recipe writes them.
    """

    prompt_key: str = "prompt"
    train_files: tuple[str, ...] = ()
    val_files: tuple[str, ...] = ()
    train_batch_size: int | None = None
    train_max_samples: int | None = None
    val_max_samples: int | None = None
    max_prompt_length: int | None = None
    filter_overlong: bool | None = None
    truncation: str | None = None
    custom_reward: str | None = None
    reward_name: str = "compute_score"
    reward_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reward_workers: int | None = None
    sandbox_url: str | None = None
    sandbox_memory: int | None = None
    samples: int | None = None
    val_samples: int | None = None
    epochs: int | None = None
    total_steps: int | None = None
    save_freq: int | None = None
    test_freq: int | None = None

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Settings:
        """The settings in a flat mapping of verl's keys to values.

        Raises OperatorError for a value of the wrong type, such as a text for a batch size.
        """
        known = {key: name for name, key in _KEYS.items()} | _LEGACY
        kinds = {item.name: str(item.type) for item in fields(cls)}
        kwargs = {k.removeprefix(_KWARGS): v for k, v in values.items() if k.startswith(_KWARGS)}
        chosen: dict[str, Any] = {"reward_kwargs": kwargs}
        for key, value in values.items():
            name = known.get(key)
            if name is None or value is None or (key in _LEGACY and name in chosen):
                continue
            chosen[name] = _possible(key, name, _cast(key, value, kinds[name]))
        return cls(**chosen)


def _possible(key: str, name: str, value: Any) -> Any:
    if name in _FROM_ONE and value < 1:
        raise OperatorError("data-settings.not-positive", key, value=value, setting=key)
    if name == "truncation" and value not in _TRUNCATIONS:
        raise OperatorError(
            "data-settings.truncation",
            key,
            value=value,
            known=", ".join(_TRUNCATIONS),
            setting=key,
        )
    return value


def _cast(key: str, value: object, kind: str) -> object:
    if kind.startswith("tuple"):
        return (
            tuple(str(item) for item in value) if isinstance(value, list | tuple) else (str(value),)
        )
    if kind.startswith("int") and (not isinstance(value, int) or isinstance(value, bool)):
        raise OperatorError("data-settings.not-an-integer", key, value=value, setting=key)
    if kind.startswith("bool") and not isinstance(value, bool):
        raise OperatorError("data-settings.not-a-bool", key, value=value, setting=key)
    return str(value) if kind.startswith("str") else value


def read_overrides(lines: Iterable[str]) -> dict[str, Any]:
    """Values of `key=value` lines in Hydra's form (`+`, `++` allowed; blanks and # lines skipped).

    Values are read as YAML, as Hydra does for plain ones. Raises OperatorError for another line.
    """
    values: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise OperatorError("data-settings.no-value", f"override {number}", text=text)
        try:
            values[key.strip().lstrip("+")] = yaml.safe_load(value)
        except yaml.YAMLError:
            values[key.strip().lstrip("+")] = value
    return values


def refuse_misspelt(keys: Iterable[str]) -> None:
    """Refuse an override that is close to a setting used here: it would have no effect.

    Others are ignored: most overrides of a job do not matter to data files.
    Raises OperatorError that names all of them.
    """
    known = [*_KEYS.values(), *_LEGACY]
    wrong = {}
    for key in sorted(keys):
        near = next((name for name in known if _nearly(key, name)), None)
        if near is not None and key not in known:
            wrong[key] = near
    if wrong:
        raise OperatorError(
            "data-settings.misspelt", ", ".join(wrong), nearest=", ".join(wrong.values())
        )


def _nearly(key: str, name: str) -> bool:
    """Whether each part of one dotted key equals the other's, or differs by a typing error."""
    first, second = key.split("."), name.split(".")
    return len(first) == len(second) and all(
        one == two
        or (
            abs(len(one) - len(two)) <= 2 and difflib.SequenceMatcher(None, one, two).ratio() > 0.85
        )
        for one, two in zip(first, second, strict=True)
    )


def existing(files: Iterable[str], folder: Path, typed: bool = False) -> list[Path]:
    """The recipe's files as paths, those that are relative taken from `folder`.

    With `typed` an override names them: they are taken from where the command was typed, as
    `recipe check` does, and from `folder` only if they are there alone.
    """
    found = []
    for path in map(Path, files):
        here = path.is_absolute() or (typed and (path.exists() or not (folder / path).exists()))
        found.append(path if here else folder / path)
    return found
