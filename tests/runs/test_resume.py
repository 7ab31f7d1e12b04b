"""Where an attempt begins: no hole in the curve, nothing overwritten."""

import json
from pathlib import Path

import pytest
from saved import cut, saved_step

from reprise.core.errors import OperatorError
from reprise.models.checkpoints.find import TRACKER
from reprise.runs.state.folder import RunFolder, find_run
from reprise.runs.supervise.resume import (
    RESUME_RULE,
    begins_after,
    hydra_value,
    resume_point,
    set_aside,
)
from tests.states import change


def run_with(path: Path, steps: range, saved: tuple[int, ...]) -> RunFolder:
    run = RunFolder.create(path, "m", {"visible": True, "world_size": 1, "steps": 10})
    checkpoints = run.path / "checkpoints"
    checkpoints.mkdir()
    change(run, checkpoints=str(checkpoints))
    run.begin_attempt(None)
    run.metrics_file(1).write_text(
        "".join(json.dumps({"step": n, "data": {"actor/loss": 1.0}}) + "\n" for n in steps)
    )
    for step in saved:
        saved_step(checkpoints, step, ranks=1)
    return run


def test_a_run_that_begins_from_another_runs_checkpoint_is_not_begun_anew(tmp_path: Path) -> None:
    old = saved_step(tmp_path / "old", 40, ranks=1)
    given = {"resume_mode": "resume_path", "resume_from_path": str(old)}
    run = run_with(tmp_path, range(41, 46), ())
    change(run, begins_after=begins_after(given, run.path / "checkpoints"), save_freq=20)
    point = resume_point(run, run.read())
    # As the recipe says, which names the checkpoint.
    assert (point.step, point.recorded, point.overrides) == (40, 45, ())
    saved_step(run.path / "checkpoints", 44, ranks=1)
    point = resume_point(run, run.read())
    assert point.step == 44 and "trainer.resume_mode=resume_path" in point.overrides
    change(run, visible=False, save_freq=20)
    point = resume_point(run, run.read())
    assert (point.step, point.overrides) == (40, ())


def test_where_a_run_begins(tmp_path: Path) -> None:
    assert begins_after({"resume_mode": "disable"}, tmp_path) == 0
    assert begins_after({}, tmp_path / "none") == 0
    saved_step(tmp_path, 20)
    assert begins_after({}, tmp_path) == 20
    (tmp_path / TRACKER).write_text("30")
    assert begins_after({"resume_mode": "auto"}, tmp_path) == 0
    assert begins_after({"resume_mode": "resume_path", "resume_from_path": "/x"}, tmp_path) == 0


def test_a_new_run_leaves_the_choice_to_the_recipe(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "m", {"checkpoints": str(tmp_path), "attempts": []})
    point = resume_point(run, run.read())
    assert (point.step, point.overrides) == (None, ())


def test_the_newest_complete_checkpoint_is_taken(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 8), (2, 4, 6))
    point = resume_point(run, run.read())
    assert (point.step, point.recorded) == (6, 7)
    assert f"trainer.resume_from_path={run.path}/checkpoints/global_step_6" in point.overrides
    assert "trainer.resume_mode=resume_path" in point.overrides


def test_a_partial_one_is_passed_over_by_name(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 8), (2, 4, 6))
    cut(run.path / "checkpoints/global_step_6/actor/model_world_size_1_rank_0.pt")
    point = resume_point(run, run.read())
    assert point.step == 4
    assert any("global_step_6" in note for note in point.notes)


def test_no_usable_checkpoint_is_refused_with_the_reasons(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 8), (2, 4))
    change(run, save_freq=2)
    for step in (2, 4):
        cut(run.path / f"checkpoints/global_step_{step}/actor/model_world_size_1_rank_0.pt")
    both = r"global_step_4 is skipped.*global_step_2 is skipped"
    with pytest.raises(OperatorError, match=both) as told:
        resume_point(run, run.read())
    assert f"reprise train --resume {run.name} --force {RESUME_RULE}" in told.value.fix
    change(run, forced=[RESUME_RULE])
    point = resume_point(run, run.read())
    assert (point.step, point.overrides) == (None, ("trainer.resume_mode=disable",))


def test_a_checkpoint_whose_step_was_not_recorded_would_leave_a_hole(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 6), (2, 4, 6))
    point = resume_point(run, run.read())
    assert (point.step, point.recorded) == (4, 5)
    run.metrics_file(1).write_text('{"step":1,"data":{"actor/loss":1}}\n')
    point = resume_point(run, run.read())
    assert point.step is None
    assert point.overrides == ("trainer.resume_mode=disable",)


def test_what_is_in_the_way_is_moved_and_kept(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 6), (2, 4, 6))
    checkpoints = run.path / "checkpoints"
    moved = set_aside(run, checkpoints, 4, attempt=2)
    assert moved == [checkpoints / "aside" / "attempt-2" / "global_step_6"]
    assert (moved[0] / "data.pt").is_file()
    assert sorted(path.name for path in checkpoints.glob("global_step_*")) == [
        "global_step_2",
        "global_step_4",
    ]
    assert set_aside(run, checkpoints, 4, attempt=3) == []


def test_a_folder_of_checkpoints_that_only_the_nodes_see(tmp_path: Path) -> None:
    """The run folder is shared, paths.checkpoints of the site is not: nothing begins anew."""
    run = run_with(tmp_path, range(1, 8), ())
    for folder in ("/nodes/only/m", str(tmp_path / "empty")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        change(run, checkpoints=folder, save_freq=2)
        point = resume_point(run, run.read())
        assert (point.step, point.path) == (6, f"{folder}/global_step_6")
        assert "not accessible from this machine" in point.notes[0]
    # What was there and is no more, an attempt has moved aside.
    (tmp_path / "empty" / "aside").mkdir()
    with pytest.raises(OperatorError, match="nothing is there but aside/"):
        resume_point(run, run.read())
    change(run, forced=[RESUME_RULE])
    assert resume_point(run, run.read()).step is None
    # Before the first is due there is none to be seen.
    change(run, save_freq=10)
    assert resume_point(run, run.read()).overrides == ("trainer.resume_mode=disable",)


def test_storage_that_is_not_seen(tmp_path: Path) -> None:
    run = run_with(tmp_path, range(1, 6), ())
    change(run, visible=False)
    # One whose metrics came was saved before them: what verl's tracker names may leave a hole.
    change(run, save_freq=2)
    point = resume_point(run, run.read())
    assert (point.step, point.path) == (4, f"{run.path}/checkpoints/global_step_4")
    assert f"trainer.resume_from_path={point.path}" in point.overrides
    for facts in ({"save_freq": 10}, {"async_save": True}, {"keeps": 1}):
        point = resume_point(run, run.read().model_copy(update=facts))
        assert (point.step, point.overrides) == (None, ("trainer.resume_mode=auto",))


@pytest.mark.parametrize("text", ["/a/b_c-1.2", "/a b/c", "/it's", "/a,b=c", "/a\\b", "/${x}"])
def test_a_path_survives_hydras_grammar(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(f"k={hydra_value(text)}")
    value = parsed.value()
    assert (value if isinstance(value, str) else getattr(value, "text", value)) == text


def test_a_run_is_found_by_its_id_its_end_or_its_folder(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "m", {})
    for text in (run.name, run.name[:-2], run.name[-6:], str(run.path)):
        assert find_run(tmp_path, text) == run
