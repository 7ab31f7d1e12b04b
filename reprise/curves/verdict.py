"""verdict.json: the outcome of a comparison for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from reprise.core.documents import Document, Kind, Part, read_document, write_document
from reprise.core.findings import Severity, State
from reprise.curves.reference import Reference
from reprise.curves.result import Judgement, Outcome

__all__ = ["Verdict", "read_verdict", "write_verdict"]

_KIND = Kind(
    rule="verdict-file",
    noun="a verdict",
    version=1,
    fix="judge the run again, which rewrites the file: reprise reproduce --run RUN",
    absent="judge the run, which writes the file: reprise reproduce --run RUN",
)


def _known(value: Any) -> Any:
    """JSON has no NaN and no Infinity: null, the value is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_known)]


class Window(Part):
    """One metric over the steps first..last: the run against the reference runs."""

    metric: str
    first: int
    last: int
    run: Number = Field(description="Mean of the judged run.")
    reference: Number = Field(description="Mean of the reference runs.")
    deviation: Number = Field(description="Standard deviation between runs; null: not known.")
    bound: Number = Field(description="What the run has to stay above (below: lower is better).")
    smallest: Number = Field(description="Minimum detectable drop (90 % power).")
    state: State


class Check(Part):
    """One check; `numbers` are its own, by name."""

    rule: str
    state: State
    where: str
    message: str
    fix: str
    numbers: dict[str, Any]
    windows: list[Window] = Field(default_factory=list)


class Note(Part):
    """A warning or note that does not change the outcome."""

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str = ""


class DifferencePart(Part):
    """One thing in which run and reference differ, by what it may do to the curve."""

    name: str
    weight: str
    run: str
    reference: str


class Provenance(Part):
    """Where the run (from its run.json) and the reference (reference.toml) come from."""

    run: dict[str, Any]
    reference: dict[str, Any]


class Verdict(Document):
    """Comparison of one run with reference runs: verdict.json of a run folder."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    outcome: Outcome
    run: str
    reference: str
    reference_runs: int
    expected_steps: int
    compared_steps: int
    smallest_regression: str
    false_alarm_rate: Number = Field(
        default=None, description="Probability of failing a correct run, by design."
    )
    undecided: list[str] = Field(
        default_factory=list, description="Guards that could not have failed."
    )
    differences: list[DifferencePart] = Field(default_factory=list)
    checks: list[Check]
    notes: list[Note]
    provenance: Provenance


def write_verdict(
    folder: Path, judgement: Judgement, reference: Reference, provenance: Mapping[str, object]
) -> None:
    """Write verdict.json into `folder`; `provenance` describes the run in JSON values."""
    given = {"run": dict(provenance), "reference": dict(reference.provenance)}
    # As Python values: enums are members, a NaN among the windows' numbers is not known.
    verdict = Verdict.model_validate(judgement.to_json() | {"provenance": given}, strict=False)
    write_document(folder / "verdict.json", verdict)


def read_verdict(path: Path) -> Verdict:
    """The verdict in `path`, also one written before it had a version.

    Raises OperatorError when it cannot be read or is damaged.
    """
    return read_document(Verdict, path, _KIND)
