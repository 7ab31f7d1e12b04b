"""The job of a training run: its settings, its variables, its command and its package."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from reprise.cluster.site import Site
from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.flows.data import data_dir
from reprise.flows.rehearsal import MODEL as REHEARSAL
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.flows.train.outside import ship
from reprise.lock.read import read_lock
from reprise.machines.registry import Machine
from reprise.recipe.config.overrides import Line
from reprise.recipe.folders import recipe_folder
from reprise.recipe.load import Inputs, Loaded, launcher_environment, load
from reprise.recipe.plan.plan import setup_of
from reprise.recipe.rules.places import is_secret
from reprise.recipe.show import config_path
from reprise.runs.ray.importable import ignored_in_trees, pattern_of
from reprise.runs.ray.runtime_env import merge_runtime_env
from reprise.runs.ray.working_dir import Upload, walk
from reprise.runs.supervise.resume import Resume, hydra_value

__all__ = ["SECRETS", "TrainJob", "TrainOptions", "prepare_task"]

SECRETS = ("WANDB_API_KEY", "SWANLAB_API_KEY", "HF_TOKEN", "MLFLOW_TRACKING_TOKEN")
"""Variables of the operator's environment that a job may need; other users must not see them."""

_PASSED = ("TRAIN_FILES", "VAL_FILES")
_RUN, _ID = "/<REPRISE_RUN_DIR>", "<REPRISE_RUN_ID>"
_HOOK = "reprise.runs.inside.load_secrets"


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What the operator asked for. `stall` is in seconds, None for the place's own."""

    model: str
    hostfile: Path | None = None
    address: str | None = None
    machine: str | None = None
    storage: str | None = None
    token_file: str | None = None
    seed: int | None = None
    algo: str = ""
    overrides: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    attempts: int = 3
    dry_run: bool = False
    detach: bool = False
    wait: bool = True
    stall: float | None = None
    quiet: bool = False


@dataclass(slots=True)
class TrainJob:
    """What is to be run, independent of where: composed recipe, overrides, fixed variables.

    `key` names what runs of one reference share (empty for a recipe without recorded runs).
    `left_out` are importable files of locked checkouts that git ignores: they are not packed.
    """

    project: Project
    name: str
    loaded: Loaded
    overrides: list[str]
    variables: dict[str, str]
    files: tuple[Path, ...]
    python: str
    checkpoints: str | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The resolved config, with /<REPRISE_RUN_DIR> for the run folder."""
        return self.loaded.composition.values

    @property
    def nodes(self) -> int:
        """Nodes that the job takes at once: the trainer's, and those of a rollout of its own."""
        setup = setup_of(self.loaded)
        apart = setup.get("trainer.v1.trainer_mode") == "separate_async"
        return setup.nodes + (setup.integer("actor_rollout_ref.rollout.nnodes") if apart else 0)

    @property
    def world(self) -> int:
        """Ranks of the trainer's pool."""
        return setup_of(self.loaded).world

    @property
    def steps(self) -> int | None:
        """Steps in all; None when they follow from the length of the data alone."""
        return setup_of(self.loaded).steps

    @property
    def save_freq(self) -> int:
        """Steps between two checkpoints; below 1 there is none."""
        return setup_of(self.loaded).integer("trainer.save_freq", -1)

    @property
    def keeps(self) -> int | None:
        """Checkpoints that verl keeps; None: all of them."""
        value = setup_of(self.loaded).get("trainer.max_actor_ckpt_to_keep")
        return value if type(value) is int else None

    @property
    def async_save(self) -> bool:
        """Whether checkpoints are saved while the training continues."""
        return bool(setup_of(self.loaded).get("actor_rollout_ref.actor.checkpoint.async_save"))

    def checkpoint_dir(self, run: str, storage: str) -> str:
        """trainer.default_local_dir of run `run`, whose folder is `storage`."""
        return _filled(
            str(setup_of(self.loaded).get("trainer.default_local_dir", "")), run, storage
        )

    def config(self, run: str, storage: str) -> str:
        """The resolved config as YAML, for the run folder."""
        return _filled(yaml.safe_dump(self.values, sort_keys=False), run, storage)

    def entrypoint(self, resume: Resume, storage: str, number: int) -> str:
        """The command of an attempt; Ray's shell runs it in the unpacked package."""
        words = [self.python, "-m", "reprise.runs.inside", "verl.trainer.main_ppo"]
        words += ["--config-name", f"{self.name}/recipe", *self.overrides, *resume.overrides]
        words += self._own_folders(storage, number)
        return f"exec {shlex.join(words)} {config_path(self.loaded.outside is not None)}"

    def _own_folders(self, storage: str, number: int) -> list[str]:
        """A later attempt writes its answers to its own folder, not over the earlier ones."""
        if number == 1:
            return []
        found = []
        for name in ("rollout_data_dir", "validation_data_dir"):
            folder = setup_of(self.loaded).get(f"trainer.{name}")
            if isinstance(folder, str):
                path = f"{folder.replace(_RUN, storage)}/attempt-{number}"
                found.append(f"trainer.{name}={hydra_value(path)}")
        return found

    def runtime_env(
        self, run: str, storage: str, number: int, visible: bool, secrets: str | None
    ) -> dict[str, Any]:
        """What Ray is given for attempt `number`; of secrets only the file's name is in it."""
        variables = {
            **self.variables,
            "REPRISE_RUN_DIR": storage,
            "REPRISE_RUN_ID": run,
            "REPRISE_RUN_VISIBLE": "yes" if visible else "",
            "REPRISE_ATTEMPT": str(number),
            "VERL_FILE_LOGGER_PATH": f"{storage}/metrics/attempt-{number}.jsonl",
            "TENSORBOARD_DIR": f"{storage}/tensorboard/attempt-{number}",
            # Each attempt is a run of its own for a tracker: its steps must rise.
            "WANDB_RUN_GROUP": run,
        }
        if secrets is not None:
            variables["REPRISE_SECRETS_FILE"] = secrets
        made = self._merged(variables)
        if secrets is not None:
            made["worker_process_setup_hook"] = _HOOK
        return made

    def package(self) -> Upload:
        """What Ray will pack: the files of the project that no pattern leaves out."""
        return walk(self.project.root, self._merged({})["excludes"], respect_gitignore=False)

    def python_path(self) -> list[str]:
        """The entries of PYTHONPATH that the job is given, in order."""
        return str(self._merged({})["env_vars"].get("PYTHONPATH", "")).split(":")

    def _merged(self, variables: Mapping[str, str]) -> dict[str, Any]:
        """The runtime environment without `left_out` and without run folders in the project."""
        root, runs = self.project.root, self.project.runs
        made = merge_runtime_env(root, self.files, variables)
        made["excludes"] += [pattern_of(path) for path in self.left_out]
        if runs.is_relative_to(root):
            made["excludes"].append(f"/{runs.relative_to(root).as_posix()}")
        return made

    def loggers(self) -> Sequence[str]:
        """Names of the trackers."""
        value = setup_of(self.loaded).get("trainer.logger") or []
        return [value] if isinstance(value, str) else list(value)


