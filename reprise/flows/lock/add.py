"""`lock add`: a new entry of versions.lock, with the hashes of what it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import write_text
from reprise.core.findings import Report, without_credentials
from reprise.core.project import Project
from reprise.data.check.repeats import count_repeats
from reprise.data.read.reading import open_source
from reprise.data.read.scan import scan_file
from reprise.flows.lock.resolve import resolve_image, resolve_tree
from reprise.hub.references import data_at, model_at
from reprise.hub.verified import hash_file
from reprise.lock.model import MACHINES, Data, Entry, Image, Model, Tree
from reprise.lock.read import machine_hash, parse_lock, read_text
from reprise.lock.rewrite import Value, add_entry
from reprise.machines.registry import machine_named
from reprise.models.check import HERE, inspect_here, judge
from reprise.models.fetch import is_wanted, remember_folder
from reprise.models.shards import INDEX
from reprise.trees.git import GitError, git
from reprise.trees.sources import Mirror

__all__ = ["Added", "add_data", "add_image", "add_model", "add_tree"]

Progress = Callable[[int], None]
_Kind = TypeVar("_Kind", bound=Entry)


@dataclass(frozen=True, slots=True)
class Added:
    """What every new entry needs: its name, its machines, and what is known of it.

    `unpinned` is the reason why the hashes are not known now: then no server is asked.
    `to` is the branch, tag, release or commit.
    """

    name: str
    machines: tuple[str, ...]
    to: str | None = None
    unpinned: str = ""
    note: str = ""
    progress: Progress | None = None

    def base(self) -> dict[str, Value]:
        """The keys of every entry. Raises OperatorError without a known machine."""
        if not self.machines:
            raise OperatorError("lock-add.no-machine", self.name)
        keys = list(dict.fromkeys(machine_named(name).lock for name in self.machines))
        return {"machines": keys}

    def last(self) -> dict[str, Value]:
        """The keys that end an entry."""
        return {"note": self.note, "unpinned": self.unpinned}


@dataclass(slots=True)
class _Entry:
    values: dict[str, Value]
    below: dict[str, Mapping[str, str]] = field(default_factory=dict)


def _write(project: Project, kind: str, added: Added, entry: _Entry) -> Report:
    """Add the entry to the lock, and read it back before it is written."""
    path = project.lock
    text = read_text(path)
    before = parse_lock(text, path.name)
    values = {**added.base(), **entry.values, **added.last()}
    new = add_entry(text, (kind, added.name), values, entry.below)
    after = parse_lock(new, path.name)
    write_text(path, new, path.stat().st_mode & 0o777)
    report = Report("lock add")
    full = f"{kind}.{added.name}"
    report.passed(full)
    shown = {key: value for key, value in values.items() if value not in (None, "", [])}
    moved = [key for key in MACHINES if machine_hash(before, key) != machine_hash(after, key)]
    report.data = {"entry": full, "values": shown, "machines": moved}
    if added.unpinned:
        command = f"reprise lock image {full} --write" if kind == "image" else (
            f"reprise lock update {full}"
        )  # fmt: skip
        report.warn("lock-add.unpinned", full, reason=added.unpinned, command=command)
    return report


def _free(project: Project, kind: str, added: Added) -> None:
    """Refuse a name that is taken or malformed before anything is hashed or asked."""
    full = f"{kind}.{added.name}"
    path = project.lock
    lock = parse_lock(read_text(path), path.name)
    if lock.entry(full) is not None:
        raise OperatorError("lock-add.exists", full, name=full)
    added.base()
    try:
        type(lock).model_validate({"schema": 1, "package": {added.name: _PACKAGE}})
    except ValidationError as error:
        raise OperatorError("lock-add.name", added.name) from error


_PACKAGE = {"machines": ["operator"], "name": "x", "version": "1"}


def _checked(kind: type[_Kind], added: Added, values: Mapping[str, object]) -> _Kind:
    """The entry as the lock's schema reads it. Raises OperatorError for a malformed value."""
    given: dict[str, Any] = {key: value for key, value in values.items() if value}
    try:
        return kind(**(added.base() | given))
    except ValidationError as error:
        item = error.errors()[0]
        key = ".".join(map(str, item["loc"])) or added.name
        problem = str(item["msg"]).removeprefix("Value error, ")
        raise OperatorError(
            "lock-add.value", f"{added.name}.{key}", value=given.get(key, ""), problem=problem
        ) from error


def add_model(project: Project, added: Added, source: str) -> Report:
    """A model: a folder of weights (every file is hashed), else a repository of the hub."""
    _free(project, "model", added)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _own_model(project, added, folder.absolute())
    _not_a_path(source, folder, "config.json")
    model = _checked(Model, added, {"repo": source, "want": added.to or "main"})
    found = {} if added.unpinned else model_at(added.name, model, added.to)
    return _write(project, "model", added, _Entry({"repo": source, "want": model.want, **found}))


