"""Reference runs: a folder with reference.toml and one metrics file a seed."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, write_text
from reprise.core.findings import Report
from reprise.metrics import MetricTable, is_validation, read_run

__all__ = [
    "KlSpec",
    "Metrics",
    "ProbsDiffSpec",
    "Reference",
    "ReferenceFile",
    "ReferenceProblem",
    "RewardSpec",
    "RunFile",
    "ValidationSpec",
    "load_reference",
    "write_manifest",
]

MANIFEST = "reference.toml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RewardSpec(_Strict):
    """The metric that decides. `margin` is the loss that must not be missed (metric's unit).

    Without a margin it is 85 % of what the reference runs gained. `windows` is a number
    of equal windows or a list of [first, last] steps.
    """

    metric: str = "critic/rewards/mean"
    direction: Literal["up", "down"] = "up"
    margin: Annotated[float, Field(gt=0)] | None = None
    windows: Annotated[int, Field(ge=1, le=12)] | list[tuple[int, int]] = 3


class ValidationSpec(_Strict):
    """A validation metric, and the set behind it: rows, distinct prompts, samples a row."""

    metric: str
    direction: Literal["up", "down"] = "up"
    rows: Annotated[int, Field(gt=0)] | None = None
    prompts: Annotated[int, Field(gt=0)] | None = None
    samples: Annotated[int, Field(gt=0)] = 1


class ProbsDiffSpec(_Strict):
    """Mean difference between rollout and training probabilities; never its `_max`.

    `ceiling` and `share_above`: at most that share of steps above the ceiling. `decay`: the last
    quarter's median must lie at least a fifth below the highest quarter's.
    """

    metric: str = "training/rollout_probs_diff_mean"
    valid: str = "training/rollout_probs_diff_valid"
    ceiling: Annotated[float, Field(gt=0)] | None = None
    share_above: Annotated[float, Field(ge=0, le=1)] = 0.15
    decay: bool = False


class KlSpec(_Strict):
    """The k3 estimate of the KL divergence between rollout and training policies."""

    metric: str = "rollout_corr/k3_kl"


class Metrics(_Strict):
    """What is judged. A metric that is left out is not judged at all, and the report says so."""

    reward: RewardSpec = RewardSpec()
    validation: ValidationSpec | None = None
    probs_diff: ProbsDiffSpec | None = None
    kl: KlSpec | None = None


class RunFile(_Strict):
    """One reference run: a file beside reference.toml."""

    file: str
    seed: int | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class ReferenceFile(_Strict):
    """reference.toml. `provenance` is free: recipe version, lock hash, machine, date, licence."""

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    recipe: str
    kind: Literal["recorded", "digitised"] = "recorded"
    steps: Annotated[int, Field(gt=0)]
    runs: Annotated[list[RunFile], Field(min_length=1)]
    metrics: Metrics
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference runs of one recipe, read and validated. `seeds[i]` belongs to `runs[i]`."""

    name: str
    recipe: str
    kind: str
    steps: int
    metrics: Metrics
    runs: tuple[MetricTable, ...]
    seeds: tuple[int | None, ...]
    provenance: Mapping[str, Any]


class ReferenceProblem(OperatorError):
    """A reference that cannot be used; carries every problem found in one pass."""

    def __init__(self, path: Path, found: Report) -> None:
        first = next(iter(found.errors()))
        super().__init__("reference", str(path), first.message, first.fix)
        self.found = found

    def report(self, command: str) -> Report:
        """All problems of the reference as a report of `command`."""
        report = Report(command)
        report.absorb(self.found)
        return report


def load_reference(path: Path) -> Reference:
    """Read a reference: a folder with reference.toml, or any run folder or metrics file.

    The latter two become a reference of one run with the metrics that it has. Raises
    ReferenceProblem with all that is wrong, OperatorError for a missing path.
    """
    manifest = path if path.name == MANIFEST else path / MANIFEST
    if not manifest.is_file():
        return _single(path)
    report = Report("reference")
    parsed = _parse(manifest, report)
    runs = _read_runs(manifest.parent, parsed, report) if parsed else ()
    if parsed is None or any(report.errors()):
        raise ReferenceProblem(manifest, report)
    seeds = tuple(run.seed for run in parsed.runs)
    return Reference(
        manifest.parent.parent.name
        if manifest.parent.name == "reference"
        else manifest.parent.name,
        parsed.recipe,
        parsed.kind,
        parsed.steps,
        parsed.metrics,
        runs,
        seeds,
        parsed.provenance,
    )


def write_manifest(folder: Path, values: Mapping[str, Any], head: str) -> None:
    """Write reference.toml into `folder`: `values` by ReferenceFile's keys, `head` as a comment.

    Raises pydantic's ValidationError for values that could not be read again.
    """
    import tomlkit

    known = ReferenceFile.model_validate(values)
    document = tomlkit.document()
    document.add(tomlkit.comment(head))
    document.update(known.model_dump(mode="json", by_alias=True, exclude_unset=True))
    write_text(folder / MANIFEST, tomlkit.dumps(document))


def _parse(manifest: Path, report: Report) -> ReferenceFile | None:
    try:
        return ReferenceFile.model_validate(tomllib.loads(manifest.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        report.failed("reference-toml", str(manifest), str(error), "mend the TOML syntax there")
    except ValidationError as error:
        for item in error.errors():
            key = ".".join(str(part) for part in item["loc"])
            fix = f"see docs/curves.md for the keys; found {str(item['input'])[:80]!r}"
            report.failed("reference-toml", f"{manifest}: {key}", item["msg"], fix)
    return None


def _read_runs(folder: Path, parsed: ReferenceFile, report: Report) -> tuple[MetricTable, ...]:
    tables = []
    for run in parsed.runs:
        file = folder / run.file
        if not file.is_file():
            fix = f"restore the file or remove it from {MANIFEST}"
            report.failed("reference-file", str(file), "the file is missing", fix)
            continue
        digest = sha256_file(file)
        if run.sha256 not in (None, digest):
            text = f"sha256 is {digest}, {MANIFEST} says {run.sha256}"
            report.failed("reference-hash", str(file), text, "restore the recorded file")
        try:
            table = read_run(file)
        except OperatorError as error:
            report.absorb(error.report("reference"))
            continue
        _check_run(file, table, parsed, report)
        tables.append(table)
    _check_distinct(folder, parsed, tables, report)
    for rule in ("reference-file", "reference-hash", "reference-metric", "reference-steps"):
        report.settle(rule)
    return tuple(tables)


def _check_run(file: Path, table: MetricTable, parsed: ReferenceFile, report: Report) -> None:
    metrics = parsed.metrics
    judged = (metrics.reward, metrics.validation, metrics.probs_diff, metrics.kl)
    for name in (spec.metric for spec in judged if spec is not None):
        if name not in table:
            text = f"{name} is declared in {MANIFEST} and not in this run"
            report.failed("reference-metric", str(file), text, "declare only what the runs hold")
    rewards = table.series(metrics.reward.metric).finite()
    missing = np.setdiff1d(np.arange(1, parsed.steps + 1), rewards.steps)
    if metrics.reward.metric in table and len(missing):
        text = f"{len(missing)} of {parsed.steps} steps have no finite {metrics.reward.metric}"
        report.failed("reference-steps", str(file), text, "record this run again")


def _check_distinct(
    folder: Path, parsed: ReferenceFile, tables: list[MetricTable], report: Report
) -> None:
    """Two copies of one run would make the spread between runs look smaller than it is."""
    curves = Counter(
        table.series(parsed.metrics.reward.metric).values.tobytes() for table in tables
    )
    if len(curves) < len(tables):
        text = f"{len(tables)} runs, only {len(curves)} different reward curves"
        fix = "give every reference run its own seed; remove the copies"
        report.failed("reference-copies", str(folder / MANIFEST), text, fix)


def _single(path: Path) -> Reference:
    """One run as a reference, with the usual metrics as far as it has them."""
    table = read_run(path)
    steps = table.training_steps()
    validation = sorted(
        (name for name in table.names if is_validation(name) and "/acc/" in name),
        key=lambda name: (not name.startswith("val-core"), name),
    )
    ceiling = 0.015
    probs = ProbsDiffSpec(ceiling=ceiling)
    metrics = Metrics(
        validation=ValidationSpec(metric=validation[0]) if validation else None,
        probs_diff=probs if probs.metric in table else None,
        kl=KlSpec() if KlSpec().metric in table else None,
    )
    last = int(steps[-1]) if len(steps) else 0
    return Reference(path.name, "", "recorded", last, metrics, (table,), (None,), {})
