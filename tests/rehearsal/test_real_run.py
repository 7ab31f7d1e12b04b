"""Three real steps: verl, Ray and vLLM, from the tiny model to the verdict."""

import math
from pathlib import Path

import psutil
import pytest

from reprise.core.project import find_project
from reprise.curves.result import Outcome
from reprise.flows.rehearsal import RehearsalOptions
from reprise.flows.reproduce import Judged, reproduce_rehearsal
from reprise.metrics import read_run
from reprise.runs.ray.processes import marked
from reprise.runs.ray.segments import _mapped

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        options = RehearsalOptions(seed=1, steps=3, quiet=True)
        return reproduce_rehearsal(find_project(), options)


def test_every_step_is_there_once_and_sound(judged: Judged) -> None:
    table = read_run(judged.folder.path)
    assert table.training_steps().tolist() == [1, 2, 3]
    for metric in ("actor/grad_norm", "critic/rewards/mean", "rollout_corr/k3_kl"):
        assert all(math.isfinite(value) for value in table.series(metric).values)
    assert min(table.series("actor/grad_norm").values) > 0
    # bfloat16 against float32: a real mismatch, and a small one.
    difference = table.series("training/rollout_probs_diff_mean").values
    assert min(difference) > 1e-5 and max(difference) < 0.015


def test_the_weights_move_and_reach_the_rollout_engine(judged: Judged) -> None:
    table = read_run(judged.folder.path)
    distance = table.series("actor/kl_loss").values
    # The first step compares the start model with itself; afterwards the actor has moved. The
    # difference between rollout and training stays small only if the new weights arrived.
    assert abs(distance[0]) < 1e-6
    assert distance[2] > 1e-5


def test_three_steps_prove_nothing_about_the_curve(judged: Judged) -> None:
    assert judged.judgement is not None
    assert judged.judgement.outcome is Outcome.INCONCLUSIVE
    assert judged.report.exit_code == 2


def test_the_run_folder_is_whole_and_nothing_is_left(judged: Judged) -> None:
    path = judged.folder.path
    for name in ("config.yaml", "command.txt", "versions.lock", "run.json", "verdict.json"):
        assert (path / name).stat().st_size > 0
    assert (path / "report.html").is_file() and (path / "curves.png").is_file()
    assert "<REPRISE" not in (path / "config.yaml").read_text(encoding="utf-8")
    assert marked(judged.folder.name) == []
    # vLLM's message queues, which nobody has any more; other programs use theirs.
    began = (path / "command.txt").stat().st_mtime
    held = _mapped(psutil.process_iter())
    left = [file for file in Path("/dev/shm").glob("psm_*") if file.name not in held]
    assert [file for file in left if file.stat().st_mtime > began] == []
    facts = judged.folder.read()
    assert facts.status == "finished" and facts.watcher is None
    assert not Path(facts.ray.temp_dir).exists()


@pytest.mark.full
def test_two_ranks_begin_with_the_samples_of_one(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = read_run(judged.folder.path).series("critic/rewards/mean").values
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    options = RehearsalOptions(seed=1, steps=2, ranks=2, quiet=True)
    two = reproduce_rehearsal(find_project(), options)
    rewards = read_run(two.folder.path).series("critic/rewards/mean").values
    assert rewards[0] == one[0]
    # Two ranks add gradients in another order: a few of 128 samples may turn out differently.
    assert abs(rewards[1] - one[1]) <= 4 / 128
