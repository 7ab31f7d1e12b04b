"""`setup --bundle`: from parts on the disk to checkouts, environments and data, without network."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from reprise.bundle.archive import read_manifest
from reprise.bundle.bare import UNPART, is_bare
from reprise.bundle.configs import place_configs
from reprise.bundle.create import OnStep
from reprise.bundle.open import Laid, last_laid, lay_out, missing_parts, parts_of, place_data
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.lock.model import Entry, Lock, Machine, Tree
from reprise.lock.read import entries_of, machine_hash, read_lock, resolve_name
from reprise.trees.install import PLACED, setup
from reprise.trees.setup import OnTree

__all__ = ["setup_from_bundle"]

# Entries of the bundle that `setup` installs; for images and packages it notes their path.
_PLACED = tuple(f"{kind}." for kind in PLACED)


def _in_image(entry: Entry | None) -> bool:
    return isinstance(entry, Tree) and entry.path is None


def _report_lacking(
    report: Report, lock: Lock, laid: Laid, bundle: Path, wanted: Sequence[str], machine: Machine
) -> None:
    """List what was asked for and is not in the bundle: an error if it was named, or is all."""
    kinds = (*_PLACED, "data.")
    try:
        known = [] if wanted else entries_of(lock, machine)
    except OperatorError:
        return  # the lock has nothing for this machine, the bundle may: it is installed as it is
    asked = wanted or [
        name for name in known if name.startswith(kinds) and not _in_image(lock.entry(name))
    ]
    lacking = [name for name in asked if name not in laid.entries]
    if not lacking:
        return
    about = laid.manifest.about.get("machine")
    values: dict[str, object] = {"entries": ", ".join(lacking), "machine": about}
    if wanted or len(lacking) == len(asked):
        command = " ".join(lacking) if wanted else ""
        options = command or f"--machine {machine}"
        report.failed("bundle-complete.lacks", bundle.name, options=options, **values)
    else:
        report.note("bundle-complete.partly", bundle.name, **values)


def setup_from_bundle(
    lock_path: Path,
    bundle: Path,
    names: Sequence[str],
    machine: Machine,
    on_tree: OnTree = lambda *_: None,
    on_step: OnStep = lambda *_: None,
) -> Report:
    """Unpack the bundle and install its entries (or those of `names`).

    While parts are missing the report is unknown and lists them. Raises OperatorError for damage,
    and for a bundle of archives, which unpart.py unpacks.
    """
    root = lock_path.parent
    files = parts_of(bundle)
    if is_bare(read_manifest(files[0])):
        parts = shlex.quote(str(bundle)) + ("" if files == [bundle] else ".part*")
        raise OperatorError("bundle-content.archives", bundle.name, script=UNPART, parts=parts)
    laid = lay_out(root, files, on_step)
    report = Report("setup")
    if laid is None:
        known = last_laid(root, files[-1])
        missing = missing_parts(known)
        have = known.manifest.parts - len(missing)
        numbers = ", ".join(map(str, missing))
        report.unknown(
            "bundle-complete.unpacked",
            bundle.name,
            have=have,
            parts=known.manifest.parts,
            missing=numbers,
        )
        report.data["missing"] = missing
        return report
    lock = read_lock(lock_path)
    about = laid.manifest.about
    if about.get("machine_sha256") != machine_hash(lock, about.get("machine", machine)):
        report.warn(
            "bundle-lock.other-state",
            bundle.name,
            machine=about.get("machine"),
            folder=laid.folder,
        )
    wanted = [resolve_name(lock, name, PLACED) for name in names]
    _report_lacking(report, lock, laid, bundle, wanted, machine)
    entries = [name for name in laid.entries if not wanted or name in wanted]
    placed = [name for name in entries if name.startswith(_PLACED)]
    if placed:
        report.absorb(
            placed_report := setup(lock_path, placed, machine, (), on_tree, laid.unpacked())
        )
        report.data |= placed_report.data
    place_configs(root, laid.folder / "wheels", report)
    if any(name.startswith("data.") for name in entries):
        place_data(laid, lock_path, report)
    for archive in sorted((laid.folder / "images").glob("*.tar")):
        report.note("bundle-note.image", archive.stem, archive=archive)
    if any(name.startswith("package.") for name in entries):
        report.note("bundle-note.wheels", "packages", folder=laid.folder)
    report.note("bundle-note.unpacked", str(laid.folder))
    report.settle("bundle-complete")
    return report
