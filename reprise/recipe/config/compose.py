"""Compose a recipe with Hydra from verl's own config files, without importing verl."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from reprise.core.errors import OperatorError
from reprise.core.nearby import did_you_mean, meant_word
from reprise.recipe.config.apply import Target, apply, is_plain_add, repeated
from reprise.recipe.config.kept import Kept
from reprise.recipe.config.overrides import Fault, Line, fault, parse
from reprise.recipe.config.reading import FastRepository, parse_once
from reprise.recipe.config.refused import left_open
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.unknowns import NotKnown, filled

__all__ = ["Composition", "compose"]

_ENVIRONMENT = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)\}")
# Hydra's own search path entry of a recipe names a package; here the folder is given instead.
_NO_SEARCHPATH = "hydra.searchpath=[]"


@dataclass(slots=True)
class Composition:
    """A composed config and its origin.

    `config` keeps its interpolations; `values` is resolved, with `/<NAME>` for a variable of the
    environment that is not set; `base` is verl's own default config for the same engine, resolved.
    `lines` are the overrides that Hydra accepts, `faults` those of all lines.
    `files` are the composed YAML files in their order: path without .yaml, and package.
    `open_by` is a refused choice of a group, which leaves the whole config open. `folders` are
    those of the recipes, in the order in which they are searched.
    """

    name: str
    tree: VerlTree
    config: DictConfig
    values: dict[str, Any]
    base: dict[str, Any]
    lines: list[Line]
    faults: list[Fault]
    choices: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    open_by: NotKnown | None = None
    folders: tuple[Path, ...] = ()

    def line_of(self, key: str) -> Line | None:
        """The last override line that set `key` or a node above or below it."""
        for line in reversed(self.lines):
            written = line.text.lstrip("+~").split("=", 1)[0].split("@")[0]
            if written == key or key.startswith(written + ".") or written.startswith(key + "."):
                return line
        return None


class _RecordingLoader(ConfigLoaderImpl):
    """Hydra's loader; `files` are those of the last config."""

    files: list[tuple[str, str]]

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        self.files = [(item.config_path or "", item.package or "") for item in defaults]
        return super()._compose_config_from_defaults_list(defaults, repo)


class _Loader:
    """Hydra's config loader over the recipes' folder and verl's config folder."""

    def __init__(self, recipes: Path | None, tree: VerlTree, search: tuple[Path, ...] = ()) -> None:
        setup_globals()
        parse_once()
        Plugins.instance()  # registers the readers of pkg:// and file://
        path = ConfigSearchPathImpl()
        path.append("hydra", "pkg://hydra.conf")
        if recipes is not None:
            path.append("main", str(recipes))
        for folder in search:
            path.append("searchpath", str(folder))
        path.append("verl", str(tree.config))
        path.append("schema", "structured://")
        loader = _RecordingLoader(path)
        # verl's default config is composed as well, from the same files: read each once.
        caching: Any = CachingConfigRepository(FastRepository(path))
        loader.repository = caching
        self.loader = loader
        self.kept = Kept([folder for folder in (recipes, *search, tree.config) if folder])
        self.files: list[tuple[str, str]] = []
        self._groups: dict[str, bool] = {}
        self._composed: dict[tuple[str, tuple[str, ...]], tuple[bytes, list[tuple[str, str]]]] = {}

    def load(self, name: str, overrides: Sequence[str]) -> DictConfig:
        """The composed config. `files` are then those that it was composed of.

        What was composed before is copied: composing takes half a second, a copy 10 ms.
        """
        asked = (name, tuple(overrides))
        if asked not in self._composed:
            found = self.kept.get(asked)
            if found is None:
                config = self.loader.load_configuration(
                    name, [_NO_SEARCHPATH, *overrides], RunMode.RUN, from_shell=False
                )
                found = pickle.dumps(config), self.loader.files
                self.kept.put(asked, found)
            self._composed[asked] = found
        made, self.files = self._composed[asked]
        copied: DictConfig = pickle.loads(made)  # noqa: S301 - our own bytes
        return copied

    def is_group(self, key: str) -> bool:
        # A group is a folder: a/b, never a.b. Asking the file system for each key takes long.
        if "." in key and "/" not in key:
            return False
        if key not in self._groups:
            self._groups[key] = bool(self.loader.repository.group_exists(key))
        return self._groups[key]

    def options(self, group: str) -> list[str]:
        return list(self.loader.repository.get_group_options(group))


@lru_cache(maxsize=4)
def _loader(recipes: Path | None, tree: VerlTree, search: tuple[Path, ...] = ()) -> _Loader:
    """One loader for each set of folders: most of the time goes into reading the YAML files."""
    return _Loader(recipes, tree, search)


@lru_cache(maxsize=8)
def _base(loader: _Loader, name: str, groups: tuple[str, ...]) -> dict[str, Any]:
    """Config `name` with these choices of groups and nothing else, resolved.

    Not to be changed by the caller.
    """
    asked = ("resolved", name, groups)
    kept: dict[str, Any] | None = loader.kept.get(asked)
    if kept is not None:
        return kept
    config = loader.load(name, groups)
    with open_dict(config):
        config.pop("hydra", None)
    values = _resolved(config, [])
    if "oc.env" not in repr(OmegaConf.to_container(config, resolve=False)):
        loader.kept.put(asked, values)
    return values


