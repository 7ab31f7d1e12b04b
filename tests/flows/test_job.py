"""What is submitted for a cluster's recipe: command, variables, folders of each attempt."""

import shlex
from pathlib import Path

import pytest

from reprise.cluster.site import Paths, Site
from reprise.core.findings import Report
from reprise.core.project import find_project
from reprise.flows.train.checks import Where, _images, need_of
from reprise.flows.train.disk import check_storage
from reprise.flows.train.job import TrainJob, TrainOptions, prepare_task
from reprise.lock.read import read_lock
from reprise.machines.registry import machine_named
from reprise.runs.supervise.resume import Resume

pytestmark = pytest.mark.rehearsal

SITE = Site(paths=Paths(model="/share/Hy3", data="/share/data", checkpoints="/fast/ckpt"))


def hy3(*overrides: str, **options: object) -> TrainJob:
    chosen = TrainOptions("hy3", overrides=overrides, **options)  # type: ignore[arg-type]
    return prepare_task(find_project(), chosen, SITE, machine_named("h20"), "python3")


def test_the_first_attempt() -> None:
    task = hy3("trainer.save_freq=5", seed=7)
    words = shlex.split(task.entrypoint(Resume(None, None, 0), "/runs/hy3/r1", 1))
    assert words[:5] == ["exec", "python3", "-m", "reprise.runs.inside", "verl.trainer.main_ppo"]
    assert words[-2:] == ["--config-path", "$PWD/recipes"]
    assert "data.seed=7" in words and "trainer.save_freq=5" in words
    assert task.checkpoint_dir("r1", "/runs/hy3/r1") == "/fast/ckpt/hy3/r1"
    assert "trainer.default_local_dir=/fast/ckpt/hy3/${oc.env:REPRISE_RUN_ID}" in words
    config = task.config("r1", "/runs/hy3/r1")
    assert "default_local_dir: /fast/ckpt/hy3/r1" in config
    assert "train_files: /share/data/DAPO-Math-17k/dapo-math-17k.parquet" in config
    assert "/<" not in config
    assert (need_of(task).nodes, need_of(task).gpus, task.world, task.steps) == (16, 8, 128, 189)


def test_a_later_attempt_writes_beside_the_first() -> None:
    task = hy3()
    resume = Resume(20, "/fast/ckpt/hy3/r1/global_step_20", 23, (), ("trainer.resume_mode=x",))
    words = shlex.split(task.entrypoint(resume, "/runs/hy3/r1", 2))
    assert "trainer.resume_mode=x" in words
    assert "trainer.rollout_data_dir=/runs/hy3/r1/rollouts/attempt-2" in words
    assert "trainer.validation_data_dir=/runs/hy3/r1/validations/attempt-2" in words
    variables = task.runtime_env("r1", "/runs/hy3/r1", 2, True, None)["env_vars"]
    assert variables["VERL_FILE_LOGGER_PATH"] == "/runs/hy3/r1/metrics/attempt-2.jsonl"
    assert variables["TENSORBOARD_DIR"] == "/runs/hy3/r1/tensorboard/attempt-2"
    assert variables["REPRISE_MODEL_DIR"] == "/share/Hy3"
    assert variables["CUDA_DEVICE_MAX_CONNECTIONS"] == "1", "of runtime_env.yaml"
    assert "REPRISE_SECRETS_FILE" not in variables


def test_secrets_are_a_files_name() -> None:
    made = hy3().runtime_env("r1", "/runs/hy3/r1", 1, True, "/runs/.secrets/r1.json")
    assert made["env_vars"]["REPRISE_SECRETS_FILE"] == "/runs/.secrets/r1.json"
    assert made["worker_process_setup_hook"] == "reprise.runs.inside.load_secrets"


def test_run_folders_never_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = find_project().root / "my" / "runs"
    monkeypatch.setenv("RUNS_DIR", str(inside))
    assert "/my/runs" in hy3().runtime_env("r1", "/runs/hy3/r1", 1, True, None)["excludes"]


def test_a_rollout_of_its_own_takes_its_nodes_too() -> None:
    task = hy3("common/placement=separate", "actor_rollout_ref.rollout.nnodes=4")
    assert need_of(task).nodes == 20


@pytest.mark.parametrize(
    ("kind", "image", "told"),
    [
        ("attached", None, 1),
        ("hostfile", None, 0),
        ("hostfile", "registry.example/verl:latest", 2),
        ("private", None, 0),
    ],
)
def test_an_image_without_a_digest_is_told_where_it_matters(
    tmp_path: Path, kind: str, image: str | None, told: int
) -> None:
    lock = read_lock(find_project().lock)
    image_entry = lock.image["h20"].model_copy(update={"digest": None, "unpinned": "not known"})
    lock = lock.model_copy(update={"image": {"h20": image_entry}})
    site = Site.model_validate({"container": {"image": image}})
    report = Report("train")
    _images(report, lock, Where(kind, "x", "h20", site))
    assert len(list(report.errors())) == told
    assert report.checks


@pytest.mark.parametrize(
    ("storage", "told"), [(None, 1), ("/fast/runs", 0), ("/fast/runs/deep", 0), ("/slow", 1)]
)
def test_the_containers_must_mount_the_folder_that_the_job_writes_to(
    tmp_path: Path, storage: str | None, told: int
) -> None:
    site = Site.model_validate(
        {"container": {"image": "r.example/verl@sha256:00", "mounts": ["/fast/runs:/fast/runs"]}}
    )
    report = Report("train")
    check_storage(report, tmp_path, site, storage)
    assert [finding.where for finding in report.errors()] == [storage or str(tmp_path)] * told
