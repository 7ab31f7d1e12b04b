"""run.json: the state of one run, typed and versioned, and what older files say in its terms."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from reprise.core.documents import Document, Kind, Part, read_document

__all__ = [
    "LIVE",
    "Attempt",
    "AttemptOutcome",
    "Launcher",
    "PlaceKind",
    "PrivateRay",
    "Process",
    "RunState",
    "RunStatus",
    "ValidationData",
    "job_name",
    "read_state",
]

VERSION = 1

_KIND = Kind(
    rule="run-folder",
    noun="the state of a run",
    version=VERSION,
    fix="correct the file (docs/schemas/run.json lists its keys), or move the run folder out of "
    "runs/<model>/",
    absent="give a folder in runs/<model>/ that contains run.json",
)


class RunStatus(StrEnum):
    """State of a run as a whole: `state` in run.json."""

    CREATED = "created"
    SUBMITTED = "submitted"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    DRY_RUN = "dry-run"
    UNKNOWN = "unknown"


LIVE = frozenset({RunStatus.CREATED, RunStatus.SUBMITTED, RunStatus.RUNNING})
"""States in which a job of the run may be running."""


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    STOPPED = "stopped"


class Launcher(StrEnum):
    """Which command made the run. Only a run of `train` can be resumed."""

    TRAIN = "train"
    REPRODUCE = "reproduce"


class PlaceKind(StrEnum):
    """Where a run of `train` runs: its own Ray, the cluster of a hostfile, or an existing Ray."""

    PRIVATE = "private"
    HOSTFILE = "hostfile"
    ATTACHED = "attached"


class Process(Part):
    """A process on a host.

    Its start tells it from a later one with the same number; a number counts in its namespace only.
    """

    pid: int
    created: float = Field(description="Start, seconds since the epoch by the clock of that time.")
    host: str | None = Field(
        default=None, description="Host name; null: the machine of the run folder."
    )
    boot: str | None = Field(default=None, description="The kernel's boot id; null: not recorded.")
    ticks: int | None = Field(
        default=None, description="Start, clock ticks since the boot: no clock step changes it."
    )
    namespace: int | None = Field(default=None, description="Inode of its namespace of pids.")


class PrivateRay(Part):
    """The run's own Ray on one machine; `pid` and `created` are its launcher's, once started."""

    temp_dir: str
    host: str | None = None
    pid: int | None = None
    created: float | None = Field(default=None, description="Start, seconds since the epoch.")


class Attempt(Part):
    """One job of the run, recorded before it is submitted."""

    number: int = Field(ge=1)
    job: str = Field(description="Submission id in Ray.")
    started: float | None = Field(default=None, description="Seconds since the epoch.")
    ended: float | None = Field(
        default=None, description="Seconds since the epoch; null while it runs."
    )
    outcome: AttemptOutcome | None = None
    resumed_from: int | None = Field(
        default=None, description="Step of the checkpoint it began with."
    )
    reached: int | None = Field(default=None, description="Last step with metrics when it ended.")
    message: str = Field(default="", description="First error of its log.")


class ValidationData(Part):
    """The set behind a validation metric; `samples` are answers a row."""

    rows: int = Field(gt=0)
    prompts: int = Field(gt=0)
    samples: int = Field(default=1, gt=0)


class RunState(Document):
    """State of one run of Reprise: run.json of a run folder. Paths are absolute."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    id: str = Field(description="Name of the run folder.")
    model: str = Field(description="Name of the recipe.")
    status: RunStatus = Field(alias="state")
    created: float | None = Field(default=None, description="Seconds since the epoch.")
    command: Launcher = Launcher.TRAIN

    steps: int | None = Field(default=None, description="Training steps in all.")
    reached: int | None = Field(
        default=None, description="Last step with metrics when the run ended."
    )
    begins_after: int = Field(
        default=0, ge=0, description="Step of a given checkpoint; 0: from scratch."
    )
    attempts: list[Attempt] = Field(default_factory=list)
    stop: float | None = Field(
        default=None, description="When a stop was requested, epoch seconds."
    )
    watcher: Process | None = Field(
        default=None, description="The command that supervises the run."
    )

    place: PlaceKind | None = Field(default=None, description="Null for a run of `reproduce`.")
    address: str | None = Field(default=None, description="URL of Ray's Jobs API.")
    token_file: str | None = None
    ray: PrivateRay | None = None
    hostfile: str | None = None
    hosts: list[dict[str, Any]] = Field(default_factory=list, description="As in the hostfile.")
    profile: str | None = None

    storage: str | None = Field(default=None, description="The run folder as the nodes name it.")
    visible: bool = Field(default=True, description="Whether the nodes write to this run folder.")
    checkpoints: str | None = None
    save_freq: int | None = Field(default=None, description="Steps between two checkpoints.")
    keeps: int | None = Field(default=None, description="Checkpoints that are kept; null: all.")
    async_save: bool = False
    world_size: int | None = Field(default=None, description="Ranks of the trainer.")

    seed: int | None = None
    algo: str = Field(
        default="", description="Group of recipes/algorithms; empty: the recipe's own."
    )
    arch: str | None = Field(default=None, description="Architecture of the rehearsal's model.")
    label: str = ""
    given: list[str] = Field(default_factory=list, description="Overrides as typed.")
    overrides: list[str] = Field(default_factory=list, description="All Hydra overrides.")
    forced: list[str] = Field(default_factory=list, description="Rules given to --force.")
    rows: int | None = Field(default=None, description="Rows of the training data.")
    validation: ValidationData | None = None
    verl: str | None = Field(
        default=None, description="verl's release or commit, and where it comes from."
    )
    platform: str | None = None
    engine: str | None = None
    rollout: str | None = None
    layout: str | None = Field(
        default=None, description="Parallel sizes: a group of recipes/rehearsal/layout."
    )
    device: dict[str, Any] | None = Field(
        default=None, description="GPUs, driver, provided versions."
    )

    caps: dict[str, str] = Field(
        default_factory=dict, description="Variables that capped the instruction set of the CPU."
    )

    lock: str | None = Field(
        default=None, description="SHA-256 of the lock's entries for the machine."
    )
    recipe: str | None = Field(default=None, description="SHA-256 of the resolved config.")
    recipe_one_gpu: str | None = Field(
        default=None, description="In a layout: that of the same config with the sizes of one GPU."
    )
    plugins: str | None = Field(default=None, description="SHA-256 of the plug-ins' code.")
    model_sha256: str | None = None
    data_sha256: dict[str, str] | None = None

    @property
    def live(self) -> bool:
        """Whether a job of the run may be running."""
        return self.status in LIVE

    def attempt(self, number: int) -> Attempt:
        """Attempt `number` (from 1); KeyError when the run has none of this number."""
        for attempt in self.attempts:
            if attempt.number == number:
                return attempt
        raise KeyError(number)

    def begin(self, run: str, resumed_from: int | None) -> Attempt:
        """Add the next attempt of the run folder named `run`."""
        number = max((item.number for item in self.attempts), default=0) + 1
        job = job_name(run, number)
        attempt = Attempt(number=number, job=job, started=time.time(), resumed_from=resumed_from)
        self.attempts.append(attempt)
        return attempt

    def end(self, number: int, outcome: AttemptOutcome, reached: int | None, message: str) -> None:
        """Record how attempt `number` ended; KeyError when the run has none of this number."""
        attempt = self.attempt(number)
        attempt.ended = time.time()
        attempt.outcome = outcome
        attempt.reached = reached
        attempt.message = message

    def open_attempt(self) -> Attempt | None:
        """The newest attempt whose end is not recorded."""
        return next((item for item in reversed(self.attempts) if item.ended is None), None)


