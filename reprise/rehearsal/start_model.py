"""The start model that is shipped with the project, and how far another build of it differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.rehearsal.model import TinyModel

__all__ = ["WEIGHTS", "Difference", "compare_weights", "shipped_model"]

WEIGHTS = "model.safetensors"


def shipped_model(folder: Path, digests: Mapping[str, str]) -> TinyModel:
    """The model in `folder`, of which every file has its locked SHA-256 (`digests`, by file name).

    Raises OperatorError with every file that is missing or differs.
    """
    wrong = []
    for name, expected in digests.items():
        path = folder / name
        found = sha256_file(path) if path.is_file() else None
        if found is None:
            wrong.append(f"{name} does not exist")
        elif found != expected:
            wrong.append(f"{name} has sha256 {found}, versions.lock says {expected}")
    if wrong:
        raise OperatorError(
            "rehearsal-start-model", str(folder), "; ".join(wrong), f"git checkout -- {folder}"
        )
    return TinyModel(folder, digests[WEIGHTS])


@dataclass(frozen=True, slots=True)
class Difference:
    """How two files of weights with the same tensors differ.

    `parameters` counts the numbers, `equal` those with the same bits, `greatest` is the greatest
    absolute difference, `relative` the norm of the difference over the norm of the first.
    """

    parameters: int
    equal: int
    greatest: float
    relative: float

    def text(self) -> str:
        """As it is printed."""
        if self.equal == self.parameters:
            return f"all {self.parameters} parameters have the same bits"
        return (
            f"{self.parameters - self.equal} of {self.parameters} parameters differ, "
            f"by at most {self.greatest:.2g}; norm of the difference / norm of the weights: "
            f"{self.relative:.2g}"
        )


def compare_weights(one: Path, other: Path) -> Difference:
    """Compare two safetensors files of float32 tensors.

    Raises OperatorError when they do not have the same tensors.
    """
    first, second = _tensors(one), _tensors(other)
    shapes = [{name: value.shape for name, value in side.items()} for side in (first, second)]
    if shapes[0] != shapes[1]:
        raise OperatorError(
            "rehearsal-start-model.expected-tensors-found",
            str(other),
            one=one,
            items=sorted(set(shapes[0].items()) ^ set(shapes[1].items()))[:4],
        )
    a = np.concatenate([first[name].ravel() for name in sorted(first)])
    b = np.concatenate([second[name].ravel() for name in sorted(first)])
    gap = np.abs(a.astype(np.float64) - b)
    return Difference(
        parameters=int(a.size),
        equal=int((a.view(np.uint32) == b.view(np.uint32)).sum()),
        greatest=float(gap.max()),
        relative=float(np.linalg.norm(gap) / np.linalg.norm(a.astype(np.float64))),
    )


def _tensors(path: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """The tensors of a safetensors file by name; all must be float32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise OperatorError(
                "rehearsal-start-model.expected-float-found",
                str(path),
                entry=entry["dtype"],
                name=name,
            )
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], np.dtype("<f4")).reshape(entry["shape"])
    return tensors
