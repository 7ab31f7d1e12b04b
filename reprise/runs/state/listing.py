"""List the runs in a folder of runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError

__all__ = ["Listing", "closed_folders", "list_folder"]


@dataclass(frozen=True, slots=True)
class Listing:
    """The folders with a run.json, in the order of their names, which begin with their time.

    `closed` are folders of recipes or runs that could not be read, with the reason.
    """

    runs: list[Path]
    closed: dict[Path, str]


def list_folder(runs: Path, model: str | None = None) -> Listing:
    """The runs below `runs`, those of `model` only where given; none where it does not exist.

    Raises OperatorError when it is not a folder, CannotTell when it cannot be read.
    """
    try:
        models = [path for path in _entries(runs) if model in (None, path.name)]
    except FileNotFoundError:
        return Listing([], {})
    except NotADirectoryError:
        raise OperatorError("run-folders.file", str(runs)) from None
    except OSError as error:
        raise CannotTell("run-folders.unreadable", str(runs), reason=error.strerror) from None
    found, closed = list[Path](), dict[Path, str]()
    for folder in models:
        try:
            for path in _entries(folder):
                if _is_run(path, closed):
                    found.append(path)
        except NotADirectoryError:
            continue
        except OSError as error:
            closed[folder] = error.strerror or str(error)
    return Listing(sorted(found, key=lambda path: path.name), closed)


def closed_folders(listing: Listing) -> tuple[str, str]:
    """The folders that could not be read, and why."""
    where = ", ".join(str(path) for path in listing.closed)
    why = ", ".join(dict.fromkeys(listing.closed.values()))
    return where, why


def _is_run(path: Path, closed: dict[Path, str]) -> bool:
    try:
        return (path / "run.json").is_file()
    except OSError as error:
        closed[path] = error.strerror or str(error)
        return False


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries]
