"""`reprise model fetch`: fetch and check the files of a model, each of them once."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import dump_json
from reprise.core.parallel import in_parallel
from reprise.hub.download import Remote
from reprise.hub.huggingface import Hub, Unreached, download_explained
from reprise.hub.modelscope import ModelScope
from reprise.hub.place import place, room_for
from reprise.hub.verified import Verified, git_blob_id
from reprise.models.shards import INDEX

__all__ = [
    "ModelWanted",
    "copy_model",
    "fetch_model",
    "is_wanted",
    "list_files",
    "remember_folder",
    "weight_folder",
]

# Weights in other formats, and pictures of the model page: not used here.
_UNWANTED = ("*.bin", "*.pth", "*.pt", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*",
             "*.png", "*.jpg", "*.jpeg", "*.gif", "*.mp4", "*.pdf", ".git*")  # fmt: skip
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class ModelWanted:
    """A locked model: its repository and revision, and the sha256 of its config and index.

    A folder of one's own has no repository; `files` gives the sha256 of each of its files.
    """

    name: str
    repo: str
    revision: str
    config_sha256: str | None = None
    index_sha256: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def locked(self, path: str) -> str | None:
        """The locked SHA-256 of a file, where the lock has one."""
        first = {"config.json": self.config_sha256, INDEX: self.index_sha256}.get(path)
        return first or self.files.get(path)


def list_files(
    source: Hub | ModelScope, wanted: ModelWanted, revision: str | None = None
) -> dict[str, Remote]:
    """The files to fetch, by path. `revision` replaces the lock's (ModelScope has its own).

    Raises OperatorError when the server's config or index is not the locked one.
    """
    chosen = revision or (wanted.revision if isinstance(source, Hub) else "master")
    found = source.files(wanted.repo, chosen)
    kept = {path: remote for path, remote in found.items() if is_wanted(path)}
    if "config.json" not in kept:
        raise OperatorError("hub-missing.no-model", f"{source.endpoint} {wanted.repo}@{chosen}")
    for path, remote in kept.items():
        locked = wanted.locked(path)
        if locked is not None and remote.sha256 not in (None, locked):
            raise OperatorError(
                "data-hash.other-model", remote.where, locked=locked, sha256=remote.sha256
            )
    return kept


def is_wanted(path: str) -> bool:
    """Is it a file of the model that is used here, below its folder?"""
    inside = not path.startswith("/") and ".." not in Path(path).parts
    return inside and not any(fnmatch.fnmatch(path, pattern) for pattern in _UNWANTED)


def fetch_model(
    files: Mapping[str, Remote],
    wanted: ModelWanted,
    folder: Path,
    verified: Verified,
    progress: Callable[[int], None] | None = None,
) -> list[OperatorError]:
    """Fetch `files` into `folder`: config and index first, then four at a time.

    Correct files stay. All files are tried as long as the server answers; the errors of failed
    files are returned. A config or index that is not the locked one raises at once, before any
    weights.
    """
    missing = [path for path in files if not _there(files[path], folder / path)]
    room_for(folder, sum(files[path].size or 0 for path in missing))
    lock = threading.Lock()

    stopped = threading.Event()

    def report(count: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt  # part files are kept
        if progress is not None:
            with lock:
                progress(count)

    first = [path for path in ("config.json", INDEX) if path in files]
    for path in first:
        _fetch_file(files[path], wanted.locked(path), folder / path, verified, report)
    rest = sorted(set(files) - set(first), key=lambda path: files[path].size or 0)

    lost = threading.Event()
    untried: list[str] = []

    def one(path: str) -> OperatorError | None:
        if lost.is_set():
            untried.append(path)
            return None
        try:
            _fetch_file(files[path], None, folder / path, verified, report)
        except OperatorError as error:
            if isinstance(error, Unreached):
                lost.set()
            return error
        return None

    errors = in_parallel(one, rest, _AT_ONCE, stopped.set)
    found = [error for error in errors if error is not None]
    return [*found, _untried(folder, untried)] if untried else found


def _untried(folder: Path, paths: list[str]) -> CannotTell:
    return CannotTell("hub-download.not-tried", str(folder), count=len(paths))


def _there(remote: Remote, target: Path) -> bool:
    return target.is_file() and target.stat().st_size == remote.size


def _fetch_file(
    remote: Remote,
    locked: str | None,
    target: Path,
    verified: Verified,
    progress: Callable[[int], None],
) -> None:
    """One file; a file of the right size is hashed once and then remembered."""
    sha256 = locked or remote.sha256
    if target.exists():
        if not _there(remote, target) or not _right(remote, sha256, target, verified, progress):
            raise OperatorError(
                "data-hash.other-model-file",
                str(target),
                found=target.stat().st_size,
                size=remote.size,
                sha256=sha256 or remote.git_id,
            )
        return
    exact = Remote(
        remote.url, remote.where, remote.size, sha256, remote.git_id, headers=remote.headers
    )
    download_explained(exact, target, progress)
    if sha256 is not None:
        verified.remember(target, sha256)


def _right(
    remote: Remote,
    sha256: str | None,
    target: Path,
    verified: Verified,
    progress: Callable[[int], None],
) -> bool:
    """Whether the bytes in place are the server's, as far as it gives a digest."""
    if sha256 is not None:
        return verified.sha256(target, progress=progress) == sha256
    return remote.git_id is None or git_blob_id(target) == remote.git_id


def copy_model(
    source: Path, wanted: ModelWanted, folder: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Copy (or reflink) a model from a folder of the operator's, config and index verified first.

    Raises OperatorError; CannotTell when the folder has no config.json.
    """
    if not (source / "config.json").is_file():
        raise CannotTell("data-missing.no-config", str(source))
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    names = [path.relative_to(source).as_posix() for path in paths]
    kept = sorted((n for n in names if is_wanted(n)), key=lambda n: wanted.locked(n) is None)
    if absent := sorted(set(wanted.files) - set(kept)):
        raise OperatorError("data-missing.locked-files", str(source), files=", ".join(absent[:5]))
    room_for(folder, sum((source / name).stat().st_size for name in kept))
    for name in kept:
        target = folder / name
        if not target.exists() or target.stat().st_size != (source / name).stat().st_size:
            place(source / name, target, wanted.locked(name), False, progress)


def _folders(root: Path) -> Path:
    return root / ".cache" / "models.json"


def remember_folder(root: Path, name: str, folder: Path) -> None:
    """Note that `folder` has the locked model `name`; a failed write only costs the note."""
    with contextlib.suppress(OSError):
        _folders(root).parent.mkdir(parents=True, exist_ok=True)
        dump_json(_folders(root), _read_folders(root) | {name: str(folder.absolute())})


def weight_folder(root: Path, name: str) -> Path | None:
    """The folder that `remember_folder` noted for a model; None without one."""
    found = _read_folders(root).get(name)
    return Path(found) if isinstance(found, str) else None


def _read_folders(root: Path) -> dict[str, Any]:
    try:
        value = json.loads(_folders(root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
