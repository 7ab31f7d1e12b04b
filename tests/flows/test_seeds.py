"""Several seeds, one after another: what counts as finished, what is resumed, how it ends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from curves.runs import records, write
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project, find_project
from reprise.flows.train import seeds as series
from reprise.flows.train import train as trainer
from reprise.flows.train.job import TrainOptions
from reprise.flows.train.seeds import train_seeds
from reprise.flows.train.session import Session
from reprise.runs.ray.processes import marked
from reprise.runs.state.folder import RunFolder, recent_runs
from reprise.runs.state.state import Launcher, RunStatus
from tests.flows.command import (
    Command,
    assert_every_step_once,
    largest_difference,
    stop_everything,
)

OPTIONS = TrainOptions("rehearsal", quiet=True, overrides=("trainer.save_freq=2",))


@dataclass
class Cluster:
    """In place of train and resume: a run folder for each seed, ended as `ends` says."""

    project: Project
    ends: dict[int, RunStatus] = field(default_factory=dict)
    calls: list[tuple[str, int | None]] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)

    def train(self, project: Project, options: TrainOptions) -> Report:
        self.calls.append(("train", options.seed))
        facts = {"command": Launcher.TRAIN, "steps": 40, "seed": options.seed}
        facts |= {"given": list(options.overrides), "algo": options.algo, "storage": "/s"}
        run = RunFolder.create(project.runs, options.model, facts | {"checkpoints": "/c"})
        return self.end(run, options)

    def resume(self, project: Project, run: RunFolder, options: TrainOptions) -> Report:
        self.calls.append(("resume", options.seed))
        return self.end(run, options)

    def end(self, run: RunFolder, options: TrainOptions) -> Report:
        status = self.ends.get(options.seed or 0, RunStatus.FINISHED)
        run.set_status(status)
        report = Report("train", data={"run": str(run.path), "id": run.name})
        if status is RunStatus.FAILED:
            report.failed("train-failed", run.name, "attempt 1 failed", "check the log")
        else:
            report.passed("train-finished")
        return report

    def inputs(self, project: Project, run: RunFolder, options: TrainOptions) -> list[str]:
        return self.changed.get(run.name, [])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    made = Cluster(find_project())
    monkeypatch.setattr(series, "train", made.train)
    monkeypatch.setattr(series, "resume_run", made.resume)
    monkeypatch.setattr(series, "changed_inputs", made.inputs)
    return made


def texts(report: Report) -> str:
    return "\n".join(f"{finding.message} {finding.fix}" for finding in report.findings)


def test_seeds_are_trained_in_their_order_and_kept(cluster: Cluster) -> None:
    report = train_seeds(cluster.project, OPTIONS, 3)
    assert report.exit_code == 0
    assert cluster.calls == [("train", 1), ("train", 2), ("train", 3)]
    assert [item["seed"] for item in report.data["seeds"]] == [1, 2, 3]
    assert "reprise compare rehearsal vs " in texts(report)
    # The same command again has nothing to do; a longer series trains what is missing.
    assert train_seeds(cluster.project, OPTIONS, 3).data == report.data
    assert train_seeds(cluster.project, replace(OPTIONS, seed=2), 3).exit_code == 0
    assert cluster.calls[3:] == [("train", 4)]


def test_a_failed_seed_ends_the_series_and_the_same_command_resumes_it(cluster: Cluster) -> None:
    cluster.ends[2] = RunStatus.FAILED
    report = train_seeds(cluster.project, OPTIONS, 3)
    assert report.exit_code == 1
    assert [item["seed"] for item in report.data["seeds"]] == [1]
    assert cluster.calls == [("train", 1), ("train", 2)]
    typed = "reprise train rehearsal --seeds 3 -- trainer.save_freq=2"
    assert typed in texts(report) and "1 of 3 seeds are finished" in texts(report)
    del cluster.ends[2]
    assert train_seeds(cluster.project, OPTIONS, 3).exit_code == 0
    assert cluster.calls[2:] == [("resume", 2), ("train", 3)]
    assert len(recent_runs(cluster.project.runs, "rehearsal")) == 3


def test_a_run_that_goes_on_without_this_command_leaves_the_series_open(cluster: Cluster) -> None:
    cluster.ends[1] = RunStatus.RUNNING
    report = train_seeds(cluster.project, OPTIONS, 2)
    assert (report.exit_code, cluster.calls) == (2, [("train", 1)])
    assert "attaches to the run" in texts(report)


def test_a_run_with_other_inputs_does_not_count(cluster: Cluster) -> None:
    train_seeds(cluster.project, OPTIONS, 2)
    first, second = sorted(
        recent_runs(cluster.project.runs, "rehearsal"), key=lambda run: run.read().seed or 0
    )
    cluster.changed[first.name] = ["versions.lock: tree.verl.commit: b now, a when it started"]
    report = train_seeds(cluster.project, OPTIONS, 2)
    assert cluster.calls[2:] == [("train", 1)]
    assert f"run {first.name} does not count" in texts(report)
    assert str(second.path) == report.data["seeds"][1]["run"]


@pytest.mark.parametrize(
    "other",
    [
        replace(OPTIONS, overrides=("trainer.save_freq=4",)),
        replace(OPTIONS, algo="dapo"),
        replace(OPTIONS, overrides=()),
    ],
)
def test_runs_of_another_command_do_not_count(cluster: Cluster, other: TrainOptions) -> None:
    train_seeds(cluster.project, OPTIONS, 2)
    train_seeds(cluster.project, other, 2)
    assert len(cluster.calls) == 4


def test_what_cannot_be_a_series_is_refused(cluster: Cluster) -> None:
    with pytest.raises(OperatorError, match="first seed of a series"):
        train_seeds(cluster.project, replace(OPTIONS, seed=0), 2)
    for words in (["--detach"], ["--resume", "x"]):
        done = CliRunner().invoke(app, ["train", "rehearsal", "--seeds", "3", *words, "--json"])
        (finding,) = json.loads(done.stdout)["findings"]
        assert (done.exit_code, finding["rule"]) == (1, "train-seeds")
    done = CliRunner().invoke(app, ["train", "rehearsal", "--seeds", "1", "--json"])
    assert done.exit_code == 2 and cluster.calls == []


@pytest.mark.rehearsal
@pytest.mark.full
def test_real_run_folders_become_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the job: check, folder, inputs, and the reference that is made of the runs."""
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))

    def session(one: Session) -> Report:
        seed = one.options.seed or 0
        write(one.folder.metrics_file(1), records(seed))
        failed = seed == 2 and not (tmp_path / "fixed").exists()
        one.folder.set_status(RunStatus.FAILED if failed else RunStatus.FINISHED)
        report = Report("train", data={"run": str(one.folder.path), "id": one.folder.name})
        if failed:
            report.failed("train-failed", one.folder.name, "attempt 1 failed", "check the log")
        report.settle("train-finished")
        return report

    monkeypatch.setattr(trainer, "run_session", session)
    project = find_project()
    options = replace(OPTIONS, overrides=())
    assert train_seeds(project, options, 2).exit_code == 1
    (tmp_path / "fixed").touch()
    report = train_seeds(project, options, 2)
    assert report.exit_code == 0, report.findings
    runs = [item["run"] for item in report.data["seeds"]]
    assert len(recent_runs(project.runs, "rehearsal")) == 2
    made = tmp_path / "mine/reference"
    done = CliRunner().invoke(app, ["reference", "create", str(made), *runs, "--json"])
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.exit_code, said["runs"]) == (0, 2), said
    first = RunFolder(Path(runs[0]))
    assert trainer.changed_inputs(project, first, replace(options, seed=1)) == []
    changed = replace(options, seed=1, overrides=("data.train_batch_size=8",))
    differing = trainer.changed_inputs(project, first, changed)
    assert any("data.train_batch_size: 8 now" in text for text in differing)


