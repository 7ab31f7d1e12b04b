"""docker/h20 on a stand-in for the guide's image: every instruction runs, with a real engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reprise.core.files import sha256_file
from tests.cluster.bed import standing_bed
from tests.images.bed import Engine, Project, copy_project, interpreter
from tests.images.content import files, holding, left_in
from tests.images.mirror import Mirror, own_mirror
from tests.images.standin import Index, make_standin, tiny_wheel

pytestmark = pytest.mark.containers

PASSWORDS = ("first-secret-4711", "second-secret-4712")
# What two builds of the same sources may differ in.
DIFFER: set[str] = set()


@dataclass
class Stage:
    project: Project
    base: str
    image: str
    report: dict[str, object]
    indexes: tuple[Index, Index]

    def lock(self) -> Path:
        return self.project.root / "versions.lock"


def lock_text(base: str, wheels: list[Path], known: bool = True) -> str:
    repository, _, digest = base.partition("@")
    text = "schema = 1\n"
    text += f'[image.h20]\nmachines = ["h20"]\nrepository = "{repository}"\nwant = "v1"\n'
    text += f'digest = "{digest}"\n'
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        name = name.replace("_", "-")
        hashes = (
            f'sha256 = ["{sha256_file(wheel)}"]' if name != "nvidia-modelopt" else 'unpinned = "x"'
        )
        text += f'[package.{name}]\nmachines = ["h20"]\nname = "{name}"\nversion = "{version}"\n'
        text += f"{hashes}\n"
    if known:
        text += '[contradiction.image-pulp]\nmachines = ["h20"]\ndeclared_by = "image.h20"\n'
        text += 'in_file = "nvidia-modelopt"\ndeclares = "pulp<4.0"\nlocked = "absent"\n'
        text += 'verified_with = "without"\nwhy_right = "not imported"\nnot_when = "it is"\n'
    return text


@pytest.fixture(scope="module")
def stage(
    engine: Engine, host: str, debian: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    home = interpreter("3.12")
    if home is None:
        pytest.skip("no Python 3.12 is here, which the guide's image has")
    folder = tmp_path_factory.mktemp("h20")
    (folder / "old").mkdir()
    inside = [
        tiny_wheel(folder / "old", "transformers", "5.3.0", ["tokenizers>=0.22"]),
        tiny_wheel(folder / "old", "tokenizers", "0.22.2"),
        tiny_wheel(folder / "old", "vllm", "0.23.0", ["transformers!=5.3.0"]),
        tiny_wheel(folder / "old", "megatron-bridge", "0.5.0", ["transformers<5.9,>=5.8.1"]),
    ]
    base = make_standin(engine, folder / "base", f"{host}/verl:v1", debian, (home, "3.12"), inside)
    wheels = [
        tiny_wheel(folder, "transformers", "5.6.0", ["tokenizers>=0.22"]),
        tiny_wheel(folder, "transferqueue", "0.1.8"),
        tiny_wheel(folder, "nvidia-modelopt", "0.44.0rc5", ["pulp<4.0"]),
    ]
    places = ["docker", "recipes/hy3/card.toml", "scripts"]
    root = copy_project(folder / "project", places, lock_text(base, wheels))
    public = Index(wheels[:2], f"reader:{PASSWORDS[0]}")
    nvidia = Index(wheels[2:], f"reader:{PASSWORDS[1]}")
    at = engine.gateway
    with public.serve(at) as first, nvidia.serve(at) as second:
        more = {
            "REPRISE_INDEX_URL": f"http://reader:{PASSWORDS[0]}@{at}:{first}/simple",
            "REPRISE_NVIDIA_INDEX_URL": f"http://reader:{PASSWORDS[1]}@{at}:{second}/simple",
            "PIP_TRUSTED_HOST": at,
        }
        project = Project(root, engine, more)
        done = project.reprise("image", "build", "h20", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        yield Stage(project, base, report["image"], report, (public, nvidia))


def test_what_was_added_and_what_it_says(stage: Stage, engine: Engine) -> None:
    image = stage.image
    assert stage.report["built"] is True
    versions = engine.inside(
        image,
        "python3 -c 'import importlib.metadata as m; print({n: m.version(n) for n in "
        '("transformers", "transferqueue", "nvidia-modelopt", "vllm", "tokenizers")})\'',
    )
    assert versions == (
        "{'transformers': '5.6.0', 'transferqueue': '0.1.8', 'nvidia-modelopt': '0.44.0rc5', "
        "'vllm': '0.23.0', 'tokenizers': '0.22.2'}"
    )
    about = json.loads(engine.inside(image, "cat /etc/reprise/provenance.json"))
    digest = stage.base.partition("@")[2]
    assert about["base_digest"] == digest and about["machine"] == "h20"
    assert "transformers==5.6.0" in about["freeze"]["python3"]
    assert any(line.startswith("openssh-server=") for line in about["system"])
    labels = json.loads(
        engine.docker("image", "inspect", "--format", "{{json .Config.Labels}}", image)
    )
    assert labels["org.opencontainers.image.base.digest"] == digest
    assert labels["io.reprise.lock"] == about["lock_sha256"] and len(about["lock_sha256"]) == 64
    assert labels["org.opencontainers.image.revision"] == about["revision"] != ""
    # Each package came from where it should.
    public, nvidia = stage.indexes
    assert not any("modelopt" in path for path in public.asked)
    assert any("modelopt" in path for path in nvidia.asked)
    assert all("modelopt" in path for path in nvidia.asked)


def test_no_secret_no_cache_and_nothing_of_this_machine(stage: Stage, engine: Engine) -> None:
    own = [b"first-secret", b"second-secret", str(stage.project.root).encode()]
    assert holding(engine, stage.image, own) == []
    added = files(engine, stage.image, stage.base)
    places = ("root/.cache", "var/lib/apt/lists/", "var/cache/apt/archives/", "etc/ssl", "etc/pip")
    places += ("usr/local/share/ca-certificates", "etc/ssh/ssh_host", "tmp/", "run/", "var/log/")
    assert left_in(added, places) == []


@pytest.mark.full
def test_it_is_not_built_twice_and_two_builds_agree(stage: Stage, engine: Engine) -> None:
    first = files(engine, stage.image, stage.base)
    identity = stage.report["id"]
    again = json.loads(stage.project.reprise("image", "build", "h20", "--json").stdout)
    assert again["built"] is False and again["id"] == identity
    anew = json.loads(stage.project.reprise("image", "build", "h20", "--again", "--json").stdout)
    assert anew["built"] is True and anew["image"] == stage.image
    second = files(engine, stage.image, stage.base)
    assert {p for p in first.keys() | second.keys() if first.get(p) != second.get(p)} == DIFFER


def test_another_user_is_an_option(stage: Stage, engine: Engine) -> None:
    done = stage.project.reprise("image", "build", "h20", "--arg", "RUN_AS=reprise", "--json")
    image = json.loads(done.stdout)["image"]
    assert image != stage.image
    assert engine.inside(image, "id -un; test -w /home/reprise && echo home") == "reprise\nhome"
    # Both were created at the same time, as far as the engine says.
    newest = stage.project.reprise("image", "verify", "h20", "--json")
    assert json.loads(newest.stdout)["image"] == image


def test_what_the_lock_does_not_record_is_refused(stage: Stage) -> None:
    text = stage.lock().read_text(encoding="utf-8")
    try:
        stage.lock().write_text(text.partition("[contradiction.")[0])
        done = stage.project.reprise("image", "build", "h20", "--json")
    finally:
        stage.lock().write_text(text)
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert "nvidia-modelopt 0.44.0rc5 asks for pulp<4.0, absent is here" in finding["message"]
    assert "megatron-bridge" not in finding["message"]


def test_another_base_than_the_locked_one_is_refused(stage: Stage, debian: str) -> None:
    done = stage.project.reprise("image", "build", "h20", "--base", debian, "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert stage.base.partition("@")[2] in finding["message"]


def test_verified_against_the_lock(stage: Stage, engine: Engine) -> None:
    good = stage.project.reprise("image", "verify", "h20", "--image", stage.image, "--json")
    assert good.returncode == 0, good.stdout
    report = json.loads(good.stdout)
    assert report["image"] == stage.image and list(report["hosts"]) == ["this machine"]
    text = stage.lock().read_text(encoding="utf-8")
    try:
        stage.lock().write_text(text.replace('"5.6.0"', '"5.8.1"'))
        moved = stage.project.reprise("image", "verify", "h20", "--image", stage.image, "--json")
        absent = stage.project.reprise("image", "verify", "h20", "--json")
    finally:
        stage.lock().write_text(text)
    assert moved.returncode == 1
    told = {f["rule"]: f["message"] for f in json.loads(moved.stdout)["findings"]}
    assert told["image-packages"] == "transformers 5.6.0, the lock has 5.8.1"
    assert "image-lock" in told
    assert absent.returncode == 1 and "no image was built on this machine" in absent.stdout


def test_every_host_of_a_hostfile_is_asked(stage: Stage, engine: Engine, tmp_path: Path) -> None:
    with standing_bed(2) as bed:
        for host in bed.hosts:
            host.env = {"DOCKER_HOST": engine.env["DOCKER_HOST"]}
            bed.restart(host)
        site = tmp_path / "site.toml"
        site.write_text(f'profile = "h20"\n[ssh]\nconfig = "{bed.config}"\n')
        words = ["image", "verify", "h20", "--hostfile", str(bed.hostfile()), "--json", "--image"]
        asked = Project(stage.project.root, engine, {"SITE": str(site)})
        good = asked.reprise(*words, stage.image)
        assert good.returncode == 0, good.stdout
        assert list(json.loads(good.stdout)["hosts"]) == ["node1", "node2"]
        absent = asked.reprise(*words, "reprise/h20:none")
        assert absent.returncode == 1 and absent.stdout.count("does not have") == 2
        # An engine that does not answer is not taken for one that lacks the image.
        bed.hosts[1].env = {"DOCKER_HOST": "unix:///nowhere"}
        bed.restart(bed.hosts[1])
        silent = asked.reprise(*words, stage.image)
        assert silent.returncode == 2, silent.stdout
        assert list(json.loads(silent.stdout)["hosts"]) == ["node1"]


def test_carried_as_a_file(stage: Stage, engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "h20.tar"
    save = ("image", "save", str(file), "--image", stage.image)
    done = stage.project.reprise(*save, "--json")
    assert done.returncode == 0, done.stdout
    assert stage.project.reprise(*save).returncode == 1
    identity = json.loads(done.stdout)["id"]
    engine.docker("image", "rm", stage.image)
    damaged = tmp_path / "bad.tar"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    (tmp_path / "bad.tar.sha256").write_text(
        (tmp_path / "h20.tar.sha256").read_text(encoding="utf-8")
    )
    refused = stage.project.reprise("image", "load", str(damaged), "--json")
    assert refused.returncode == 1 and "was not loaded" in refused.stdout
    absent = stage.project.reprise("image", "verify", "h20", "--image", stage.image, "--json")
    assert absent.returncode == 1 and "does not have" in absent.stdout
    loaded = stage.project.reprise("image", "load", str(file), "--json")
    assert loaded.returncode == 0 and json.loads(loaded.stdout)["loaded"] == [stage.image]
    held = engine.docker("image", "inspect", "--format", "{{.Id}}", stage.image)
    assert held == identity


@pytest.mark.full
def test_packages_of_one_date(stage: Stage, engine: Engine, tmp_path: Path) -> None:
    """A mirror that keeps what was asked of it, then has nothing but that: a snapshot."""
    mirror = Mirror(tmp_path, own_mirror())
    build = ("image", "build", "h20", "--json", "--again")
    with mirror.serve(engine.gateway) as url:
        project = replace(
            stage.project, more=stage.project.more | {"APT_SOURCES": f"{url} bookworm main"}
        )
        system = []
        for mirror.frozen in (False, True):
            mirror.asked.clear()
            done = project.reprise(*build)
            assert done.returncode == 0, done.stdout
            image = json.loads(done.stdout)["image"]
            assert image != stage.image
            log = (project.root / ".cache" / "images" / "h20.log").read_text(encoding="utf-8")
            hosts = set(re.findall(r" (?:Get|Hit|Ign|Err):\d+ (\S+)", log))
            assert hosts == {url}
            debs = [path for path in mirror.asked if path.endswith(".deb")]
            assert any("/openssh-server_" in path for path in debs)
            about = json.loads(engine.inside(image, "cat /etc/reprise/provenance.json"))
            system.append(about["system"])
        assert system[0] == system[1]
        # The image's own sources are the base's again.
        assert url not in engine.inside(image, "grep -rs . /etc/apt/sources.list*")
        # What the snapshot has not is not taken from elsewhere.
        (gone,) = (path for path in mirror.asked if "/openssh-server_" in path)
        (tmp_path / gone.lstrip("/")).unlink()
        done = project.reprise(*build)
    assert done.returncode == 1 and "404" in json.loads(done.stdout)["findings"][0]["message"]
