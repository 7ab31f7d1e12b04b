"""Take a bundle in: check it, lay it out part by part, and give what it holds to `setup`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from reprise.bundle.archive import read_manifest, read_part
from reprise.bundle.create import OnStep
from reprise.bundle.manifest import Manifest, Piece
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.lock.model import Lock
from reprise.lock.read import data_folder, read_lock
from reprise.trees.bring import Brought
from reprise.trees.setup import alone

__all__ = ["Laid", "lay_out", "parts_of", "place_data", "verify_bundle"]

CACHE = ".cache/bundles"


def parts_of(target: Path) -> list[Path]:
    """The files that `target` stands for: itself, or the parts that lie beside its name.

    Raises OperatorError when there is neither.
    """
    if target.is_file():
        return [target]
    found = sorted(target.parent.glob(f"{target.name}.part[0-9]*"))
    if not found:
        fix = "name the bundle as it was given to `bundle create`, or one of its parts"
        raise OperatorError("bundle", str(target), "there is no such bundle and no part of it", fix)
    return found


def verify_bundle(target: Path, on_step: OnStep = lambda *_: None) -> Report:
    """Check every bit of a bundle, part by part.

    A damaged part is an error that names it; a part that is not there leaves the bundle unknown.
    `data`: `bundle`, `parts`, `missing`, `entries`. Raises OperatorError when there is no file.
    """
    report = Report("bundle verify")
    seen: dict[str, dict[int, Manifest]] = {}
    files = parts_of(target)
    for number, file in enumerate(files):
        on_step("checking parts", number, len(files))
        try:
            manifest = read_part(file)
        except OperatorError as error:
            report.failed(file.name, error.where, error.message, error.fix)
            continue
        report.passed(file.name)
        seen.setdefault(manifest.bundle, {})[manifest.part] = manifest
    if len(seen) > 1:
        fix = "keep the parts of one bundle in one folder"
        message = f"the parts beside this name are of {len(seen)} different bundles"
        report.failed("bundle", str(target), message, fix)
    for identity, manifests in seen.items():
        first = next(iter(manifests.values()))
        missing = sorted(set(range(1, first.parts + 1)) - set(manifests))
        report.data |= {
            "bundle": identity,
            "parts": first.parts,
            "missing": missing,
            "entries": first.about.get("entries", []),
        }
        if missing:
            message = f"of {first.parts} parts, {_listed(missing)} are not here"
            report.unknown("bundle-complete", str(target), message, "copy them beside the others")
        else:
            report.passed("bundle-complete")
    return report


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


@dataclass(frozen=True, slots=True)
class Laid:
    """A bundle whose parts have all been checked and laid out in `folder`."""

    folder: Path
    manifest: Manifest

    @property
    def entries(self) -> list[str]:
        """The entries of the lock that it brings."""
        return list(self.manifest.about.get("entries", []))

    def brought(self) -> Brought:
        """What it holds for `setup`."""
        git = {path.stem: path for path in sorted((self.folder / "git").glob("*.bundle"))}
        names = [entry.partition(".")[2] for entry in self.entries if entry.startswith("env")]
        return Brought(git, dict.fromkeys(names, self.folder / "wheels"))


def lay_out(root: Path, targets: Sequence[Path], on_step: OnStep = lambda *_: None) -> Laid | None:
    """Check parts and lay their pieces out below `root`; None while parts are still missing.

    Each part counts only when every bit of it was right, and is not needed again then: parts may
    come one at a time, each removed before the next. Raises OperatorError for a damaged part and
    for a full disk, CannotTell for parts of different bundles.
    """
    laid = [last_laid(root, file) for file in targets]
    if len({item.folder for item in laid}) > 1:
        fix = "keep the parts of one bundle in one folder"
        raise CannotTell("bundle", str(targets[0]), "the parts are of different bundles", fix)
    folder = laid[0].folder
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".lock", lambda phase, _: on_step(phase, 0, None)):
        for file in targets:
            on_step(f"unpacking {file.name}", 0, None)
            _take(root, file)
        if missing_parts(laid[0]):
            return None
        _finish(laid[0], on_step)
    return laid[0]


def missing_parts(laid: Laid) -> list[int]:
    """The parts that were not laid out yet."""
    return [
        number for number in range(1, laid.manifest.parts + 1)
        if not (laid.folder / ".parts" / str(number)).exists()
    ]  # fmt: skip


def last_laid(root: Path, file: Path) -> Laid:
    """The bundle that the part `file` belongs to, as far as it is laid out."""
    manifest = read_manifest(file)
    return Laid(root / CACHE / manifest.bundle[:16], manifest)


class _Writer:
    """Writes the pieces of one part to their places in half-written files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: IO[bytes] | None = None

    def __call__(self, piece: Piece) -> Callable[[bytes], None]:
        """Open the file that `piece` belongs to, at its offset."""
        self.close()
        target = self._folder / ".half" / piece.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        self._open = target.open("r+b")
        self._open.seek(piece.offset)
        file = self._open

        def take(block: bytes) -> None:
            file.write(block)

        return take

    def close(self) -> None:
        """Make what was written last."""
        if self._open is not None:
            self._open.flush()
            os.fsync(self._open.fileno())
            self._open.close()
            self._open = None


