"""Record reference runs: several seeds of one recipe under one lock, resumable."""

from __future__ import annotations

import platform
import shutil
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprise import __version__
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file, write_text
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.curves.reference import load_reference, write_manifest
from reprise.flows.key import KEYS
from reprise.flows.preconditions import check_preconditions
from reprise.flows.rehearsal import MODEL, Rehearsal, RehearsalOptions
from reprise.flows.target import DEFAULT, Target
from reprise.rehearsal.caps import caps
from reprise.rehearsal.shapes import DEFAULT_ARCH
from reprise.runs.state.folder import RunFolder, readable_runs
from reprise.runs.state.state import RunStatus

__all__ = ["BaselineOptions", "check_baseline", "record_baseline"]

COMMAND = "baseline"
LABEL = "baseline"
# Recorded seeds start here, so that the seeds that one types (1, 2, 3) are new ones.
FIRST_SEED = 101


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """`seeds` runs are recorded; `replace` allows another reference to be replaced."""

    seeds: int = 8
    replace: bool = False
    quiet: bool = False
    place: Target = DEFAULT
    arch: str = DEFAULT_ARCH

    def rehearsal(self) -> RehearsalOptions:
        """What each of the recorded runs has in common."""
        return RehearsalOptions(label=LABEL, quiet=self.quiet, place=self.place, arch=self.arch)


def check_baseline(project: Project, options: BaselineOptions) -> Report:
    """What would end the recording, or spoil it, looked at before the first run."""
    rehearsal = options.rehearsal()
    report = check_preconditions(project, rehearsal, COMMAND, judged=False)
    if set_now := caps():
        settings = " ".join(f"{name}={value}" for name, value in set_now.items())
        report.failed("baseline-caps.set", settings, names=" ".join(set_now))
    report.settle("baseline-caps")
    return report


def record_baseline(project: Project, options: BaselineOptions) -> Report:
    """Record what is missing of n seeds; write the reference when all are there.

    A run that was finished before under the same lock, recipe, model and data is used again, so
    that an interrupted recording continues where it stopped. Raises OperatorError when a reference
    of another lock exists and `replace` is not set.
    """
    rehearsal = options.rehearsal()
    first = Rehearsal(project, rehearsal)
    key, verl = first.key(), first.tree.label()
    folder = options.place.reference(project, MODEL, options.arch)
    _may_write(folder, key, options)
    recorded: dict[int, RunFolder] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        run = _finished(project, key, verl, seed)
        if run is None:
            ended = Rehearsal(project, replace(rehearsal, seed=seed)).run()
            if ended.report is not None:
                ended.report.command = COMMAND
                return ended.report
            run = ended.folder
            _same_key(run, key)
        recorded[seed] = run
    _write_reference(project, folder, key, recorded)
    report = Report(COMMAND, data={"reference": str(folder), "seeds": sorted(recorded)})
    load_reference(folder)
    report.passed("baseline-recorded")
    return report


def _may_write(folder: Path, key: Mapping[str, Any], options: BaselineOptions) -> None:
    manifest = folder / "reference.toml"
    if not manifest.is_file() or options.replace:
        return
    provenance = load_reference(folder).provenance
    differing = [name for name in KEYS if provenance.get(name) != key[name]]
    if differing:
        raise OperatorError("baseline-exists.other-key", str(manifest), keys=", ".join(differing))


def _same_key(run: RunFolder, key: Mapping[str, Any]) -> None:
    state = run.read()
    moved = [name for name in KEYS if getattr(state, name) != key[name]]
    if moved:
        raise OperatorError("baseline-moved.changed", str(run.path), keys=", ".join(moved))


def _finished(project: Project, key: Mapping[str, Any], verl: str, seed: int) -> RunFolder | None:
    """A finished run of the seed with the key, of this verl and under no cap."""
    for run, state in readable_runs(project.runs, MODEL):
        same = state.verl == verl and all(getattr(state, name) == key[name] for name in KEYS)
        if same and not state.caps and state.seed == seed and state.status is RunStatus.FINISHED:
            return run
    return None


def _write_reference(
    project: Project, folder: Path, key: Mapping[str, Any], runs: Mapping[int, RunFolder]
) -> None:
    """Copy the metrics and write reference.toml last: until then the old one counts."""
    folder.mkdir(exist_ok=True)
    entries: list[dict[str, Any]] = []
    for seed, run in sorted(runs.items()):
        name = f"seed-{seed}.jsonl"
        write_text(folder / name, run.metrics_file(1).read_text(encoding="utf-8"))
        entries.append({"file": name, "seed": seed, "sha256": sha256_file(folder / name)})
    judge = tomllib.loads((project.recipes / MODEL / "judge.toml").read_text(encoding="utf-8"))
    first = next(iter(runs.values())).read()
    values = {
        "schema": 1,
        "recipe": MODEL,
        "kind": "recorded",
        "steps": key["steps"],
        "runs": entries,
        "metrics": judge,
        "provenance": {
            **{name: key[name] for name in KEYS},
            "verl": first.verl,
            "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": _machine(),
            **({"device": first.device} if first.device else {}),
            "python": platform.python_version(),
            "reprise": __version__,
            "run_ids": [run.name for _, run in sorted(runs.items())],
        },
    }
    head = "Written by `reprise baseline rehearsal`; do not edit by hand."
    write_manifest(folder, values, head)
    for stale in folder.glob("seed-*.jsonl"):
        if stale.name not in {f"seed-{seed}.jsonl" for seed in runs}:
            shutil.move(stale, stale.with_suffix(".jsonl.old"))


def _machine() -> str:
    """The processor, in words, and the number of cores."""
    import psutil

    name = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {psutil.cpu_count()} cores"
