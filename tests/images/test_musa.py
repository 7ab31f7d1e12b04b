"""docker/musa on a stand-in for the MT training-suite image, with what a site brings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.images.bed import Engine, Project, commit, copy_project, interpreter
from tests.images.standin import make_standin, tiny_wheel

pytestmark = pytest.mark.containers

_PLACES = """RUN mkdir -p /home/Megatron-LM/megatron /home/megatron-lm-musa-patch \
    && printf 'one\\ntwo\\n' >/home/Megatron-LM/megatron/x.py"""
PATCH = "--- a/megatron/x.py\n+++ b/megatron/x.py\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"


@dataclass
class Stage:
    project: Project
    site: Path

    def build(self) -> tuple[int, dict[str, object]]:
        done = self.project.reprise("image", "build", "musa", "--json")
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)


def repository(folder: Path) -> str:
    """A tiny stand-in for the plug-in's repository; its commit."""
    (folder / "verl_hardware_plugin").mkdir(parents=True)
    (folder / "verl_hardware_plugin" / "__init__.py").write_text("NAME = 'musa'\n")
    return commit(folder)


@pytest.fixture(scope="module")
def stage(
    engine: Engine, host: str, debian: str, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    home = interpreter("3.10")
    if home is None:
        pytest.skip("no Python 3.10 is here, which the vendor's image has")
    folder = tmp_path_factory.mktemp("musa")
    revision = repository(folder / "plugin")
    (folder / "old").mkdir()
    torch = tiny_wheel(folder / "old", "torch", "2.7.1")
    base = make_standin(
        engine, folder / "base", f"{host}/suite:v1", debian, (home, "3.10"), [torch], _PLACES
    )
    name, _, digest = base.partition("@")
    lock = (
        f'schema = 1\n[image.musa]\nmachines = ["musa"]\nrepository = "{name}"\nwant = "v1"\n'
        f'digest = "{digest}"\n[tree.verl-hardware-plugin]\nmachines = ["musa"]\n'
        f'url = "file://{folder / "plugin"}"\npath = "third_party/verl-hardware-plugin"\n'
        f'commit = "{revision}"\nimport_root = "."\nimport_package = "verl_hardware_plugin"\n'
    )
    places = ["docker", "recipes/hy3/card.toml", "scripts"]
    root = copy_project(folder / "project", places, lock)
    project = Project(root, engine)
    stage = Stage(project, root / "docker" / "musa" / "site")
    code, report = stage.build()
    assert code == 1 and "missing" in report["findings"][0]["message"]  # type: ignore[index]
    done = project.reprise("setup", "verl-hardware-plugin", "--json")
    assert done.returncode == 0, done.stdout
    return stage


def test_without_what_the_site_brings_it_says_so(stage: Stage, engine: Engine) -> None:
    code, report = stage.build()
    assert code == 0, report
    image = str(report["image"])
    about = json.loads(engine.inside(image, "cat /etc/reprise/provenance.json"))
    assert about["unresolved"] == ["mate", "megatron-bridge", "sglang"]
    told = engine.inside(
        image, "python3 -c 'import verl_hardware_plugin as p; print(p.NAME)'; echo $VERL_PLATFORM"
    )
    assert told == "musa\nmusa"
    verified = stage.project.reprise("image", "verify", "musa", "--json")
    assert verified.returncode == 2
    rules = [finding["rule"] for finding in json.loads(verified.stdout)["findings"]]
    assert rules == ["image-unresolved"] * 3


@pytest.mark.full
def test_wheels_and_patches_of_the_site(stage: Stage, engine: Engine, tmp_path: Path) -> None:
    place = stage.site / "patches" / "home%Megatron-LM"
    place.mkdir(parents=True)
    (place / "01-two.patch").write_text(PATCH)
    wheels = [
        tiny_wheel(stage.site, name, "0.5.0", ["torch>=2"])
        for name in ("sglang", "mate", "megatron-bridge")
    ]
    code, report = stage.build()
    assert code == 0, report
    image = str(report["image"])
    assert engine.inside(image, "cat /home/Megatron-LM/megatron/x.py") == "one\nthree"
    about = json.loads(engine.inside(image, "cat /etc/reprise/provenance.json"))
    assert about["unresolved"] == []
    assert set(about["site"]) == {w.name for w in wheels} | {
        "patches/home%Megatron-LM/01-two.patch"
    }
    assert stage.project.reprise("image", "verify", "musa", "--json").returncode == 0

    # A patch that fits only roughly, a wheel that clashes: no image.
    (place / "02-again.patch").write_text(PATCH)
    code, report = stage.build()
    assert code == 1, report
    (place / "02-again.patch").unlink()
    tiny_wheel(stage.site, "triton", "3.0.0", ["torch>=2.8"])
    code, report = stage.build()
    assert code == 1
    assert "triton 3.0.0 asks for torch>=2.8, 2.7.1 is here" in str(report["findings"])