def _own_model(project: Project, added: Added, folder: Path) -> Report:
    if not (folder / "config.json").is_file():
        raise CannotTell("data-missing.no-config", str(folder))
    checked = Report("lock add")
    judge(checked, {HERE: inspect_here(folder)}, folder, None, None, project.rehearsal_python)
    if list(checked.errors()):
        return checked
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    # `.cache` has the notes of the hub's own client.
    kept = [name for name in names if is_wanted(name) and not name.startswith(".cache/")]
    digests = {name: hash_file(folder / name, added.progress) for name in kept}
    _checked(Model, added, {"files": digests})
    seen = (checked.data.get("hosts") or [{}])[0]
    values: dict[str, Value] = {
        "config_sha256": digests["config.json"],
        "index_sha256": digests.get(INDEX),
        "bytes": seen.get("bytes"),
        "tensors": seen.get("tensors"),
    }
    report = _write(project, "model", added, _Entry(values, {"files": digests}))
    report.findings += checked.findings
    remember_folder(project.root, added.name, folder)
    return report


def add_data(
    project: Project, added: Added, source: str, file: str | None = None, path: str | None = None
) -> Report:
    """A data file: one here, which is read and counted, else `file` of a repository of the hub.

    `path` is its place below DATA_DIR; default: NAME/FILE.
    """
    _free(project, "data", added)
    here = Path(source).expanduser()
    if here.is_file():
        if file is not None:
            raise OperatorError("lock-add.own-and-repository", "--file", source=source)
        return _own_data(project, added, here, path)
    _not_a_path(source, here, "the file")
    if file is None:
        raise OperatorError("lock-add.no-file", source, name=added.name)
    values: dict[str, Value] = {
        "repo": source,
        "want": added.to or "main",
        "file": file,
        "path": path or f"{added.name}/{Path(file).name}",
    }
    data = _checked(Data, added, values)
    found = {} if added.unpinned else data_at(added.name, data, added.to)
    return _write(project, "data", added, _Entry({**values, **found}))


def _own_data(project: Project, added: Added, here: Path, path: str | None) -> Report:
    values: dict[str, Value] = {"file": here.name, "path": path or f"{added.name}/{here.name}"}
    _checked(Data, added, values)
    repeats = count_repeats(scan_file(open_source(here), progress=added.progress))
    values |= {
        "bytes": here.stat().st_size,
        "sha256": hash_file(here),
        "rows": repeats.rows,
        "unique_prompts": repeats.prompts,
    }
    return _write(project, "data", added, _Entry(values))


def add_tree(
    project: Project,
    added: Added,
    source: str,
    keys: Mapping[str, Value],
    mirrors: Sequence[Mirror] = (),
) -> Report:
    """A source tree: a checkout here (its commit and its origin), else the URL of a repository.

    `keys` are path, import_root, import_package, distribution and version, where given.
    """
    _free(project, "tree", added)
    folder = Path(source).expanduser()
    given = {"path": f"third_party/{added.name}"} | {k: v for k, v in keys.items() if v}
    if (folder / ".git").exists():
        values = _checkout(project, folder.resolve(), dict(given))
        _checked(Tree, added, values)
        return _write(project, "tree", added, _Entry(values))
    _not_a_path(source, folder, "a git checkout")
    _no_login(source)
    tree = _checked(Tree, added, {"url": source, "want": added.to or "HEAD", **given})
    found: Mapping[str, Value] = {}
    if not added.unpinned:
        found = resolve_tree(added.name, tree, added.to or "HEAD", mirrors)[()]
    kept = {key: value for key, value in found.items() if key != "version"}
    values = {"want": tree.want, "url": source, **given, **kept}
    return _write(project, "tree", added, _Entry(values))


def _checkout(project: Project, folder: Path, given: dict[str, Value]) -> dict[str, Value]:
    """Commit, tree and origin of a checkout without changes."""
    try:
        changed = git("status", "--porcelain", cwd=folder).split("\n")[:-1]
        commit = git("rev-parse", "HEAD", cwd=folder).strip()
        tree = git("rev-parse", "HEAD^{tree}", cwd=folder).strip()
        url = git("remote", "get-url", "origin", cwd=folder).strip()
    except GitError as error:
        raise CannotTell("git.server", str(folder), reason=error.last_line) from error
    if changed:
        raise OperatorError("lock-add.changed", str(folder), count=len(changed), folder=folder)
    _no_login(url)
    root = project.root.resolve()
    if folder.is_relative_to(root):
        given["path"] = folder.relative_to(root).as_posix()
    return {"want": commit[:12], "url": url, **given, "commit": commit, "tree": tree}


def _no_login(url: str) -> None:
    """Refuse a URL with a password or token: versions.lock is committed and shared."""
    parts = urlsplit(url)
    named = parts.username and parts.scheme in ("http", "https")
    if parts.password or named or (without_credentials(url) != url and not parts.username):
        raise OperatorError("lock-add.login", without_credentials(url))


def add_image(project: Project, added: Added, source: str, platform: str) -> Report:
    """A container image by REPOSITORY:TAG; its digest comes from the registry or the engine."""
    _free(project, "image", added)
    repository, _, tag = source.rpartition(":")
    if not repository or "/" in tag or "@" in source:
        raise OperatorError("lock-add.no-tag", source)
    values: dict[str, Value] = {"repository": repository, "want": tag, "platform": platform}
    image = _checked(Image, added, values)
    found = {} if added.unpinned else resolve_image(added.name, image, None)[0][()]
    return _write(project, "image", added, _Entry({**values, **found}))


def _not_a_path(source: str, path: Path, wanted: str) -> None:
    """Refuse a source that is meant as a path and is not there: the hub is not asked for it."""
    if path.exists() or source.startswith(("/", "./", "../", "~")):
        raise OperatorError("lock-add.not-found", source, wanted=wanted)
