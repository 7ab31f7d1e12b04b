"""Findings on weights that are present and wrong: names, shapes, types, tokenizer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reprise.core.findings import Report
from reprise.models.classes import Compared
from reprise.models.config import layer_numbers, text_config

__all__ = ["judge_class", "judge_dtypes", "judge_tokenizer"]

_SHOWN = 3
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_EMBEDDING = re.compile(r"^(?:language_model\.|model\.)*embed_tokens\.weight$")


def judge_class(report: Report, place: str, config: Mapping[str, Any], found: Compared) -> None:
    """Report how the tensors differ from the class of the config."""
    if found.by is None:
        report.unknown("model-class.not-compared", place, reason=found.unknown)
        return
    architecture = _architecture(config)
    if found.failed:
        report.failed("model-class.cannot-load", place, by=found.by, reason=found.failed)
    if found.missing:
        names = _some(found.missing)
        report.failed("model-class.missing", place, count=len(found.missing),
                      architecture=architecture, names=names)  # fmt: skip
    if found.mismatched:
        names = _some([f"{name} {got}, expected {want}" for name, got, want in found.mismatched])
        report.failed("model-class.mismatched", place, count=len(found.mismatched),
                      architecture=architecture, names=names)  # fmt: skip
    _surplus(report, place, config, found.unexpected)
    report.settle("model-class")


def _surplus(report: Report, place: str, config: Mapping[str, Any], names: Sequence[str]) -> None:
    """Tensors that the class ignores: of further layers an error, of anything else a warning.

    Layers that predict several tokens at once follow the others and are no part of the class.
    """
    text = text_config(config)
    count, ahead = text.get("num_hidden_layers"), text.get("num_nextn_predict_layers") or 0
    others = list(names)
    if isinstance(count, int) and isinstance(ahead, int):
        further = {number for number in layer_numbers(names) if number >= count}
        others = [name for name in names if not layer_numbers([name]) & further]
        surplus = sorted(number for number in further if number >= count + ahead)
        if surplus:
            layers = ", ".join(map(str, surplus[:8]))
            report.failed("model-class.surplus", place, layers=layers, count=count)
    if others:
        report.warn("model-class.unexpected", place, count=len(others),
                    architecture=_architecture(config), names=_some(others))  # fmt: skip


def judge_dtypes(
    report: Report, place: str, config: Mapping[str, Any], tensors: Mapping[str, Sequence[Any]]
) -> None:
    """Report types that a load would not take as they are; quantized weights have their own."""
    if config.get("quantization_config"):
        return
    odd: dict[str, list[str]] = {}
    for name, (dtype, _) in tensors.items():
        if dtype not in _FLOATS:
            odd.setdefault(dtype, []).append(name)
    for dtype, names in odd.items():
        report.failed(
            "model-dtype.not-floating", place, count=len(names), dtype=dtype, names=_some(names)
        )
    text = text_config(config)
    stated = next((value for part in (config, text) for key in ("dtype", "torch_dtype")
                   if isinstance(value := part.get(key), str)), None)  # fmt: skip
    (most, _), *_ = Counter(dtype for dtype, _ in tensors.values()).most_common(1)
    if stated in _FLOATS.values() and most in _FLOATS and _FLOATS[most] != stated:
        report.warn("model-dtype.differs", place, found=most, stated=stated)
    report.settle("model-dtype")


def judge_tokenizer(
    report: Report, place: str, found: Mapping[str, Any], tensors: Mapping[str, Sequence[Any]]
) -> None:
    """Report a tokenizer that is missing, larger than the embedding, or without chat template."""
    if not found["present"]:
        report.warn("model-tokenizer.missing", place)
    elif not found["template"]:
        report.warn("model-tokenizer.no-template", place)
    for name, (_, shape) in tensors.items():
        largest = found["largest"]
        if largest is not None and _EMBEDDING.match(name) and shape and largest >= shape[0]:
            report.failed(
                "model-tokenizer.too-large", place, largest=largest, tensor=name, rows=shape[0]
            )
    report.settle("model-tokenizer")


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(config.get("model_type"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
