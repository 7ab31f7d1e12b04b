"""The folder of one run: readable at any moment, never overwritten by a later attempt."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reprise.core.documents import Part, write_document
from reprise.core.errors import OperatorError
from reprise.core.files import hold_lock
from reprise.runs.state.attempt import read_steps
from reprise.runs.state.listing import list_folder
from reprise.runs.state.state import (
    Attempt,
    AttemptOutcome,
    Launcher,
    RunState,
    RunStatus,
    job_name,
    read_state,
)

__all__ = [
    "APART",
    "FINISHED",
    "RunFolder",
    "StorageFull",
    "find_run",
    "newest_finished",
    "progress_of",
    "readable_runs",
    "recent_runs",
]

_TURN_SECONDS = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

FINISHED = RunStatus.FINISHED
"""State of a run whose job succeeded and whose metrics were collected."""

APART = ("upgrade", "shape")
"""Labels of runs that do not answer whether the recipe's curve is right: another tree, a shape."""


class StorageFull(OperatorError):
    """The state of a run could not be written: no space, or a quota is used up."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`runs/<model>/<time>-<id>/`, with run.json as its state and events.jsonl as its history."""

    path: Path

    @classmethod
    def create(cls, runs: Path, model: str, facts: Mapping[str, Any]) -> RunFolder:
        """Make a new folder below `runs`/`model` with a run.json of `facts` (RunState's fields).

        Raises OSError when the storage is full or read-only, TypeError for a field that is unknown.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"{stamp}-{secrets.token_hex(3)}"
        own = {"id": name, "model": model, "state": RunStatus.CREATED, "created": time.time()}
        state = RunState.model_validate_json(orjson.dumps(own | dict(facts), default=_plain))
        if state.model_extra:
            raise TypeError(f"RunState has no {', '.join(state.model_extra)}")
        path = runs / model / name
        (path / "metrics").mkdir(parents=True)
        (path / "logs").mkdir()
        folder = cls(path)
        write_document(folder.state_file, state)
        return folder

    @property
    def name(self) -> str:
        """The run's id: the folder's own name."""
        return self.path.name

    @property
    def state_file(self) -> Path:
        """run.json, which is always whole."""
        return self.path / "run.json"

    def metrics_file(self, attempt: int) -> Path:
        """Where attempt number `attempt` (from 1) writes its metrics."""
        return self.path / "metrics" / f"attempt-{attempt}.jsonl"

    def log_file(self, attempt: int) -> Path:
        """Where the job log of attempt number `attempt` (from 1) is kept."""
        return self.path / "logs" / f"attempt-{attempt}.log"

    def read(self) -> RunState:
        """The contents of run.json; raises OperatorError when it is not readable."""
        return read_state(self.state_file)

    @contextlib.contextmanager
    def edit(self) -> Iterator[RunState]:
        """Give the state, and write what the block makes of it: the only way to change a run.

        The run's lock is held from the reading to the writing, so that two commands that change
        it at once (one supervises, one stops) take turns. When the block raises, nothing is
        written. Blocks are short and never nested: nothing is waited for inside.

        Raises OperatorError for a damaged state and for a run of another user, StorageFull.
        """
        with contextlib.ExitStack() as stack:
            with self._own_errors():
                stack.enter_context(_turn(self.path / ".lock"))
            state = self.read()
            before = state.to_json()
            yield state
            if state.to_json() != before:
                with self._own_errors(state):
                    write_document(self.state_file, state)

    @contextlib.contextmanager
    def _own_errors(self, state: RunState | None = None) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            raise OperatorError(
                "run-folder.other-owner", str(self.path), owner=_owner(self.path)
            ) from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            command = (state or self.read()).command
            again = "repeat the command" if command is Launcher.REPRODUCE else ""
            again = again or f"reprise train --resume {self.name}"
            raise StorageFull(
                "run-folder.full", str(self.path), reason=error.strerror, next=again
            ) from None

    def set_status(self, status: RunStatus, reached: int | None = None) -> None:
        """Record the state of the run and, if given, the last step that it reached."""
        with self.edit() as state:
            state.status = status
            if reached is not None:
                state.reached = reached

    def attempts(self) -> list[Attempt]:
        """The attempts so far, in their order."""
        return self.read().attempts

    def job(self, number: int) -> str:
        """The submission id of attempt `number` in Ray."""
        return job_name(self.name, number)

    def begin_attempt(self, resumed_from: int | None) -> Attempt:
        """Record a new attempt before its job is submitted; its number is the next free one."""
        with self.edit() as state:
            attempt = state.begin(self.name, resumed_from)
        return attempt

    def end_attempt(
        self, number: int, outcome: AttemptOutcome, reached: int | None, message: str
    ) -> None:
        """Record how attempt `number` ended and the last step whose metrics it wrote."""
        with self.edit() as state:
            state.end(number, outcome, reached, message)

    def event(self, kind: str, **facts: Any) -> None:
        """Append one line to events.jsonl: seconds since the epoch, what happened, details.

        On full storage the line is lost: a run must not end for its history, only for its state.
        """
        line = orjson.dumps({"time": time.time(), "event": kind, **facts})
        try:
            with (self.path / "events.jsonl").open("a+b") as file:
                # A crash, or a full disk, may have cut the line before.
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read(1) == b"\n" else b"\n" + line
                file.write(line + b"\n")
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def events(self) -> list[dict[str, Any]]:
        """All events so far, in order; lines cut by a crash are left out."""
        events = []
        try:
            lines = (self.path / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            with contextlib.suppress(orjson.JSONDecodeError):
                events.append(orjson.loads(line))
        return events


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, if the storage has locks and the holder lets go in time."""
    deadline = time.monotonic() + _TURN_SECONDS

    def waiting() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    with path.open("ab") as file:
        with contextlib.suppress(OSError):
            hold_lock(file.fileno(), waiting)
        yield


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError):
        return f"user {path.stat().st_uid}"


