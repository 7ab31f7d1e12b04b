"""How transformers and vLLM read one config.json: they may use different names for one thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from reprise.core.findings import Severity
from reprise.core.rules import text_of
from reprise.models.families import Readers, family

__all__ = ["ConfigFault", "config_faults", "impossible_count", "layer_numbers", "text_config"]

# A vision tower has layers and embeddings of its own, below other names.
_LAYER = re.compile(r"(?:language_model\.|model\.)*layers\.(\d+)\.")
_VOCABULARY = re.compile(r"^(?:language_model\.|model\.)*(?:embed_tokens|lm_head)\.weight$")


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """A disagreement about the config: its severity, message and fix."""

    severity: Severity
    message: str
    fix: str


def config_faults(
    config: Mapping[str, Any], tensors: Mapping[str, Sequence[Any]] | None = None
) -> list[ConfigFault]:
    """All disagreements between config, weights and the two readers.

    `tensors` are {name: [dtype, shape]} of all shards.
    """
    found = _against_weights(config, tensors or {})
    if not config.get("model_type"):
        found.append(_fault("model-config.no-type"))
    if (readers := family(config).readers) is not None:
        found += _two_readers(config, readers)
    return found


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the language model: nested in those with images."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def impossible_count(config: Mapping[str, Any]) -> str | None:
    """A count (num_hidden_layers, num_experts) that no model has, as `key=value`; else None.

    To build or to list what it states would take all memory.
    """
    found = (
        f"{key}={value:,}"
        for part in (config, text_config(config))
        for key, value in part.items()
        if key.startswith(("num_", "n_")) and type(value) is int and value > _MOST
    )
    return next(found, None)


def layer_numbers(names: Iterable[str]) -> set[int]:
    """The layers of the language model in tensor names: `[...]model.layers.N.` of any nesting."""
    found = (_LAYER.match(name) for name in names)
    return {int(match[1]) for match in found if match}


_MOST = 100_000


def _fault(name: str, **values: object) -> ConfigFault:
    """A fault with the text `name` of the registry, which also gives its severity."""
    text = text_of(name)
    return ConfigFault(Severity(text.severity), *text.render(values))


def _against_weights(
    config: Mapping[str, Any], tensors: Mapping[str, Sequence[Any]]
) -> list[ConfigFault]:
    """Sizes that config.json states against the tensors; sizes it leaves out are not guessed."""
    found = []
    text = text_config(config)
    for name, (_, shape) in tensors.items():
        if not _VOCABULARY.search(name):
            continue
        sizes = list(zip(("vocab_size", "hidden_size"), shape, strict=False))
        if any(isinstance(text.get(key), int) and text[key] != size for key, size in sizes):
            wanted = [text.get(key) for key, _ in sizes]
            found.append(
                _fault("model-config.shape", tensor=name, shape=list(shape), wanted=wanted)
            )
    count, layers = text.get("num_hidden_layers"), layer_numbers(tensors)
    if "num_hidden_layers" in text and (type(count) is not int or count < 1):
        found.append(_fault("model-config.layers", count=repr(count)[:40]))
    elif type(count) is int and layers:
        # A damaged file can state billions: only the first few are counted out.
        missing = [*islice((number for number in range(count) if number not in layers), 8)]
        if missing:
            shown = ", ".join(map(str, missing))
            found.append(_fault("model-config.missing-layers", layers=shown, count=count))
    return found


def _two_readers(config: Mapping[str, Any], readers: Readers) -> list[ConfigFault]:
    """Two sets of names for one thing: sizes and switches that one of the readers lacks."""
    found = []
    ours, theirs = readers.expert_width
    expert = {
        "transformers": (ours, config.get(ours, readers.default_width)),
        "vLLM": (theirs, config.get(theirs, readers.default_width)),
    }
    if expert["transformers"][1] != expert["vLLM"][1]:
        if theirs in config:
            found.append(_differs("the width of an expert", expert))
        else:  # as transformers saves it
            found.append(_fault("model-config.no-width", width=expert["transformers"][1]))
    count = readers.dense_count
    dense = {
        "transformers": (readers.dense_kinds, _dense_layers(config, readers)),
        "vLLM": (count, config.get(count, readers.default_dense)),
    }
    if dense["transformers"][1] != dense["vLLM"][1]:
        found.append(_differs("the number of dense layers before the sparse ones", dense))
    if config.get(readers.factor) is None:
        found.append(_fault("model-config.no-scaling-factor"))
    for key in readers.built_in:
        if config.get(key) is False:
            found.append(_fault("model-config.switch-off", key=key))
    if readers.unlike not in config:
        found.append(_fault("model-config.combine-not-stated"))
    return found


def _differs(what: str, readers: Mapping[str, tuple[str, object]]) -> ConfigFault:
    values = " and ".join(f"{value} in {who} ({key})" for who, (key, value) in readers.items())
    keys = " and ".join(key for key, _ in readers.values())
    return _fault("model-config.readers-differ", what=what, values=values, keys=keys)


def _dense_layers(config: Mapping[str, Any], readers: Readers) -> int | str:
    """How many leading layers transformers makes dense; a text for any other pattern."""
    kinds = config.get(readers.dense_kinds)
    if not isinstance(kinds, list):
        return readers.default_dense
    count = next((place for place, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    return count if "dense" not in kinds[count:] else "a pattern that is not dense layers first"
