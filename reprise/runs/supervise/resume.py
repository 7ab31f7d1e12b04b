"""Where the next attempt of a run starts: the newest complete checkpoint that leaves no hole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.metrics import read_run
from reprise.models.checkpoints.find import newest_complete, read_tracker
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import RunState

__all__ = [
    "RESUME_RULE",
    "Resume",
    "begins_after",
    "checkpoints_of",
    "hydra_value",
    "resume_point",
    "set_aside",
    "steps_missing",
    "steps_recorded",
]

RESUME_RULE = "resume-checkpoint"
"""If forced, a run whose checkpoints are all unusable begins at its first step again."""

_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_ASIDE = "aside"
_STEP = re.compile(r"global_step_(\d+)$")


@dataclass(frozen=True, slots=True)
class Resume:
    """Step and folder of the checkpoint (None: from the start), the skipped ones and why.

    `overrides` pass it to verl. `recorded` is the last step up to which every step has its metrics.
    """

    step: int | None
    path: str | None
    recorded: int
    notes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def hydra_value(text: str) -> str:
    """A string as a value of a Hydra override, quoted where its grammar needs it."""
    if _PLAIN.fullmatch(text):
        return text
    # A backslash counts as one unless a quote follows.
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{escaped}'"


def steps_recorded(folder: RunFolder) -> list[int]:
    """The training steps that have metrics, attempts merged; empty before the first."""
    try:
        return [int(step) for step in read_run(folder.path).training_steps()]
    except OperatorError:
        return []


def steps_missing(folder: RunFolder, state: RunState) -> list[int]:
    """The steps that the run `state` was to train and has no metrics of, ascending."""
    wanted = range(state.begins_after + 1, (state.steps or 0) + 1)
    return sorted(set(wanted) - set(steps_recorded(folder)))


def checkpoints_of(folder: RunFolder, state: RunState) -> Path:
    """The folder of the run's checkpoints; in the run folder if run.json does not name one."""
    return Path(state.checkpoints) if state.checkpoints else folder.path / "checkpoints"


def begins_after(settings: Mapping[str, Any], checkpoints: Path) -> int:
    """The step after which a new run begins, by its `settings` (of `trainer`); 0: from the start.

    Another run's checkpoint named by resume_from_path, or one that is in `checkpoints` already.
    """
    mode = settings.get("resume_mode", "auto")
    if mode == "resume_path":
        match = _STEP.search(str(settings.get("resume_from_path")).rstrip("/"))
        return int(match[1]) if match else 0
    tracker = read_tracker(checkpoints) if mode == "auto" else None
    if tracker is None or not tracker.step:
        return 0
    return tracker.step if (checkpoints / f"global_step_{tracker.step}").is_dir() else 0


def _without_hole(steps: Iterable[int], last: int) -> int:
    """The last step up to which none is missing after `last`."""
    present = set(steps)
    while last + 1 in present:
        last += 1
    return last


def resume_point(folder: RunFolder, state: RunState) -> Resume:
    """Where the next attempt of `folder` begins; `state` is its run.json.

    verl writes a step's metrics after its checkpoint (fit of trainer/ppo/v1/trainer_base.py): a
    checkpoint whose own step was not recorded would leave a hole in the curve, and is skipped.

    Raises OperatorError where a checkpoint was due and none can be used, unless RESUME_RULE is
    forced: then the attempt begins at the first step.
    """
    if not state.attempts:
        return Resume(None, None, 0)
    before = state.begins_after
    recorded = _without_hole(steps_recorded(folder), before)
    if not state.visible:
        return _unseen(folder, state, before, recorded)
    checkpoints = checkpoints_of(folder, state)
    found = newest_complete(checkpoints, state.world_size, at_most=recorded)
    none = not found.skipped and not (checkpoints / _ASIDE).exists()
    if found.step is None and none and _due(state, recorded) > before:
        # The metrics prove that a step was saved, and there is none: the folder is another one.
        return _unseen(folder, state, before, recorded)
    notes = [f"{path.name} is skipped: {why}" for path, why in found.skipped]
    if found.step is None and before:
        # Where the first attempt began, as the recipe itself says.
        return Resume(before, None, recorded, tuple(notes))
    if found.step is None or found.path is None:
        due = _due(state, recorded)
        if due > before and RESUME_RULE not in state.forced:
            # Hours of training would begin at step 1 again, and nobody asked for it.
            raise OperatorError(
                "resume-checkpoint.none-usable",
                str(checkpoints),
                due=due,
                reasons="; ".join(notes) or f"nothing is there but {_ASIDE}/",
                run=folder.name,
                rule=RESUME_RULE,
            )
        return Resume(None, None, recorded, tuple(notes), ("trainer.resume_mode=disable",))
    overrides = _from_path(str(found.path))
    return Resume(found.step, str(found.path), recorded, tuple(notes), overrides)


def _from_path(path: str) -> tuple[str, ...]:
    return (
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={hydra_value(path)}",
        # The attempt before has validated this step already, or has its place in the curve.
        "trainer.val_before_train=false",
    )


def _due(state: RunState, recorded: int) -> int:
    """The last step up to `recorded` that was due to be saved; 0 without one."""
    freq = state.save_freq or 0
    return recorded // freq * freq if freq > 0 else 0


def _unseen(folder: RunFolder, state: RunState, before: int, recorded: int) -> Resume:
    """Where to continue when the checkpoints are not accessible from this machine.

    A step with metrics was saved completely before them, unless verl saves during the training
    (async_save), and still exists, unless only the newest is kept. Then verl chooses.
    """
    step = _due(state, recorded)
    if step <= before and before:
        return Resume(before, None, recorded)  # Nothing was saved since: as the recipe says.
    if step and not state.async_save and state.keeps != 1:
        # As the nodes name it: not every storage's URL is a path.
        saved = state.checkpoints or str(checkpoints_of(folder, state))
        path = f"{saved.rstrip('/')}/global_step_{step}"
        note = (
            "the checkpoints are not accessible from this machine: "
            f"{path} was saved before its metrics came"
        )
        return Resume(step, path, recorded, (note,), _from_path(path))
    note = (
        "the checkpoints are not accessible from this machine: "
        "verl continues from the step in its tracker"
    )
    return Resume(None, None, recorded, (note,), ("trainer.resume_mode=auto",))


def set_aside(folder: RunFolder, checkpoints: Path, after: int | None, attempt: int) -> list[Path]:
    """Move checkpoints of later steps than `after` out of the next attempt's way.

    verl would write into them: files of two attempts in one folder would look complete. They are
    kept in aside/attempt-N. Returns their new paths.
    """
    moved = []
    if not checkpoints.is_dir():
        return []
    for path in sorted(checkpoints.iterdir()):
        match = _STEP.fullmatch(path.name)
        if match is None or int(match[1]) <= (after or 0):
            continue
        target = checkpoints / _ASIDE / f"attempt-{attempt}" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        folder.event("set aside", path=str(path), to=str(target))
        moved.append(target)
    return moved
