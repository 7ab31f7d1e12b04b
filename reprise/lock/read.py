"""Read versions.lock: a sound lock, or every fault with its line."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_text
from reprise.core.findings import Report
from reprise.core.nearby import did_you_mean, nearest_words
from reprise.lock.lines import Lines, line_of, locate
from reprise.lock.model import KINDS, MACHINES, Lock, Machine

__all__ = [
    "LockError",
    "data_folder",
    "entries_of",
    "machine_hash",
    "parse_lock",
    "read_lock",
    "resolve_name",
]

_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")

# What to type, by the last key of the faulty place.
_FIXES = {
    "commit": "write the full 40 hex digits: `reprise lock update NAME --to REF` resolves a "
    "branch, a tag or a short hash and writes them",
    "revision": "write the full 40 hex digits: `reprise lock update NAME --to REF` resolves them",
    "digest": "write sha256: and 64 hex digits: `reprise lock image NAME --write` resolves the tag",
    "repository": "write the name alone (host:port/name): the tag belongs in `want`, "
    "the digest in `digest`",
    "want": "write the tag alone, without the image's name and without a digest",
    "machines": f"name at least one of {', '.join(MACHINES)}",
}


class LockError(OperatorError):
    """versions.lock cannot be used; `faults` holds each (rule, where, message, fix)."""

    def __init__(self, faults: list[tuple[str, str, str, str]]) -> None:
        super().__init__(*faults[0])
        self.faults = faults

    def report(self, command: str) -> Report:
        """All faults as one report of `command`."""
        report = Report(command)
        for fault in self.faults:
            report.failed(*fault)
        return report


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _fault(error: ErrorDetails, lines: Lines, name: str) -> tuple[str, str, str, str]:
    """One of pydantic's errors as (rule, where, message, fix)."""
    path = tuple(str(part) for part in error["loc"] if not isinstance(part, int))
    path = tuple(part for part in path if part != "[key]")
    where = f"{name}:{line_of(lines, path)}"
    entry = ".".join(path) or "the file"
    kind, key = error["type"], path[-1] if path else ""
    if kind == "missing":
        return "lock-schema", where, f"{entry} is missing", f"add `{key} = …`"
    if kind == "extra_forbidden":
        return "lock-schema", where, f"{entry} is not a key of the lock", "correct or remove it"
    found = f", found {_shown(error['input'])}" if not isinstance(error["input"], dict) else ""
    fix = _FIXES.get(key, "correct the value; docs/lock.md lists the keys of each kind")
    return "lock-schema", where, f"{entry}: {error['msg']}{found}", fix


def parse_lock(text: str, name: str = "versions.lock") -> Lock:
    """The lock that `text` holds; `name` is how findings call the file.

    Raises LockError with every fault and its line: not TOML, or not of the lock's schema.
    """
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _TOML_LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        message = f"is not TOML: {_TOML_LINE.sub('', str(error)).strip()}"
        fix = "correct the line; a table or key may stand once only, strings stand in quotes"
        raise LockError([("lock-toml", f"{name}:{line}", message, fix)]) from None
    try:
        return Lock.model_validate(raw)
    except ValidationError as error:
        lines = locate(text)
        faults = [_fault(detail, lines, name) for detail in error.errors(include_url=False)]
        raise LockError(faults) from None


def read_lock(path: Path) -> Lock:
    """The lock in the file `path`. Raises LockError with every fault and its line."""
    return parse_lock(read_text(path), path.name)


def read_text(path: Path) -> str:
    """The lock's text, byte for byte (line ends are kept). Raises LockError if it is not text."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        fix = "run the command in the project's folder, or name the file"
        raise LockError([("lock-file", str(path), "there is no such file", fix)]) from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        fix = "save the file as UTF-8"
        message = f"byte {error.start} is not UTF-8"
        raise LockError([("lock-toml", f"{path.name}:{line}", message, fix)]) from None


def machine_hash(lock: Lock, machine: Machine) -> str:
    """The SHA-256 (64 hex digits) of everything locked that counts for `machine`.

    It is taken over the identities of its entries (model.py) as JSON with sorted keys, so that it
    moves when a locked value moves and not with comments, order, notes, mirrors or the entries of
    other machines. Recorded runs are keyed by it. Entries without an identity (files that are
    shipped with the project) are left out.
    """
    identities = {name: entry.identity() for name, entry in lock.entries(machine)}
    entries = {name: identity for name, identity in identities.items() if identity}
    canonical = json.dumps(
        {"schema": lock.schema_version, "entries": entries}, sort_keys=True, separators=(",", ":")
    )
    return sha256_text(canonical)


def entries_of(lock: Lock, machine: Machine) -> list[str]:
    """The names of all entries that count for `machine`.

    Raises OperatorError when there is none: nothing fetched and nothing verified is not fine.
    """
    names = [name for name, _ in lock.entries(machine)]
    if not names:
        fix = f'add "{machine}" to `machines` of its entries, or name another: --machine'
        raise OperatorError("lock-machine", machine, "the lock has no entry for this machine", fix)
    return names


def data_folder(root: Path) -> Path:
    """Where data files belong: DATA_DIR, else the project's root, as the recipes expect."""
    return Path(os.environ.get("DATA_DIR") or root).absolute()


def resolve_name(lock: Lock, name: str, kinds: Sequence[str] = ()) -> str:
    """The full `kind.name` of what the operator typed, with or without the kind.

    Where several entries have the name, the only one of `kinds` is meant: what the command is for.
    Raises OperatorError for a name that no entry has, or that several have.
    """
    full = [entry for entry, _ in lock.entries()]
    found = [entry for entry in full if name in (entry, entry.partition(".")[2])]
    meant = [entry for entry in found if entry.partition(".")[0] in kinds]
    if len(found) == 1 or len(meant) == 1:
        return (meant or found)[0]
    if found:
        fix = f"type one of {', '.join(found)}"
        raise OperatorError("lock-entry", name, f"{len(found)} entries have this name", fix)
    fix = f"type one of {', '.join(full)}" if full else f"add an entry ({', '.join(KINDS)})"
    short = [entry.partition(".")[2] for entry in full]
    hint = did_you_mean(nearest_words(name, full if "." in name else short))
    raise OperatorError("lock-entry", name, f"the lock has no such entry{hint}", fix)
