"""Open a bundle: check it, unpack it part by part, and pass its content to `setup`."""

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
from reprise.core.rules import render
from reprise.lock.model import Lock
from reprise.lock.read import data_folder, read_lock
from reprise.trees.install import Unpacked
from reprise.trees.setup import alone

__all__ = ["Laid", "lay_out", "parts_of", "place_data", "verify_bundle"]

CACHE = ".cache/bundles"


def parts_of(target: Path) -> list[Path]:
    """The files of the bundle `target`: itself, or the parts with its name.

    Raises OperatorError when there are none.
    """
    if target.is_file():
        return [target]
    found = sorted(target.parent.glob(f"{target.name}.part[0-9]*"))
    if not found:
        raise OperatorError("bundle.absent", str(target))
    return found


def verify_bundle(target: Path, on_step: OnStep = lambda *_: None) -> Report:
    """Check every bit of a bundle, part by part.

    A damaged part is an error that names it; a part that is not there leaves the bundle unknown.
    `data`: `bundle`, `parts`, `missing`, `entries`. Raises OperatorError when no file exists.
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
        report.failed("bundle.mixed", str(target), count=len(seen))
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
            report.unknown(
                "bundle-complete.missing",
                str(target),
                parts=first.parts,
                missing=_listed(missing),
            )
        else:
            report.passed("bundle-complete")
    return report


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


@dataclass(frozen=True, slots=True)
class Laid:
    """A bundle whose parts have all been checked and unpacked in `folder`."""

    folder: Path
    manifest: Manifest

    @property
    def entries(self) -> list[str]:
        """The entries of the lock in it."""
        return list(self.manifest.about.get("entries", []))

    def unpacked(self) -> Unpacked:
        """Its content for `setup`."""
        git = {path.stem: path for path in sorted((self.folder / "git").glob("*.bundle"))}
        names = [entry.partition(".")[2] for entry in self.entries if entry.startswith("env")]
        return Unpacked(git, dict.fromkeys(names, self.folder / "wheels"))


def lay_out(root: Path, targets: Sequence[Path], on_step: OnStep = lambda *_: None) -> Laid | None:
    """Check parts and unpack their pieces below `root`; None while parts are still missing.

    Each part counts only when every bit of it is correct, and is not needed again then: parts may
    come one at a time, each removed before the next. Raises OperatorError for a damaged part and
    for a full disk, CannotTell for parts of different bundles.
    """
    laid = [last_laid(root, file) for file in targets]
    if len({item.folder for item in laid}) > 1:
        raise CannotTell("bundle.mixed-parts", str(targets[0]))
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
    """The parts that are not unpacked yet."""
    return [
        number for number in range(1, laid.manifest.parts + 1)
        if not (laid.folder / ".parts" / str(number)).exists()
    ]  # fmt: skip


def last_laid(root: Path, file: Path) -> Laid:
    """The bundle that the part `file` belongs to, as far as it is unpacked."""
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
        """Flush the file to the disk and close it."""
        if self._open is not None:
            self._open.flush()
            os.fsync(self._open.fileno())
            self._open.close()
            self._open = None


def _take(root: Path, file: Path) -> None:
    """Unpack one part, unless it was unpacked before."""
    laid = last_laid(root, file)
    folder = laid.folder
    mark = folder / ".parts" / str(laid.manifest.part)
    if mark.exists():
        return
    needed = sum(piece.size for piece in laid.manifest.pieces)
    mark.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OperatorError(
            "disk-space.unpack", str(folder), needed=needed, free=free, folder=folder
        )
    writer = _Writer(folder)
    try:
        read_part(file, writer)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OperatorError("disk-space.bundle", str(folder), reason=reason) from error
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
            raise OperatorError("bundle-damaged.file", str(laid.folder), path=item.path)
        final.parent.mkdir(parents=True, exist_ok=True)
        half.rename(final)


def place_data(laid: Laid, lock_path: Path, report: Report) -> None:
    """Copy the bundle's data files to the lock's paths; a different file is not overwritten."""
    lock: Lock = read_lock(lock_path)
    for name in [entry for entry in laid.entries if entry.startswith("data.")]:
        data = lock.data.get(name.partition(".")[2])
        if data is None or data.sha256 is None:
            _refuse(
                report, name, name, "bundle-data.not-locked", lock=laid.folder / "versions.lock"
            )
            continue
        source, target = laid.folder / "data" / data.path, data_folder(lock_path.parent) / data.path
        if target.exists():
            if sha256_file(target) == data.sha256:
                report.passed(name)
            else:
                _refuse(report, name, str(target), "bundle-data.differs", path=target)
            continue
        if not source.is_file() or sha256_file(source) != data.sha256:
            _refuse(report, name, str(source), "bundle-data.not-the-locked")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, half)
        half.rename(target)
        report.passed(name)


def _refuse(report: Report, entry: str, where: str, text: str, **values: object) -> None:
    """Record a text of the registry under the entry's own name."""
    message, fix = render(text, values)
    report.failed(entry, where, message, fix)
