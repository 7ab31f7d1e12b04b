"""Which checkpoints are whole, and from which a job can continue."""

import json
import os
import shutil
from pathlib import Path

import pytest
from saved import cut, dist_ckpt, fsdp, megatron, safetensors, saved_step, torch_file
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Severity, State
from reprise.models.checkpoints.find import TRACKER, newest_complete
from reprise.models.checkpoints.report import COMPLETE, RANKS, TRACKED, check_folder


def state_of(report: Report, rule: str) -> State | None:
    return next((check.state for check in report.checks if check.rule == rule), None)


def said(report: Report, rule: str) -> list[str]:
    return [f"{f.where}: {f.message}" for f in report.findings if f.rule == rule]


def test_a_whole_checkpoint_is_fine_and_says_how_to_continue(tmp_path: Path) -> None:
    saved_step(tmp_path, 20)
    path = saved_step(tmp_path, 40)
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 0
    assert report.findings == []
    assert report.data["newest_complete"] == 40
    assert f"trainer.resume_from_path={path}" in report.data["resume"]
    part = report.data["steps"][0]["parts"][0]
    assert (part["layout"], part["world_size"], part["whole_ranks"]) == ("FSDP", 2, [0, 1])
    assert part["contents"] == ["model", "optimizer", "extra"]
    assert newest_complete(tmp_path, 2).path == path


