"""Checkpoints that torch and verl wrote themselves, whole and damaged."""

import shutil
import subprocess
from pathlib import Path

import pytest
from saved import cut

from reprise.core.project import find_project
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.models.checkpoints.find import newest_complete
from reprise.models.checkpoints.report import check_folder
from reprise.models.tensorfiles import content_metadata, dist_faults, zip_fault

pytestmark = pytest.mark.rehearsal

WRITER = """
import sys, torch, torch.distributed.checkpoint as dcp
folder = sys.argv[1]
dcp.save({"w": torch.ones(1000), "b": {"c": torch.ones(7)}}, checkpoint_id=folder, no_dist=True)
kind = {"distrib_optim_sharding_type": "fully_reshardable", "singleton_local_shards": False}
torch.save({"content_metadata": kind, "lr": torch.ones(3)}, f"{folder}/common.pt")
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch") / "dist_ckpt"
    python = str(find_project().rehearsal_python)
    subprocess.run([python, "-W", "ignore", "-c", WRITER, str(folder)], check=True)
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    return folder


def test_a_folder_that_torch_wrote_is_whole(written: Path) -> None:
    assert dist_faults(written) == []
    known = content_metadata(written / "common.pt")
    assert known["distrib_optim_sharding_type"] == "fully_reshardable"


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "common.pt"])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_of_torch_that_was_cut_is_found(
    written: Path, tmp_path: Path, name: str, keep: float
) -> None:
    folder = shutil.copytree(written, tmp_path / "copy")
    cut(folder / name, keep)
    assert [fault.path.name for fault in dist_faults(folder)] == [name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of two real steps of FSDP2 on two ranks, one saved after each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        overrides = ("trainer.save_freq=1",)
        options = RehearsalOptions(seed=1, steps=2, ranks=2, overrides=overrides, quiet=True)
        ended = Rehearsal(find_project(), options).run()
    assert ended.report is None
    return ended.folder.path / "checkpoints"


@pytest.mark.full
def test_what_verl_saves_is_whole_and_read_by_as_many_ranks(trained: Path) -> None:
    report = check_folder(trained, 2)
    assert (report.exit_code, report.findings) == (0, [])
    assert [step["step"] for step in report.data["steps"]] == [2, 1]
    (part,) = report.data["steps"][0]["parts"]
    assert (part["layout"], part["world_size"], part["whole_ranks"]) == ("FSDP", 2, [0, 1])
    assert part["contents"] == ["model", "optimizer", "extra"]
    # Float32 weights and two moments of 0.7 million parameters.
    assert part["bytes"] > 3 * 4 * 600_000
    assert check_folder(trained, 1).exit_code == 1


@pytest.mark.full
def test_every_file_of_a_rank_that_was_cut_or_lost_is_found(trained: Path, tmp_path: Path) -> None:
    names = [path.relative_to(trained) for path in (trained / "global_step_2").rglob("*.pt")]
    assert len(names) == 7  # Three sorts on two ranks, and data.pt.
    for number, name in enumerate(names):
        for keep in (None, 0.0, 0.5, 0.999):
            copy = shutil.copytree(trained, tmp_path / f"{number}-{keep}")
            if keep is None:
                (copy / name).unlink()
            else:
                cut(copy / name, keep)
            found = newest_complete(copy, 2)
            assert found.step == 1, f"{name} cut to {keep}"
            assert name.name in found.skipped[0][1]


@pytest.mark.full
def test_whole_files_have_no_fault(trained: Path) -> None:
    assert {zip_fault(path) for path in trained.rglob("*.pt")} == {None}


@pytest.mark.full
@pytest.mark.parametrize(
    "extra", ["merged_hf", ".ipynb_checkpoints", "actor_old", "transfer_queue"]
)
def test_a_folder_next_to_a_real_actor_does_not_hold_a_resume_back(
    trained: Path, tmp_path: Path, extra: str
) -> None:
    copy = shutil.copytree(trained, tmp_path / "checkpoints")
    step = copy / "global_step_2"
    if extra == "merged_hf":
        shutil.copytree(step / "actor" / "huggingface", step / extra)
    elif extra == "actor_old":
        shutil.copytree(step / "actor", step / extra)
        cut(next((step / extra).glob("model_*.pt")))
    else:
        (step / extra).mkdir(exist_ok=True)
    assert newest_complete(copy, 2).path == step
    report = check_folder(copy, 2)
    assert (report.exit_code, report.data["newest_complete"]) == (0, 2)
