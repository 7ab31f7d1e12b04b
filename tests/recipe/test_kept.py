"""Compositions that are kept between commands are those that Hydra would make now."""

import os
import shutil
from pathlib import Path

import pytest

from reprise.core.project import find_project
from reprise.recipe.config import compose as composing
from reprise.recipe.config.compose import compose
from reprise.recipe.config.kept import Kept
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import VerlTree, find_tree

ROOT = find_project().root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with recipes of its own, as the working directory."""
    (tmp_path / "versions.lock").write_text("")
    shutil.copytree(ROOT / "recipes/common", tmp_path / "recipes/common")
    (tmp_path / "recipes/mine").mkdir()
    write(tmp_path, "trainer:\n  total_epochs: 7\n")
    monkeypatch.chdir(tmp_path)
    assert find_project().root == tmp_path
    return tmp_path


@pytest.fixture
def tree() -> VerlTree:
    return find_tree(ROOT, "", "0.9.1")


def write(project: Path, body: str) -> None:
    head = "# @package _global_\ndefaults:\n  - /ppo_trainer\n  - _self_\n"
    (project / "recipes/mine/recipe.yaml").write_text(head + body)


def fresh(project: Path, tree: VerlTree, *lines: str) -> dict[str, object]:
    """The values as a new process composes them."""
    composing._loader.cache_clear()
    composing._base.cache_clear()
    made = compose("mine/recipe", tree, [Line(text) for text in lines], project / "recipes")
    return {"values": made.values, "base": made.base, "files": made.files, "faults": made.faults}


def kept(project: Path) -> list[Path]:
    return sorted((project / ".cache/compose").glob("*.pickle"))


def test_what_is_kept_equals_what_is_composed(
    project: Path, tree: VerlTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fresh(project, tree, "trainer.nnodes=3")
    assert kept(project)
    # A second process takes it: Hydra composes nothing any more.
    monkeypatch.setattr(
        composing._RecordingLoader, "load_configuration", lambda *_, **__: pytest.fail("composed")
    )
    assert fresh(project, tree, "trainer.nnodes=3") == first


def test_a_changed_file_is_read(project: Path, tree: VerlTree) -> None:
    assert fresh(project, tree)["values"]["trainer"]["total_epochs"] == 7  # type: ignore[index]
    stat = (project / "recipes/mine/recipe.yaml").stat()
    write(project, "trainer:\n  total_epochs: 8\n")
    os.utime(project / "recipes/mine/recipe.yaml", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fresh(project, tree)["values"]["trainer"]["total_epochs"] == 8  # type: ignore[index]


def test_a_file_behind_a_link_is_read(project: Path, tree: VerlTree) -> None:
    outside = project / "outside"
    shutil.move(project / "recipes/mine", outside)
    (project / "recipes/mine").symlink_to(outside)
    assert fresh(project, tree)["values"]["trainer"]["total_epochs"] == 7  # type: ignore[index]
    write(project, "trainer:\n  total_epochs: 9\n")
    assert fresh(project, tree)["values"]["trainer"]["total_epochs"] == 9  # type: ignore[index]


def test_a_variable_of_the_environment_is_of_now(
    project: Path, tree: VerlTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "trainer:\n  project_name: ${oc.env:WHOSE}\n")
    for value in ("one", "two"):
        monkeypatch.setenv("WHOSE", value)
        found = fresh(project, tree)["values"]
        assert found["trainer"]["project_name"] == value  # type: ignore[index]


@pytest.mark.parametrize("damage", [b"", b"\x80\x05", b"not a pickle"])
def test_a_damaged_one_is_made_again(project: Path, tree: VerlTree, damage: bytes) -> None:
    first = fresh(project, tree)
    for path in kept(project):
        path.write_bytes(damage)
    assert fresh(project, tree) == first


def test_nothing_is_kept_where_it_cannot_be_written(project: Path) -> None:
    (project / ".cache").write_text("a file in its place")
    store = Kept([project])
    store.put(("a",), "b")
    assert store.get(("a",)) is None


def test_the_oldest_go(project: Path) -> None:
    store = Kept([project])
    for number in range(70):
        store.put((number,), number)
    assert len(kept(project)) == 64
    assert store.get((69,)) == 69
