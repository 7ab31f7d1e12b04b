"""The folder of one run: readable at any moment, never overwritten by a later attempt."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, hold_lock
from reprise.runs.state.listing import list_folder

__all__ = ["FINISHED", "RunFolder", "find_run", "newest_finished", "readable_runs", "recent_runs"]

# What is read of run.json everywhere; each may be missing, or null.
_KINDS: Mapping[str, type] = {
    "address": str,
    "attempts": list,
    "checkpoints": str,
    "model": str,
    "process": dict,
    "ray": dict,
    "state": str,
    "steps": int,
    "storage": str,
    "watcher": dict,
}
_TURN_SECONDS = 10.0
_KEYS = {
    "attempts": {"number", "job", "ended"},
    "process": {"pid", "created"},
    "watcher": {"pid", "created"},
}

FINISHED = "finished"
"""State of a run whose job succeeded and whose metrics were collected."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`runs/<model>/<time>-<id>/`, with run.json as its state and events.jsonl as its history."""

    path: Path

    @classmethod
    def create(cls, runs: Path, model: str, facts: Mapping[str, Any]) -> RunFolder:
        """Make a new folder below `runs`/`model` and write run.json with `facts`.

        Raises OSError when the storage is full or read-only.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        identity = secrets.token_hex(3)
        path = runs / model / f"{stamp}-{identity}"
        (path / "metrics").mkdir(parents=True)
        (path / "logs").mkdir()
        folder = cls(path)
        folder.update(id=path.name, model=model, state="created", created=time.time(), **facts)
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

    def read(self) -> dict[str, Any]:
        """The contents of run.json; raises OperatorError when it is not readable."""
        try:
            value = orjson.loads(self.state_file.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise OperatorError('run-folder.expected-state-run', str(self.state_file), error=error) from None
        fault = _fault(value)
        if fault is not None:
            raise OperatorError(
                "run-folder",
                str(self.state_file),
                fault,
                "name a folder below runs/<model>/ that a run of this project has written",
            )
        return dict(value)

    def update(self, **facts: Any) -> None:
        """Change the given keys of run.json and keep the others.

        Two commands that change it at once (one supervises, one stops) take turns.
        Raises OperatorError for a run of another user, OSError when the storage is full.
        """
        try:
            with _turn(self.path / ".lock"):
                current = self.read() if self.state_file.exists() else {}
                dump_json(self.state_file, current | facts)
        except PermissionError:
            raise OperatorError('run-folder.s-state-cannot', str(self.path), owner=_owner(self.path)) from None

    def attempts(self) -> list[dict[str, Any]]:
        """The attempts so far, in their order: number, job, started, ended, outcome, resumed_from,
        reached, message. Times are seconds since the epoch; `ended` is null while one runs.
        """
        return list(self.read().get("attempts") or [])

    def job(self, number: int) -> str:
        """The submission id of attempt `number` in Ray."""
        return f"{self.name}-{number}"

    def begin_attempt(self, resumed_from: int | None) -> dict[str, Any]:
        """Record a new attempt before its job is submitted; its number is the next free one."""
        attempts = self.attempts()
        number = len(attempts) + 1
        attempt = {
            "number": number,
            "job": self.job(number),
            "started": time.time(),
            "ended": None,
            "outcome": None,
            "resumed_from": resumed_from,
            "reached": None,
            "message": "",
        }
        self.update(attempts=[*attempts, attempt])
        return attempt

    def end_attempt(self, number: int, outcome: str, reached: int | None, message: str) -> None:
        """Record how attempt `number` ended and the last step whose metrics it wrote."""
        attempts = self.attempts()
        attempts[number - 1] |= {
            "ended": time.time(),
            "outcome": outcome,
            "reached": reached,
            "message": message,
        }
        self.update(attempts=attempts)

    def event(self, kind: str, **facts: Any) -> None:
        """Append one line to events.jsonl: seconds since the epoch, what happened, details."""
        line = orjson.dumps({"time": time.time(), "event": kind, **facts})
        with (self.path / "events.jsonl").open("a+b") as file:
            # A crash, or a full disk, may have cut the line before.
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line + b"\n")

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
    """Hold the lock file `path`, on storage that has locks and as far as nobody hangs with it."""
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


def _fault(value: Any) -> str | None:
    """What keeps `value` from being a run's state; None when nothing does."""
    if not isinstance(value, dict):
        return "expected one JSON object"
    for name, kind in _KINDS.items():
        if not isinstance(value.get(name), kind | None):
            return f"{name} is {value[name]!r}, which no run of this project writes"
    for name, keys in _KEYS.items():
        items = value.get(name) or []
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, dict) or not keys <= item.keys():
                return f"{name} lacks {', '.join(sorted(keys))}"
    return None


def recent_runs(runs: Path, model: str) -> list[RunFolder]:
    """The runs of `model`, newest first; errors as of `list_folder`."""
    return [RunFolder(path) for path in reversed(list_folder(runs, model).runs)]


def newest_finished(runs: Path, model: str) -> RunFolder | None:
    """The newest run of `model` whose state is finished, or None."""
    found = readable_runs(runs, model)
    return next((run for run, facts in found if facts.get("state") == FINISHED), None)


def readable_runs(runs: Path, model: str) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """The runs of `model` with their run.json, newest first.

    One that is damaged, or not ours to read, is passed over: it must not keep others from theirs.
    """
    for run in recent_runs(runs, model):
        with contextlib.suppress(OperatorError):
            yield run, run.read()


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
        raise OperatorError('run-unknown.such-run-below', text, runs=runs, newest=newest)
    raise OperatorError('run-ambiguous.names-runs', text, named_count=len(named), path_names=', '.join((path.name for path in named[-5:])))
