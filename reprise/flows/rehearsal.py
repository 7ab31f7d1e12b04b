"""A rehearsal run: tiny model and toy data, a private Ray, one job, its metrics."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, write_text
from reprise.core.findings import Report
from reprise.core.parallel import undisturbed
from reprise.core.project import Project
from reprise.flows.key import recipe_key, run_key
from reprise.flows.package import package_env, refuse_shadowed
from reprise.flows.start_model import start_model
from reprise.flows.target import DEFAULT, LAYOUT_CHOICE, Target
from reprise.flows.triage.explain import FAILED, triage_attempt
from reprise.flows.triage.logs import collect_logs
from reprise.recipe.card import card_of
from reprise.recipe.check import check
from reprise.recipe.config.compose import compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import Inputs, load
from reprise.recipe.setup import Setup
from reprise.rehearsal.caps import caps
from reprise.rehearsal.model import (
    ModelSettings,
    TinyModel,
    ensure_model,
    locked_versions,
)
from reprise.rehearsal.shapes import ARCHITECTURES, DEFAULT_ARCH
from reprise.rehearsal.toy import ToyData, write_toy
from reprise.runs.ray.alone import alone_on_this_machine
from reprise.runs.ray.jobs import Jobs, import_jobs_sdk
from reprise.runs.ray.local_ray import LocalRay, new_temp_dir, remove_leftovers, start_local_ray
from reprise.runs.state.attempt import AttemptEnd, AttemptOutcome, Job
from reprise.runs.state.folder import RunFolder, progress_of, readable_runs
from reprise.runs.state.pulse import here, supervised, supervising
from reprise.runs.state.state import Launcher, PrivateRay, RunStatus
from reprise.runs.supervise.following import Follower, run_attempt
from reprise.runs.supervise.supervise import StopRequested, hear
from reprise.runs.watch.display import RunDisplay
from reprise.runs.watch.summary import summary_lines
from reprise.triage.report import root_advice, root_place, summary

__all__ = ["Ended", "Rehearsal", "RehearsalOptions"]

MODEL = "rehearsal"
COMMAND = "reproduce"
RECIPE = f"{MODEL}/recipe"
_WITH_SGLANG = tuple(sorted(name for name, shape in ARCHITECTURES.items() if shape.sglang))
_ENDED = {
    AttemptOutcome.SUCCEEDED: "run-succeeded.ended",
    AttemptOutcome.FAILED: "run-failed.ended",
    AttemptOutcome.STALLED: "run-stalled.ended",
    AttemptOutcome.LOST: "run-lost.ended",
    AttemptOutcome.STOPPED: "run-stopped.ended",
    AttemptOutcome.INTERRUPTED: "run-interrupted.ended",
}

# How an error that ends the command ends the attempt; any other is a failure.
_OUTCOMES: dict[type[BaseException], AttemptOutcome] = {
    KeyboardInterrupt: AttemptOutcome.INTERRUPTED,
    StopRequested: AttemptOutcome.STOPPED,
}
_STATUS = {
    AttemptOutcome.INTERRUPTED: RunStatus.INTERRUPTED,
    AttemptOutcome.STOPPED: RunStatus.STOPPED,
}


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """What the operator may change; `algo` is a group of recipes/algorithms, empty for its own.

    `place` says on what it runs, what trains and in which layout; without `wait` another run on
    this machine is not waited for. `verl` runs in place of the installed one, on a CPU.
    """

    seed: int = 1
    steps: int | None = None
    ranks: int = 1
    arch: str = DEFAULT_ARCH
    algo: str = ""
    overrides: tuple[str, ...] = ()
    label: str = ""
    quiet: bool = False
    place: Target = DEFAULT
    wait: bool = True
    verl: VerlTree | None = None

    def check(self) -> None:
        """Raise OperatorError for an unknown place, or two settings of the number of GPUs."""
        self.place.check()
        if self.place.laid_out and self.ranks != 1:
            raise OperatorError("rehearsal-layout.ranks", self.place.layout)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended; `report` is None when its metrics are complete and can be judged."""

    folder: RunFolder
    attempt: AttemptEnd | None
    report: Report | None


