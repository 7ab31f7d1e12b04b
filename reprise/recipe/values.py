"""Values that no rule can compute with: text where a number is meant, sizes below one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.recipe.unknowns import NotKnown

__all__ = ["WrongValue", "wrong_values"]

_ROLE = "actor_rollout_ref"
_PARALLEL = ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
# Each is a whole number from 1 where it is set at all.
_SIZES = frozenset(
    (
        *("trainer.nnodes", "trainer.n_gpus_per_node", "trainer.total_epochs"),
        "trainer.total_training_steps",
        *("data.train_batch_size", "data.max_prompt_length", "data.max_response_length"),
        *(f"{_ROLE}.rollout.{name}" for name in ("n", "max_num_batched_tokens", "max_num_seqs")),
        *(
            f"{_ROLE}.rollout.{name}_parallel_size"
            for name in ("tensor_model", "pipeline_model", "data", "expert")
        ),
        *(
            f"{node}.{name}"
            for node in (f"{_ROLE}.actor", "critic")
            for name in ("ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu", "ppo_epochs",
                         "ppo_max_token_len_per_gpu", "ulysses_sequence_parallel_size")
        ),
        *(
            f"{node}.megatron.{name}_parallel_size"
            for node in (f"{_ROLE}.actor", f"{_ROLE}.ref", "critic")
            for name in _PARALLEL
        ),
    )
)  # fmt: skip
_SHARES = frozenset((f"{_ROLE}.rollout.gpu_memory_utilization",))


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A key, what its value must be and is, and verl's own value.

    Not `sure`: verl's own value is of another kind, which need not be the only one. `meant` is the
    value of which it is a slip, '' where it is none.
    """

    key: str
    expected: str
    found: Any
    usual: Any
    sure: bool
    meant: str = ""

    @property
    def fix(self) -> str:
        """What to write instead."""
        if self.meant:
            return f"{self.key}={self.meant}"
        if self.usual is None:
            return f"remove {self.key}: verl's default is null"
        return f"verl's default is {self.key}={self.usual}"


def wrong_values(
    values: Mapping[str, Any], base: Mapping[str, Any], prefix: str = ""
) -> Iterator[WrongValue]:
    """Values of a resolved config that cannot be right; `base` is verl's own config."""
    for name, value in values.items():
        key, usual = f"{prefix}{name}", base.get(name)
        if isinstance(value, Mapping) and (isinstance(usual, Mapping) or usual is None):
            yield from wrong_values(value, usual or {}, f"{key}.")
        elif expected := _expected(key, value, usual):
            sure = key in _SIZES | _SHARES or _is_slip(value, usual)
            yield WrongValue(key, expected, value, usual, sure, _meant(value, usual))


def _expected(key: str, value: Any, usual: Any) -> str:
    """What the value must be; empty when nothing speaks against it."""
    if value is None or isinstance(value, NotKnown):
        return ""
    if key not in _SIZES | _SHARES and _is_slip(value, usual):
        return "true or false" if _BOOLEAN_SLIP.fullmatch(value) else "a number"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in _SIZES:
        fine = isinstance(value, int) and number and value >= 1
        return "" if fine else "a whole number from 1"
    if key in _SHARES:
        return "" if number and 0 < value <= 1 else "a share between 0 and 1"
    return _expected_kind(value, usual)


def _expected_kind(value: Any, usual: Any) -> str:
    """What a value must be for its kind to be that of verl's own."""
    # Text with a number in it may well be a way to write one: 0.5_4.0 is a range.
    if not isinstance(value, str) or any(letter.isdigit() for letter in value):
        return ""
    if isinstance(usual, bool):
        return "true or false"
    return "a number" if isinstance(usual, int | float) else ""


# A letter in the place of a digit (5O, l0), and booleans with two letters exchanged, lost or
# doubled.
_NUMBER_SLIP = re.compile(r"-?(?=[\dOolI.]*\d)[\dOolI]+(\.[\dOolI]+)?")
_BOOLEAN_SLIP = re.compile(
    r"[Tt](ure|rie|reu|ru|rues?|urue|rrue|tue)|[Ff](asle|lase|alse?d|ales|las|als|aslse|alss)|tru"
)


_DIGITS = str.maketrans("OolI", "0011")


def _meant(value: Any, usual: Any) -> str:
    """The number or boolean of which a text is a slip; '' where it is none."""
    if not isinstance(value, str) or not _is_slip(value, usual):
        return ""
    if _BOOLEAN_SLIP.fullmatch(value):
        return str(value[:1] in "tT")
    return value.translate(_DIGITS)


def _is_slip(value: Any, usual: Any) -> bool:
    """Whether a text is a misspelt number or boolean, where verl's own value is not text."""
    if not isinstance(value, str) or isinstance(usual, str):
        return False
    if _BOOLEAN_SLIP.fullmatch(value):
        return True
    number = isinstance(usual, int | float) and not isinstance(usual, bool)
    return number and _NUMBER_SLIP.fullmatch(value) is not None
