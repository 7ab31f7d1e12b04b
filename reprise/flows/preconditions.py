"""What a rehearsal needs and would otherwise find out minutes later, looked at before it begins."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import psutil

from reprise.core.errors import OperatorError
from reprise.core.files import nearest_existing
from reprise.core.findings import Check, Report, State
from reprise.core.project import Project
from reprise.flows.rehearsal import MODEL, Rehearsal, RehearsalOptions
from reprise.rehearsal.shapes import DEFAULT_ARCH

__all__ = ["check_preconditions"]

_MIB, _GIB = 2**20, 2**30
# A run folder of 40 steps has 4.4 MB, Ray's session with its logs about 20 MB.
_DISK = 100 * _MIB
# Peak of the proportional memory of all processes of a run (benchmarks/rehearsal): 7.0 GiB.
_MEMORY = 7 * _GIB
# Ray's object store (512 MiB) and vLLM's segments (400 MB).
_SHARED = 1 * _GIB


def check_preconditions(
    project: Project, options: RehearsalOptions, command: str, judged: bool = True
) -> Report:
    """All that would end the run of `options`, or leave it without a verdict, as one report.

    `judged`: whether the run is compared with a reference at its end. Errors end the command;
    warnings are for the operator to weigh.
    """
    report = Report(command)
    _environment(report, project, options)
    for place in dict.fromkeys((project.runs, Path(tempfile.gettempdir()))):
        _writable(report, place)
    _memory(report)
    if judged:
        _reference(report, project, options)
    if options.place.laid_out and all(one.state is State.PASSED for one in report.checks):
        _layout(report, project, options)
    report.settle("rehearsal-resources")
    return report


def _environment(report: Report, project: Project, options: RehearsalOptions) -> None:
    try:
        options.check()
        options.place.python(project)
    except OperatorError as error:
        report.absorb(error.report(report.command))


def _layout(report: Report, project: Project, options: RehearsalOptions) -> None:
    """Whether the recipe rules allow the layout, and whether its GPUs are there."""
    place = options.place
    try:
        rehearsal = Rehearsal(project, options)
        wrong = list(rehearsal.rules().errors())
        need = rehearsal.gpus()
    except OperatorError as error:
        report.absorb(error.report(report.command))
        return
    report.findings += wrong
    report.checks += [Check(finding.rule, State.FAILED) for finding in wrong]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        found, source = len((place.device(project) or {}).get("cards", [])), "nvidia-smi"
    else:
        found = len([name for name in visible.split(",") if name.strip()])
        source = f"CUDA_VISIBLE_DEVICES={visible}"
    if visible is None and not found:
        report.unknown("rehearsal-layout.gpus-unknown", place.layout, need=need)
    elif found < need:
        report.failed("rehearsal-layout.gpus", place.layout, need=need, found=found, source=source)
    report.settle("rehearsal-layout")


def _writable(report: Report, wanted: Path) -> None:
    """Whether files can be made below `wanted`, or where it will be, and whether there is room."""
    there = nearest_existing(wanted)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".write-test-"):
            free = shutil.disk_usage(there).free
    except OSError as error:
        reason = error.strerror or error
        folder = shlex.quote(str(there))
        report.failed("rehearsal-resources.not-writable", str(there), reason=reason, folder=folder)
        return
    if free < _DISK:
        report.failed("rehearsal-resources.disk", str(there), free=free / _MIB, need=_DISK / _MIB)


def _memory(report: Report) -> None:
    available = psutil.virtual_memory().available
    if available < _MEMORY:
        report.warn(
            "rehearsal-resources.memory",
            "this machine",
            available=available / _GIB,
            need=_MEMORY / _GIB,
        )
    shared = Path("/dev/shm")  # noqa: S108 (only its size is read)
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    if free < _SHARED:
        report.warn(
            "rehearsal-resources.shared-memory", str(shared), free=free / _MIB, need=_SHARED / _MIB
        )


def _reference(report: Report, project: Project, options: RehearsalOptions) -> None:
    """Warn before the training, not after it, that nothing is recorded to judge the run by."""
    place = options.place
    recorded = place.reference(project, MODEL, options.arch) / "reference.toml"
    other = options.arch if options.arch != DEFAULT_ARCH else ""
    if (other and place.rollout != "sglang") or options.algo:
        named = (("ARCH", other), ("ALGO", options.algo))
        settings = " ".join(f"{name}={value}" for name, value in named if value)
        report.warn("reference-missing.before-other-settings", MODEL, settings=settings)
    elif not recorded.is_file():
        report.warn(
            "reference-missing.before-none",
            str(recorded.parent),
            options=place.recording(options.arch),
        )
