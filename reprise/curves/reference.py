"""Reference runs: a folder with reference.toml and one metrics file per seed."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, write_text
from reprise.core.findings import Report
from reprise.curves.checks.assertions import parse_assertion
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
    "read_judge",
    "usual_metrics",
    "write_manifest",
]

MANIFEST = "reference.toml"
JUDGE = "judge.toml"
CONFIG = "config.yaml"


def _assertion(text: str) -> str:
    parse_assertion(text)
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RewardSpec(_Strict):
    """The metric that decides. `margin` is the drop that must be detected (metric's unit).

    Without a margin it is 60 % of what the reference runs gained. `windows` is a number
    of equal windows or a list of [first, last] steps. `range`: lowest and highest value that the
    reward function can give.
    """

    metric: str = "critic/rewards/mean"
    direction: Literal["up", "down"] = "up"
    margin: Annotated[float, Field(gt=0)] | None = None
    windows: Annotated[int, Field(ge=1, le=12)] | list[tuple[int, int]] = 3
    range: tuple[float, float] | None = None


class ValidationSpec(_Strict):
    """A validation metric, and the set behind it: rows, distinct prompts, samples per row."""

    metric: str
    direction: Literal["up", "down"] = "up"
    rows: Annotated[int, Field(gt=0)] | None = None
    prompts: Annotated[int, Field(gt=0)] | None = None
    samples: Annotated[int, Field(gt=0)] = 1
    margin: Annotated[float, Field(gt=0)] | None = None


class ProbsDiffSpec(_Strict):
    """Mean difference between rollout and training probabilities; never its `_max`.

    `ceiling` and `share_above`: at most that share of steps above the ceiling. `decay`: the last
    quarter's median must be at least a fifth below the highest quarter's. `factor`: the ratio to
    the reference runs that a PASS must exclude.
    """

    metric: str = "training/rollout_probs_diff_mean"
    valid: str = "training/rollout_probs_diff_valid"
    ceiling: Annotated[float, Field(gt=0)] | None = None
    share_above: Annotated[float, Field(ge=0, le=1)] = 0.15
    decay: bool = False
    factor: Annotated[float, Field(gt=1)] | None = None


class KlSpec(_Strict):
    """The k3 estimate of the KL divergence between rollout and training policies.

    `factor`: the ratio to the reference runs that a PASS must exclude.
    """

    metric: str = "rollout_corr/k3_kl"
    factor: Annotated[float, Field(gt=1)] | None = None


class Metrics(_Strict):
    """The judged metrics. A metric that is left out is not judged, and the report says so."""

    reward: RewardSpec = RewardSpec()
    validation: ValidationSpec | None = None
    probs_diff: ProbsDiffSpec | None = None
    kl: KlSpec | None = None
    assertions: list[Annotated[str, AfterValidator(_assertion)]] = []

    @property
    def judged(self) -> tuple[str, ...]:
        """The names of the judged metrics."""
        specs = (self.reward, self.validation, self.probs_diff, self.kl)
        return tuple(spec.metric for spec in specs if spec is not None)


class RunFile(_Strict):
    """One reference run: a file in the folder of reference.toml."""

    file: str
    seed: int | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class ReferenceFile(_Strict):
    """reference.toml. `provenance` is free: recipe version, lock hash, machine, date, licence.

    `settings`: resolved keys of the configuration, by dotted name, that are known to hold where
    the whole configuration is not recorded.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    recipe: str
    kind: Literal["recorded", "digitised"] = "recorded"
    steps: Annotated[int, Field(gt=0)]
    runs: Annotated[list[RunFile], Field(min_length=1)]
    metrics: Metrics
    settings: dict[str, str | int | float | bool] = {}
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference runs of one recipe, read and validated. `seeds[i]` belongs to `runs[i]`.

    `config` is the whole configuration, `settings` single keys of it by dotted names; either is
    empty where it is not recorded.
    """

    name: str
    recipe: str
    kind: str
    steps: int
    metrics: Metrics
    runs: tuple[MetricTable, ...]
    seeds: tuple[int | None, ...]
    provenance: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def without(self, index: int) -> Reference:
        """The reference without one of its runs."""
        kept = [i for i in range(len(self.runs)) if i != index]
        runs, seeds = tuple(self.runs[i] for i in kept), tuple(self.seeds[i] for i in kept)
        return replace(self, runs=runs, seeds=seeds)


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
    ReferenceProblem with all problems, OperatorError for a missing path.
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
    metrics = _overlay(manifest.parent, parsed.metrics, report)
    if any(report.errors()):
        raise ReferenceProblem(manifest, report)
    return Reference(
        manifest.parent.parent.name
        if manifest.parent.name == "reference"
        else manifest.parent.name,
        parsed.recipe,
        parsed.kind,
        parsed.steps,
        metrics,
        runs,
        seeds,
        parsed.provenance,
        _config(manifest.parent),
        parsed.settings,
    )


def _overlay(folder: Path, metrics: Metrics, report: Report) -> Metrics:
    """The recorded metrics with the range, factors and assertions that judge.toml adds.

    A reference keeps what it was recorded with; what judge.toml says of a run as such holds for
    every reference of the recipe.
    """
    file = folder.parent / JUDGE
    if not file.is_file():
        return metrics
    if (stated := read_judge(file, report)) is None:
        return metrics
    assertions = list(dict.fromkeys([*metrics.assertions, *stated.assertions]))
    reward = metrics.reward
    if reward.range is None and stated.reward.metric == reward.metric:
        reward = reward.model_copy(update={"range": stated.reward.range})
    update: dict[str, object] = {"assertions": assertions, "reward": reward}
    for name in ("probs_diff", "kl"):
        own, other = getattr(metrics, name), getattr(stated, name)
        if own is not None and other is not None and own.factor is None:
            update[name] = own.model_copy(update={"factor": other.factor})
    return metrics.model_copy(update=update)


def read_judge(file: Path, report: Report) -> Metrics | None:
    """judge.toml of a recipe; None with its problems in `report`."""
    try:
        return Metrics.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        report.failed("reference-toml.syntax", str(file), problem=error)
    except ValidationError as error:
        _key_problems(file, error, report)
    return None


def _config(folder: Path) -> dict[str, Any]:
    """The resolved configuration that the reference runs had, where it was recorded."""
    file = folder / CONFIG
    if not file.is_file():
        return {}
    import yaml

    loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    return loaded if isinstance(loaded, dict) else {}


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
        report.failed("reference-toml.syntax", str(manifest), problem=error)
    except ValidationError as error:
        _key_problems(manifest, error, report)
    return None


def _key_problems(file: Path, error: ValidationError, report: Report) -> None:
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        report.failed(
            "reference-toml.key",
            f"{file}: {key}",
            problem=item["msg"],
            found=str(item["input"])[:80],
        )


def _read_runs(folder: Path, parsed: ReferenceFile, report: Report) -> tuple[MetricTable, ...]:
    tables = []
    for run in parsed.runs:
        file = folder / run.file
        if not file.is_file():
            report.failed("reference-file.missing", str(file))
            continue
        digest = sha256_file(file)
        if run.sha256 not in (None, digest):
            report.failed("reference-hash.differs", str(file), found=digest, expected=run.sha256)
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
    for name in metrics.judged:
        if name not in table:
            report.failed("reference-metric.absent", str(file), metric=name)
    rewards = table.series(metrics.reward.metric).finite()
    missing = np.setdiff1d(np.arange(1, parsed.steps + 1), rewards.steps)
    if metrics.reward.metric in table and len(missing):
        report.failed(
            "reference-steps.missing",
            str(file),
            missing=len(missing),
            steps=parsed.steps,
            metric=metrics.reward.metric,
        )


def _check_distinct(
    folder: Path, parsed: ReferenceFile, tables: list[MetricTable], report: Report
) -> None:
    """Two copies of one run would make the spread between runs look smaller than it is."""
    curves = Counter(
        table.series(parsed.metrics.reward.metric).values.tobytes() for table in tables
    )
    if len(curves) < len(tables):
        where = str(folder / MANIFEST)
        report.failed("reference-copies.same-curve", where, runs=len(tables), curves=len(curves))


def usual_metrics(table: MetricTable) -> Metrics:
    """What can be judged of a run without a judge.toml: the usual metrics that it has."""
    validation = sorted(
        (name for name in table.names if is_validation(name) and "/acc/" in name),
        key=lambda name: (not name.startswith("val-core"), name),
    )
    probs = ProbsDiffSpec(ceiling=0.015)
    return Metrics(
        validation=ValidationSpec(metric=validation[0]) if validation else None,
        probs_diff=probs if probs.metric in table else None,
        kl=KlSpec() if KlSpec().metric in table else None,
    )


def _single(path: Path) -> Reference:
    """One run as a reference, with the usual metrics as far as it has them."""
    table = read_run(path)
    steps = table.training_steps()
    last = int(steps[-1]) if len(steps) else 0
    return Reference(path.name, "", "recorded", last, usual_metrics(table), (table,), (None,), {})