class Rehearsal:
    """One rehearsal run, from model and data to the metrics in the run folder."""

    def __init__(self, project: Project, options: RehearsalOptions) -> None:
        self.project = project
        self.options = options
        self.console = RunDisplay(options.quiet)
        options.check()
        if options.arch not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise OperatorError("rehearsal-arch.unknown", options.arch, known=known)
        if options.place.rollout == "sglang" and options.arch not in _WITH_SGLANG:
            known = ", ".join(_WITH_SGLANG)
            raise OperatorError("rehearsal-rollout.arch", options.arch, known=known)
        verl = card_of(project.recipes, MODEL).verl
        self.tree = options.verl or options.place.tree(verl.release, project)
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}

    def run(self) -> Ended:
        """Prepare, run and collect. Ctrl-C stops everything that was started."""
        python = self.options.place.python(self.project)
        # An override that Hydra refuses is reported before anything is created.
        self._compose(self._overrides())
        refuse_shadowed(self.project, self._runtime_env({}))
        self.remove_leftovers()
        model, data = self.prepare()
        folder = self._new_folder(model, data)
        try:
            with supervising(folder):
                attempt = self._attempt(folder, python, model, data)
        except BaseException as error:
            with undisturbed():
                # Stop its Ray whatever happened: no other command would.
                if (ray := folder.read().ray) is not None:
                    remove_leftovers(folder.name, Path(ray.temp_dir))
                ended = _OUTCOMES.get(type(error), AttemptOutcome.FAILED)
                _end(folder, ended, None, str(error))
            raise
        return self._close(folder, attempt)

    def remove_leftovers(self) -> None:
        """Stop the private Ray of earlier runs whose own command is gone (killed, powered off)."""
        for run, state in islice(readable_runs(self.project.runs, MODEL), 20):
            if state.command is not Launcher.REPRODUCE or state.watcher is None:
                continue
            if supervised(run, state) or not os.access(run.path, os.W_OK):
                continue
            self.console.line(f"run {run.name} was interrupted: stopping its remaining processes")
            left = remove_leftovers(
                run.name, Path(state.ray.temp_dir if state.ray else "/nonexistent")
            )
            if left:
                pids = " ".join(map(str, left))
                raise OperatorError("rehearsal-leftovers.alive", run.name, pids=pids)
            _end(run, AttemptOutcome.INTERRUPTED, None, "its command was killed")

    def _overrides(self) -> list[str]:
        """The run's own Hydra overrides, in the order of the command line."""
        options = self.options
        result = [*options.place.overrides(), f"data.seed={options.seed}"]
        if options.arch != DEFAULT_ARCH:
            result.append(f"rehearsal/arch={options.arch}")
        if options.algo:
            result.append(f"algorithms={options.algo}")
        if options.steps is not None:
            result.append(f"trainer.total_training_steps={options.steps}")
        if options.ranks != 1:
            role = "actor_rollout_ref"
            # The 128 sequences of a step, split over the ranks, are one micro batch of each.
            micro = 128 // options.ranks
            result += [
                f"trainer.n_gpus_per_node={options.ranks}",
                f"{role}.rollout.tensor_model_parallel_size={options.ranks}",
                f"{role}.actor.ppo_micro_batch_size_per_gpu={micro}",
                f"{role}.ref.log_prob_micro_batch_size_per_gpu={micro}",
                f"{role}.rollout.log_prob_micro_batch_size_per_gpu={micro}",
            ]
        return [*result, *options.overrides]

    def prepare(self) -> tuple[TinyModel, ToyData]:
        """Model and data: the shipped start model, or one of another shape made once."""
        python = self.options.place.python(self.project)
        with self.console.phase("toy data"):
            data = write_toy(self.project.cache / "toy-data", seed=0)
        versions = locked_versions(self.project.root / "requirements" / "rehearsal.txt")
        settings = ModelSettings(arch=self.options.arch)
        if settings == ModelSettings() or self.options.place.rollout == "sglang":
            return start_model(self.project, self.options.arch), data
        with self.console.phase("tiny model"):
            cache = self.project.cache / "models"
            model = ensure_model(cache, python, data.train, versions, self.console.line, settings)
        return model, data

    def key(self) -> dict[str, Any]:
        """What must be equal between runs of one reference."""
        model, data = self.prepare()
        config = self._compose(self._overrides())
        return run_key(self.project, config, model, data, self.options.place)

    def gpus(self) -> int:
        """GPUs that the job takes at once, logical ones on a CPU."""
        return Setup(self._compose(self._overrides())).all_gpus

    def rules(self) -> Report:
        """What the recipe rules say of the run, with the shape of the model that it trains.

        Raises OperatorError when there is no such model, or for an override that Hydra refuses.
        """
        model, _ = self.prepare()
        inputs = Inputs(verl=self.tree.package, model_config=model.path)
        lines = [Line(text) for text in self._overrides()]
        loaded = load(self.project.root, MODEL, lines, inputs)
        return check(loaded.composition, loaded.known, loaded.model, self.project.recipes)

    def _new_folder(self, model: TinyModel, data: ToyData) -> RunFolder:
        overrides = self._overrides()
        with self.console.phase("recipe"):
            config = self._compose(overrides)
        facts = {
            "command": Launcher.REPRODUCE,
            "seed": self.options.seed,
            "arch": self.options.arch,
            "algo": self.options.algo,
            "label": self.options.label,
            "overrides": overrides,
            "verl": self.tree.label(),
            "watcher": here(),
            "platform": self.options.place.platform,
            "engine": self.options.place.engine,
            "rollout": self.options.place.rollout,
            "layout": self.options.place.layout,
            "device": self.options.place.device(self.project),
            "caps": caps(),
            **run_key(self.project, config, model, data, self.options.place),
        }
        if self.options.place.laid_out:
            alone = [text for text in overrides if not text.startswith(LAYOUT_CHOICE)]
            facts["recipe_one_gpu"] = recipe_key(self._compose(alone))
        folder = RunFolder.create(self.project.runs, MODEL, facts)
        text = yaml.safe_dump(config, sort_keys=False)
        for name, value in self._environment(folder, model, data).items():
            text = text.replace(f"/<{name}>", value)
        write_text(folder.path / "config.yaml", text)
        shutil.copyfile(self.project.lock, folder.path / "versions.lock")
        self.console.line(f"run folder: {folder.path}")
        return folder

    def _compose(self, overrides: list[str]) -> dict[str, Any]:
        """The resolved config; raises OperatorError on the first override that Hydra refuses."""
        key = tuple(overrides)
        if key not in self._composed:
            lines = [Line(text) for text in overrides]
            composed = compose(RECIPE, self.tree, lines, self.project.recipes)
            for fault in composed.faults:
                if fault.fatal:
                    raise OperatorError(fault.rule, fault.line.where, fault.message, fault.fix)
            self._composed[key] = composed.values
        return self._composed[key]

    def _attempt(
        self, folder: RunFolder, python: Path, model: TinyModel, data: ToyData
    ) -> AttemptEnd:
        environment = self._environment(folder, model, data)
        entrypoint = self.entrypoint(python, self._overrides())
        write_text(folder.path / "command.txt", entrypoint + "\n")
        with (
            alone_on_this_machine(
                self.console.line,
                heard=lambda: hear(folder),
                wait=self.options.wait,
                progress=lambda run: progress_of(self.project.runs, run),
            ) as handle,
            self._ray(folder, python, handle) as ray,
        ):
            hear(folder)
            folder.set_status(RunStatus.RUNNING)
            jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
            runtime_env = self._runtime_env(environment)
            dump_json(folder.path / "runtime_env.json", runtime_env)
            with self.console.training(folder.read().steps or 0) as display:
                follower = Follower(display.step, display.phase)
                number = folder.begin_attempt(None).number
                # The workers of a stalled job still hang: their stacks are gone once it stopped.
                follower.on_stall = lambda: self._collect(folder, number, stacks=True)
                job = Job(entrypoint, runtime_env)
                attempt = run_attempt(folder, number, jobs, job, follower)
            if attempt.outcome not in (AttemptOutcome.SUCCEEDED, AttemptOutcome.STALLED):
                # Ray's own logs go with its folder.
                self._collect(folder, number, stacks=False)
            return attempt

    def _collect(self, folder: RunFolder, number: int, stacks: bool) -> None:
        collect_logs(self.project, folder, number, stacks, None, self.console.line)

    def _runtime_env(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """What Ray is given: the project's runtime environment and the recipe's, merged."""
        of_recipe = self.options.place.runtime_env(self.project.recipes / MODEL)
        files = (self.project.root / "runtime_env.yaml", of_recipe)
        return package_env(self.project, files, environment)

    @contextlib.contextmanager
    def _ray(self, folder: RunFolder, python: Path, handle: int) -> Iterator[LocalRay]:
        with self.console.phase("private Ray"):
            temp_dir = new_temp_dir()
            # Known before anything runs, so that a kill at any moment leaves a trace.
            own = PrivateRay(temp_dir=str(temp_dir), host=socket.gethostname())
            with folder.edit() as state:
                state.ray = own
            log = folder.path / "logs" / "ray.log"
            slots = self.gpus()
            ray = start_local_ray(
                python, folder.name, slots, temp_dir, log, [handle], import_jobs_sdk
            )
        with folder.edit() as state:
            state.address, state.token_file = ray.address, str(ray.token_file)
            state.ray = own.model_copy(update={"pid": ray.pid, "created": ray.created})
        folder.event("ray ready")
        try:
            yield ray
        finally:
            with self.console.phase("stopping Ray"):
                left = ray.stop()
            folder.event("ray stopped", left=left)
            if left:
                pids = " ".join(map(str, left))
                self.console.line(f"these processes did not end: kill -9 {pids}")

    @staticmethod
    def entrypoint(python: Path, overrides: list[str]) -> str:
        """The job's command line; Ray runs it by a shell in the unpacked working directory."""
        words = [str(python), "-m", "verl.trainer.main_ppo", "--config-name", RECIPE, *overrides]
        return "exec " + shlex.join(words) + ' --config-path "$PWD/recipes"'

    def _environment(self, folder: RunFolder, model: TinyModel, data: ToyData) -> dict[str, str]:
        """The variables of this run; those of the recipe come from its runtime_env.yaml."""
        other = self.options.verl
        return {
            "REPRISE_RUN_DIR": str(folder.path),
            "REPRISE_MODEL_DIR": str(model.path),
            "REPRISE_DATA_DIR": str(data.train.parent),
            "REPRISE_SEED": str(self.options.seed),
            **self.options.place.variables(self.project),
            **({"PYTHONPATH": str(other.package.parent)} if other is not None else {}),
            "VERL_FILE_LOGGER_PATH": str(folder.metrics_file(1)),
        }

    def _close(self, folder: RunFolder, attempt: AttemptEnd) -> Ended:
        expected = folder.read().steps or 0
        whole = attempt.outcome is AttemptOutcome.SUCCEEDED and attempt.steps >= expected
        status = RunStatus.FINISHED if whole else RunStatus.FAILED
        _end(folder, attempt.outcome, attempt.steps, attempt.message, status)
        for line in summary_lines(folder):
            self.console.line(line)
        if whole:
            return Ended(folder, attempt, None)
        return Ended(folder, attempt, _failure(self.project, folder, attempt, expected))


def _end(
    folder: RunFolder,
    outcome: AttemptOutcome,
    reached: int | None,
    message: str,
    status: RunStatus | None = None,
) -> None:
    """Record the end of the run and of its attempt; nothing supervises it any more."""
    with folder.edit() as state:
        attempt = state.open_attempt()
        if attempt is not None:
            state.end(attempt.number, outcome, reached, message)
        state.status = status or _STATUS.get(outcome, RunStatus.FAILED)
        state.watcher = None
        if reached is not None:
            state.reached = reached


def _failure(project: Project, folder: RunFolder, attempt: AttemptEnd, expected: int) -> Report:
    """The report of a job that did not reach its last step: its first error line."""
    report = Report(COMMAND, data={"run": str(folder.path)})
    outcome = "failed" if attempt.outcome in FAILED else ""
    found = triage_attempt(project, folder, attempt.number, outcome)
    where = root_place(found) or str(folder.log_file(attempt.number))
    cause = summary(found) or attempt.message or "the job ended without an error in its log"
    values = {"step": attempt.steps, "steps": expected, "cause": cause, "log": where}
    report.failed(_ENDED[attempt.outcome], where, **values)
    if advice := root_advice(found):
        report.note("run-cause.advice", where, advice=advice)
    return report
