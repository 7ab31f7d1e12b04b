"""Compositions that are kept between commands: composing takes most of a check's time.

A kept one is found by the bytes of every YAML file that Hydra could read for it, so that it can
never be of another version of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
import omegaconf

import reprise
from reprise.core.errors import OperatorError
from reprise.core.files import writing
from reprise.core.project import find_project

__all__ = ["Kept"]

_MOST_FILES = 2000  # of a folder: to read more would take longer than to compose
_MOST_KEPT = 64


class Kept:
    """What was composed from these folders, in the project's `.cache/compose`.

    `folders` are searched in their order. Nothing is kept outside a project, or where its folder
    cannot be written.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)

    def get(self, asked: tuple[object, ...]) -> Any:
        """What was kept for `asked`; None when there is none."""
        path = self._path(asked)
        if path is None:
            return None
        try:
            return pickle.loads(path.read_bytes())  # noqa: S301 - ours, beside the code itself
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError):
            return None

    def put(self, asked: tuple[object, ...], made: object) -> None:
        """Keep what was made for `asked`; the oldest go."""
        path = self._path(asked)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path) as file:
                pickle.dump(made, file)
            kept = sorted(path.parent.glob("*.pickle"), key=lambda one: one.stat().st_mtime)
            for old in kept[:-_MOST_KEPT]:
                old.unlink(missing_ok=True)

    def _path(self, asked: tuple[object, ...]) -> Path | None:
        if self._digest is None or self._folder is None:
            return None
        name = hashlib.sha256(f"{self._digest} {asked!r}".encode()).hexdigest()
        return self._folder / f"{name}.pickle"

    @cached_property
    def _folder(self) -> Path | None:
        try:
            return find_project().root / ".cache" / "compose"
        except OperatorError:
            return None

    @cached_property
    def _digest(self) -> str | None:
        """Of all files that decide, and of the programs that read them; None for too many."""
        versions = (reprise.__version__, hydra.__version__, omegaconf.__version__)
        found = hashlib.sha256(repr((*versions, platform.python_version())).encode())
        for folder in self.folders:
            files = _configs(folder)
            if len(files) > _MOST_FILES:
                return None
            for file in files:
                try:
                    data = file.read_bytes()
                except OSError:
                    return None
                found.update(f"\n{file}\n{len(data)}\n".encode(errors="surrogateescape") + data)
        return found.hexdigest()


def _configs(folder: Path) -> list[Path]:
    """The YAML files at or below `folder`, through links as well, as Hydra finds them."""
    found = [
        Path(top, name)
        for top, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.endswith((".yaml", ".yml"))
    ]
    return sorted(found)
