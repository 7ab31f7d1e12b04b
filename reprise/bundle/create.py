"""Create a bundle: everything that a machine without a network needs, in one file or in parts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reprise.bundle.archive import hashed, plan, read_manifest, read_part, write_part
from reprise.bundle.bare import collect_bare, has_commits
from reprise.bundle.entries import collect
from reprise.bundle.manifest import Item, Manifest, Piece
from reprise.bundle.ready import check_ready, tree_places
from reprise.bundle.wheels import OnStep, Staging, add_configs, add_environment, add_package
from reprise.core.errors import OperatorError
from reprise.core.files import open_locked, sha256_file
from reprise.core.findings import Report
from reprise.images.carry import archive_images
from reprise.lock.model import Data, Entry, Environment, Image, Machine, Package, Tree
from reprise.lock.read import data_folder, entries_of, machine_hash, read_lock, resolve_name
from reprise.machines.registry import machine_named
from reprise.trees.checkout import LOCKED_REF
from reprise.trees.git import git

__all__ = ["OnStep", "create", "part_name"]

SCRIPT = "scripts/unbundle.sh"


def part_name(target: Path, part: int, parts: int) -> Path:
    """The file of one part: the target itself when there is only one."""
    return target if parts == 1 else target.with_name(f"{target.name}.part{part:03d}")


def create(
    lock_path: Path,
    target: Path,
    names: Sequence[str],
    machine: Machine,
    part_size: int | None = None,
    with_images: bool = False,
    on_step: OnStep = lambda *_: None,
    also: Sequence[Path] = (),
) -> Report:
    """Write the bundle `target` (or its parts) for the named entries, or for all of `machine`.

    The project itself is always in it, and the operator's environment, for a bare machine (`gpu`)
    as a site tree; `also` are further files below the project (for a bare machine alone).
    Fetched and packed files stay next to the target until the bundle is complete, so that a
    repeated command continues where it stopped; finished parts stay. What any entry lacks is
    reported before the first of them is fetched or packed. `data`:
    `bundle` (its identity), `parts` (file, bytes, sha256), `entries`, `left_out`. Raises
    OperatorError.
    """
    lock = read_lock(lock_path)
    full = [resolve_name(lock, name) for name in names]
    chosen = full or entries_of(lock, machine)
    if not machine_named(machine).bare:
        operators = [n for n, e in lock.environment.items() if "operator" in e.machines]
        chosen += [f"environment.{name}" for name in operators]
    chosen = list(dict.fromkeys(chosen))
    _may_be_written(target, part_size)
    report = Report("bundle create")
    on_step("checking entries", 0, None)
    if not check_ready(lock_path.parent, lock, chosen, machine, with_images, also, report):
        return report
    work = target.with_name(f"{target.name}.work")
    with _alone(work, on_step):
        staging = Staging(lock_path.parent, work, lock, on_step)
        return _create(staging, lock_path, target, chosen, machine, part_size, with_images, also)


@contextlib.contextmanager
def _alone(work: Path, on_step: OnStep) -> Iterator[None]:
    """Make the folder and hold it: another command for the same bundle removes it at its end."""
    while True:
        work.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            file = open_locked(
                work / ".lock", lambda: on_step("waiting for another bundle create", 0, None)
            )
            break
    with file:
        yield


def _create(
    staging: Staging,
    lock_path: Path,
    target: Path,
    chosen: Sequence[str],
    machine: Machine,
    part_size: int | None,
    with_images: bool,
    also: Sequence[Path],
) -> Report:
    lock, work, on_step = staging.lock, staging.folder, staging.on_step
    report = Report("bundle create")
    if machine_named(machine).bare:
        staging.files, entries, left_out = collect_bare(
            staging.root, work, lock, chosen, also, on_step, report
        )
    else:
        entries, left_out = _collect(staging, chosen, with_images, report)
    if report.exit_code != 0 and report.checks:
        return report
    about = {
        "machine": machine,
        "entries": entries,
        "machine_sha256": machine_hash(lock, machine),
        "lock_sha256": sha256_file(lock_path),
    }
    written = _write(staging, target, part_size, about)
    shutil.rmtree(work)
    report.passed("bundle")
    report.data = {"entries": entries, "left_out": left_out, **written}
    return report


def _may_be_written(target: Path, part_size: int | None) -> None:
    """Raise OperatorError, before anything is fetched, when the bundle could not be written."""
    plan([], part_size)
    if target.is_dir():
        raise OperatorError("bundle-exists.folder", str(target), path=target)
    if target.exists():
        try:
            read_manifest(target)
        except OperatorError as error:
            raise _no_bundle(target, error) from error


def _no_bundle(file: Path, error: OperatorError) -> OperatorError:
    return OperatorError("bundle-exists.not-a-bundle", str(file), reason=error.message, path=file)


def _collect(
    staging: Staging, chosen: Sequence[str], with_images: bool, report: Report
) -> tuple[list[str], list[str]]:
    """Stage every chosen entry; the entries that are in, and those that are left out."""
    _project(staging, report)
    add_configs(staging, report)

    def add(name: str, entry: Entry) -> bool:
        match entry:
            case Tree() if entry.path is not None:
                _tree(staging, name, entry)
            case Environment():
                add_environment(staging, name, entry)
            case Package() if entry.sha256:
                add_package(staging, entry)
            case Data():
                staging.files[f"data/{entry.path}"] = data_folder(staging.root) / entry.path
            case Image() if with_images:
                _image(staging, name, entry)
            case _:
                return False
        return True

    return collect(staging.lock, chosen, add, report)


def _project(staging: Staging, report: Report) -> None:
    """The project itself first, then the script that opens a bundle without `reprise`."""
    script = staging.root / SCRIPT
    if script.is_file():
        staging.files["unbundle.sh"] = script
    staging.files["versions.lock"] = staging.root / "versions.lock"
    if not has_commits(staging.root, report):
        return
    target = staging.folder / "project.bundle"
    # With its branch, so that a clone of the bundle checks it out.
    branch = git("rev-parse", "--abbrev-ref", "HEAD", cwd=staging.root).strip()
    refs = ["HEAD"] if branch == "HEAD" else ["HEAD", f"refs/heads/{branch}"]
    git("bundle", "create", "-q", str(target.absolute()), *refs, cwd=staging.root)
    staging.files["git/project.bundle"] = target


def _tree(staging: Staging, name: str, tree: Tree) -> None:
    assert tree.path is not None
    for below, (commit, _) in tree_places(tree).items():
        suffix = f"--{Path(below).name}" if below else ""
        path = f"git/{name}{suffix}.bundle"
        target = staging.folder / f"{commit}.bundle"
        if not target.exists():
            staging.on_step(f"{name}: packing", 0, None)
            half = target.with_suffix(".half")
            folder = staging.root / tree.path / below
            git("bundle", "create", "-q", str(half.absolute()), LOCKED_REF, cwd=folder)
            half.rename(target)
        staging.files[path] = target


def _image(staging: Staging, name: str, image: Image) -> None:
    """The image, and the one that was built here on top of it, as the engine archives them."""
    target = staging.folder / f"image-{name}.tar"
    if not target.exists():
        staging.on_step(f"{name}: saving", 0, None)
        archive_images(staging.lock, name, image, target)
    staging.files[f"images/{name}.tar"] = target


def _write(
    staging: Staging, target: Path, part_size: int | None, about: dict[str, Any]
) -> dict[str, Any]:
    """Hash everything once, then write the parts that are not there yet."""
    sizes = [(path, source.stat().st_size) for path, source in staging.files.items()]
    parts = plan(sizes, part_size)
    total = sum(size for _, size in sizes)
    by_path: dict[str, list[Piece]] = {}
    for piece in (piece for part in parts for piece in part):
        by_path.setdefault(piece.path, []).append(piece)
    items: list[Item] = []
    finished: dict[tuple[str, int], Piece] = {}
    for path, source in staging.files.items():
        item, pieces = hashed(path, source, by_path[path])
        items.append(item)
        finished |= {(path, piece.offset): piece for piece in pieces}
        staging.on_step("hashing", sum(i.size for i in items), total)
    rows: list[dict[str, Any]] = []
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        staging.on_step("writing", done, total)

    for number, part in enumerate(parts, 1):
        carried = tuple(finished[piece.path, piece.offset] for piece in part)
        manifest = Manifest(number, len(parts), tuple(items), carried, about)
        file = part_name(target, number, len(parts))
        if not _is_there(file, manifest):
            write_part(file, manifest, staging.files, advance)
        rows.append({"file": str(file), "bytes": file.stat().st_size, "sha256": sha256_file(file)})
    return {"bundle": manifest.bundle, "parts": rows}


def _is_there(file: Path, manifest: Manifest) -> bool:
    """Whether `file` is this very part, whole. Any other file is not overwritten."""
    if not file.exists():
        return False
    try:
        same = read_part(file) == manifest
    except OperatorError as error:
        raise _no_bundle(file, error) from error
    if not same:
        raise OperatorError("bundle-exists.other", str(file), path=file)
    return True
