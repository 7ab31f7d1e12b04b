"""The shapes that the tiny model can have, from shapes.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ARCHITECTURES", "DEFAULT_ARCH", "SHAPES", "Shape", "arch_of"]

SHAPES = Path(__file__).with_name("shapes.toml")
"""The file, which build_model.py reads by itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table [shape.NAME]; the head of the file explains its keys."""

    model_type: str
    config: str
    model: str
    start_model: str = ""
    sglang: bool = False
    half_hidden: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)


_READ = tomllib.loads(SHAPES.read_text(encoding="utf-8"))
ARCHITECTURES = {name: Shape(**table) for name, table in _READ["shape"].items()}
"""The shapes that build_model.py makes, by name."""
DEFAULT_ARCH: str = _READ["default"]
"""The shape of a run that names none."""


def arch_of(model_type: str) -> str | None:
    """The shape of models with this `model_type`; None where no tiny model has it."""
    found = (name for name, shape in ARCHITECTURES.items() if shape.model_type == model_type)
    return next(found, None)
