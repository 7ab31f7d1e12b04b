"""A model of the lock against its files on this machine."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from reprise.core.files import sha256_file
from reprise.hub.verified import Verified
from reprise.lock.model import Model
from reprise.lock.rows import Row, ThisMachine, compare_files, unpinned
from reprise.models.fetch import weight_folder

__all__ = ["verify_model"]

_INDEX = "model.safetensors.index.json"


def verify_model(name: str, model: Model, here: ThisMachine) -> Row:
    """Config and weight index in the folder that has the weights, else in the hub's cache.

    Weights are not read.
    """
    if model.missing:
        return unpinned(name, model)
    if not model.repo:
        return _own_model(name, model, here)
    row = Row(name, "ok", model.revision or "")
    wanted = {
        "config.json": model.config_sha256,
        _INDEX: model.index_sha256,
    }
    short = name.partition(".")[2]
    folder = weight_folder(here.root, short)
    for file, expected in wanted.items():
        found = _weight_file(model, file, folder)
        if found is None:
            if file == _INDEX and expected is None and _in_one_file(model, folder):
                continue
            where = f"{folder}, where it was fetched," if folder else constants.HF_HUB_CACHE
            row.state, row.message = "missing", f"{file} is not in {where}"
            row.fix = (
                f"`reprise model check FOLDER --lock {short}` (remembers a folder that is right)"
            )
            return row
        digest = sha256_file(found)
        if expected is None:
            if row.state == "ok":  # a known difference is not hidden by an unknown
                text = f"the lock has no digest of {file}; it is {digest}"
                row.state, row.message = "unknown", text
                row.fix = f"`reprise lock update {name}` records it"
        elif digest != expected:
            row.state, row.expected, row.found = "drift", f"{file} {expected}", digest
            row.fix = "fetch the file again at the locked revision"
    return row


def _own_model(name: str, model: Model, here: ThisMachine) -> Row:
    """Every file of a folder that is not of a hub; unchanged files are not read again."""
    short = name.partition(".")[2]
    row = Row(name, "ok", f"{len(model.files)} files")
    folder = weight_folder(here.root, short)
    if folder is None:
        row.state, row.message = "unknown", "the folder of this model is not known on this machine"
        row.fix = f"`reprise model check FOLDER --lock {short}` remembers it"
        return row
    store = Verified(here.root / ".cache" / "verified.json")
    row.found = row.expected
    fix = f"`reprise model fetch {short} {folder} --from FOLDER` with the locked files"
    return compare_files(row, folder, model.files, store.sha256, fix)


def _weight_file(model: Model, file: str, folder: Path | None) -> Path | None:
    """A file of the model on this machine."""
    if folder is not None and folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    if not model.repo:
        return None
    found = try_to_load_from_cache(model.repo, file, revision=model.revision)
    return Path(found) if isinstance(found, str) else None


def _in_one_file(model: Model, folder: Path | None) -> bool:
    """Whether the model is there as one file, which needs no index."""
    return _weight_file(model, "model.safetensors", folder) is not None
