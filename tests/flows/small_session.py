"""A session with a small job in place of verl; as a program, one that other tests may kill."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reprise.core.project import find_project
from reprise.flows.train.job import TrainOptions
from reprise.flows.train.place import Attached, Need, Place, Private
from reprise.flows.train.session import Session, run_session
from reprise.runs.ray.jobs import Jobs
from reprise.runs.state.folder import RunFolder
from reprise.runs.supervise.resume import Resume
from reprise.runs.watch.display import RunDisplay
from tests.states import change

PROJECT = find_project()
TRAINER = Path(__file__).resolve().parents[1] / "runs" / "small_trainer.py"


@dataclass(slots=True)
class SmallSession(Session):
    """Submits tests/runs/small_trainer.py where a recipe would submit verl."""

    variables: dict[str, str] | None = None
    trainer: Path = TRAINER
    nodes: int = 1

    @property
    def need(self) -> Need:
        return Need(self.nodes, 1)

    def submit(self, jobs: Jobs, number: int, resume: Resume) -> None:
        variables = {
            "CHECKPOINTS": str(self.folder.read().checkpoints),
            "VERL_FILE_LOGGER_PATH": str(self.folder.metrics_file(number)),
            "REPRISE_ATTEMPT": str(number),
            **(self.variables or {}),
        }
        command = f"{PROJECT.rehearsal_python} {self.trainer} {' '.join(resume.overrides)}"
        jobs.submit(self.folder.job(number), command, {"env_vars": variables}, {})


def session_of(run: RunFolder, place: Place) -> SmallSession:
    task: Any = SimpleNamespace(project=PROJECT)
    options = TrainOptions("rehearsal", quiet=True)
    return SmallSession(run, task, place, options, RunDisplay(quiet=True))


def new_session(runs: Path, place: Place) -> SmallSession:
    facts = {"steps": 6, "visible": True, "world_size": 1, "attempts": [], "place": place.kind}
    run = RunFolder.create(runs, "rehearsal", facts)
    saved = run.path / "checkpoints"
    saved.mkdir()
    change(run, checkpoints=str(saved), storage=str(run.path))
    return session_of(run, place)


def main() -> None:
    """FOLDER ADDRESS TOKEN-FILE PACE [STALL]; without an address, a Ray of the run's own."""
    path, address, token_file, pace, *stall = sys.argv[1:]
    attached = Attached(address, token_file or None, lambda _: None)
    place = attached if address else Private(PROJECT.rehearsal_python, lambda _: None)
    session = session_of(RunFolder(Path(path)), place)
    if stall:
        session.options = replace(session.options, stall=float(stall[0]))
    session.variables = {"SECONDS_A_STEP": pace}
    sys.exit(run_session(session).exit_code)


if __name__ == "__main__":
    main()
