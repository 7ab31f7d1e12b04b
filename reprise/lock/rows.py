"""What verifying one entry gives, and where it looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprise.lock.installed import Installed, query
from reprise.lock.model import Entry

__all__ = ["Row", "ThisMachine", "compare_files", "unpinned"]

# Written into every image that is built here; it is there only where such an image runs.
PROVENANCE = Path("/etc/reprise/provenance.json")


@dataclass(slots=True)
class Row:
    """One entry's state. `expected` and `found` are short and say the same kind of thing."""

    entry: str
    state: str
    expected: str = ""
    found: str = ""
    message: str = ""
    fix: str = ""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, str]:
        """The row as `--json` prints it."""
        keys = ("entry", "state", "expected", "found", "message")
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class ThisMachine:
    """Where an entry is looked for: the project's root, an interpreter for the packages."""

    root: Path
    python: Path | None = None
    data: Path | None = None
    provenance: Path = PROVENANCE
    _asked: dict[Path, Installed] = field(default_factory=dict)

    def installed(self, python: Path) -> Installed:
        """What `python` has installed; each interpreter is asked once."""
        if python not in self._asked:
            self._asked[python] = query(python)
        return self._asked[python]


def compare_files(
    row: Row, folder: Path, digests: Mapping[str, str], digest_of: Callable[[Path], str], fix: str
) -> Row:
    """`row`, with the first file of `digests` below `folder` that is missing or differs."""
    for file, expected in digests.items():
        path = folder / file
        if not path.is_file():
            row.state, row.found, row.message = "missing", "", f"{path} does not exist"
        elif (digest := digest_of(path)) != expected:
            row.state, row.expected, row.found = "drift", f"{file} {expected}", digest
        else:
            continue
        row.fix = fix
        break
    return row


def unpinned(name: str, entry: Entry) -> Row:
    """The row of an entry that the lock does not pin: nothing can be compared with it."""
    message = f"no {' and '.join(entry.missing)} in the lock to compare with: {entry.unpinned}"
    return Row(name, "unknown", message=message, fix=f"`reprise lock update {name}`")
