"""The Makefile: its help, and variables that stay data."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_bare_make_prints_every_target() -> None:
    said = make(ROOT).stdout
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.M))
    listed = set(re.findall(r"^  ([a-z][a-z0-9-]*) ", said, re.M))
    assert targets == listed
    assert {"reproduce", "test", "lint", "help"} <= listed


def test_every_target_is_phony() -> None:
    # A folder of a target's name (docs, data) must not make it "up to date".
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)).split())
    assert set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.M)) <= phony


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """The real Makefile over stand-ins that write down their arguments, one a line."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("scripts/venv.sh", ".venv/bin/reprise"):
        script = tmp_path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name}" "$@" >>said\n')
        script.chmod(0o755)
    return tmp_path


def said(stage: Path) -> list[str]:
    return (stage / "said").read_text().splitlines()


def test_reproduce_sets_up_and_runs(stage: Path) -> None:
    assert make(stage, "reproduce").returncode == 0
    assert said(stage) == [
        *["scripts/venv.sh", "operator", "scripts/venv.sh", "rehearsal"],
        *[".venv/bin/reprise", "reproduce", "--", "rehearsal"],
    ]


def test_judging_a_finished_run_needs_no_rehearsal(stage: Path) -> None:
    assert make(stage, "reproduce", "MODEL=hy3", "RUN=/runs/a b", "SEED=3").returncode == 0
    assert said(stage)[2:] == [
        *[".venv/bin/reprise", "reproduce", "--seed", "3", "--run", "/runs/a b", "--", "hy3"]
    ]


def test_a_run_in_a_container_needs_no_rehearsal_here(stage: Path) -> None:
    assert (
        make(stage, "reproduce", "CONTAINER=1", "BASE=debian@sha256:0", "STEPS=3").returncode == 0
    )
    assert said(stage) == [
        *["scripts/venv.sh", "operator", ".venv/bin/reprise", "image", "run"],
        *["--base", "debian@sha256:0", "--", "reproduce", "--steps", "3", "--", "rehearsal"],
    ]


NASTY = "$(shell touch made); touch made `touch made` ' \" $$(touch made) -rf *"


@pytest.mark.parametrize("how", ["command line", "environment"])
def test_a_variable_stays_data(stage: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("RUN", NASTY)
        make(stage, "reproduce", "MODEL=hy3")
    else:
        make(stage, "reproduce", "MODEL=hy3", f"RUN={NASTY}")
    assert not (stage / "made").exists()
    assert said(stage)[2:] == [".venv/bin/reprise", "reproduce", "--run", NASTY, "--", "hy3"]


def test_no_recipe_line_takes_a_variable_from_make() -> None:
    names = re.search(r"^VARIABLES := (.*)$", MAKEFILE, re.M)
    assert names is not None
    for name in names[1].split():
        assert f"$({name})" not in MAKEFILE
        assert f"${{{name}}}" not in MAKEFILE
