"""Is it still the run that was started: its folder's place, and what its job loads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reprise.cluster.site import Site
from reprise.core.errors import OperatorError
from reprise.core.files import dump_json
from reprise.core.findings import Report, Severity
from reprise.core.project import Project, find_project
from reprise.flows.train import fingerprint as prints
from reprise.flows.train.fingerprint import Change, changes, fingerprint, same_inputs
from reprise.flows.train.job import TrainOptions, prepare_task
from reprise.flows.train.moved import settle_place
from reprise.machines.registry import machine_named
from reprise.runs.state.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "runs", "rehearsal", {"steps": 4})
    with folder.edit() as state:
        state.storage = str(folder.path)
        state.checkpoints = str(folder.path / "checkpoints")
    (folder.path / "config.yaml").write_text(f"dir: {folder.path}/checkpoints\nother: /data\n")
    return folder


def test_a_moved_folder_names_its_new_place(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / run.name
    target.parent.mkdir()
    shutil.move(run.path, target)
    moved = RunFolder(target)
    settle_place(moved, moved.read())
    state = moved.read()
    assert (state.storage, state.checkpoints) == (str(target), str(target / "checkpoints"))
    assert (target / "config.yaml").read_text(
        encoding="utf-8"
    ) == f"dir: {target}/checkpoints\nother: /data\n"
    before = state.to_json()
    settle_place(moved, state)
    assert moved.read().to_json() == before


def test_a_copy_is_refused_and_the_original_untouched(run: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "backup" / run.name
    shutil.copytree(run.path, copy)
    before = run.state_file.read_bytes()
    with pytest.raises(OperatorError, match="a copy of") as told:
        settle_place(RunFolder(copy), RunFolder(copy).read())
    assert told.value.fix == f"reprise train --resume {run.path}"
    assert run.state_file.read_bytes() == before
    # With the original gone, the copy is the run.
    shutil.rmtree(run.path)
    settle_place(RunFolder(copy), RunFolder(copy).read())
    assert RunFolder(copy).read().storage == str(copy)


def test_another_name_of_the_same_folder_changes_nothing(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.path.parent)
    other = RunFolder(tmp_path / "link" / run.name)
    settle_place(other, other.read())
    assert run.read().storage == str(run.path)


def test_a_renamed_folder_and_an_open_attempt_are_refused(run: RunFolder) -> None:
    renamed = RunFolder(run.path.rename(run.path.with_name("best")))
    with pytest.raises(OperatorError, match="was renamed"):
        settle_place(renamed, renamed.read())
    back = RunFolder(renamed.path.rename(run.path))
    back.begin_attempt(None)
    moved = RunFolder(back.path.rename(back.path.parent.parent / back.name))
    with pytest.raises(OperatorError, match="while an attempt is open"):
        settle_place(moved, moved.read())


def test_only_what_both_could_see_is_compared() -> None:
    then = {"code/a.py": "1", "code/b.py": "2", "data/x": "3", "package/torch": "2.1"}
    now = {"code/a.py": "1", "code/b.py": "9", "code/c.py": "4", "package/torch": "2.2"}
    assert changes(then, now) == [
        Change("code/b.py", "2", "9"),
        Change("code/c.py", None, "4"),
        Change("package/torch", "2.1", "2.2"),
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Project:
    """A copy of the project as it would be packed, with a reward function of a recipe's own."""
    root = tmp_path / "project"
    own = find_project().root
    kept = ("recipes", "requirements", "versions.lock", "runtime_env.yaml")
    root.mkdir()
    # Where verl's configuration is found, or fetched once for all tests.
    for name in (".cache", ".venv-rehearsal"):
        (root / name).symlink_to(own / name)
    for name in kept:
        source = own / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, root / name)
    return Project(root)


def test_a_changed_operator_in_a_reward_function_is_named(
    checkout: Project, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = next((checkout.recipes / "qwen3-8b").glob("*.py"), None)
    if reward is None:
        reward = checkout.recipes / "qwen3-8b" / "reward.py"
        reward.write_text("def score(a, b):\n    return a == b\n")
    task = prepare_task(
        checkout, TrainOptions("qwen3-8b"), Site(), machine_named("s5000"), "python3"
    )
    first = fingerprint(task, task.package())
    name = f"code/{reward.relative_to(checkout.root)}"
    assert name in first and not any("/hy3/" in known for known in first)
    dump_json(run.path / prints.FILE, first)
    report = Report("train")
    assert same_inputs(report, run, task, task.package()) == []
    reward.write_text(reward.read_text(encoding="utf-8").replace("==", "!="))
    # A page for people, and another recipe, change nothing of this run.
    (checkout.recipes / "qwen3-8b" / "README.md").write_text("changed")
    (checkout.recipes / "hy3" / "other.py").write_text("changed = 1\n")
    assert [change.name for change in same_inputs(report, run, task, task.package())] == [name]
    (finding,) = report.findings
    assert finding.severity is Severity.ERROR and "--force train-changed" in finding.fix
    assert first[name][:12] in finding.message