def compose(
    name: str,
    tree: VerlTree,
    lines: Sequence[Line] = (),
    recipes: Path | None = None,
    search: tuple[Path, ...] = (),
    own_base: bool = False,
) -> Composition:
    """Compose config `name` with the override `lines`; every line is checked separately.

    `name` is a path below `recipes` without .yaml (`hy3/recipe`), or one of verl's own configs
    (`ppo_trainer`). Lines that Hydra would refuse are left out of the config and become faults.
    `search` are further folders of configs. With `own_base`, `base` is config `name` with the
    same choices of groups instead of verl's ppo_trainer. Unknown parts of lines become NotKnown
    in `values`.
    Raises OperatorError when the config itself cannot be composed.
    """
    loader = _loader(recipes, tree, search)
    faults: list[Fault] = []
    parsed: list[tuple[Line, Override]] = []
    for line in lines:
        override = parse(line)
        if isinstance(override, Fault):
            faults.append(override)
        else:
            parsed.append((line, override))
    groups = [(line, o) for line, o in parsed if _is_group(loader, o)]
    config, kept, refused = _load_groups(loader, name, groups)
    chosen = tuple(line.text for line in kept)
    files = loader.files
    passed_over = [f for pair in groups if (f := _passed_over(loader, name, kept, *pair))]
    faults += [*refused, *passed_over]
    kept = [line for line in kept if line not in [fault.line for fault in passed_over]]
    values = [(line, o) for line, o in parsed if not _is_group(loader, o)]
    known = Target(
        config,
        lambda: loader.load(name, chosen),
        tuple(loader.options("model_engine")),
        loader.is_group,
    )
    for adds, some in groupby(values, lambda pair: is_plain_add(pair[1])):
        # OmegaConf opens a node for each new key and closes it again, which takes the longer the
        # more keys it has: here all new keys in a row share one opening.
        with open_dict(config) if adds else nullcontext():
            for line, override in some:
                found = apply(known, line, override, adds)
                if found is None:
                    kept.append(line)
                else:
                    faults.append(found)
    faults += repeated(parsed)
    choices = {str(key): str(value) for key, value in config.hydra.runtime.choices.items()}
    with open_dict(config):
        config.pop("hydra", None)
    order = {id(line): index for index, line in enumerate(lines)}
    faults.sort(key=lambda fault: order.get(id(fault.line), 0))
    kept.sort(key=lambda line: order[id(line)])
    unset: list[str] = []
    table = {mark: known for line in lines for mark, known in line.unknowns}
    resolved = filled(_resolved(config, unset), table)
    open_by = left_open(resolved, faults, known.engines)
    if own_base or (name == "ppo_trainer" and not chosen):
        base = _base(loader, name, chosen)
    else:
        base = _base(loader, "ppo_trainer", (f"model_engine={choices.get('model_engine', 'dp')}",))
    folders = (*([recipes] if recipes is not None else []), *search)
    return Composition(
        name, tree, config, resolved, base, kept, faults, choices, unset, files, open_by, folders
    )


def _is_group(loader: _Loader, override: Override) -> bool:
    return override.package is not None or loader.is_group(override.key_or_group)


def _load_groups(
    loader: _Loader, name: str, groups: Sequence[tuple[Line, Override]]
) -> tuple[DictConfig, list[Line], list[Fault]]:
    """Compose with the existing group choices; any other choice becomes a fault."""
    kept, faults = [line for line, _ in groups], list[Fault]()
    try:
        return loader.load(name, [line.text for line in kept]), kept, faults
    except (HydraException, OmegaConfBaseException):
        kept = []
    for line, override in groups:
        try:
            loader.load(name, [*(item.text for item in kept), line.text])
        except HydraException as error:
            faults.append(_group_fault(loader, line, override, error))
        else:
            kept.append(line)
    try:
        return loader.load(name, [line.text for line in kept]), kept, faults
    except (HydraException, OmegaConfBaseException) as error:
        text = " ".join(str(error).split())
        raise OperatorError("recipe-compose.failed", name, reason=text) from error


def _passed_over(
    loader: _Loader, name: str, kept: Sequence[Line], line: Line, override: Override
) -> Fault | None:
    """A choice that Hydra ignores: the group is optional in the recipe and lacks such a file."""
    group, value = override.key_or_group, override.value()
    if line not in kept or not isinstance(value, str) or value in loader.options(group):
        return None
    # The recipe itself may name a choice without a file, meaning "nothing more".
    usual = loader.load(name, []).hydra.runtime.choices.get(group)
    return None if value == usual else _no_option(line, group, value, loader.options(group))


def _no_option(line: Line, group: str, value: str, options: Sequence[str]) -> Fault:
    return fault(
        "recipe-override-group.no-option",
        line,
        group=group,
        value=value,
        near=did_you_mean([one] if (one := meant_word(value, options)) else []),
        options=", ".join(options),
    )


def _group_fault(loader: _Loader, line: Line, override: Override, error: Exception) -> Fault:
    group, value = override.key_or_group, str(override.value())
    options = loader.options(group)
    if value not in options:
        return _no_option(line, group, value, options)
    text = " ".join(str(error).split())
    return fault("recipe-override-group.refused", line, reason=text, text=line.text.lstrip("+"))


def _resolved(config: DictConfig, unset: list[str]) -> dict[str, Any]:
    """The config as plain values. Names of missing environment variables are added to `unset`."""
    plain = OmegaConf.to_container(config, resolve=False)
    filled = _filled(plain, os.environ, unset)
    if filled != plain:
        config = OmegaConf.create(filled)
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    if not isinstance(values, dict):
        raise TypeError("a Hydra config is a mapping")
    return {str(key): value for key, value in values.items()}


def _filled(node: Any, environment: Mapping[str, str], unset: list[str]) -> Any:
    if isinstance(node, dict):
        return {key: _filled(value, environment, unset) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, environment, unset) for value in node]
    if not isinstance(node, str):
        return node

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in environment:
            return environment[name]
        if name not in unset:
            unset.append(name)
        return f"/<{name}>"

    return _ENVIRONMENT.sub(replace, node)