def prepare_task(
    project: Project, options: TrainOptions, site: Site, machine: Machine, python: str
) -> TrainJob:
    """Compose the recipe with the run's overrides and variables.

    Raises OperatorError for missing or damaged files; the check reports errors in the recipe.
    """
    overrides = _overrides(options)
    if site.paths.checkpoints is not None and options.model != REHEARSAL:
        overrides.append(
            f"trainer.default_local_dir={hydra_value(site.paths.checkpoints)}/{options.model}"
            "/${oc.env:REPRISE_RUN_ID}"
        )
    variables: dict[str, str] = {}
    key: Mapping[str, Any] = {}
    if options.model == REHEARSAL:
        variables, key = _stand_ins(project, options, overrides)
    else:
        variables = _places(project, site)
    variables |= {name: os.environ[name] for name in _PASSED if os.environ.get(name)}
    if options.seed is not None or options.model == REHEARSAL:
        variables["REPRISE_SEED"] = str(options.seed or 1)
    variables |= machine.profile.ray_variables if options.address else {}
    files = (
        project.root / "runtime_env.yaml",
        recipe_folder(project.recipes, options.model) / "runtime_env.yaml",
    )
    with _environment({**variables, "REPRISE_RUN_ID": _ID}):
        lines = [Line(text) for text in overrides]
        inputs = Inputs(shared=tuple(site.paths.shared().values()) or None)
        loaded = load(project.root, options.model, lines, inputs)
    if loaded.outside is not None:
        ship(project.root, loaded.outside, options.model, loaded.composition)
    left_out = tuple(ignored_in_trees(project.root, read_lock(project.lock)))
    task = TrainJob(
        project,
        options.model,
        loaded,
        overrides,
        variables,
        files,
        python,
        key=key,
        left_out=left_out,
    )
    task.variables |= {
        name: text
        for name, text in launcher_environment(task.loggers()).items()
        if not text.startswith("/<")
    }
    return task


def _overrides(options: TrainOptions) -> list[str]:
    """The run's own Hydra overrides, in the order of the command line."""
    found = []
    if options.seed is not None or options.model == REHEARSAL:
        found.append(f"data.seed={options.seed or 1}")
    if options.algo:
        found.append(f"algorithms={options.algo}")
    for text in options.overrides:
        name, _, value = text.partition("=")
        if is_secret(name.lstrip("+~"), value):
            raise OperatorError("train-secret.on-command-line", name, names=", ".join(SECRETS))
        found.append(text)
    return found


def _stand_ins(
    project: Project, options: TrainOptions, overrides: list[str]
) -> tuple[dict[str, str], Mapping[str, Any]]:
    """The rehearsal's model and data, created if missing, and the key of its run."""
    others = tuple(text for text in overrides if not text.startswith("data.seed="))
    chosen = RehearsalOptions(seed=options.seed or 1, overrides=others, quiet=options.quiet)
    rehearsal = Rehearsal(project, chosen)
    model, data = rehearsal.prepare()
    variables = {
        "REPRISE_MODEL_DIR": str(model.path),
        "REPRISE_DATA_DIR": str(data.train.parent),
    }
    return variables, {**rehearsal.key(), "arch": chosen.arch, "verl": rehearsal.tree.label()}


def _places(project: Project, site: Site) -> dict[str, str]:
    """The folders of model and data on the nodes: variables, else the site file, else DATA_DIR."""
    model = os.environ.get("REPRISE_MODEL_DIR") or site.paths.model
    data = os.environ.get("REPRISE_DATA_DIR") or site.paths.data or str(data_dir(project))
    found = {"REPRISE_DATA_DIR": str(PurePosixPath(data))}
    if model:
        found["REPRISE_MODEL_DIR"] = str(PurePosixPath(model))
    return found


def _filled(text: str, run: str, storage: str) -> str:
    """The text with a run's id and folder in the placeholders' places."""
    return text.replace(_RUN, storage).replace(_ID, run)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables in this process's own environment, from which Hydra reads them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
