"""The doctor before a submission: over SSH, or as Ray tasks in an existing Ray cluster."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.diagnosis import Diagnosis, diagnosis_of
from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import Look, judge, probe_script, report_of
from reprise.cluster.doctor.facts import Facts, parse_facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.ray_address import ask_ray
from reprise.cluster.site import Site
from reprise.core.errors import CannotTell
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.core.wait import wait_until
from reprise.flows.cluster.evict import as_recorded
from reprise.flows.cluster.hosts import Selection, examine, expected_of, scripts_of
from reprise.flows.train.job import TrainOptions
from reprise.flows.train.place import Attached, HostfileCluster, Place
from reprise.machines.registry import Machine
from reprise.runs.ray.auth_token import read_token
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.watch.display import RunDisplay

__all__ = ["ask_doctor", "ask_nodes", "judge_nodes", "judge_storage"]

_PROBE_SECONDS = 45
_JOB_SECONDS = 240.0
_MARK = "@@reprise-probe "
# Rules on the start of a Ray, which exists already, and rules that need access from outside of
# the container.
_OTHERS = frozenset({"ports", "sessions", "temp-path", "reach", "image", "container-runtime"})


def ask_doctor(
    project: Project,
    options: TrainOptions,
    place: Place,
    selection: Selection,
    python: str,
    report: Report,
) -> Diagnosis | None:
    """The doctor's answer, absorbed into `report`; None when no host can be checked.

    `python` is the interpreter of the nodes. Rules that are forced are forced for the start of
    the cluster as well.
    """
    if isinstance(place, HostfileCluster):
        found = _by_ssh(project, options, selection)
        rules = {item.rule for item in found.checks}
        place.ignore = tuple(rule for rule in options.force if rule in rules)
    elif isinstance(place, Attached) and options.dry_run:
        # Address and token are checked; the nodes are not, which needs a job.
        report.absorb(ask_ray(place.address, place.token_file))
        report.unknown("train-doctor.dry-run", place.address)
        return None
    elif isinstance(place, Attached):
        found = _by_ray(project, options, place, selection, python)
    else:
        return None
    report.absorb(found)
    return diagnosis_of(found)


def _by_ssh(project: Project, options: TrainOptions, selection: Selection) -> Report:
    """The folder of runs is checked along with the shared folders of the site."""
    site = selection.site
    if site.paths.checkpoints is None and options.storage is None:
        paths = site.paths.model_copy(update={"checkpoints": str(project.runs)})
        selection = replace(selection, site=site.model_copy(update={"paths": paths}))
    return examine(as_recorded(selection), project, active=False)[0]


def _by_ray(
    project: Project, options: TrainOptions, place: Attached, selection: Selection, python: str
) -> Report:
    jobs = Jobs(place.address, read_token(place.token_file))
    machine, site = selection.machine, selection.site
    with RunDisplay(options.quiet).phase("doctor, one Ray task a node"):
        answers = ask_nodes(project, jobs, machine, site, python, options.storage)
    found = judge_nodes(project, machine, site, answers)
    judge_storage(found, project, answers, options.storage)
    return found


def ask_nodes(
    project: Project, jobs: Jobs, machine: Machine, site: Site, python: str, storage: str | None
) -> list[dict[str, Any]]:
    """Each living node's answer, the head's first. The job that asks ends by itself.

    `storage` is the folder on the nodes where runs are written, None for the operator's own.
    Raises CannotTell when the job does not end or prints no answer.
    """
    nonce = secrets.token_hex(8)
    what = _look(project, machine, site, [])
    script = probe_script(what, None, nonce, first=False)
    task = {
        "script": _without_python(script),
        "first_script": _without_python(script),
        "seconds": _PROBE_SECONDS,
        "folders": site.paths.shared(),
        "storage": storage or str(project.runs),
        "seen": "" if storage else f".reprise-{nonce}-operator",
        "nonce": nonce,
    }
    mark = project.runs / f".reprise-{nonce}-operator"
    job = f"reprise-probe-{nonce}"
    try:
        if storage is None:
            mark.write_text("x")
        with tempfile.TemporaryDirectory(prefix="reprise-probe-") as folder:
            (Path(folder) / "task.json").write_bytes(orjson.dumps(task))
            text = (project.root / "scripts" / "ray_probe.py").read_text(encoding="utf-8")
            (Path(folder) / "ray_probe.py").write_text(text)
            entrypoint = f"exec {python} ray_probe.py"
            jobs.submit(job, entrypoint, {"working_dir": folder}, {"reprise": "probe"})
            log = _log_of(jobs, job)
    finally:
        mark.unlink(missing_ok=True)
    answers = [
        orjson.loads(line.removeprefix(_MARK))
        for line in log.splitlines()
        if line.startswith(_MARK)
    ]
    if not answers:
        last = (log.strip().splitlines() or ["the job wrote no output"])[-1]
        raise CannotTell("train-doctor.no-answers", jobs.address, reason=last)
    return answers


def _without_python(script: str) -> str:
    """The script without the interpreter's name: each node puts its own there."""
    lines = script.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("P_PYTHON="))


