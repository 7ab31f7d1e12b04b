"""`lock update` and `lock image`: move one entry of versions.lock, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import write_text
from reprise.core.findings import Report
from reprise.flows.lock.resolve import (
    Changes,
    resolve_environment,
    resolve_image,
    resolve_package,
    resolve_tree,
)
from reprise.hub.references import data_at, model_at
from reprise.lock.model import (
    MACHINES,
    Data,
    Environment,
    Image,
    Lock,
    Model,
    Package,
    Shipped,
    Tree,
)
from reprise.lock.read import machine_hash, parse_lock, read_text, resolve_name
from reprise.lock.rewrite import Value, rewrite
from reprise.trees.sources import Mirror

__all__ = ["Moved", "lock_images", "update_entry"]


@dataclass(frozen=True, slots=True)
class Moved:
    """One value that moved: `key` below the entry, and its text before and after."""

    key: str
    old: str
    new: str

    def to_json(self) -> dict[str, str]:
        """The row as `--json` prints it."""
        return {"key": self.key, "old": self.old, "new": self.new}


def update_entry(
    path: Path, name: str, to: str | None = None, mirrors: Sequence[Mirror] = ()
) -> Report:
    """Resolve `to` (else what the entry wants) and rewrite that entry's lines in the lock.

    `data`: `entry`, `moved` (key, old, new), `machines` (whose hash moved). The file is written
    whole or not at all, and only when something moved. Raises OperatorError or CannotTell.
    """
    text = read_text(path)
    lock = parse_lock(text, path.name)
    full = resolve_name(lock, name)
    changes = _resolve(lock, full, to, mirrors, path.parent)
    return _write(path, text, lock, full, changes, "lock update")


def _resolve(
    lock: Lock, full: str, to: str | None, mirrors: Sequence[Mirror], root: Path
) -> Changes:
    short = full.partition(".")[2]
    match lock.entry(full):
        case Tree() as tree:
            return resolve_tree(short, tree, to, mirrors)
        case Image() as image:
            return resolve_image(short, image, to)[0]
        case Data() as data:
            return {(): data_at(short, data, to)}
        case Model() as model:
            return {(): model_at(short, model, to)}
        case Package() as package:
            return resolve_package(short, package, to)
        case Environment() as environment:
            if to is not None:
                raise OperatorError("lock-update.requirements-file", full)
            return resolve_environment(root, environment)
        case Shipped() as shipped:
            raise OperatorError("lock-update.shipped", full, command=shipped.made_by)
        case _:
            raise OperatorError("lock-update.not-resolvable", full)


def _write(path: Path, text: str, lock: Lock, full: str, changes: Changes, command: str) -> Report:
    """Write `changes` of the entry `full`, and report what moved."""
    table = tuple(full.split(".", 1))
    if lock.entry(full) is not None and any(changes.get((), {})):
        changes = {**changes, (): {**changes.get((), {}), "unpinned": None}}
    new, moved = text, list[Moved]()
    for below, values in changes.items():
        before = _values(lock, full, below)
        differing: dict[str, Value] = {}
        for key, value in values.items():
            if _text(before.get(key)) != _text(value):
                differing[key] = value
                place = ".".join((*below, key))
                moved.append(Moved(place, _text(before.get(key)), _text(value)))
        new = rewrite(new, (*table, *below), differing)
    after = parse_lock(new, path.name)
    if moved:
        write_text(path, new, path.stat().st_mode & 0o777)
    report = Report(command)
    report.passed(full)
    report.data = {
        "entry": full,
        "moved": [item.to_json() for item in moved],
        "machines": [
            machine for machine in MACHINES
            if machine_hash(lock, machine) != machine_hash(after, machine)
        ],
    }  # fmt: skip
    return report


def _values(lock: Lock, full: str, below: tuple[str, ...]) -> dict[str, object]:
    """The present values of the entry, or of a table below it."""
    entry = lock.entry(full)
    found: object = entry.model_dump(mode="json") if entry is not None else {}
    for part in below:
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    """A value as it is shown; absent and empty are the same."""
    if value in (None, "", []):
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def lock_images(path: Path, names: Sequence[str], write: bool) -> Report:
    """Resolve the tags of images to digests; write those that are not locked yet, if asked.

    A tag that names another digest than the locked one is an error and is never written: use
    `lock update` to move. If no registry answers, the image is unknown. `data["images"]` gives tag,
    locked and found digest and the server that was asked.
    """
    lock = parse_lock(read_text(path), path.name)
    chosen = [resolve_name(lock, name) for name in names] or [f"image.{n}" for n in lock.image]
    report = Report("lock image", data={"images": []})
    for full in chosen:
        image = lock.entry(full)
        if not isinstance(image, Image):
            raise OperatorError("lock-entry.not-image", full)
        try:
            changes, asked = resolve_image(full.partition(".")[2], image, None)
        except CannotTell as error:
            report.unknown(full, full, f"not verified: {error.message}", error.fix)
            continue
        except OperatorError as error:
            report.failed(full, full, f"{error.where} {error.message}", error.fix)
            continue
        _judge_image(report, path, full, image, changes, asked, write)
    return report


def _judge_image(
    report: Report, path: Path, full: str, image: Image, changes: Changes, asked: str, write: bool
) -> None:
    found = str(changes[()]["digest"])
    row = {"entry": full, "tag": image.want, "locked": image.digest, "found": found, "from": asked}
    report.data["images"].append(row)
    if image.digest is not None and image.digest != found:
        message = f"the tag {image.want} moved: locked {image.digest}, now {found}"
        fix = "continue with the locked digest, which does not change; to move: "
        fix += f"`reprise lock update {full} --to {image.want}`"
        report.failed(full, full, message, fix)
        return
    report.passed(full)
    if image.digest is None and write:
        text = read_text(path)
        _write(path, text, parse_lock(text, path.name), full, changes, "lock image")
        report.note(full, full, f"{image.want} is locked at {found} (from {asked})")
    elif image.digest is None:
        fix = f"`reprise lock image {full} --write` writes it"
        report.warn(full, full, f"{image.want} names {found} (from {asked}); not written", fix)
