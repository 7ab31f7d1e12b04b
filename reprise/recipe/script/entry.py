"""The config that an entry point really uses: read from its source, never imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from reprise.recipe.config.verltree import VerlTree

__all__ = ["Entry", "NotAtHand", "entry_of"]

_SYNCHRONOUS = "verl.trainer.main_ppo"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an entry point's config is: `folder` and the name of the file without .yaml.

    `search` are the folders of its hydra.searchpath; `own` is False for verl's synchronous trainer
    with verl's own config.
    """

    module: str
    folder: Path
    name: str
    search: tuple[Path, ...] = ()
    own: bool = True


@dataclass(frozen=True, slots=True)
class NotAtHand:
    """The config of an entry point that cannot be read here, and why."""

    module: str
    reason: str


def entry_of(
    entry: str,
    tree: VerlTree,
    script: Path,
    config_path: str | None = None,
    config_name: str | None = None,
    config_dir: str | None = None,
) -> Entry | NotAtHand:
    """The config of the module or file `entry`, as Hydra finds it.

    --config-path is relative to the folder of the source, as config_path of @hydra.main is;
    --config-dir is relative to the folder where the script is started.
    """
    found = _source(entry, tree, script)
    if found is None:
        return NotAtHand(entry, f"the source of {entry} is not in {tree.package.parent}")
    path, package = found
    # A module of verl below another folder of the same name is verl's own.
    module = entry if package is None else ".".join(package)
    given = _hydra_main(path)
    if given is None:
        return NotAtHand(entry, f"{path.name} has no @hydra.main whose config can be read")
    folder_text, name = given
    name = (config_name or name or "").removesuffix(".yaml")
    base = config_path if config_path is not None else folder_text
    if not name:
        return NotAtHand(entry, f"@hydra.main of {path.name} names no config")
    for folder in _folders(path, base, config_dir, script):
        if (folder / f"{name}.yaml").is_file():
            verls = folder.resolve() == tree.config.resolve()
            own = not (verls and name == "ppo_trainer" and module == _SYNCHRONOUS)
            search = _search(folder / f"{name}.yaml", path, tree)
            if isinstance(search, str):
                return NotAtHand(entry, f"{search} of {name}.yaml's hydra.searchpath is not here")
            return Entry(module, folder, name, search, own)
    shown = f"{base}/{name}.yaml" if base else f"{name}.yaml"
    return NotAtHand(entry, f"there is no config {shown} for {module}")


def _search(config: Path, source: Path, tree: VerlTree) -> tuple[Path, ...] | str:
    """The folders that the config's hydra.searchpath names; the entry that is not at hand."""
    try:
        made = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ()
    hydra = made.get("hydra") if isinstance(made, Mapping) else None
    listed = hydra.get("searchpath") if isinstance(hydra, Mapping) else None
    found = []
    for text in listed if isinstance(listed, list) else []:
        kind, _, rest = str(text).partition("://")
        relative = rest.replace(".", "/") if kind == "pkg" else rest
        roots = [tree.package.parent, *source.parents]
        folder = next((root / relative for root in roots if (root / relative).is_dir()), None)
        if folder is None:
            return str(text)
        found.append(folder)
    return tuple(found)


def _folders(path: Path, base: str | None, config_dir: str | None, script: Path) -> Iterator[Path]:
    if base is not None:
        folder = Path(base.removeprefix("file://"))
        yield folder if folder.is_absolute() else path.parent / folder
    if config_dir is not None:
        for above in (script.parent, *script.parents):
            yield above / config_dir
    if base is not None and not Path(base).is_absolute():
        # Some scripts give the folder from where they are started.
        for above in script.parents:
            yield above / base


def _source(entry: str, tree: VerlTree, script: Path) -> tuple[Path, tuple[str, ...] | None] | None:
    """The file of an entry point, and its module's parts where it is one of verl."""
    if entry.endswith(".py"):
        match = re.search(r"(?:^|/)(verl/(?!verl/)(?:\w+/)*\w+\.py)$", entry)
        if match:
            path = tree.package.parent / match.group(1)
            if path.is_file():
                return path, tuple(match.group(1).removesuffix(".py").split("/"))
        for above in script.absolute().parents:
            if (above / entry).is_file():
                return above / entry, None
        return None
    parts = tuple(entry.split("."))
    roots = [tree.package.parent]
    if parts[0] != "verl":
        roots = [*script.absolute().parents, *roots]
    for root in roots:
        for path in (
            root.joinpath(*parts).with_suffix(".py"),
            root.joinpath(*parts, "__main__.py"),
        ):
            if path.is_file():
                return path, parts if root == tree.package.parent else None
    return None


def _hydra_main(path: Path) -> tuple[str | None, str | None] | None:
    """config_path and config_name of the file's @hydra.main; None where it has none."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _named(decorator.func) in (
                "hydra.main", "main",
            ):  # fmt: skip
                return _given(decorator)
    return None


def _given(call: ast.Call) -> tuple[str | None, str | None]:
    values: dict[str, str | None] = {}
    for name, argument in zip(("config_path", "config_name"), call.args, strict=False):
        values[name] = _text(argument)
    for keyword in call.keywords:
        if keyword.arg in ("config_path", "config_name"):
            values[keyword.arg] = _text(keyword.value)
    return values.get("config_path"), values.get("config_name")


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _named(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_named(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