# Fields that cannot be null; older files may say so where they mean the default.
_NEVER_NULL = frozenset(
    name
    for name, field in RunState.model_fields.items()
    if not field.is_required() and field.get_default(call_default_factory=True) is not None
)


def job_name(run: str, number: int) -> str:
    """The submission id in Ray of attempt `number` (from 1) of the run folder named `run`."""
    return f"{run}-{number}"


def read_state(path: Path) -> RunState:
    """The state in `path`, a run.json of this or an older version.

    Raises OperatorError when it cannot be read or is damaged: the file, each wrong key, what was
    expected and found.
    """
    return read_document(
        RunState, path, _KIND, lambda value: _migrate(value, path.absolute().parent)
    )


def _migrate(value: dict[str, Any], folder: Path) -> None:
    """Change a run.json without a version, of `train` or of `reproduce`, to version 1.

    `reproduce` wrote ray_address, ray_temp_dir and process, and no attempts, where `train` wrote
    address, ray and watcher. Keys that no version knows stay as they are.
    """
    for name in _NEVER_NULL & value.keys():
        if value[name] is None:
            del value[name]
    trained = "place" in value or "attempts" in value
    value.setdefault("command", Launcher.TRAIN.value if trained else Launcher.REPRODUCE.value)
    # A file that lacks them tells nothing else: the folder bears both names.
    value["id"] = value.get("id") or folder.name
    value["model"] = value.get("model") or folder.parent.name
    value["state"] = value.get("state") or RunStatus.UNKNOWN.value
    _move(value, "process", "watcher")
    _move(value, "ray_address", "address")
    temp_dir = value.get("ray_temp_dir")
    if not value.get("ray") and isinstance(temp_dir, str):
        watcher = value.get("watcher")
        host = watcher.get("host") if isinstance(watcher, dict) else None
        value["ray"] = {"temp_dir": temp_dir, "host": host}
        del value["ray_temp_dir"]
        if not value.get("token_file"):
            value["token_file"] = str(Path(temp_dir) / "token")


def _move(value: dict[str, Any], old: str, new: str) -> None:
    """Give what is under `old` the name `new`, unless something else has that name already."""
    if old in value and not value.get(new):
        value[new] = value.pop(old)