def _take(root: Path, file: Path) -> None:
    """Lay out one part, unless it was laid out before."""
    laid = last_laid(root, file)
    folder = laid.folder
    mark = folder / ".parts" / str(laid.manifest.part)
    if mark.exists():
        return
    needed = sum(piece.size for piece in laid.manifest.pieces)
    mark.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        message = f"{needed} bytes are to be unpacked, {free} are free in {folder}"
        raise OperatorError("disk-space", str(folder), message, "free some space and repeat")
    writer = _Writer(folder)
    try:
        read_part(file, writer)
    except OSError as error:
        fix = "free some space and repeat the command"
        raise OperatorError("disk-space", str(folder), error.strerror or str(error), fix) from error
    finally:
        writer.close()
    mark.touch()


def _finish(laid: Laid, on_step: OnStep) -> None:
    """Check each file as a whole and give it its name."""
    for number, item in enumerate(laid.manifest.items):
        final, half = laid.folder / item.path, laid.folder / ".half" / item.path
        if final.exists() and final.stat().st_size == item.size:
            continue
        on_step("checking files", number, len(laid.manifest.items))
        if not half.exists() or sha256_file(half) != item.sha256:
            shutil.rmtree(laid.folder / ".parts")
            message = f"{item.path} is not what the manifest says after unpacking"
            fix = "check the disk, then repeat the command with every part"
            raise OperatorError("bundle-damaged", str(laid.folder), message, fix)
        final.parent.mkdir(parents=True, exist_ok=True)
        half.rename(final)


def place_data(laid: Laid, lock_path: Path, report: Report) -> None:
    """Put the bundle's data files where the lock says; a file that differs is not overwritten."""
    lock: Lock = read_lock(lock_path)
    for name in [entry for entry in laid.entries if entry.startswith("data.")]:
        data = lock.data.get(name.partition(".")[2])
        if data is None or data.sha256 is None:
            report.failed(name, name, "the bundle brings it, the lock does not name it", "")
            continue
        source, target = laid.folder / "data" / data.path, data_folder(lock_path.parent) / data.path
        if target.exists():
            if sha256_file(target) == data.sha256:
                report.passed(name)
            else:
                fix = f"move it away (mv {target} {target}.mine) and repeat the command"
                report.failed(name, str(target), "holds something else; it was not touched", fix)
            continue
        if not source.is_file() or sha256_file(source) != data.sha256:
            fix = "make the bundle again from this lock"
            report.failed(name, str(source), "is not the file that the lock names", fix)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, half)
        half.rename(target)
        report.passed(name)
