"""A recipe from outside the project, copied to where the package of a job takes it along."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from reprise.recipe.config.compose import Composition
from reprise.recipe.folders import OUTSIDE

__all__ = ["ship"]

# Recorded runs and caches: nothing that a job reads.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "reference*", ".git")


def ship(root: Path, home: Path, name: str, composition: Composition) -> Path:
    """Copy recipe `name` of the folder `home`, and the groups of `home` that it uses; return where.

    An earlier copy of this recipe is replaced. The copy is `.recipes/NAME` of the project `root`.
    """
    folder = root / OUTSIDE
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as made:
        new = Path(made) / name
        shutil.copytree(home / name, new, ignore=_LEFT_OUT)
        target = folder / name
        if target.exists():
            target.rename(Path(made) / "old")
        new.rename(target)
    for group, _ in composition.files:
        source = home / f"{group}.yaml"
        if source.is_file() and not group.startswith(f"{name}/"):
            (folder / group).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / f"{group}.yaml")
    return target
