"""The rehearsal's start model: the locked bytes, and what another build of it gives here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.lock.model import Shipped
from reprise.lock.read import read_lock
from reprise.rehearsal.model import ModelSettings, TinyModel, ensure_model, locked_versions
from reprise.rehearsal.shapes import ARCHITECTURES, DEFAULT_ARCH
from reprise.rehearsal.start_model import WEIGHTS, compare_weights, shipped_model
from reprise.rehearsal.toy import write_toy

__all__ = ["ENTRY", "build_start_model", "start_model"]

ENTRY = "start-model"
"""The name of its entry in versions.lock, of the kind `shipped`; and the shape of another."""
COMMAND = "rehearsal build-model"


def _locked(project: Project, name: str) -> tuple[Path, Shipped]:
    """Its folder and its entry of the lock. Raises OperatorError when the lock has none."""
    entry = read_lock(project.lock).shipped.get(name)
    if entry is None or entry.sha256 is None:
        raise OperatorError("rehearsal-start-model.not-locked", str(project.lock), entry=name)
    return (project.root / entry.path).parent, entry


def start_model(project: Project, arch: str = DEFAULT_ARCH) -> TinyModel:
    """The start model of `arch` that is shipped with the project, each file checked by the lock.

    Nothing is trained. Raises OperatorError when a file is missing or differs.
    """
    folder, entry = _locked(project, ARCHITECTURES[arch].start_model)
    return shipped_model(folder, entry.digests())


def build_start_model(project: Project, python: Path, say: Callable[[str], None]) -> Report:
    """Train the start model again with the interpreter `python`; compare it with the shipped one.

    The result stays in the cache and no run uses it. Another processor, or another instruction
    set, gives other bits: a difference is a note, never an error. `data`: `folder`, `sha256`,
    `shipped_sha256`, the counts of `Difference`, `expected_reward` of both.
    """
    shipped = start_model(project)
    data = write_toy(project.cache / "toy-data", seed=0)
    versions = locked_versions(project.root / "requirements" / "rehearsal.txt")
    cache = project.cache / "start-model"
    built = ensure_model(cache, python, data.train, versions, say, ModelSettings(), again=True)
    difference = compare_weights(shipped.path / WEIGHTS, built.path / WEIGHTS)
    rewards = [_provenance(model)["expected_reward"] for model in (shipped, built)]
    report = Report(
        COMMAND,
        data={
            "folder": str(built.path),
            "sha256": built.sha256,
            "shipped_sha256": shipped.sha256,
            "parameters": difference.parameters,
            "equal": difference.equal,
            "greatest_difference": difference.greatest,
            "relative_difference": difference.relative,
            "expected_reward": {"shipped": rewards[0], "built": rewards[1]},
        },
    )
    report.passed("rehearsal-start-model")
    report.note("rehearsal-start-model.shipped", str(shipped.path), sha256=shipped.sha256)
    report.note(
        "rehearsal-start-model.built",
        str(built.path),
        sha256=built.sha256,
        difference=difference.text(),
    )
    report.note(
        "rehearsal-start-model.reward", str(built.path), shipped=rewards[0], built=rewards[1]
    )
    return report


def _provenance(model: TinyModel) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        (model.path / "provenance.json").read_text(encoding="utf-8")
    )
    return record