DAMAGE = {
    "no data.pt": lambda step: (step / "data.pt").unlink(),
    "cut data.pt": lambda step: cut(step / "data.pt"),
    "a rank's optimizer": lambda step: (step / "actor/optim_world_size_2_rank_1.pt").unlink(),
    "a cut shard": lambda step: cut(step / "actor/model_world_size_2_rank_0.pt", 0.9),
    "a shard cut by one byte": lambda step: cut(step / "actor/model_world_size_2_rank_0.pt", 0.999),
    "an empty shard": lambda step: (step / "actor/extra_state_world_size_2_rank_1.pt").write_bytes(
        b""
    ),
    "no model": lambda step: [f.unlink() for f in (step / "actor").glob("model_*")],
    "no role": lambda step: (shutil.rmtree(step / "actor"), (step / "data.pt").unlink()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_partial_step_is_skipped_and_named(tmp_path: Path, damage: str) -> None:
    older = saved_step(tmp_path, 40)
    newer = saved_step(tmp_path, 60)
    (tmp_path / TRACKER).write_text("40")
    DAMAGE[damage](newer)
    found = newest_complete(tmp_path)
    assert (found.step, found.path) == (40, older)
    assert [path for path, _ in found.skipped] == [newer]
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 0
    assert any(str(newer) in text and "step 40 is used" in text for text in said(report, COMPLETE))
    alone = check_folder(newer, 2)
    assert alone.exit_code == 1
    assert all(finding.fix for finding in alone.errors())


EXTRA = {
    "merged weights": lambda step: safetensors(step / "merged_hf/model.safetensors"),
    "a notebook's folder": lambda step: (step / ".ipynb_checkpoints").mkdir(),
    "a copy that was cut": lambda step: (
        shutil.copytree(step / "actor", step / "actor_old"),
        cut(step / "actor_old/model_world_size_2_rank_0.pt"),
    ),
    "the data of verl": lambda step: (step / "transfer_queue").mkdir(),
}


@pytest.mark.parametrize("extra", EXTRA)
def test_a_folder_next_to_a_whole_actor_changes_nothing(tmp_path: Path, extra: str) -> None:
    saved_step(tmp_path, 40)
    newest = saved_step(tmp_path, 60)
    EXTRA[extra](newest)
    assert newest_complete(tmp_path, 2).path == newest
    report = check_folder(tmp_path, 2)
    assert (report.exit_code, report.data["newest_complete"]) == (0, 60)


@pytest.mark.parametrize(
    ("kinds", "missing"),
    [
        (("optim",), "optimizer"),
        (("extra_state",), "extra"),
        (("optim", "extra_state"), "optimizer and extra"),
    ],
)
def test_weights_alone_are_for_inference(
    tmp_path: Path, kinds: tuple[str, ...], missing: str
) -> None:
    older = saved_step(tmp_path, 40)
    newer = saved_step(tmp_path, 60)
    for kind in kinds:
        for path in (newer / "actor").glob(f"{kind}_*"):
            path.unlink()
    words = f"usable for inference, not to resume: {missing} missing"
    alone = check_folder(newer, 2)
    assert alone.exit_code == 1 and words in next(alone.errors()).message
    part = check_folder(newer / "actor", 2)
    assert part.exit_code == 1 and words in next(part.errors()).message
    assert newest_complete(tmp_path, 2).path == older
    (text,) = said(check_folder(tmp_path, 2), TRACKED)
    assert "names step 60" in text and words in text
    # A job that saves no optimizer loads none.
    shutil.rmtree(older)
    assert newest_complete(tmp_path, 2).path == newer


def test_a_rank_beyond_the_world_is_no_checkpoint(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40, ranks=1)
    for path in list((step / "actor").glob("*_rank_0.pt")):
        path.rename(path.with_name(path.name.replace("rank_0", "rank_1")))
    report = check_folder(tmp_path, 1)
    assert report.exit_code == 1
    assert any("no file of ranks 0 of 1" in text for text in said(report, COMPLETE))
    assert newest_complete(tmp_path, 1).step is None


def test_the_newest_step_of_other_ranks_fails_with_auto(tmp_path: Path) -> None:
    """resume_mode=auto reads the tracker, and so the step that these ranks cannot load."""
    saved_step(tmp_path, 40, ranks=2)
    saved_step(tmp_path, 60, ranks=4)
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 1
    (text,) = said(report, TRACKED)
    assert "names step 60" in text and "saved by 4 ranks" in text
    assert "global_step_40" in next(f for f in report.errors() if f.rule == TRACKED).fix
    assert check_folder(tmp_path, 4).exit_code == 0


def test_every_missing_file_is_named_with_its_rank(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40, ranks=16)
    for rank in (3, 7):
        (step / f"actor/optim_world_size_16_rank_{rank}.pt").unlink()
    report = check_folder(tmp_path, None)
    assert report.exit_code == 1
    names = {Path(f.where).name for f in report.errors() if f.rule == COMPLETE}
    assert names == {"optim_world_size_16_rank_3.pt", "optim_world_size_16_rank_7.pt"}
    assert len(report.data["steps"][0]["parts"][0]["whole_ranks"]) == 14


def test_the_ranks_of_another_node_are_told_at_once(tmp_path: Path) -> None:
    """Two nodes of eight, each with a disk of its own."""
    step = saved_step(tmp_path, 40, ranks=16)
    for rank in range(8, 16):
        for kind in ("model", "optim", "extra_state"):
            (step / f"actor/{kind}_world_size_16_rank_{rank}.pt").unlink()
    report = check_folder(step, 16)
    assert report.exit_code == 1
    (finding,) = report.errors()
    assert finding.where == str(step / "actor")
    assert "ranks 8-15 of 16" in finding.message and "other nodes" in finding.message
    assert report.data["steps"][0]["parts"][0]["whole_ranks"] == list(range(8))
    (path, why) = newest_complete(tmp_path).skipped[0]
    assert path == step and "ranks 8-15 of 16" in why


def test_another_number_of_ranks_cannot_read_fsdp_shards(tmp_path: Path) -> None:
    saved_step(tmp_path, 40, ranks=16)
    report = check_folder(tmp_path, 32)
    assert report.exit_code == 1
    assert state_of(report, COMPLETE) is State.PASSED
    (text,) = said(report, RANKS)
    assert "saved by 16 ranks" in text and "has 32" in text
    fix = next(report.errors()).fix
    assert "16 ranks" in fix and "optimizer state is lost" in fix
    assert newest_complete(tmp_path, 32).step is None
    assert check_folder(tmp_path, 16).exit_code == 0


def test_a_step_that_retention_emptied_is_no_partial_one(tmp_path: Path) -> None:
    shutil.rmtree(saved_step(tmp_path, 20) / "actor")
    saved_step(tmp_path, 40)
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 0
    assert [f.severity for f in report.findings] == [Severity.NOTE]
    assert "max_actor_ckpt_to_keep" in report.findings[0].message
    shutil.rmtree(tmp_path / "global_step_40" / "actor")
    assert check_folder(tmp_path, 2).exit_code == 1


@pytest.mark.parametrize(
    ("text", "exit_code", "part"),
    [
        ("60", 1, "names step 60, which is missing"),
        ("20", 0, "names step 20; the newest complete step is 40"),
        ("40\n ", 0, ""),
        ("", 1, "contains '' instead of a step"),
        ("forty", 1, "instead of a step"),
        (None, 1, "missing (async_save"),
    ],
)
def test_the_tracker_that_auto_resume_believes(
    tmp_path: Path, text: str | None, exit_code: int, part: str
) -> None:
    for step in (20, 40):
        saved_step(tmp_path, step)
    if text is None:
        (tmp_path / TRACKER).unlink()
    else:
        (tmp_path / TRACKER).write_text(text)
    report = check_folder(tmp_path, 2)
    assert report.exit_code == exit_code
    assert part in "".join(said(report, TRACKED))
    assert bool(said(report, TRACKED)) is bool(part)
    assert all("global_step_40" in finding.fix for finding in report.findings)


def test_damage_ranks_and_tracker_are_told_in_one_pass(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40, ranks=16)
    (step / "actor/optim_world_size_16_rank_3.pt").write_bytes(b"")
    (tmp_path / TRACKER).write_text("60")
    report = check_folder(tmp_path, 32)
    assert {finding.rule for finding in report.errors()} == {COMPLETE, RANKS, TRACKED}


def test_a_tracker_that_names_a_partial_step_is_an_error(tmp_path: Path) -> None:
    saved_step(tmp_path, 20)
    cut(saved_step(tmp_path, 40) / "data.pt")
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 1
    assert "names step 40, which is incomplete" in said(report, TRACKED)[0]
    assert "newest complete step is 20" in said(report, TRACKED)[0]


def test_steps_whose_metrics_were_never_written_can_be_left_out(tmp_path: Path) -> None:
    saved_step(tmp_path, 2)
    saved_step(tmp_path, 4)
    found = newest_complete(tmp_path, 2, at_most=3)
    assert found.step == 2
    assert "metrics end at step 3" in found.skipped[0][1]


def test_steps_are_ordered_by_number_and_other_folders_do_not_count(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        saved_step(tmp_path, step)
    saved_step(tmp_path / "aside", 200)
    (tmp_path / "global_step_300x").mkdir()
    assert newest_complete(tmp_path).step == 100
    assert newest_complete(tmp_path / "none").step is None


def test_shards_of_another_world_size_beside_are_told(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40)
    torch_file(step / "actor/model_world_size_4_rank_0.pt")
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 0
    assert "another world size (4)" in said(report, COMPLETE)[0]


def test_a_critic_counts_as_well(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40)
    fsdp(step / "critic", 2)
    assert newest_complete(tmp_path, 2).step == 40
    (step / "critic/optim_world_size_2_rank_0.pt").unlink()
    assert newest_complete(tmp_path, 2).step is None


def megatron_step(folder: Path, step: int, ranks: int, reshard: str = "dp_reshardable") -> Path:
    path = folder / f"global_step_{step}"
    megatron(path / "actor", step, ranks, reshard)
    torch_file(path / "data.pt")
    (folder / TRACKER).write_text(str(step))
    return path


def test_a_whole_megatron_checkpoint(tmp_path: Path) -> None:
    megatron_step(tmp_path, 40, 128)
    report = check_folder(tmp_path, 128)
    assert (report.exit_code, report.findings) == (0, [])
    part = report.data["steps"][0]["parts"][0]
    assert (part["layout"], part["world_size"], part["reshard"]) == (
        "Megatron",
        128,
        "dp_reshardable",
    )
    assert newest_complete(tmp_path, 64).step == 40


def test_the_adapter_of_a_megatron_run_needs_no_weights_beside_it(tmp_path: Path) -> None:
    """verl writes only the adapter in Hugging Face form, and reads it as shards of Megatron."""
    actor = megatron_step(tmp_path, 40, 8) / "actor"
    (actor / "model/huggingface/model.safetensors.index.json").unlink()
    (actor / "model/huggingface/model-00001-of-00001.safetensors").unlink()
    dist_ckpt(actor / "model" / "dist_ckpt")
    manifest = json.loads((actor / "ckpt_contents.json").read_text(encoding="utf-8"))
    assert check_folder(tmp_path, 8).exit_code == 1
    manifest["contents"]["peft_adapters"] = {
        "path": "model/dist_ckpt",
        "format": "megatron_dist_checkpoint",
    }
    (actor / "ckpt_contents.json").write_text(json.dumps(manifest))
    assert check_folder(tmp_path, 8).exit_code == 0
    (actor / "model/dist_ckpt/__0_0.distcp").unlink()
    assert check_folder(tmp_path, 8).exit_code == 1


@pytest.mark.parametrize(
    ("reshard", "state"), [("dp_reshardable", State.UNKNOWN), ("fully_reshardable", State.PASSED)]
)
def test_whether_megatron_can_deal_out_its_optimizer_anew(
    tmp_path: Path, reshard: str, state: State
) -> None:
    megatron_step(tmp_path, 40, 128, reshard)
    report = check_folder(tmp_path, 64)
    assert state_of(report, RANKS) is state
    assert report.exit_code == (2 if state is State.UNKNOWN else 0)


@pytest.mark.parametrize(
    ("stated", "sizes", "said"),
    [
        ({"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 16},
         {"TP": 1, "PP": 16}, "saved by 128 ranks (TP 1 x PP 16), the job has 64"),
        ({"tensor_model_parallel_size": "1"}, None, "saved by 128 ranks, the job has 64"),
        ("no config", None, "saved by 128 ranks, the job has 64"),
    ],
)  # fmt: skip
def test_the_sizes_that_saved_a_megatron_checkpoint_are_named_where_they_are_stated(
    tmp_path: Path, stated: object, sizes: object, said: str
) -> None:
    step = megatron_step(tmp_path, 40, 128)
    (step / "actor/transformer_config.json").write_text(json.dumps(stated))
    report = check_folder(tmp_path, 64)
    assert report.data["steps"][0]["parts"][0]["sizes"] == sizes
    (finding,) = [one for one in report.findings if one.rule == RANKS]
    assert said in finding.message


MEGATRON_DAMAGE = {
    "no manifest": ("ckpt_contents.json", None),
    "no optimizer metadata": ("optimizer/dist_ckpt/.metadata", None),
    "cut optimizer metadata": ("optimizer/dist_ckpt/.metadata", 0.5),
    "no shard": ("extra/dist_ckpt/__0_0.distcp", None),
    "cut shard": ("extra/dist_ckpt/__0_0.distcp", 0.9),
    "cut common": ("optimizer/dist_ckpt/common.pt", 0.9),
    "empty backend": ("optimizer/dist_ckpt/metadata.json", 0.0),
    "cut weights": ("model/huggingface/model-00001-of-00001.safetensors", 0.9),
    "no weights": ("model/huggingface/model-00001-of-00001.safetensors", None),
    "no config": ("model/huggingface/config.json", None),
    "no transformer config": ("transformer_config.json", None),
}


@pytest.mark.parametrize("damage", MEGATRON_DAMAGE)
def test_a_megatron_checkpoint_that_is_not_whole(tmp_path: Path, damage: str) -> None:
    name, keep = MEGATRON_DAMAGE[damage]
    file = megatron_step(tmp_path, 40, 8) / "actor" / name
    if keep is None:
        file.unlink()
    else:
        cut(file, keep)
    report = check_folder(tmp_path, 8)
    assert report.exit_code == 1
    assert any(finding.where == str(file) or damage == "no shard" for finding in report.errors())
    assert newest_complete(tmp_path, 8).step is None


def test_the_old_megatron_layout_is_refused_with_the_way_out(tmp_path: Path) -> None:
    step = tmp_path / "global_step_40"
    dist_ckpt(step / "actor" / "dist_ckpt")
    torch_file(step / "data.pt")
    (tmp_path / TRACKER).write_text("40")
    report = check_folder(tmp_path, 8)
    assert report.exit_code == 1
    assert any("layout 1" in text for text in said(report, RANKS))
    assert "migrate_megatron_checkpoint_layout.py" in next(report.errors()).fix
    assert newest_complete(tmp_path).step is None


def test_converted_weights(tmp_path: Path) -> None:
    dist_ckpt(tmp_path / "m")
    assert check_folder(tmp_path / "m", None).exit_code == 0
    (tmp_path / "m" / "__0_0.distcp").unlink()
    assert check_folder(tmp_path / "m", None).exit_code == 1


def test_a_folder_of_something_else_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    for folder in (tmp_path, tmp_path / "model.safetensors", tmp_path / "none"):
        with pytest.raises(OperatorError) as caught:
            check_folder(folder, None)
        assert "global_step_N" in caught.value.fix


def test_a_folder_that_is_not_ours_to_read(tmp_path: Path) -> None:
    step = saved_step(tmp_path, 40)
    (step / "actor").chmod(0)
    before = os.geteuid()
    if before == 0:  # Root reads everything.
        os.seteuid(65534)
    try:
        with pytest.raises(OperatorError, match="permission"):
            check_folder(tmp_path, None)
    finally:
        os.seteuid(before)
        (step / "actor").chmod(0o755)


def test_the_command_prints_a_table_and_leaves_with_the_verdict(tmp_path: Path) -> None:
    saved_step(tmp_path, 40)
    shown = CliRunner().invoke(app, ["checkpoint", "check", str(tmp_path), "--world-size", "2"])
    assert shown.exit_code == 0
    assert "2 of 2" in shown.stdout and "trainer.resume_mode=resume_path" in shown.stdout
    other = CliRunner().invoke(app, ["checkpoint", "check", str(tmp_path / "none"), "--json"])
    assert other.exit_code == 1
    assert '"run-checkpoint-folder"' in other.stdout


@pytest.mark.parametrize("name", ["global_step_02", "global_step_٢", "global_step_2.tmp"])
def test_a_folder_that_verl_does_not_look_for_is_not_a_step(tmp_path: Path, name: str) -> None:
    """verl's path is made of the number in the tracker, without zeros in front."""
    saved_step(tmp_path, 1)
    saved_step(tmp_path, 2).rename(tmp_path / name)
    assert newest_complete(tmp_path, 2).step == 1
    report = check_folder(tmp_path, 2)
    assert report.exit_code == 1
    assert "names step 2, which is missing" in said(report, TRACKED)[0]
