"""The checks before a job is submitted: all in one pass, nothing is started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import Site
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.flows.data import data_dir
from reprise.flows.lock.reality import RUNTIME_ENV, verify
from reprise.flows.recipe import check_recipe
from reprise.flows.train.disk import check_disk, check_storage
from reprise.flows.train.job import TrainJob
from reprise.flows.train.place import Need
from reprise.lock.model import Lock, Machine
from reprise.lock.read import read_lock
from reprise.lock.rows import ThisMachine
from reprise.machines.registry import machine_of_lock
from reprise.models.checkpoints.report import check_folder
from reprise.recipe.plan.plan import setup_of
from reprise.runs.ray.contact import contact_of
from reprise.runs.ray.importable import (
    check_ignored,
    check_shadowed,
    known_modules,
    packages_of,
)
from reprise.runs.ray.jobs import ENDED
from reprise.runs.ray.working_dir import LIMIT, Upload, check_size
from reprise.runs.state.folder import RunFolder, readable_runs

__all__ = ["Where", "forgiven", "package_data", "preflight"]

_LAUNCHER = ("REPRISE_RUN_DIR", "REPRISE_RUN_ID")


@dataclass(frozen=True, slots=True)
class Where:
    """Where the job is to run: kind of place, its address or hostfile, machine of the lock.

    `storage` is the nodes' folder for what the job writes, None where it is the operator's own.
    """

    kind: str
    name: str
    machine: Machine
    site: Site
    hosts: Sequence[Host] = ()
    storage: str | None = None


def preflight(project: Project, task: TrainJob, where: Where, package: Upload) -> Report:
    """Recipe, lock, package, image, inputs, storage, disk, and whether it runs already.

    The checks of the machines themselves (the doctor) are not included.
    """
    report = Report("train")
    recipe = check_recipe(project, task.loaded)
    report.absorb(recipe)
    _machine(report, task, where, str(recipe.data["machine"]))
    lock = read_lock(project.lock)
    _inputs(report, task)
    _lock(report, project, lock, where)
    check_size(report, package, "runtime_env.yaml")
    _importable(report, project, lock, task, where, package)
    _images(report, lock, where)
    _hosts(report, task, where)
    on_hosts = where.site if where.kind == "hostfile" else None
    check_storage(report, project.runs, on_hosts, where.storage)
    named = where.storage or where.site.paths.checkpoints
    elsewhere = named is not None and where.kind != "private"
    check_disk(report, project.runs, task, elsewhere)
    _checkpoints(report, task)
    _far_checkpoints(report, where)
    _begins_from(report, task)
    _twice(report, project, task, where)
    return report


def package_data(package: Upload) -> dict[str, object]:
    """The package as run folders and `--json` state it: bytes, files, the largest folders."""
    return {
        "bytes": package.bytes,
        "limit": LIMIT,
        "files": len(package.files),
        "largest": [{"folder": key, "bytes": size} for key, size in package.groups()[:10]],
    }


def forgiven(report: Report, rules: Sequence[str]) -> Report:
    """The report with the errors of `rules` as warnings that say so.

    Raises OperatorError for a rule that was not evaluated: a misspelt one must not pass.
    """
    unknown = sorted(set(rules) - {item.rule for item in report.checks})
    if unknown:
        failing = sorted({finding.rule for finding in report.errors()}) or ["none"]
        raise OperatorError(
            "train-force.unknown-rule", ", ".join(unknown), failing=", ".join(failing)
        )
    report.downgrade(rules, "overridden by --force")
    return report


def _machine(report: Report, task: TrainJob, where: Where, meant: str) -> None:
    report.passed("train-machine")
    if where.machine != meant:
        report.warn("train-machine.other", task.name, expected=meant, found=where.machine)


def _inputs(report: Report, task: TrainJob) -> None:
    rule = "train-inputs"
    for name in task.loaded.composition.unset:
        if name in _LAUNCHER:
            continue
        texts = {
            "REPRISE_MODEL_DIR": "train-inputs.model",
            "REPRISE_DATA_DIR": "train-inputs.data",
        }
        report.failed(texts.get(name, "train-inputs.variable"), task.name, variable=name)
    report.settle(rule)


def _lock(report: Report, project: Project, lock: Lock, where: Where) -> None:
    """The entries of the machine that can be checked here; the doctor checks the rest."""
    names = []
    here = ThisMachine(project.root, data=data_dir(project))
    for name, entry in lock.entries(where.machine):
        kind = name.partition(".")[0]
        path = getattr(entry, "path", None)
        on_nodes = kind in ("image", "package", "model") or (kind == "tree" and path is None)
        if kind == "environment" and where.kind != "private":
            continue
        if on_nodes or (kind == "data" and not (data_dir(project) / str(path)).exists()):
            continue
        names.append(name)
    if machine_of_lock(where.machine).packed:
        names.append(RUNTIME_ENV)
    if names:
        report.absorb(verify(project.lock, names, where.machine, here))
    else:
        report.passed("lock")


def _importable(
    report: Report, project: Project, lock: Lock, task: TrainJob, where: Where, package: Upload
) -> None:
    """What the package holds, or would hold, beyond the project and the locked commits."""
    check_ignored(report, task.left_out)
    if machine_of_lock(where.machine).packed:
        return  # `lock verify runtime_env`, above, has looked for the rest.
    known = known_modules(project.root, lock)
    check_shadowed(report, package, known, task.python_path(), packages_of(lock))


def _images(report: Report, lock: Lock, where: Where) -> None:
    rule = "image-unpinned"
    image = where.site.container.image
    concerned = where.kind == "attached" or (where.kind == "hostfile" and image is not None)
    for name, entry in lock.image.items() if concerned else ():
        if where.machine in entry.machines and entry.missing:
            report.failed(
                "image-unpinned.entry",
                f"versions.lock image.{name}",
                missing=", ".join(entry.missing),
                reason=entry.unpinned or "not locked",
            )
    if where.kind == "hostfile" and image is not None and "@sha256:" not in image:
        report.failed(
            "image-unpinned.tag",
            "container.image of the site file",
            image=image,
            name=image.partition("@")[0],
        )
    report.settle(rule)


def _hosts(report: Report, task: TrainJob, where: Where) -> None:
    rule = "train-hosts"
    if where.kind == "hostfile":
        need = need_of(task)
        able = [host for host in where.hosts if host.slots >= need.gpus]
        fit = [host for host in able if not host.spare]
        marked = [host.name for host in able if host.spare]
        if len(fit) < need.nodes <= len(able):
            report.failed(
                "train-hosts.too-many-spares",
                where.name,
                found=len(fit),
                gpus=need.gpus,
                nodes=need.nodes,
                spare=", ".join(marked),
                missing=need.nodes - len(fit),
            )
        elif len(fit) < need.nodes:
            report.failed(
                "train-hosts.too-few",
                where.name,
                found=len(fit),
                gpus=need.gpus,
                nodes=need.nodes,
                fits=max(len(fit), 1),
            )
        elif len(able) > need.nodes:
            spare = ", ".join([*(host.name for host in fit[need.nodes :]), *marked])
            report.note("train-hosts.spare", where.name, nodes=need.nodes, spare=spare)
    report.settle(rule)


def need_of(task: TrainJob) -> Need:
    """The nodes that the job takes at once, and the GPUs of each."""
    return Need(task.nodes, setup_of(task.loaded).gpus_per_node)


def _checkpoints(report: Report, task: TrainJob) -> None:
    rule = "train-checkpoints"
    if task.steps is None:
        report.failed("train-checkpoints.steps-unknown", "trainer.total_training_steps")
    if task.save_freq < 1:
        report.warn("train-checkpoints.never-saved", "trainer.save_freq")
    report.settle(rule)


def _far_checkpoints(report: Report, where: Where) -> None:
    named = where.site.paths.checkpoints
    if named is not None and where.kind != "private" and not Path(named).is_dir():
        report.note("train-checkpoints.not-accessible", named)


def _begins_from(report: Report, task: TrainJob) -> None:
    """Check a checkpoint named by the recipe: complete, and readable by as many ranks."""
    setup = setup_of(task.loaded)
    path = setup.get("trainer.resume_from_path")
    if setup.get("trainer.resume_mode") != "resume_path" or not isinstance(path, str):
        return
    if re.search(r"global_step_\d+$", path) is None:
        report.failed("train-checkpoints.not-a-step", f"trainer.resume_from_path={path}")
    elif not Path(path).is_dir():
        report.unknown(
            "train-checkpoints.begin-not-accessible",
            f"trainer.resume_from_path={path}",
            path=path,
            world=task.world,
        )
    else:
        try:
            report.absorb(check_folder(Path(path), task.world))
        except OperatorError as error:
            report.absorb(error.report("train"))


def _twice(report: Report, project: Project, task: TrainJob, where: Where) -> None:
    rule = "train-twice"
    for run, state in islice(readable_runs(project.runs, task.name), 20):
        same = state.place == where.kind and where.name in (
            state.hostfile,
            state.address,
            "this machine",
        )
        if same and state.live and _runs(run):
            report.failed("train-twice.running", run.name, run=run.name)
    report.settle(rule)


def _runs(run: RunFolder) -> bool:
    """Whether the job of the run's last attempt has not ended, as far as can be asked."""
    attempts = run.attempts()
    if not attempts or attempts[-1].ended is not None:
        return False
    try:
        state = contact_of(run).jobs.find(attempts[-1].job)
    except (CannotTell, OperatorError):
        return False
    return state is not None and state not in ENDED
