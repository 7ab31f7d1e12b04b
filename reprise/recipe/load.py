"""Load everything that the check and the plan of one recipe need."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from reprise.core.errors import OperatorError
from reprise.core.runtime_env import OWN_FIELDS, RAY_FIELDS, read_job_env
from reprise.recipe.card import Card, card_of
from reprise.recipe.config.compose import Composition, compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree, find_tree
from reprise.recipe.folders import home_of, recipe_folder
from reprise.recipe.model import Model, model_from_file
from reprise.recipe.names import known_names
from reprise.recipe.setup import Known

__all__ = ["Inputs", "Loaded", "launcher_environment", "load", "locked", "verl_tree"]


@dataclass(slots=True)
class Loaded:
    """A composed recipe, and the facts known about it.

    `outside` is the folder of recipes that has it, None for the project's own.
    """

    name: str
    card: Card
    composition: Composition
    model: Model | None
    known: Known
    outside: Path | None = None

    @property
    def tree(self) -> VerlTree:
        """The verl whose config files were used."""
        return self.composition.tree


def locked(root: Path) -> Mapping[str, Any]:
    """versions.lock as plain values; empty when there is none.

    Only single facts are read from it here; `reprise lock check` checks it.
    Raises OperatorError when it is not TOML.
    """
    path = root / "versions.lock"
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperatorError("recipe-lock.not-toml", str(path), reason=error) from error


@lru_cache(maxsize=2)
def _parsed(text: str) -> Mapping[str, Any]:
    """TOML as plain values. Not to be changed by the caller."""
    return tomllib.loads(text)


def _entry(lock: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    entry = lock.get(kind, {}).get(name, {}) if name else {}
    return entry if isinstance(entry, Mapping) else {}


def verl_tree(
    root: Path, card: Card, explicit: Path | None, say: Callable[[str], None]
) -> VerlTree:
    """The verl of the recipe card's lock entry, or the release in its place.

    A card without an entry uses the release itself, never a checkout.
    """
    entry = _entry(locked(root), "tree", card.verl.lock)
    named = entry.get("path", "third_party/verl") if card.verl.lock else ""
    folder = Path(str(named)).name
    return find_tree(root, folder, card.verl.release, explicit, say, entry.get("commit"))


def launcher_environment(loggers: Iterable[str]) -> dict[str, str]:
    """What `reprise train` adds to a job's environment: a metrics file and a TensorBoard folder
    for each attempt, and offline trackers unless the operator's environment sets another mode.
    """
    environment = {
        "VERL_FILE_LOGGER_PATH": "/<REPRISE_RUN_DIR>/metrics/attempt-1.jsonl",
        "TENSORBOARD_DIR": "/<REPRISE_RUN_DIR>/tensorboard/attempt-1",
    }
    for logger, variable in (("wandb", "WANDB_MODE"), ("swanlab", "SWANLAB_MODE")):
        if logger in loggers:
            environment[variable] = os.environ.get(variable, "offline")
    return environment


def _job_env(path: Path, fields: Collection[str] = OWN_FIELDS) -> Mapping[str, Any] | None:
    try:
        return read_job_env(path, fields)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Replacements for the project's own: a tree of verl, a model, a runtime environment.

    `config` is the config to compose instead of the recipe's (`ppo_trainer` for a launch script,
    whose own variables are `environment`: the recipe's and the launcher's do not count then).
    `shared` are the folders that the doctor found on every node. `folder` and `search` are where
    the config of an entry point is that has one of its own, `entry` its module; `packaged`: Ray
    ships the folder that the job is submitted from.
    """

    verl: Path | None = None
    model_config: Path | None = None
    runtime_env: Path | None = None
    config: str | None = None
    environment: Mapping[str, str] | None = None
    shared: tuple[str, ...] | None = None
    folder: Path | None = None
    search: tuple[Path, ...] = ()
    entry: str = ""
    packaged: bool = True


