"""Recipes outside the project: found by every command, and shipped with a job."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.project import Project
from reprise.flows.train.outside import ship
from reprise.recipe.card import card_of
from reprise.recipe.config.origin import Origins
from reprise.recipe.folders import home_of, recipe_folder, recipe_folders, recipe_names
from reprise.recipe.load import load
from reprise.recipe.show import command_line

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "recipes"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my recipes"
    shutil.copytree(OWN / "qwen3-8b", folder / "mine")
    monkeypatch.setenv("REPRISE_RECIPES", str(folder))
    monkeypatch.setenv("SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")
    return folder


def test_a_recipe_outside_is_found_by_its_name(outside: Path) -> None:
    assert {"mine", "hy3"} < set(recipe_names(OWN))
    assert (home_of(OWN, "mine"), home_of(OWN, "hy3")) == (outside, OWN)
    assert card_of(OWN, "mine").title == card_of(OWN, "qwen3-8b").title
    text = (outside / "mine/recipe.yaml").read_text()
    (outside / "mine/recipe.yaml").write_text(text.replace("16384", "8192"))
    loaded = load(ROOT, "mine")
    assert loaded.composition.values["data"]["max_response_length"] == 8192
    assert loaded.known.environment["VERL_PLATFORM"] == "musa"
    origins = Origins(loaded.composition, OWN)
    assert origins.where("data.max_response_length").startswith(f"{outside}/mine/recipe.yaml:")
    assert origins.where("data.train_batch_size").startswith("recipes/common/")


def test_the_site_file_names_folders(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRISE_RECIPES")
    site = outside.parent / "site.toml"
    site.write_text(f'[paths]\nrecipes = ["{outside}"]\n')
    assert home_of(OWN, "mine") == outside
    site.write_text('[paths]\nrecipes = ["relative"]\n')
    with pytest.raises(OperatorError, match="absolute"):
        recipe_folders(OWN)


def test_a_folder_is_searched_once(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_RECIPES", f"{outside}:{OWN}:{outside}/")
    assert len(recipe_folders(OWN)) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [("/nowhere/at/all", "does not exist"), ("{outside}/mine", "name the folder above it")],
)
def test_a_wrong_folder_is_named(
    outside: Path, monkeypatch: pytest.MonkeyPatch, value: str, words: str
) -> None:
    monkeypatch.setenv("REPRISE_RECIPES", value.format(outside=outside))
    with pytest.raises(OperatorError) as raised:
        recipe_names(OWN)
    assert words in f"{raised.value.message} {raised.value.fix}"


def test_a_name_that_two_folders_have_is_refused(outside: Path) -> None:
    shutil.copytree(OWN / "qwen3-8b", outside / "hy3")
    with pytest.raises(OperatorError, match="two recipes"):
        card_of(OWN, "hy3")
    for name in ("nowhere", "..", "", "mine/../mine"):
        with pytest.raises(OperatorError, match="unknown recipe"):
            card_of(OWN, name)
    assert recipe_folder(OWN, "new") == OWN / "new"


def test_the_copy_in_a_job_composes_as_the_original(outside: Path, tmp_path: Path) -> None:
    """Hydra itself, with the job's command line, in a folder like the unpacked package."""
    loaded = load(ROOT, "mine")
    assert loaded.outside == outside
    root = tmp_path / "package"
    shutil.copytree(OWN, root / "recipes", ignore=shutil.ignore_patterns("reference*", "model"))
    for _ in range(2):  # a second run replaces the first one's copy
        copy = ship(Project(root).root, outside, "mine", loaded.composition)
    assert copy == root / ".recipes/mine"
    assert sorted(path.name for path in copy.parent.iterdir()) == ["mine"]
    script = root / "show.py"
    script.write_text(
        "import hydra\n"
        "@hydra.main(config_path=None, version_base=None)\n"
        "def main(cfg): print('LENGTH', cfg.data.max_response_length, cfg.data.train_batch_size)\n"
        "main()\n"
    )
    line = command_line("mine", [], loaded.outside)
    line = line.replace("-m verl.trainer.main_ppo", "show.py")
    line = line.replace("pkg://verl.trainer.config", f"file://{loaded.tree.config}")
    line = line.replace("python3", shlex.quote(sys.executable), 1)
    done = subprocess.run(
        ["sh", "-c", line], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )
    batch = loaded.composition.values["data"]["train_batch_size"]
    assert done.returncode == 0, done.stderr
    assert f"LENGTH 16384 {batch}" in done.stdout
