"""Which runs there are below a folder of runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError

__all__ = ["Listing", "closed_folders", "list_folder"]

RULE = "run-folders"
_FIX = "RUNS_DIR names the folder of runs: correct it, or leave it unset for runs/"


@dataclass(frozen=True, slots=True)
class Listing:
    """The folders with a run.json, in the order of their names, which begin with their time.

    `closed` are folders that could not be looked into, a recipe's or a run's, and why.
    """

    runs: list[Path]
    closed: dict[Path, str]


def list_folder(runs: Path, model: str | None = None) -> Listing:
    """The runs below `runs`, those of `model` only where given; none where it does not exist.

    Raises OperatorError when it is no folder, CannotTell when it cannot be read.
    """
    try:
        models = [path for path in _entries(runs) if model in (None, path.name)]
    except FileNotFoundError:
        return Listing([], {})
    except NotADirectoryError:
        message = "expected a folder of runs, found a file"
        raise OperatorError(RULE, str(runs), message, _FIX) from None
    except OSError as error:
        message = f"the folder of runs cannot be read: {error.strerror}"
        raise CannotTell(RULE, str(runs), message, _FIX) from None
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


def closed_folders(listing: Listing) -> tuple[str, str, str, str]:
    """Rule, where, message and fix of what could not be looked into."""
    where = ", ".join(str(path) for path in listing.closed)
    why = ", ".join(dict.fromkeys(listing.closed.values()))
    return "run-list", where, f"cannot be looked into: {why}", "ask their owner for access"


def _is_run(path: Path, closed: dict[Path, str]) -> bool:
    try:
        return (path / "run.json").is_file()
    except OSError as error:
        closed[path] = error.strerror or str(error)
        return False


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries]