def load(
    root: Path,
    name: str,
    lines: Sequence[Line] = (),
    inputs: Inputs | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Loaded:
    """Compose recipe `name` of the project in `root` with the override `lines`.

    Without a name, `inputs.config` is composed and nothing is known of the model and the data.
    Raises OperatorError for whatever is missing or damaged.
    """
    inputs = inputs or Inputs()
    recipes = root / "recipes"
    card = card_of(recipes, name) if name else Card(title="script", status="not run")
    home = home_of(recipes, name) if name else recipes
    tree = verl_tree(root, card, inputs.verl, say)
    config = inputs.config or f"{name}/recipe"
    if inputs.folder is not None:
        composition = compose(config, tree, lines, inputs.folder, inputs.search, own_base=True)
    else:
        if inputs.config and not (tree.config / f"{inputs.config}.yaml").is_file():
            config = "ppo_trainer"  # recipe-script-config-name says that there is no such config
        search = () if home == recipes else (recipes,)
        composition = (
            compose(config, tree, lines)
            if inputs.config
            else compose(config, tree, lines, home, search)
        )
    known = _known(root, name, card, composition, inputs)
    model = _model(composition, card, inputs)
    return Loaded(name, card, composition, model, known, None if home == recipes else home)


def _model(made: Composition, card: Card, inputs: Inputs) -> Model | None:
    """The named model, else the one at the config's path, else the recipe card's."""
    if inputs.model_config is not None:
        return model_from_file(inputs.model_config)
    path = (made.values.get("actor_rollout_ref") or {}).get("model", {}).get("path")
    if isinstance(path, str) and (Path(path) / "config.json").is_file():
        return model_from_file(Path(path))
    return card.model_shape()


def _known(root: Path, name: str, card: Card, made: Composition, inputs: Inputs) -> Known:
    file = inputs.runtime_env or root / "runtime_env.yaml"
    job = _job_env(file, RAY_FIELDS if inputs.runtime_env else OWN_FIELDS)
    if job is None and inputs.runtime_env:
        raise OperatorError("runtime-env.missing", str(file))
    if inputs.config and not inputs.runtime_env:
        # A launch script is not submitted with the project's own runtime environment.
        job = None
    variables = _variables(job)
    if inputs.environment is not None:
        variables |= inputs.environment
    else:
        variables |= _variables(
            _job_env(recipe_folder(root / "recipes", name) / "runtime_env.yaml")
        )
        trainer = made.values.get("trainer") or {}
        variables |= launcher_environment(trainer.get("logger") or [])
    lock = locked(root)
    rows, prompts = _rows(made, "train_files", _data(lock, card, "train"))
    val_rows, val_prompts = _rows(made, "val_files", _data(lock, card, "validation"))
    return Known(
        rows=rows,
        prompts=prompts,
        val_rows=val_rows,
        val_prompts=val_prompts,
        gpu_memory=card.machine.gpu_memory,
        bf16_tflops=card.machine.bf16_tflops,
        runtime_env=job,
        runtime_env_file=str(file.relative_to(root) if file.is_relative_to(root) else file),
        shared=inputs.shared,
        environment=variables,
        names=known_names(root / "recipes"),
        algorithm=made.choices.get("algorithms", ""),
        locked_verl="" if inputs.verl else _locked_instead(lock, card, made.tree),
        locked_entry=f"tree.{card.verl.lock}" if card.verl.lock else "",
        packaged=inputs.packaged,
        entry=inputs.entry,
        foreign=not name,
    )


def _locked_instead(lock: Mapping[str, Any], card: Card, tree: VerlTree) -> str:
    """Version and commit of the locked verl if `tree` is another one, else ''."""
    entry = _entry(lock, "tree", card.verl.lock)
    commit, version = str(entry.get("commit", "")), str(entry.get("version", ""))
    if not commit or tree.commit == commit or (version == tree.version and not tree.commit):
        return ""
    return f"{version} ({commit[:10]})".strip()


def _data(
    lock: Mapping[str, Any], card: Card, name: Literal["train", "validation"]
) -> Mapping[str, Any]:
    """The lock entry of the recipe card's data set, or the facts of a file that the card states."""
    if name in card.made:
        return card.made[name].model_dump()
    return _entry(lock, "data", card.train if name == "train" else card.validation)


def _rows(made: Composition, key: str, entry: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Rows and distinct prompts of the data files: those of `entry` for its own file, else counted.

    verl reads all files of a list, one after another; with one that is not here the sum is not
    known. Distinct prompts of a file that is not locked are not counted here (`reprise data check`
    does).
    """
    files = (made.values.get("data") or {}).get(key)
    names = files if isinstance(files, list) else [files]
    if len(names) == 1 and isinstance(names[0], str):
        path = str(entry.get("path") or "")
        if path and names[0].endswith(path):
            return entry.get("rows"), entry.get("unique_prompts")
    counts = [_rows_of(name) for name in names]
    known = [count for count in counts if count is not None]
    return (sum(known), None) if known and len(known) == len(counts) else (None, None)


def _rows_of(name: object) -> int | None:
    """Rows of a parquet or JSON lines file, if it is here."""
    if not isinstance(name, str) or not Path(name).is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if name.endswith(".parquet"):
            return int(pq.ParquetFile(name).metadata.num_rows)
        if name.endswith(".jsonl"):
            with Path(name).open("rb") as file:
                return sum(1 for line in file if line.strip())
    except (OSError, pa.ArrowException):
        return None
    return None


def _variables(runtime_env: Mapping[str, Any] | None) -> dict[str, str]:
    found = (runtime_env or {}).get("env_vars") or {}
    return {str(name): str(value) for name, value in found.items()}
