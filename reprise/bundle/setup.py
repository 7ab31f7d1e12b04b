"""`setup --bundle`: from parts on the disk to checkouts, environments and data, without network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprise.bundle.configs import place_configs
from reprise.bundle.create import OnStep
from reprise.bundle.open import last_laid, lay_out, missing_parts, parts_of, place_data
from reprise.core.findings import Report
from reprise.lock.model import Machine
from reprise.lock.read import machine_hash, read_lock, resolve_name
from reprise.trees.bring import PLACED, setup
from reprise.trees.setup import OnTree

__all__ = ["setup_from_bundle"]

# What the bundle carries and `setup` puts in place; images and packages are said where they lie.
_PLACED = tuple(f"{kind}." for kind in PLACED)


def setup_from_bundle(
    lock_path: Path,
    bundle: Path,
    names: Sequence[str],
    machine: Machine,
    on_tree: OnTree = lambda *_: None,
    on_step: OnStep = lambda *_: None,
) -> Report:
    """Lay the bundle out and bring its entries (or those of `names`) into place.

    While parts are missing the report is unknown and says which. Raises OperatorError for damage.
    """
    root = lock_path.parent
    files = parts_of(bundle)
    laid = lay_out(root, files, on_step)
    report = Report("setup")
    if laid is None:
        known = last_laid(root, files[-1])
        missing = missing_parts(known)
        have = known.manifest.parts - len(missing)
        numbers = ", ".join(map(str, missing))
        message = f"{have} of {known.manifest.parts} parts are unpacked; still missing: {numbers}"
        fix = "repeat the command with the next part; those unpacked are not needed again"
        report.unknown("bundle-complete", bundle.name, message, fix)
        report.data["missing"] = missing
        return report
    lock = read_lock(lock_path)
    about = laid.manifest.about
    if about.get("machine_sha256") != machine_hash(lock, about.get("machine", machine)):
        message = f"was made for another state of the lock ({about.get('machine')})"
        fix = f"use the lock in {laid.folder}/versions.lock, or make the bundle again"
        report.warn("bundle-lock", bundle.name, message, fix)
    wanted = [resolve_name(lock, name, PLACED) for name in names]
    entries = [name for name in laid.entries if not wanted or name in wanted]
    placed = [name for name in entries if name.startswith(_PLACED)]
    if placed:
        report.absorb(brought := setup(lock_path, placed, machine, (), on_tree, laid.brought()))
        report.data |= brought.data
    place_configs(root, laid.folder / "wheels", report)
    if any(name.startswith("data.") for name in entries):
        place_data(laid, lock_path, report)
    for archive in sorted((laid.folder / "images").glob("*.tar")):
        report.note("bundle-note.load-into-engine", archive.stem, archive=archive)
    if any(name.startswith("package.") for name in entries):
        report.note("bundle-note.wheels-lie-wheels", "packages", folder=laid.folder)
    report.note("bundle-note.holds-unpacked-bundle", str(laid.folder))
    report.settle("bundle-complete")
    return report
