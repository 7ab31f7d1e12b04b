"""References from runs of any origin: create, describe, compare and replace them."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from reprise import __version__
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, write_text
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.curves.checks.comparable import config_differences
from reprise.curves.judge import judge_run
from reprise.curves.reference import (
    CONFIG,
    JUDGE,
    MANIFEST,
    Reference,
    load_reference,
    read_judge,
    usual_metrics,
    write_manifest,
)
from reprise.flows.judge.judging import AnyRun, open_run, origin_of
from reprise.metrics import MetricTable, is_validation
from reprise.recipe.folders import recipe_folder, recipe_names

__all__ = [
    "compare_references",
    "create_reference",
    "reference_folder",
    "replace_reference",
    "show_reference",
]

_HEAD = "Written by `reprise reference`; do not edit by hand."
Row = dict[str, Any]


def reference_folder(project: Project, name: str) -> Path:
    """Where the reference `name` is or will be: a recipe's, or the path that is named."""
    if "/" in name or name.startswith("."):
        return Path(name)
    folder = recipe_folder(project.recipes, name)
    if not folder.is_dir():
        known = ", ".join(recipe_names(project.recipes))
        raise OperatorError("reference-name.unknown", name, recipes=known, name=name)
    return folder / "reference"


def create_reference(
    project: Project,
    name: str,
    paths: Sequence[Path],
    judge: Path | None = None,
    accepted: Sequence[str] = (),
) -> Report:
    """Make the reference `name` of runs of any origin; refuse to overwrite one.

    What is judged comes from `judge`, else from the recipe's judge.toml, else from the metrics
    that the runs have. Raises OperatorError with what is wrong.
    """
    folder = reference_folder(project, name)
    if folder.exists():
        raise OperatorError("reference-name.exists", str(folder), name=name)
    report = Report("reference create")
    _make(folder, paths, judge, accepted, {}, report)
    return report


