"""Train: check, start the cluster, submit, supervise the job, and resume it after a failure."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from reprise.cluster.diagnosis import Diagnosis
from reprise.cluster.site import load_site, site_path
from reprise.core.documents import write_document
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import dump_json, write_text
from reprise.core.findings import Report, Severity
from reprise.core.project import Project
from reprise.flows.cluster.evict import as_recorded
from reprise.flows.cluster.hosts import Selection, select
from reprise.flows.train.attach import ask_doctor
from reprise.flows.train.checks import Where, forgiven, package_data, preflight
from reprise.flows.train.fingerprint import write_fingerprint
from reprise.flows.train.job import TrainJob, TrainOptions, prepare_task
from reprise.flows.train.moved import settle_place
from reprise.flows.train.place import (
    Attached,
    HostfileCluster,
    Place,
    Private,
    address_of,
    place_facts,
)
from reprise.flows.train.resume import EARLY, may_resume, place_of, unchanged, without_its_ray
from reprise.flows.train.session import Session, check_secrets, run_session, secret_file, write_job
from reprise.machines.registry import machine_named
from reprise.recipe.card import card_of
from reprise.runs.ray.working_dir import Upload
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import Launcher, PlaceKind, RunStatus
from reprise.runs.supervise.resume import Resume, begins_after, steps_recorded
from reprise.runs.watch.display import RunDisplay

__all__ = ["TrainOptions", "changed_inputs", "resume_run", "train"]

COMMAND = "train"


def train(project: Project, options: TrainOptions) -> Report:
    """Take a recipe from its check to the end of its job; the run folder keeps everything.

    With `dry_run` the same folder is written and nothing is started or submitted. Raises
    OperatorError for what keeps the command from going on at all.
    """
    console = RunDisplay(options.quiet)
    selection, report = _selection(project, options)
    if selection is None:
        report.command = COMMAND
        return report
    place, where = _place(project, options, selection, console)
    python = _python(project, place, selection)
    with console.phase("recipe"):
        task = prepare_task(project, options, selection.site, selection.machine, python)
    with console.phase("checks"):
        package = task.package()
        report = preflight(project, task, where, package)
        check_secrets(report, options.storage is None)
    doctor = ask_doctor(project, options, place, selection, python, report)
    report = forgiven(report, options.force)
    report.data["package"] = package_data(package)
    if list(report.errors()):
        report.note("train.nothing-started", options.model)
        return report
    folder = _new_folder(project, options, task, place, selection.machine.name)
    _write_folder(folder, project, task, package, report, doctor)
    listed = [f"{size}\t{path}\n" for path, size in sorted(package.files.items())]
    write_text(folder.path / "package.txt", "".join(listed))
    console.line(f"run folder: {folder.path}")
    report.data |= {"run": str(folder.path), "id": folder.name}
    if options.dry_run:
        write_job(folder, task, 1, Resume(None, None, 0), secret_file(folder, write=False))
        folder.set_status(RunStatus.DRY_RUN)
        return report
    return _with_warnings(report, run_session(Session(folder, task, place, options, console)))


def resume_run(project: Project, folder: RunFolder, options: TrainOptions) -> Report:
    """Resume a run: attach to its job if it runs, else begin the next attempt.

    Recipe, overrides and place are taken from its folder. Raises
    OperatorError when it is finished, or another command supervises it.
    """
    settle_place(folder, folder.read())
    state = folder.read()
    may_resume(folder, state)
    console = RunDisplay(options.quiet)
    options = replace(
        options,
        model=state.model,
        hostfile=Path(state.hostfile) if state.hostfile else None,
        address=place_of(folder, state, options.address),
        machine=state.profile,
        storage=None if state.visible else state.storage,
        seed=state.seed,
        algo=state.algo,
        overrides=tuple(state.given),
        token_file=state.token_file if state.place is PlaceKind.ATTACHED else None,
    )
    selection, report = _selection(project, options)
    if selection is None:
        report.command = COMMAND
        return report
    place, where = _place(project, options, selection, console)
    python = _python(project, place, selection)
    task = prepare_task(project, options, selection.site, selection.machine, python)
    report = Report(COMMAND)
    without_its_ray(folder, options.address, options.force)
    if folder.read().open_attempt() is None:
        # Another attempt will be submitted: it is checked like a first one.
        package = task.package()
        report = preflight(project, task, where, package)
        differing = unchanged(report, project, folder, task, package)
        ask_doctor(project, options, place, selection, python, report)
        known = {item.rule for item in report.checks}
        before = [rule for rule in state.forced if rule in known]
        report = forgiven(report, [*before, *(set(options.force) - EARLY)])
        if list(report.errors()):
            return report
        if differing:
            # Forced: the verdict says from which step on the run had other inputs.
            names = [change.name for change in differing]
            folder.event("changed", after=max(steps_recorded(folder), default=0), inputs=names)
        with folder.edit() as state:
            state.forced = sorted({*state.forced, *options.force})
            # Forced changes apply from here on.
            state.world_size, state.steps = task.world, task.steps
            state.save_freq, state.keeps = task.save_freq, task.keeps
            state.async_save = task.async_save
    with folder.edit() as state:
        state.stop = None
    folder.event("resume")
    return _with_warnings(report, run_session(Session(folder, task, place, options, console)))


def changed_inputs(project: Project, folder: RunFolder, options: TrainOptions) -> list[str]:
    """What differs between a run and one that `options` would start now; empty: nothing.

    What cannot be compared counts as different. Raises OperatorError as `train` does.
    """
    selection, report = _selection(project, options)
    if selection is None:
        return [finding.message for finding in report.findings] or ["the hosts cannot be read"]
    place, _ = _place(project, options, selection, RunDisplay(quiet=True))
    python = _python(project, place, selection)
    task = prepare_task(project, options, selection.site, selection.machine, python)
    found = Report(COMMAND)
    unchanged(found, project, folder, task, task.package())
    if folder.read().profile != selection.machine.name:
        return [f"machine {folder.read().profile}, now {selection.machine.name}"]
    return [f"{Path(finding.where).name}: {finding.message}" for finding in found.findings]


def _with_warnings(before: Report, ended: Report) -> Report:
    """The end of a run, with the findings from before its start."""
    earlier = [finding for finding in before.findings if finding.severity is not Severity.ERROR]
    ended.findings = [*earlier, *ended.findings]
    ended.data |= before.data
    return ended


def _selection(project: Project, options: TrainOptions) -> tuple[Selection | None, Report]:
    """Hosts, site and machine: the one named, else the site's, else that of the recipe card.

    A login node without GPUs does not describe the hosts, so this machine is not inspected.
    """
    card = machine_named(card_of(project.recipes, options.model).machine.profile)
    of_site = load_site().machine
    if options.machine is None and of_site is not None and card.accelerator.tool:
        settled = machine_named(of_site)
        if not settled.accelerator.tool:
            raise OperatorError(
                "train-place.other-machine",
                str(site_path()),
                site=settled.name,
                recipe=options.model,
                machine=card.name,
            )
    report, selection = select(options.hostfile, options.machine or of_site or card.name)
    if selection is not None:
        named = options.machine is not None or selection.machine == card
        selection = replace(selection, named=named)
    if options.hostfile is None and options.address is None and options.machine is None:
        # This machine alone runs the rehearsal, whatever the site file says about the cluster.
        machine = machine_named("cpu")
        selection = Selection(None, (), load_site(), machine, Report("hosts"))
    return selection, report


def _place(
    project: Project, options: TrainOptions, selection: Selection, console: RunDisplay
) -> tuple[Place, Where]:
    machine = selection.machine.lock
    site = selection.site
    if options.hostfile is not None and selection.hostfile is not None:
        name = str(selection.hostfile.path.absolute())
        place: Place = HostfileCluster(selection, project, console.line)
        return place, Where(
            "hostfile", name, machine, site, as_recorded(selection).hosts, storage=options.storage
        )
    if options.address is not None:
        address, token_file, note = address_of(options.address)
        token_file = token_file or options.token_file
        if note:
            console.line(f"{address}: {note}")
        return Attached(address, token_file, console.line), Where(
            "attached", address, machine, site, storage=options.storage
        )
    if options.model != "rehearsal":
        raise OperatorError("train-place.no-cluster", options.model)
    if not project.rehearsal_python.exists():
        raise CannotTell("rehearsal-environment.missing-here", str(project.rehearsal_python))
    return Private(project.rehearsal_python, console.line, wait=options.wait), Where(
        "private", "this machine", "rehearsal", site, storage=options.storage
    )


def _python(project: Project, place: Place, selection: Selection) -> str:
    """The interpreter of the job's driver, as the nodes know it."""
    if isinstance(place, Private):
        return str(project.rehearsal_python)
    site = selection.site
    if place.kind is PlaceKind.HOSTFILE:
        return site.container.python if site.container.image else site.paths.python
    # On an existing Ray cluster, the interpreter that Ray itself runs in is first on the PATH.
    return os.environ.get("REPRISE_PYTHON") or "python3"


