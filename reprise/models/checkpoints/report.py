"""`reprise checkpoint check`: a folder of checkpoints judged, all faults in one pass."""

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
_START_ANEW = "no step can be continued from: start anew in another folder; nothing is deleted here"


def check_folder(folder: Path, world_size: int | None) -> Report:
    """Judge a folder of steps, one `global_step_N`, one role's folder, or converted MCore weights.

    `world_size` is the number of ranks that would continue from it. Raises OperatorError when
    the folder holds none of these or cannot be listed.
    """
    report = Report("checkpoint check")
    try:
        if not folder.is_dir():
            raise OperatorError(
                "run-checkpoint-folder",
                str(folder),
                "expected a folder, found " + ("a file" if folder.exists() else "none"),
                "name a run's folder of checkpoints, one global_step_N, or converted weights",
            )
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
            "run-checkpoint-folder.cannot-read-permission", error.filename or str(folder)
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
        elif usable is not None:
            said = f"{why}; step {usable.step} is taken instead"
            if step.step < usable.step:
                said = why
            report.warn(COMPLETE, str(step.path), said, "nothing needs to be deleted")
    if usable is None:
        _none_usable(report, folder, steps, size)
    else:
        report.passed(COMPLETE)
        if size:
            report.settle(RANKS)
    _judge_tracker(report, tracker, steps, usable)
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
            _judge_one(report, step, size, _START_ANEW)
    if all(step.pruned for step in steps):
        report.failed("run-checkpoint-complete.step-holds-any", str(folder))


def _judge_one(report: Report, step: SavedStep, size: int | None, fix: str) -> None:
    """Judge one step alone: every fault is an error; `fix` is what to do without it."""
    for fault in step.faults[:_MOST_NAMED]:
        report.failed(COMPLETE, str(fault.path), fault.message, fix)
    if len(step.faults) > _MOST_NAMED:
        rest = f"{len(step.faults) - _MOST_NAMED} more files are missing or damaged"
        report.failed(COMPLETE, str(step.path), rest, "all of them: --json")
    why = step.why_not(size)
    if why is not None and not step.faults:
        if step.complete:
            report.failed(RANKS, str(step.path), why, _same_ranks(step))
        else:
            report.failed(COMPLETE, str(step.path), why, fix)
    elif step.faults:
        # A damaged step that could not be read whole either: both are told in one pass.
        for refusal in filter(None, (part.refusal(size) for part in step.parts)):
            report.failed(RANKS, str(step.path), refusal, _same_ranks(step))
    report.settle(COMPLETE)
    if size and step.complete:
        report.settle(RANKS)
    if why is None:
        _remarks(report, step, size)
        report.data["resume"] = _overrides(step)


def _judge_part(report: Report, part: Part, size: int | None) -> None:
    """Judge a folder that is no step: a role's, or converted weights."""
    if part.kind in (Kind.EMPTY, Kind.OTHER):
        raise OperatorError("run-checkpoint-folder.holds-global-step", str(part.path))
    for fault in part.faults[:_MOST_NAMED]:
        fix = "save or convert again, into a new folder"
        report.failed(COMPLETE, str(fault.path), fault.message, fix)
    report.settle(COMPLETE)
    for remark in part.remarks:
        report.note(COMPLETE, str(part.path), remark)
    if not part.faults and (refusal := part.refusal(size)) is not None:
        fix = "; ".join(part.remarks) or f"continue with {part.world_size} ranks"
        report.failed(RANKS, str(part.path), refusal, fix)
    elif size and not part.faults and part.kind is not Kind.MCORE:
        if (doubt := part.doubt(size)) is not None:
            report.unknown(RANKS, str(part.path), doubt, "compare the two recipes")
        report.settle(RANKS)
    report.data["part"] = _part_row(part)


def _judge_tracker(
    report: Report, tracker: Tracker, steps: list[SavedStep], usable: SavedStep | None
) -> None:
    """What `resume_mode=auto` would do, which reads nothing but the tracker."""
    there = {step.step: step for step in steps}
    newest, fix = "no step is complete", _START_ANEW
    if usable is not None:
        newest = f"the newest complete step is {usable.step}"
        fix = f"say where to continue: {_overrides(usable)}"
    if tracker.fault:
        text = f"{tracker.fault}: verl would stop at it; {newest}"
    elif not tracker.exists:
        text = (
            "is missing (async_save, or the first save did not end): resume_mode=auto would start "
            f"from step 0 without a word; {newest}"
        )
    elif tracker.step not in there:
        text = (
            f"names step {tracker.step}, which is not there: resume_mode=auto would start from "
            f"step 0 without a word; {newest}"
        )
    else:
        named = there[tracker.step]
        why = named.why_not()
        if why is not None:
            text = f"names step {tracker.step}, and that is {why}; {newest}"
        else:
            if usable is not None and named is not usable:
                text = f"names step {tracker.step}; {newest} (async_save, or a cut save)"
                report.warn(TRACKED, str(tracker.path), text, fix)
            report.passed(TRACKED)
            return
    report.failed(TRACKED, str(tracker.path), text, fix)


def _remarks(report: Report, step: SavedStep, size: int | None) -> None:
    for part in step.parts:
        for remark in part.remarks:
            report.note(COMPLETE, str(part.path), remark)
        doubt = part.doubt(size) if size else None
        if doubt is not None:
            report.unknown(RANKS, str(part.path), doubt, "compare the sizes in the two recipes")
        if part.step is not None and part.step != step.step:
            report.note(
                "run-checkpoint-complete.manifest-says-step", str(part.path), step=part.step
            )


def _older(step: SavedStep) -> str:
    folder = shlex.quote(str(step.path.parent))
    return f"continue from an older step: reprise checkpoint check {folder}"


def _same_ranks(step: SavedStep) -> str:
    sizes = {part.world_size for part in step.parts if part.kind is Kind.FSDP}
    if not sizes:
        return "; ".join(remark for part in step.parts for remark in part.remarks)
    return (
        f"continue with {max(sizes)} ranks (trainer.nnodes x trainer.n_gpus_per_node); or merge "
        "the shards with `python -m verl.model_merger merge` and start from these weights: the "
        "optimizer's state is lost then"
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