def replace_reference(
    project: Project, name: str, paths: Sequence[Path], reason: str, accepted: Sequence[str] = ()
) -> Report:
    """Put another reference in the place of `name`; the old one is kept under another name.

    `reason` and the shift of every judged metric are recorded in the new reference.toml.
    """
    folder = reference_folder(project, name)
    old = load_reference(folder)
    report = Report("reference replace")
    made = folder.with_name(f"{folder.name}.new")
    if made.exists():
        raise OperatorError("reference-name.exists", str(made), name=str(made))
    inherited = {
        "recipe": old.recipe,
        "metrics": old.metrics.model_dump(mode="json", exclude_none=True),
    }
    inherited["replaced"] = {"reason": reason, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    _make(made, paths, None, accepted, inherited, report)
    shifts = _shifts(load_reference(made), old)
    stated = [f"{row['metric']} {row['steps']}: {row['shift']:+.4g}" for row in shifts]
    _add_provenance(made, {"shifts": stated})
    kept = _free(folder)
    folder.rename(kept)
    made.rename(folder)
    load_reference(folder)
    report.data |= {"reference": str(folder), "kept": str(kept), "shifts": shifts}
    return report


def _free(folder: Path) -> Path:
    stamp = time.strftime("%Y%m%d", time.gmtime())
    named = (folder.with_name(f"{folder.name}.{stamp}-{n}") for n in range(1, 1000))
    return next(path for path in named if not path.exists())


def _add_provenance(folder: Path, facts: Mapping[str, Any]) -> None:
    import tomlkit

    manifest = folder / MANIFEST
    document = tomlkit.parse(manifest.read_text(encoding="utf-8"))
    for key, value in facts.items():
        document["provenance"][key] = value
    write_text(manifest, tomlkit.dumps(document))


def _make(
    folder: Path,
    paths: Sequence[Path],
    judge: Path | None,
    accepted: Sequence[str],
    inherited: Mapping[str, Any],
    report: Report,
) -> None:
    """Write the reference into a temporary folder, read it back, and give it its name."""
    runs = [open_run(path) for path in paths]
    _alike(runs, accepted)
    steps = min(_finished(run) for run in runs)
    made = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    made.mkdir(parents=True)
    try:
        entries = []
        for number, run in enumerate(runs, start=1):
            seed = run.state.seed if run.state else None
            file = made / (f"seed-{seed}.jsonl" if seed is not None else f"run-{number}.jsonl")
            if file.exists():
                raise OperatorError("reference-runs.same-seed", str(run.path), seed=seed)
            write_text(file, _lines(run.table))
            entry = {"file": file.name, "seed": seed, "sha256": sha256_file(file)}
            entries.append({key: value for key, value in entry.items() if value is not None})
        values = {
            "schema": 1,
            "recipe": inherited.get("recipe", folder.parent.name),
            "steps": steps,
            "runs": entries,
            "metrics": inherited.get("metrics") or _metrics(folder, judge, runs[0].table),
            "provenance": _provenance(runs)
            | ({"replaced": inherited["replaced"]} if "replaced" in inherited else {}),
        }
        write_manifest(made, values, _HEAD)
        if runs[0].config:
            write_text(made / CONFIG, yaml.safe_dump(runs[0].config, sort_keys=True))
        load_reference(made)
        made.rename(folder)
    finally:
        if made.exists():
            shutil.rmtree(made)
    report.passed("reference-runs")
    lengths = {run.path.name: _finished(run) for run in runs}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{key} {value}" for key, value in lengths.items())
        report.note("reference-runs.lengths", str(folder), steps=steps, lengths=shown)
    if len(runs) < 5:
        report.note("reference-runs.few", str(folder), count=len(runs))
    report.data |= {"reference": str(folder), "runs": len(runs), "steps": steps}


def _alike(runs: Sequence[AnyRun], accepted: Sequence[str]) -> None:
    """Refuse runs whose inputs differ in what matters: their spread would not be that of seeds."""
    first = runs[0]
    problems = []
    for run in runs[1:]:
        ours, theirs = origin_of(first).facts, origin_of(run).facts
        for name in ("model_sha256", "data_sha256"):
            if ours.get(name) != theirs.get(name) and name not in accepted:
                problems.append(f"{run.path.name}: {name}")
        if first.config and run.config:
            problems += [
                f"{run.path.name}: {d}"
                for d in config_differences(run.config, first.config)
                if d.weight == "matters" and d.name not in accepted
            ]
    if problems:
        shown = "; ".join(problems[:6]) + (f"; and {len(problems) - 6} more" * (len(problems) > 6))
        flags = " ".join(f"--accept {p.split(': ')[1]}" for p in problems[:6])
        raise OperatorError(
            "reference-runs.differ", str(first.path), differences=shown, flags=flags
        )


def _finished(run: AnyRun) -> int:
    """The last step of a run that was to end there."""
    steps = run.table.training_steps()
    if not len(steps):
        raise OperatorError("reference-runs.no-steps", str(run.path))
    return int(steps[-1])


def _metrics(folder: Path, judge: Path | None, table: MetricTable) -> dict[str, Any]:
    file = judge or folder.parent / JUDGE
    if file.is_file() or judge is not None:
        problems = Report("reference create")
        stated = read_judge(file, problems) if file.is_file() else None
        if stated is None:
            found = next(iter(problems.errors()), None)
            message = found.message if found else "no such file"
            raise OperatorError("reference-judge.unreadable", str(file), problem=message)
        return stated.model_dump(mode="json", exclude_none=True, exclude_defaults=False)
    return usual_metrics(table).model_dump(mode="json", exclude_none=True)


def _provenance(runs: Sequence[AnyRun]) -> dict[str, Any]:
    """Where the runs come from; what differs between them is a list."""
    facts: dict[str, Any] = {
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "reprise": __version__,
        "sources": [run.path.name for run in runs],
    }
    origins = [origin_of(run).facts for run in runs]
    for name in sorted({key for origin in origins for key in origin}):
        values = [origin.get(name) for origin in origins]
        same = all(value == values[0] for value in values)
        facts[name] = values[0] if same else [str(value) for value in values]
    return facts


def _lines(table: MetricTable) -> str:
    """The merged curves as verl's JSON lines, validation before a step's other metrics."""
    steps: dict[int, dict[str, float]] = {}
    for name in table.names:
        series = table.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            steps.setdefault(step, {})[name] = value if math.isfinite(value) else math.nan
    rows = []
    for step, data in sorted(steps.items()):
        rows.append(json.dumps({"step": step, "data": data}))
    return "\n".join(rows) + "\n"


def show_reference(project: Project, name: str) -> Report:
    """Describe a reference: runs, judged metrics, and what it can detect."""
    reference = load_reference(_path(project, name))
    # A run of the reference judged by the others says what the reference can see.
    judged = judge_run(reference.runs[0], reference, reference.steps)
    report = Report("reference show")
    report.passed("reference-toml")
    metrics = reference.metrics
    named = {
        "reward": metrics.reward.metric,
        "validation": metrics.validation.metric if metrics.validation else None,
        "probs_diff": metrics.probs_diff.metric if metrics.probs_diff else None,
        "kl": metrics.kl.metric if metrics.kl else None,
    }
    report.data |= {
        "reference": reference.name,
        "kind": reference.kind,
        "runs": len(reference.runs),
        "seeds": list(reference.seeds),
        "steps": reference.steps,
        "metrics": {key: metric for key, metric in named.items() if metric is not None},
        "assertions": list(metrics.assertions),
        "detects": judged.smallest,
        "not_decided": [check.rule for check in judged.undecided],
        "configuration": "recorded" if reference.config else "not recorded",
        "provenance": dict(reference.provenance),
    }
    return report


def _path(project: Project, name: str) -> Path:
    path = Path(name)
    return path if path.exists() else reference_folder(project, name)


def compare_references(project: Project, name: str, other: str) -> Report:
    """The shift of every judged metric from reference `other` to `name`, by windows."""
    new, old = load_reference(_path(project, name)), load_reference(_path(project, other))
    report = Report("reference compare")
    report.passed("reference-toml")
    report.data |= {"reference": new.name, "other": old.name, "shifts": _shifts(new, old)}
    if new.config and old.config:
        differing = config_differences(new.config, old.config)
        shown = [f"{d.weight}: {d}" for d in differing if d.weight != "no effect"]
        report.data["configuration"] = shown
    return report


def _shifts(new: Reference, old: Reference) -> list[Row]:
    """Signed shifts of the means over thirds of the common steps, in units and deviations."""
    steps = min(new.steps, old.steps)
    edges = np.linspace(0, steps, 4).round().astype(int)
    rows: list[Row] = []
    for name in old.metrics.judged:
        for first, last in zip(edges[:-1] + 1, edges[1:], strict=True):
            ours = _means(new, name, int(first), int(last))
            theirs = _means(old, name, int(first), int(last))
            if not len(ours) or not len(theirs):
                continue
            shift = float(ours.mean() - theirs.mean())
            spread = float(theirs.std(ddof=1)) if len(theirs) > 1 else math.nan
            units = shift / spread if spread > 0 else math.nan
            span = f"steps {first}-{last}" + (" (validation)" * is_validation(name))
            row: Row = {"metric": name, "steps": span, "old": float(theirs.mean())}
            row |= {"new": float(ours.mean()), "shift": shift}
            rows.append(row | {"deviations": units if math.isfinite(units) else None})
    return rows


def _means(reference: Reference, name: str, first: int, last: int) -> np.ndarray[Any, Any]:
    parts = [run.series(name).finite().between(first, last).values for run in reference.runs]
    return np.array([float(part.mean()) for part in parts if len(part)])