def _new_folder(
    project: Project, options: TrainOptions, task: TrainJob, place: Place, profile: str
) -> RunFolder:
    facts = {
        "command": Launcher.TRAIN,
        "steps": task.steps,
        "seed": options.seed or (1 if options.model == "rehearsal" else None),
        "algo": options.algo,
        "given": list(options.overrides),
        "overrides": task.overrides,
        "forced": list(options.force),
        "world_size": task.world,
        "rows": task.loaded.known.rows,
        "profile": profile,
        "visible": options.storage is None,
        "verl": task.loaded.tree.label(),
        "save_freq": task.save_freq,
        "keeps": task.keeps,
        "async_save": task.async_save,
        **place_facts(place),
        **task.key,
    }
    folder = RunFolder.create(project.runs, options.model, facts)
    storage = str(folder.path)
    if options.storage is not None:
        storage = f"{options.storage.rstrip('/')}/{options.model}/{folder.name}"
    checkpoints = task.checkpoint_dir(folder.name, storage)
    with folder.edit() as state:
        state.storage = storage
        state.checkpoints = checkpoints
        state.begins_after = begins_after(task.values.get("trainer") or {}, Path(checkpoints))
    return folder


def _write_folder(
    folder: RunFolder,
    project: Project,
    task: TrainJob,
    package: Upload,
    report: Report,
    doctor: Diagnosis | None,
) -> None:
    """Everything that is known before the job is submitted."""
    state = folder.read()
    write_text(folder.path / "config.yaml", task.config(folder.name, str(state.storage)))
    shutil.copyfile(project.lock, folder.path / "versions.lock")
    write_fingerprint(folder, task, package)
    dump_json(folder.path / "checks.json", report.to_json())
    if doctor is not None:
        write_document(folder.path / "doctor.json", doctor)
    if state.hosts:
        dump_json(folder.path / "hosts.json", state.hosts)
