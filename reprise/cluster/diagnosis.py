"""doctor.json: the doctor's report before a submission, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from reprise.cluster.answer import AnswerKind
from reprise.core.documents import Document, Kind, Part, read_document
from reprise.core.findings import Report, Severity, State, Verdict

__all__ = ["Diagnosis", "diagnosis_of", "read_diagnosis"]

_KIND = Kind(
    rule="doctor-file",
    noun="the doctor's report",
    version=1,
    fix="restore the file; a new report: reprise doctor HOSTFILE --json",
    absent="name doctor.json of a run folder; a run on this machine alone does not have one",
)


class CheckState(Part):
    """A rule that was to be evaluated, and its state."""

    rule: str
    state: State


class HostFinding(Part):
    """A finding; `where` names the hosts, folded (node[1-4])."""

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str = ""


class HostData(Part):
    """One host: how it answered, its address for training, versions of its packages."""

    outcome: AnswerKind | Literal["not-asked"]
    ip: str | None = None
    interface: str | None = None
    packages: dict[str, str] | None = Field(default=None, description="Null: not known.")


class Group(Part):
    """Hosts with the same problems; an empty list: the hosts are fine."""

    hosts: str
    problems: list[str]


class Diagnosis(Document):
    """Report of the doctor before the submission: doctor.json of a run folder."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    command: str
    verdict: Verdict
    checks: list[CheckState]
    findings: list[HostFinding]
    profile: str
    hosts: dict[str, HostData]
    groups: list[Group]


def diagnosis_of(report: Report) -> Diagnosis:
    """The doctor's `report` (of reprise.cluster.doctor.doctor.report_of) as a document."""
    return Diagnosis.model_validate(report.to_json(), strict=False)


def read_diagnosis(path: Path) -> Diagnosis:
    """The report in `path`, also one written before it had a version.

    Raises OperatorError when it cannot be read or is damaged.
    """
    return read_document(Diagnosis, path, _KIND)
