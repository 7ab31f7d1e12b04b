"""`reprise checkpoint check`: check a folder of checkpoints, all faults in one pass."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.models.checkpoints.find import SavedStep, Tracker, read_step, read_steps, read_tracker
from reprise.models.checkpoints.layouts import Kind, Part, folder_bytes, read_part

__all__ = ["check_folder"]

COMPLETE = "run-checkpoint-complete"
TRACKED = "run-checkpoint-tracker"
RANKS = "run-checkpoint-ranks"
_MOST_NAMED = 8
_RESTART = "restart in another folder: no step is usable (reprise deletes nothing)"


def check_folder(folder: Path, world_size: int | None) -> Report:
    """Check a folder of steps, one `global_step_N`, one role's folder, or converted MCore weights.

    `world_size` is the number of ranks of the resumed job. Raises OperatorError for any other
    folder, or when it cannot be listed.
    """
    report = Report("checkpoint check")
    try:
        if not folder.is_dir():
            if folder.exists():
                raise OperatorError("run-checkpoint-folder.file", str(folder))
            raise OperatorError("run-checkpoint-folder.not-found", str(folder))
        steps = read_steps(folder)
        if steps:
            _judge_steps(report, folder, steps, world_size)
        elif folder.name.startswith("global_step_"):
            step = read_step(folder)
            _judge_one(report, step, world_size, _older(step))
            report.data["steps"] = [_row(step, world_size)]
        else:
            _judge_part(report, read_part(folder), world_size)
    except PermissionError as error:
        raise OperatorError(
            "run-checkpoint-folder.no-permission", error.filename or str(folder)
        ) from None
    return report


def _judge_steps(report: Report, folder: Path, steps: list[SavedStep], size: int | None) -> None:
    usable = next((step for step in steps if step.why_not(size) is None), None)
    tracker = read_tracker(folder)
    for step in steps:
        why = step.why_not(size)
        if why is None:
            _remarks(report, step, size)
        elif step.pruned:
            report.note(COMPLETE, str(step.path), why)
        elif usable is not None and step.complete:
            report.warn(RANKS, str(step.path), why, _same_ranks(step))
        elif usable is not None and step.step < usable.step:
            report.warn("run-checkpoint-complete.older", str(step.path), reason=why)
        elif usable is not None:
            report.warn(
                "run-checkpoint-complete.not-used",
                str(step.path),
                reason=why,
                usable=usable.step,
            )
    if usable is None:
        _none_usable(report, folder, steps, size)
    else:
        report.passed(COMPLETE)
        if size:
            report.settle(RANKS)
    _judge_tracker(report, tracker, steps, usable, size)
    report.data |= {
        "folder": str(folder),
        "tracker": tracker.step,
        "newest_complete": usable.step if usable else None,
        "resume": _overrides(usable) if usable else None,
        "steps": [_row(step, size) for step in steps],
    }


def _none_usable(report: Report, folder: Path, steps: list[SavedStep], size: int | None) -> None:
    whole = [step for step in steps if step.complete]
    if whole:
        report.passed(COMPLETE)
        for step in whole:
            report.failed(RANKS, str(step.path), step.why_not(size) or "", _same_ranks(step))
    for step in steps:
        if not step.complete and not step.pruned:
            _judge_one(report, step, size, _RESTART)
    if all(step.pruned for step in steps):
        report.failed("run-checkpoint-complete.no-weights", str(folder))


def _judge_one(report: Report, step: SavedStep, size: int | None, fix: str) -> None:
    """Check one step: every fault is an error; `fix` is the alternative to this step."""
    for fault in step.faults[:_MOST_NAMED]:
        report.failed(COMPLETE, str(fault.path), fault.message, fix)
    if len(step.faults) > _MOST_NAMED:
        rest = len(step.faults) - _MOST_NAMED
        report.failed("run-checkpoint-complete.more", str(step.path), count=rest)
    why = step.why_not(size)
    if why is not None and not step.faults:
        if step.complete:
            report.failed(RANKS, str(step.path), why, _same_ranks(step))
        else:
            report.failed(COMPLETE, str(step.path), why, fix)
    elif step.faults:
        # Damaged, and saved with other ranks: report both in one pass.
        for refusal in filter(None, (part.refusal(size) for part in step.parts)):
            report.failed(RANKS, str(step.path), refusal, _same_ranks(step))
    report.settle(COMPLETE)
    if size and step.complete:
        report.settle(RANKS)
    if why is None:
        _remarks(report, step, size)
        report.data["resume"] = _overrides(step)


def _judge_part(report: Report, part: Part, size: int | None) -> None:
    """Check a folder of a role, or converted weights."""
    if part.kind in (Kind.EMPTY, Kind.OTHER):
        raise OperatorError("run-checkpoint-folder.no-checkpoint", str(part.path))
    for fault in part.faults[:_MOST_NAMED]:
        report.failed("run-checkpoint-complete.damaged", str(fault.path), fault=fault.message)
    report.settle(COMPLETE)
    for remark in part.remarks:
        report.note(COMPLETE, str(part.path), remark)
    if part.lacks and not part.faults:
        missing = " and ".join(part.lacks)
        report.failed("run-checkpoint-complete.weights-only", str(part.path), missing=missing)
    if not part.faults and (refusal := part.refusal(size)) is not None:
        fix = "; ".join(part.remarks) or f"resume with {part.world_size} ranks"
        report.failed(RANKS, str(part.path), refusal, fix)
    elif size and not part.faults and part.kind is not Kind.MCORE:
        if (doubt := part.doubt(size)) is not None:
            report.unknown("run-checkpoint-ranks.sizes", str(part.path), doubt=doubt)
        report.settle(RANKS)
    report.data["part"] = _part_row(part)


def _judge_tracker(
    report: Report,
    tracker: Tracker,
    steps: list[SavedStep],
    usable: SavedStep | None,
    size: int | None,
) -> None:
    """Check the tracker, which is all that `resume_mode=auto` reads."""
    there = {step.step: step for step in steps}
    newest, fix = "no step is complete", _RESTART
    if usable is not None:
        newest = f"the newest complete step is {usable.step}"
        fix = f"set the checkpoint: {_overrides(usable)}"
    where = str(tracker.path)
    found: dict[str, object] = {"newest": newest, "fix": fix}
    if tracker.fault:
        report.failed("run-checkpoint-tracker.unreadable", where, fault=tracker.fault, **found)
        return
    if not tracker.exists:
        report.failed("run-checkpoint-tracker.missing", where, **found)
        return
    found["step"] = tracker.step
    named = there.get(tracker.step) if tracker.step is not None else None
    if named is None:
        report.failed("run-checkpoint-tracker.step-missing", where, **found)
        return
    why = named.why_not(size)
    if why is not None:
        report.failed("run-checkpoint-tracker.step-unusable", where, reason=why, **found)
        return
    if usable is not None and named is not usable:
        report.warn("run-checkpoint-tracker.not-newest", where, **found)
    report.passed(TRACKED)


def _remarks(report: Report, step: SavedStep, size: int | None) -> None:
    for part in step.parts:
        for remark in part.remarks:
            report.note(COMPLETE, str(part.path), remark)
        doubt = part.doubt(size) if size else None
        if doubt is not None:
            report.unknown("run-checkpoint-ranks.sizes", str(part.path), doubt=doubt)
        if part.step is not None and part.step != step.step:
            report.note("run-checkpoint-complete.renamed", str(part.path), step=part.step)


def _older(step: SavedStep) -> str:
    folder = shlex.quote(str(step.path.parent))
    return f"reprise checkpoint check {folder} (shows older steps)"


def _same_ranks(step: SavedStep) -> str:
    sizes = {part.world_size for part in step.parts if part.kind is Kind.FSDP}
    if not sizes:
        return "; ".join(remark for part in step.parts for remark in part.remarks)
    return (
        f"resume with {max(sizes)} ranks (trainer.nnodes x trainer.n_gpus_per_node); or merge "
        "the shards with `python -m verl.model_merger merge` and start from these weights (the "
        "optimizer state is lost)"
    )


def _overrides(step: SavedStep) -> str:
    return (
        "trainer.resume_mode=resume_path "
        f"trainer.resume_from_path={shlex.quote(str(step.path.absolute()))}"
    )


def _part_row(part: Part) -> dict[str, Any]:
    return {
        "role": part.role,
        "layout": part.kind.value,
        "contents": list(part.contents),
        "world_size": part.world_size or None,
        "whole_ranks": list(part.ranks),
        "reshard": part.reshard or None,
        "sizes": dict(part.sizes) or None,
        "bytes": folder_bytes(part.path),
        "faults": [{"path": str(f.path), "message": f.message} for f in part.faults],
    }


def _row(step: SavedStep, size: int | None) -> dict[str, Any]:
    return {
        "step": step.step,
        "path": str(step.path),
        "complete": step.complete,
        "usable": step.why_not(size) is None,
        "why_not": step.why_not(size),
        "bytes": folder_bytes(step.path),
        "faults": [{"path": str(f.path), "message": f.message} for f in step.faults],
        "parts": [_part_row(part) for part in step.parts],
    }