@pytest.mark.rehearsal
@pytest.mark.full
@pytest.mark.timeout(5400)
def test_two_real_seeds_are_trained_once_and_become_a_reference(tmp_path: Path) -> None:
    """Real jobs, each on a private Ray; the same command again has nothing to do."""
    settings = ("trainer.save_freq=2", "trainer.test_freq=-1", "trainer.val_before_train=false")
    words = ["--seeds", "2", "--", "rehearsal", *settings, "trainer.total_training_steps=2"]
    try:
        code, report, err = Command(tmp_path, words).run(timeout=5000)
        assert code == 0, (report, err)
        assert [item["seed"] for item in report["seeds"]] == [1, 2]
        folders = [RunFolder(Path(item["run"])) for item in report["seeds"]]
        for seed, folder in enumerate(folders, start=1):
            state = folder.read()
            assert (state.status, state.seed, len(state.attempts)) == ("finished", seed, 1)
            assert_every_step_once(folder, 2)
            assert marked(folder.name) == []
        # The seed decides: other prompts, other samples.
        assert max(largest_difference(folders[0].path, folders[1].path).values()) > 0
        code, again, err = Command(tmp_path, words).run(timeout=300)
        assert (code, again["seeds"]) == (0, report["seeds"]), err
        assert len(recent_runs(tmp_path, "rehearsal")) == 2
    finally:
        stop_everything(tmp_path)
    runs = [str(folder.path) for folder in folders]
    done = CliRunner().invoke(app, ["reference", "create", str(tmp_path / "mine"), *runs, "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["runs"] == 2, done.stdout
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "mine"), "vs", runs[0], "--json"])
    assert "copies" in done.stdout or "both" in done.stdout, "a run on both sides is refused"
