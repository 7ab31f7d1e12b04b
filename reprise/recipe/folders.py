"""Folders of recipes: the project's own, those of REPRISE_RECIPES, those of the site file."""

from __future__ import annotations

import os
from pathlib import Path

from reprise.cluster.site import load_site, site_path
from reprise.core.errors import OperatorError
from reprise.core.nearby import did_you_mean, nearest_words

__all__ = ["OUTSIDE", "home_of", "recipe_folder", "recipe_folders", "recipe_names"]

VARIABLE = "REPRISE_RECIPES"
OUTSIDE = ".recipes"
"""Where the package of a job has a recipe from outside the project, relative to its root."""


def recipe_folders(recipes: Path) -> tuple[Path, ...]:
    """The project's folder `recipes`, then the others, each once.

    A folder holds recipes as NAME/recipe.yaml. Raises OperatorError for one that does not exist,
    or is a recipe itself.
    """
    named = [(VARIABLE, text) for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    named += [(str(site_path()), text) for text in load_site().paths.recipes]
    found = {recipes.resolve(): recipes}
    for origin, text in named:
        folder = Path(text).expanduser().absolute()
        if not folder.is_dir():
            raise OperatorError("recipe-folders.missing", text, origin=origin)
        if (folder / "recipe.yaml").is_file():
            raise OperatorError(
                "recipe-folders.recipe", text, origin=origin, folder=str(folder.parent)
            )
        found.setdefault(folder.resolve(), folder)
    return tuple(found.values())


def recipe_names(recipes: Path) -> list[str]:
    """The names of all recipes, in alphabetical order."""
    folders = recipe_folders(recipes)
    return sorted({path.parent.name for one in folders for path in one.glob("*/recipe.yaml")})


def home_of(recipes: Path, name: str) -> Path:
    """The folder of recipes that has recipe `name`.

    Raises OperatorError for an unknown name, and for one that several folders have.
    """
    folders = recipe_folders(recipes)
    found = [folder for folder in folders if _has(folder, name)]
    if len(found) > 1:
        shown = " and ".join(str(folder / name) for folder in found)
        raise OperatorError("recipe-folders.twice", name, folders=shown)
    if not found:
        names = recipe_names(recipes)
        raise OperatorError(
            "recipe-name.unknown",
            name,
            near=did_you_mean(nearest_words(name, names)),
            known=", ".join(names) or "none",
        )
    return found[0]


def recipe_folder(recipes: Path, name: str) -> Path:
    """The folder of recipe `name`; below `recipes` where no folder has it (yet)."""
    found = [folder for folder in recipe_folders(recipes) if _has(folder, name)]
    return (found[0] if found else recipes) / name


def _has(folder: Path, name: str) -> bool:
    plain = name not in ("", ".", "..") and "/" not in name
    return plain and (folder / name / "recipe.yaml").is_file()