def _plain(value: object) -> object:
    """A part of a state as JSON values."""
    if isinstance(value, Part):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} is not a value of run.json")


def recent_runs(runs: Path, model: str) -> list[RunFolder]:
    """The runs of `model`, newest first; errors as of `list_folder`."""
    return [RunFolder(path) for path in reversed(list_folder(runs, model).runs)]


def newest_finished(runs: Path, model: str) -> RunFolder | None:
    """The newest run of `model` whose state is finished, or None; those of `APART` do not count."""
    found = readable_runs(runs, model)
    whole = (run for run, state in found if state.status is FINISHED and state.label not in APART)
    return next(whole, None)


def readable_runs(runs: Path, model: str) -> Iterator[tuple[RunFolder, RunState]]:
    """The runs of `model` with their run.json, newest first.

    A damaged or unreadable one is skipped: it must not block work on the others.
    """
    for run in recent_runs(runs, model):
        with contextlib.suppress(OperatorError):
            yield run, run.read()


def progress_of(runs: Path, run: str) -> str:
    """How far the run `run` below `runs` is, to follow its id: `, step 3 of 40`; empty if unknown.

    Runs of other checkouts of the machine are unknown.
    """
    for path in list_folder(runs).runs:
        if path.name == run:
            with contextlib.suppress(OperatorError, OSError):
                folder = RunFolder(path)
                state = folder.read()
                number = state.attempts[-1].number if state.attempts else 1
                steps = [step.step for step in read_steps(folder.metrics_file(number))]
                return f", step {max(steps, default=0)} of {state.steps or '?'}"
    return ""


def find_run(runs: Path, text: str) -> RunFolder:
    """The run that `text` names: a folder, an id, or the beginning of one.

    Raises OperatorError when none or several runs are meant; errors as of `list_folder`.
    """
    if (Path(text) / "run.json").is_file():
        return RunFolder(Path(text).absolute())
    found = list_folder(runs).runs
    named = [path for path in found if path.name == text] or [
        path for path in found if path.name.startswith(text) or path.name.endswith(f"-{text}")
    ]
    if len(named) == 1:
        return RunFolder(named[0])
    if not named:
        newest = ", ".join(path.name for path in found[-3:]) or "none"
        raise OperatorError("run-unknown.not-found", text, folder=runs, newest=newest)
    raise OperatorError(
        "run-ambiguous.several",
        text,
        count=len(named),
        runs=", ".join(path.name for path in named[-5:]),
    )
