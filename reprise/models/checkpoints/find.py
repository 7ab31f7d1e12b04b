"""Checkpoints of a run: existing steps, complete steps, steps from which a job can resume.

verl writes the roles' folders, then `data.pt`, then `latest_checkpointed_iteration.txt`
(trainer/ppo/v1/trainer_base.py, _save_checkpoint), so the save of a step without
data.pt did not finish. When it deletes an old step (max_actor_ckpt_to_keep) it deletes the role's
folder and leaves data.pt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.models.checkpoints.layouts import Kind, Part, read_part
from reprise.models.tensorfiles import FileFault, zip_fault

__all__ = ["TRACKER", "Found", "SavedStep", "Tracker", "newest_complete", "read_step", "read_steps"]

TRACKER = "latest_checkpointed_iteration.txt"
# As verl writes the number: its path of a step is made of that number alone.
_STEP = re.compile(r"global_step_(0|[1-9][0-9]*)")
# The folders that verl loads of a step (trainer_base.py, _load_checkpoint). Others belong to the
# user, or to verl's data (transfer_queue): merged weights, a notebook's checkpoints.
ROLES = ("actor", "critic")


@dataclass(frozen=True, slots=True)
class SavedStep:
    """One `global_step_N` folder. `faults` are those of data.pt and of all roles."""

    step: int
    path: Path
    parts: tuple[Part, ...]
    data: FileFault | None

    @property
    def pruned(self) -> bool:
        """Whether only data.pt is left, as after deletion by max_actor_ckpt_to_keep."""
        return self.data is None and all(part.kind is Kind.EMPTY for part in self.parts)

    @property
    def faults(self) -> tuple[FileFault, ...]:
        """Everything that is missing or damaged."""
        own = (self.data,) if self.data is not None else ()
        return own + tuple(fault for part in self.parts for fault in part.faults)

    @property
    def complete(self) -> bool:
        """Whether a job with the right number of ranks can resume from it."""
        kinds = {part.kind for part in self.parts}
        whole = bool(self.parts) and not self.faults and not self.lacks
        return whole and not kinds & {Kind.EMPTY, Kind.OTHER}

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a resume needs and no rank has saved; see Part.lacks."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.lacks))

    def weights_only(self) -> str | None:
        """Why the step is for inference only; None if it has what a resume needs."""
        if not self.lacks:
            return None
        return (
            f"usable for inference, not to resume: {' and '.join(self.lacks)} missing of all ranks"
        )

    def why_not(self, world_size: int | None = None) -> str | None:
        """Why a job (of `world_size` ranks, if given) cannot resume from it; None if it can."""
        if self.pruned:
            return "without weights: deleted by max_actor_ckpt_to_keep, or never written"
        if self.faults:
            first = self.faults[0]
            more = f", and {len(self.faults) - 1} more faults" if len(self.faults) > 1 else ""
            return f"incomplete: {first.path.relative_to(self.path)} {first.message}{more}"
        for part in self.parts:
            if part.kind in (Kind.EMPTY, Kind.OTHER):
                return f"incomplete: {part.role}/ has no file that verl writes"
        if not self.parts:
            return "incomplete: the folder of a role (actor/) is missing"
        if (why := self.weights_only()) is not None:
            return why
        refusals = (part.refusal(world_size) for part in self.parts)
        return next((text for text in refusals if text), None)


@dataclass(frozen=True, slots=True)
class Found:
    """The newest usable checkpoint, None without one; `skipped` are newer ones, with the reason."""

    step: int | None
    path: Path | None
    skipped: tuple[tuple[Path, str], ...]


@dataclass(frozen=True, slots=True)
class Tracker:
    """The content of latest_checkpointed_iteration.txt; `fault` when verl could not read it."""

    path: Path
    exists: bool
    step: int | None
    fault: str = ""


def read_tracker(folder: Path) -> Tracker:
    """The tracker of `folder` as verl reads it: int() of the whole text."""
    path = folder / TRACKER
    try:
        text = path.read_bytes().decode()
        return Tracker(path, True, int(text))
    except FileNotFoundError:
        return Tracker(path, False, None)
    except ValueError:
        return Tracker(path, True, None, f"contains {text[:40]!r} instead of a step")
    except OSError as error:
        return Tracker(path, True, None, f"cannot be read: {error.strerror or error}")


def read_step(path: Path) -> SavedStep:
    """Inspect one `global_step_N` folder. Raises OSError when it cannot be listed."""
    match = _STEP.fullmatch(path.name)
    parts = tuple(read_part(path / role) for role in ROLES if (path / role).is_dir())
    fault = zip_fault(path / "data.pt")
    data = FileFault(path / "data.pt", fault) if fault is not None else None
    return SavedStep(int(match[1]) if match else -1, path, parts, data)


def step_folders(folder: Path) -> list[Path]:
    """The `global_step_N` folders in `folder`, newest first.

    Raises OperatorError when `folder` cannot be listed.
    """
    try:
        found = [
            (int(match[1]), item)
            for item in folder.iterdir()
            if (match := _STEP.fullmatch(item.name)) and item.is_dir()
        ]
    except OSError as error:
        raise OperatorError(
            "run-checkpoint-folder.cannot-list", str(folder), reason=error.strerror or error
        ) from None
    return [item for _, item in sorted(found, reverse=True)]


def read_steps(folder: Path) -> list[SavedStep]:
    """All steps in `folder`, newest first. Raises OperatorError when it cannot be listed."""
    return [read_step(item) for item in step_folders(folder)]


def newest_complete(
    folder: Path, world_size: int | None = None, at_most: int | None = None
) -> Found:
    """The newest checkpoint in `folder` from which a job of `world_size` ranks can resume.

    Steps above `at_most` are skipped: verl writes a step's metrics after its checkpoint, so a
    step that was saved but not recorded would leave a gap in the curve. Older ones are not checked.
    A missing folder has no checkpoint. Only names, sizes and the ends of files are read. Where no
    step has an optimizer, the job saves none and loads none: then the newest weights count.
    Raises OperatorError when it cannot be listed.
    """
    skipped: list[tuple[Path, str]] = []
    weights: SavedStep | None = None
    for path in step_folders(folder) if folder.exists() else []:
        try:
            step = read_step(path)
            why = step.why_not(world_size)
        except OSError as error:
            skipped.append((path, f"cannot be read: {error.strerror or error}"))
            continue
        if why is None and at_most is not None and step.step > at_most:
            why = f"was saved, but the metrics end at step {at_most}"
        if why is None:
            return Found(step.step, path, tuple(skipped))
        if why == step.weights_only() and (at_most is None or step.step <= at_most):
            weights = weights or step
        skipped.append((path, why))
    if weights is not None:
        left = tuple(item for item in skipped if item[0] != weights.path)
        return Found(weights.step, weights.path, left)
    return Found(None, None, tuple(skipped))
