"""docker/cpu whole: built from Debian's packages and the index, run, compared, carried."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.images.bed import ROOT, Engine, copy_project
from tests.images.content import files, holding, left_in
from tests.images.test_cluster import assert_demo_ran, build, demo

pytestmark = [pytest.mark.containers, pytest.mark.full]

# Two builds of the same sources differ in nothing else.
DIFFER: set[str] = set()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as it is now: what is edited while the tests run is not in the image."""
    lock = (ROOT / "versions.lock").read_text(encoding="utf-8")
    return copy_project(tmp_path_factory.mktemp("cpu") / "checkout", ["."], lock)


@pytest.fixture(scope="module")
def image(engine: Engine, debian: str, checkout: Path) -> str:
    return build(engine, debian, root=checkout)


def test_nothing_of_this_machine_is_in_it(
    engine: Engine, debian: str, checkout: Path, image: str
) -> None:
    own = [f"{root}/{name}".encode() for root in (ROOT, checkout) for name in ("reprise", ".venv")]
    if (ca := Path("/usr/local/share/ca-certificates")).is_dir():
        own += [path.read_bytes().splitlines()[1] for path in sorted(ca.glob("*.crt"))]
    assert holding(engine, image, own) == []
    added = files(engine, image, debian)
    places = ("root/.cache", "var/lib/apt/lists/", "var/cache/apt/archives/", "etc/pip")
    places += ("usr/local/share/ca-certificates", "etc/ssh/ssh_host", "tmp/", "var/log/")
    assert left_in(added, places) == []


def test_it_knows_what_it_is(engine: Engine, debian: str, image: str) -> None:
    digest = debian.partition("@")[2]
    about = json.loads(engine.inside(image, "cat /etc/reprise/provenance.json"))
    assert about["base_digest"] == digest
    verify = "/opt/reprise/.venv/bin/reprise lock verify --machine rehearsal --json || test $? != 1"
    report = json.loads(engine.inside(image, verify))
    states = {row["entry"]: row["state"] for row in report["rows"]}
    assert states["environment.rehearsal"] == "ok" and states["provenance"] == "ok"


def test_three_steps_inside_it(engine: Engine, debian: str, image: str, tmp_path: Path) -> None:
    command = [str(ROOT / ".venv/bin/python"), "-m", "reprise", "image", "run", "--image", image]
    command += ["--", "reproduce", "--steps", "3", "--json"]
    env = {**os.environ, **engine.env, "RUNS_DIR": str(tmp_path / "runs")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    # Three steps are too few for a verdict: INCONCLUSIVE is 2.
    assert done.returncode == 2, done.stdout + done.stderr
    folder = Path(report["run"])
    assert folder.is_relative_to(tmp_path) and (folder / "report.html").is_file()
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["state"] == "finished"
    assert folder.stat().st_uid == os.getuid()
    assert engine.docker("ps", "--all", "--quiet", "--filter", "label=io.reprise.run") == ""


def test_the_demo_with_nothing_from_outside(engine: Engine, image: str) -> None:
    assert_demo_ran(engine, demo(engine, image))


def test_two_builds_agree(engine: Engine, debian: str, checkout: Path, image: str) -> None:
    first = files(engine, image, debian)
    assert build(engine, debian, "--again", root=checkout) == image
    second = files(engine, image, debian)
    assert {p for p in first.keys() | second.keys() if first.get(p) != second.get(p)} == DIFFER
