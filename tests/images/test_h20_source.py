"""docker/h20/Dockerfile.source on a stand-in for the CUDA image: every instruction runs, on small
packages and repositories."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.images.bed import DOCKER, Engine, copy_project
from tests.images.content import files, holding, left_in
from tests.images.standin import Index, tiny_wheel
from tests.images.standin_source import (
    differences,
    pinned,
    repositories,
    source_base,
    tiny_sdist,
    with_commits,
)
from tests.lock.servers import git_daemon

pytestmark = [pytest.mark.containers, pytest.mark.full]

PASSWORD = "third-secret-4713"
IMAGE = "standin/verl-from-source:v1"
_FORCED = "assert os.environ['FLASH_ATTENTION_FORCE_BUILD'] == 'TRUE'\nimport torch"


@dataclass
class Site:
    """Who builds it: a copy of the project, its base, its git host and its pip.conf."""

    engine: Engine
    root: Path
    base: str
    git: str
    conf: Path

    @property
    def source(self) -> Path:
        return self.root / "docker" / "h20" / "source"

    def build(self) -> subprocess.CompletedProcess[str]:
        command = [DOCKER, "build", "--progress", "plain", "--tag", IMAGE]
        command += ["--file", "docker/h20/Dockerfile.source", "--build-arg", f"BASE={self.base}"]
        command += ["--build-arg", f"GIT={self.git}", "--secret", f"id=pip.conf,src={self.conf}"]
        env = {**os.environ, **self.engine.env, "DOCKER_BUILDKIT": "1"}
        return subprocess.run(
            [*command, "."], cwd=self.root, env=env, capture_output=True, text=True, check=False
        )


def archives(folder: Path) -> dict[str, list[Path]]:
    """The archives by the file that pins them: what is built later needs what comes first."""
    library = {"nvidia/nvshmem/__init__.py": "", "nvidia/nvshmem/lib/libnvshmem_host.so.3": "x"}
    library["nvidia/nvshmem/lib/__init__.py"] = ""
    first = [
        tiny_sdist(folder, "pylatexenc", "2.10", {"pylatexenc/__init__.py": ""}),
        tiny_sdist(folder, "nvidia-nvshmem-cu13", "3.4.5", library),
        tiny_sdist(folder, "torch", "2.11.0", {"torch/__init__.py": ""}),
    ]
    flash = tiny_sdist(folder, "flash-attn", "2.8.3", {"flash_attn/__init__.py": ""}, _FORCED)
    content = {f"vllm/{name}.py": f"VALUE = {name!r}\n" for name in ("one", "two")}
    vllm = tiny_sdist(folder, "vllm", "0.23.0", {**content, "vllm/__init__.py": ""})
    return {"requirements.txt": first, "flash-attn.txt": [flash], "vllm.txt": [vllm]}


@pytest.fixture(scope="module")
def site(engine: Engine, debian: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("source")
    root = copy_project(folder / "project", ["docker", ".dockerignore"], "schema = 1\n")
    source = root / "docker" / "h20" / "source"
    made = archives(folder)
    for name, listed in made.items():
        (source / name).write_text(pinned(listed))
    # One of the packages comes from the folder of wheels, as a site's own build would.
    wheel = tiny_wheel(root / "docker" / "wheels", "codetiming", "1.4.0")
    with (source / "requirements.txt").open("a") as file:
        file.write(pinned([wheel]))
    commits = repositories(folder / "git")
    assert with_commits(root / "docker" / "h20" / "Dockerfile.source", commits) == commits.keys()
    index = Index([file for listed in made.values() for file in listed], f"reader:{PASSWORD}")
    at = engine.gateway
    base = source_base(engine, folder / "base", debian)
    with git_daemon(folder / "git", at) as git, index.serve(at) as port:
        conf = folder / "pip.conf"
        url = f"http://reader:{PASSWORD}@{at}:{port}/simple"
        conf.write_text(f"[global]\nindex-url = {url}\ntrusted-host = {at}\n")
        yield Site(engine, root, base, git, conf)


def test_what_only_the_site_has_is_asked_for_before_anything_is_installed(site: Site) -> None:
    done = replace(site, git="").build()
    assert done.returncode != 0 and "apt.sh" not in done.stderr.partition("error: no host")[2]
    assert "error: no host of the repositories is named" in done.stderr
    assert "missing in docker/h20/source: 44483.diff 45589.diff SHA256SUMS" in done.stderr
    differences(site.source)
    (site.source / "45589.diff").write_text("another\n")
    done = replace(site, git="https://me:secret@git.example").build()
    assert "GIT has a password in it" in done.stderr
    assert "45589.diff: FAILED" in done.stdout + done.stderr
    assert "is not the one of SHA256SUMS" in done.stderr


def test_every_instruction_runs(site: Site, engine: Engine) -> None:
    differences(site.source)
    done = site.build()
    assert done.returncode == 0, done.stderr[-4000:]
    names = ["apex", "codetiming", "deepep", "flash-attn", "mbridge", "megatron_lm", "pylatexenc"]
    names += ["torch", "transformerengine", "vllm", "nvidia-nvshmem-cu13"]
    told = engine.inside(
        IMAGE,
        "python -c 'import importlib.metadata as m, json, sys, apex, deepep, mbridge, megatron_lm,"
        "transformerengine, vllm.one, vllm.two; print(json.dumps([vllm.one.VALUE, vllm.two.VALUE,"
        "apex.COMMIT, {n: m.version(n) for n in sys.argv[1:]}]))' " + " ".join(names),
    )
    one, two, commit, versions = json.loads(told)
    assert (one, two, commit) == ("three", "four", 1)
    assert versions["vllm"] == "0.23.0" and versions["flash-attn"] == "2.8.3"
    assert engine.inside(IMAGE, "cat /usr/local/lib/libgdrapi.so.2") == "one"

    assert holding(engine, IMAGE, [PASSWORD.encode()]) == []
    added = files(engine, IMAGE, site.base)
    places = ("root/.cache", "var/lib/apt/lists/", "var/cache/apt/archives/", "etc/pip")
    places += ("tmp/", "run/", "var/log/")
    assert left_in(added, places) == []


def test_a_difference_must_fit_exactly(site: Site) -> None:
    differences(site.source)
    text = (site.source / "44483.diff").read_text(encoding="utf-8")
    (site.source / "44483.diff").write_text(text.replace("-VALUE = 'one'", "-VALUE = 'other'"))
    sums = [f"{name}.diff" for name in ("44483", "45589")]
    told = subprocess.run(["sha256sum", *sums], cwd=site.source, capture_output=True, check=True)
    (site.source / "SHA256SUMS").write_bytes(told.stdout)
    done = site.build()
    assert done.returncode != 0 and "FAILED at 1" in done.stderr
    # The hours before were not repeated for it.
    steps = re.findall(r"^#(\d+) \[stage-1 .*\] RUN", done.stderr, re.M)
    kept = [number for number in steps if f"#{number} CACHED" in done.stderr]
    assert kept == steps[:-1] and len(kept) == 7
