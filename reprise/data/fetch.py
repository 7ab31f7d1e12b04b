"""`reprise data fetch`: install the locked files; a file that is already there stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.hub.huggingface import Hub
from reprise.hub.place import Mismatch, place, room_for
from reprise.hub.verified import Verified

__all__ = ["Fetched", "Places", "Wanted", "count_rows", "fetch"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A locked data file: its source, its digest and size, and its final name.

    `sha256` is 64 hex digits; `bytes` and `rows` may be unknown.
    """

    name: str
    repo: str
    revision: str
    file: str
    target: Path
    sha256: str
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Sources of the files: a file or folder of the operator, else these hubs in order."""

    hubs: Sequence[Hub]
    local: Path | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result: `how` is "present", "download", "hard link", "reflink" or "copy"."""

    wanted: Wanted
    how: str
    origin: str
    bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The facts for `--json`."""
        return {
            "name": self.wanted.name,
            "file": str(self.wanted.target),
            "how": self.how,
            "origin": self.origin,
            "bytes": self.bytes,
            "sha256": self.wanted.sha256,
            "seconds": round(self.seconds, 3),
        }


def fetch(
    wanted: Wanted,
    places: Places,
    verified: Verified,
    deep: bool = False,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Fetched:
    """Install one file, or find it in place.

    Another file under the final name is only replaced with `replace`. `progress` gets the
    bytes of each piece downloaded, hashed or copied. Raises OperatorError (exit 1) or CannotTell
    (exit 2); the file under the final name is then as it was.
    """
    started = time.monotonic()
    if wanted.target.exists():
        found = verified.sha256(wanted.target, deep, progress)
        if found == wanted.sha256:
            return _done(wanted, "present", str(wanted.target), started)
        if not replace:
            raise _in_the_way(wanted, found)
    how, origin = (
        _from_local(wanted, places.local, progress)
        if places.local is not None
        else _from_hubs(wanted, places.hubs, progress)
    )
    verified.remember(wanted.target, wanted.sha256)
    return _done(wanted, how, origin, started)


def _done(wanted: Wanted, how: str, origin: str, started: float) -> Fetched:
    size = wanted.target.stat().st_size
    return Fetched(wanted, how, origin, size, time.monotonic() - started)


def _in_the_way(wanted: Wanted, found: str) -> OperatorError:
    size = wanted.target.stat().st_size
    expected = f"{wanted.bytes:,} bytes, " if wanted.bytes else ""
    return OperatorError(
        "data-hash.other-file",
        str(wanted.target),
        expected=expected,
        sha256=wanted.sha256,
        size=size,
        found=found,
    )


def _from_local(
    wanted: Wanted, local: Path, progress: Callable[[int], None] | None
) -> tuple[str, str]:
    """From a file, or from a folder that has the file under its target, repository or file name."""
    name = Path(wanted.file)
    parent = wanted.target.parent.name
    candidates = (
        [local / parent / wanted.target.name, local / wanted.repo / name, local / name,
         local / wanted.target.name]
        if local.is_dir()
        else [local]
    )  # fmt: skip
    for candidate in candidates:
        if candidate.is_file():
            room_for(wanted.target.parent, wanted.bytes)
            return place(candidate, wanted.target, wanted.sha256, False, progress), str(candidate)
    raise OperatorError(
        "data-missing.not-found",
        str(local),
        file=wanted.target.name,
        entry=wanted.name,
        tried=", ".join(str(item) for item in candidates),
    )


def _from_hubs(
    wanted: Wanted, hubs: Sequence[Hub], progress: Callable[[int], None] | None
) -> tuple[str, str]:
    """From the cache, else from the first hub that answers; the last one's error otherwise."""
    if not wanted.repo:
        raise OperatorError("data-missing.own-file", str(wanted.target), name=wanted.name)
    last: CannotTell | None = None
    for hub in hubs:
        try:
            return _from_hub(wanted, hub, progress)
        except CannotTell as error:
            last = error
    if last is None:
        raise ValueError("no hub was given")
    raise last


def _from_hub(wanted: Wanted, hub: Hub, progress: Callable[[int], None] | None) -> tuple[str, str]:
    at = (wanted.repo, wanted.revision, wanted.file)
    blob = hub.cached("dataset", *at)
    if blob is not None:
        with contextlib.suppress(Mismatch):  # damaged in the cache: downloaded again below
            return place(blob, wanted.target, wanted.sha256, True, progress), f"cache {blob}"
    remote = hub.find("dataset", *at, wanted.bytes, wanted.sha256)
    hub.download(remote, wanted.target, progress)
    return "download", hub.endpoint


def count_rows(wanted: Wanted) -> None:
    """Compare the row count of the footer with that of the lock.

    Raises OperatorError.
    """
    from reprise.data.read.parquet import open_parquet

    if wanted.rows is None or wanted.target.suffix != ".parquet":
        return
    file = open_parquet(wanted.target)
    if file.metadata.num_rows != wanted.rows:
        raise OperatorError(
            "data-rows.differs",
            str(wanted.target),
            found=file.metadata.num_rows,
            locked=wanted.rows,
            entry=wanted.name,
        )
