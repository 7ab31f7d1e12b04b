"""The files that Ray would pack as the working_dir of a job, and their size.

Ray walks the folder and leaves out what `excludes` matches, and what a .gitignore (unless
RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1) or .rayignore met on the way matches from its own folder on.
Read in Ray 2.60's _private/runtime_env/packaging.py; the matcher is the one that Ray carries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray._private.thirdparty.pathspec.pathspec as ray_pathspec

from reprise.core.findings import Report

__all__ = ["LIMIT", "Dropped", "Upload", "check_size", "walk"]

# Bytes. The Jobs API takes a package as one HTTP request, and Ray's dashboard refuses larger ones
# (DASHBOARD_CLIENT_MAX_SIZE in ray_constants.py, the same in 2.45 and 2.60); the store behind it
# would take 512 MiB.
LIMIT = 100 * 2**20
MIB = 2**20

# Ray's modules carry no types.
_PathSpec: Any = ray_pathspec.PathSpec


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file that an ignore file leaves out; `because` is that file's path and line."""

    path: str
    because: str


@dataclass(slots=True)
class Upload:
    """What would be packed: files with their bytes, and what ignore files drop."""

    files: dict[str, int] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The sum of the files' sizes, before compression."""
        return sum(self.files.values())

    def groups(self) -> list[tuple[str, int]]:
        """(folder, bytes), largest first: what one would exclude as a whole."""
        sizes: dict[str, int] = defaultdict(int)
        for path, size in self.files.items():
            sizes[_group(path)] += size
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def _group(path: str) -> str:
    """A .git folder; a tree of third_party; else the first folder or file."""
    parts = path.split("/")
    if ".git" in parts:
        return "/".join(parts[: parts.index(".git") + 1])
    return "/".join(parts[:2]) if parts[0] == "third_party" and len(parts) > 2 else parts[0]


@dataclass(frozen=True, slots=True)
class _Ignores:
    """The patterns of one ignore file, which hold below its folder."""

    folder: Path
    name: str
    lines: tuple[str, ...]
    spec: Any

    def match(self, path: Path) -> bool:
        return bool(self.spec.match_file(str(path.relative_to(self.folder))))

    def because(self, path: Path, root: Path) -> str:
        """The line that drops `path`: the last that matches it or a folder above it."""
        relative = str(path.relative_to(self.folder))
        number = 0
        for index, line in enumerate(self.lines, 1):
            if _PathSpec.from_lines("gitwildmatch", [line]).match_file(relative):
                number = index
        return f"{(self.folder / self.name).relative_to(root)}:{number}"


def walk(root: Path, excludes: Iterable[str], respect_gitignore: bool) -> Upload:
    """What Ray packs of `root`. Folders that cannot be read raise OSError, as they do in Ray."""
    root = root.absolute()
    package = Upload()
    spec = _PathSpec.from_lines("gitwildmatch", list(excludes))
    names = ((".gitignore",) if respect_gitignore else ()) + (".rayignore",)
    _walk(root, root, spec, names, [], package)
    return package


def _walk(
    path: Path,
    root: Path,
    spec: Any,
    names: tuple[str, ...],
    ignores: list[_Ignores],
    package: Upload,
) -> None:
    is_dir = path.is_dir()
    if is_dir:
        ignores = [*ignores, *_read(path, names)]
    if spec.match_file(str(path.relative_to(root))):
        return
    by = next((item for item in ignores if item.match(path)), None)
    if by is not None:
        package.dropped += _below(path, root, spec, by)
        return
    if not is_dir:
        package.files[path.relative_to(root).as_posix()] = path.stat().st_size
        return
    for child in sorted(path.iterdir()):
        _walk(child, root, spec, names, ignores, package)


def _read(folder: Path, names: tuple[str, ...]) -> list[_Ignores]:
    found: list[_Ignores] = []
    for name in names:
        if (folder / name).is_file():
            lines = tuple(
                (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            )
            spec = _PathSpec.from_lines("gitwildmatch", lines)
            found.append(_Ignores(folder, name, lines, spec))
    return found


def _below(path: Path, root: Path, spec: Any, by: _Ignores) -> list[Dropped]:
    """The files at and below `path` that are dropped, without those that `excludes` drops too."""
    because = by.because(path, root)
    files = [path] if not path.is_dir() else [item for item in path.rglob("*") if item.is_file()]
    names = [item.relative_to(root).as_posix() for item in sorted(files)]
    return [Dropped(name, because) for name in names if not spec.match_file(name)]


def check_size(report: Report, package: Upload, where: str) -> None:
    """Compare the package with Ray's limit: an error from the limit on, a warning from half.

    The finding lists the five largest folders, and excludes the fewest that leave less than half.
    """
    rule = "lock-shipped-size"
    total = package.bytes
    largest = [(name, size) for name, size in package.groups() if size >= MIB][:5]
    listed = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in largest)
    too_much, left = [], total
    for name, size in largest:
        if left >= LIMIT / 2:
            too_much.append(f"/{name}")
            left -= size
    values: dict[str, object] = {
        "size": total / MIB,
        "count": len(package.files),
        "limit": LIMIT // MIB,
        "largest": listed,
        "excludes": ", ".join(too_much),
    }
    data = any(path.endswith((".parquet", ".safetensors")) for path in package.files)
    if total >= LIMIT and data:
        report.failed("lock-shipped-size.too-large-data", where, **values)
    elif total >= LIMIT:
        report.failed("lock-shipped-size.too-large", where, **values)
    elif total >= LIMIT / 2 and data:
        report.warn("lock-shipped-size.large-data", where, **values)
    elif total >= LIMIT / 2:
        report.warn("lock-shipped-size.large", where, **values)
    report.settle(rule)