def _log_of(jobs: Jobs, job: str) -> str:
    state = ""

    def has_ended() -> bool:
        nonlocal state
        state = jobs.state(job)[0]
        return state in ENDED

    if not wait_until(has_ended, _JOB_SECONDS, every=1.0):
        jobs.stop(job)
        raise CannotTell(
            "train-doctor.job-pending", jobs.address, state=state, seconds=_JOB_SECONDS
        )
    return jobs.log(job)


def _look(project: Project, machine: Machine, site: Site, hosts: list[Host]) -> Look:
    """What to inspect: no container, no shared folders (the tasks check these themselves)."""
    bare = site.model_copy(
        update={
            "container": site.container.model_copy(update={"image": None}),
            "paths": site.paths.model_copy(
                update={"data": None, "model": None, "checkpoints": None, "code": None}
            ),
        }
    )
    hosts = hosts or [Host("node", 1, 0)]
    expected = expected_of(project, machine, site)
    return Look(hosts, machine, bare, expected, scripts_of(project))


def judge_nodes(
    project: Project, machine: Machine, site: Site, answers: list[dict[str, Any]]
) -> Report:
    """The doctor's rules on what the nodes said, without those that concern a start of Ray."""
    names = _names(answers)
    hosts = [
        Host(name, int(answer["gpus"]), 0, ip=answer["ip"])
        for name, answer in zip(names, answers, strict=True)
    ]
    given = {name: _answer(name, item) for name, item in zip(names, answers, strict=True)}
    facts: dict[str, Facts] = {}
    for number, (name, item) in enumerate(zip(names, answers, strict=True)):
        if item.get("output"):
            written = [f"= share {share} written" for share in item["written"]]
            text = "\n".join([item["output"], *(written if number == 0 else [])])
            facts[name] = parse_facts(name, text, item["began"], item["ended"])
    seen: Mapping[str, Mapping[str, str]] = {
        name: item.get("shared", {}) for name, item in zip(names, answers, strict=True)
    }
    what = _look(project, machine, site, hosts)
    expected = replace(what.expected, image_digest=None)
    context = Context(hosts, given, facts, machine, site, expected, answers[0]["ip"], seen=seen)
    marks = judge(context)
    marks.marks = [item for item in marks.marks if item.rule.split("cluster-")[-1] not in _OTHERS]
    report = report_of(context, marks)
    for name, item in zip(names, answers, strict=True):
        if name not in facts:
            said = item.get("said") or "no answer in time"
            report.failed("train-probe.failed", name, reason=said)
    report.settle("train-probe")
    return report


def _names(answers: list[dict[str, Any]]) -> list[str]:
    """A name for each node: its own, or its address where names repeat (containers)."""
    own = [str(answer.get("host") or answer["ip"]) for answer in answers]
    return own if len(set(own)) == len(own) else [str(answer["ip"]) for answer in answers]


def _answer(name: str, item: Mapping[str, Any]) -> Answer:
    code = item.get("code")
    outcome = AnswerKind.OK if code == 0 else AnswerKind.HUNG if code is None else AnswerKind.FAILED
    return Answer(
        name,
        outcome,
        code,
        item.get("output", ""),
        item.get("said", ""),
        item.get("began", 0.0),
        item.get("ended", 0.0),
    )


def judge_storage(
    report: Report, project: Project, answers: list[dict[str, Any]], storage: str | None
) -> None:
    """Whether every node sees and can write the folder for the runs."""
    rule = "train-storage"
    where = storage or str(project.runs)
    for name, item in zip(_names(answers), answers, strict=True):
        said = item.get("storage")
        if not said:
            continue
        if said["seen"] == "no" and storage is not None:
            report.failed("train-storage.not-shared", name, folder=where)
        elif said["seen"] == "no":
            report.failed("train-storage.other-folder", name, folder=where)
        elif said["error"]:
            values = {"folder": where, "reason": said["error"]}
            report.failed("train-storage.node-cannot-write", name, **values)
    report.settle(rule)
