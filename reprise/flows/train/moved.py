"""A run folder that was moved works on; one that was copied is not the run."""

from __future__ import annotations

import shlex
from pathlib import Path

import orjson

from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import RunState

__all__ = ["settle_place"]


def settle_place(folder: RunFolder, state: RunState) -> None:
    """Make the state name the folder where it is now.

    The paths in run.json and config.yaml are absolute, as the nodes need them. Raises OperatorError
    for a copy whose original is there (a resume would move the original's checkpoints), for a
    folder that was renamed (jobs and processes carry its name), and while an attempt may be running
    that writes to the former place.
    """
    if state.id != folder.name:
        raise OperatorError(
            "train-resume.renamed",
            str(folder.path),
            id=state.id,
            now=shlex.quote(str(folder.path)),
            then=shlex.quote(str(folder.path.with_name(state.id))),
        )
    if not state.visible or not state.storage:
        return
    former = Path(state.storage)
    if _same(former, folder.path):
        return
    if _is_run(former, state.id):
        quoted = shlex.quote(str(former))
        raise OperatorError("train-resume.copied", str(folder.path), original=former, quoted=quoted)
    if state.open_attempt() is not None:
        raise OperatorError("train-resume.moved-open", str(folder.path), former=former)
    _rewrite(folder, former)


def _same(former: Path, now: Path) -> bool:
    try:
        return former.samefile(now)
    except OSError:
        return former == now


def _is_run(folder: Path, run: str) -> bool:
    try:
        return bool(orjson.loads((folder / "run.json").read_bytes()).get("id") == run)
    except (OSError, ValueError, AttributeError):
        return False


def _rewrite(folder: RunFolder, former: Path) -> None:
    """Every path below the former place, in run.json and in the composed recipe."""
    before, after = str(former), str(folder.path)
    config = folder.path / "config.yaml"
    if config.is_file():
        text = config.read_text(encoding="utf-8")
        write_text(config, text.replace(f"{before}/", f"{after}/"))
    with folder.edit() as state:
        state.storage = after
        if state.checkpoints and Path(state.checkpoints).is_relative_to(former):
            state.checkpoints = str(folder.path / Path(state.checkpoints).relative_to(former))
    folder.event("moved", before=before, after=after)
