"""verl's config files from a bundle, for the check of recipes where no checkout of verl lies."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.lock.requirements import Pin, read_pins

__all__ = ["CONFIGS", "place_configs"]

CONFIGS = "requirements/verl-configs.txt"
"""The releases of verl that are read and never imported, each wheel with its hash."""


def place_configs(root: Path, wheels: Path, report: Report) -> None:
    """Unpack the locked wheels of CONFIGS that lie in `wheels` to .cache/verl-<version>.

    That is where the check of a recipe looks before it asks a package index. What is there stays;
    a wheel that the lock does not name is left where it is.
    """
    file = root / CONFIGS
    for pin in read_pins(file) if file.is_file() else ():
        target = root / ".cache" / f"{pin.name}-{pin.version}"
        wheel = _wheel(wheels, pin)
        if target.exists() or wheel is None:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".verl-") as scratch:
            half = Path(scratch) / "site"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(half)
            # Another command may have been quicker; its result is the same bytes.
            if not target.exists():
                shutil.move(half, target)
        report.passed("bundle-configs")


def _wheel(folder: Path, pin: Pin) -> Path | None:
    found = (file for file in folder.glob(f"{pin.name}-*.whl") if sha256_file(file) in pin.sha256)
    return next(found, None)
