"""What a build gets and what the files of docker/ say, without an engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Verdict
from reprise.images.base import base_of
from reprise.images.build import BuildOptions, build_image
from reprise.images.files import EPOCH, KINDS, lay_context, revision_of
from reprise.images.judge import judge_images, parse_held
from reprise.images.provenance import verify_provenance
from reprise.images.sources import CA, package_sources
from reprise.lock import read_lock
from reprise.lock.read import machine_hash, parse_lock
from reprise.lock.rows import ThisMachine
from tests.images.bed import ROOT, commit
from tests.images.standin import tiny_wheel

DOCKERFILES = sorted((ROOT / "docker").rglob("Dockerfile*"))
DIGEST = f"sha256:{'a' * 64}"
LOCK = f"""schema = 1
[image.h20]
machines = ["h20"]
repository = "site/verl"
want = "v1"
digest = "{DIGEST}"
[package.tiny]
machines = ["h20"]
name = "tiny"
version = "1.0"
sha256 = ["{"b" * 64}"]
"""


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_floats(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^#\s*syntax", text, re.M)
    assert "<<" not in text and ":latest" not in text
    assert re.findall(r"^FROM (\S+)", text, re.M)[0] == "${BASE}"
    # pip only with hashes, or through what checks versions itself; apt only through apt.sh.
    for command in re.findall(r"pip install[^&]*", text.replace("\\\n", " ")):
        assert "--require-hashes" in command
    assert "apt-get" not in text and "curl" not in text and "wget" not in text


def small(folder: Path) -> Path:
    for name, text in {
        "docker/common/a.sh": "#!/bin/sh\n",
        "docker/h20/Dockerfile": "FROM x\n",
        "docker/wheels/.gitignore": "*\n!.gitignore\n",
        "versions.lock": LOCK,
        "secret.txt": "not for a build\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit(folder)
    return folder


def test_a_context_depends_on_contents_alone(tmp_path: Path) -> None:
    root = small(tmp_path / "p")
    lock = read_lock(root / "versions.lock")
    hashes = []
    for number in range(3):
        if number == 1:
            (root / "docker/common/untracked").write_text("x")
            (root / "docker/common/a.sh").touch()
        if number == 2:
            (root / "docker/common/a.sh").chmod(0o755)
        folder = tmp_path / str(number)
        folder.mkdir()
        hashes.append(lay_context(root, KINDS["h20"], lock, folder))
        placed = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert placed == {"docker/common/a.sh", "docker/h20/Dockerfile", "versions.lock"}
        assert {path.stat().st_mtime for path in folder.rglob("*")} == {EPOCH}
    assert hashes[0] == hashes[1] != hashes[2]
    assert revision_of(root).endswith("-dirty")


def test_wheels_that_the_image_installs_come_along(tmp_path: Path) -> None:
    root = small(tmp_path / "p")
    wheels = tmp_path / "w"
    wheels.mkdir()
    tiny_wheel(wheels, "tiny", "1.0")
    tiny_wheel(wheels, "other", "1.0")
    folder = tmp_path / "c"
    folder.mkdir()
    lay_context(root, KINDS["h20"], read_lock(root / "versions.lock"), folder, [wheels])
    names = [path.name for path in (folder / "docker/wheels").iterdir()]
    assert names == ["tiny-1.0-py3-none-any.whl"]


def test_settings_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, conf = tmp_path / "ca.crt", tmp_path / "pip.conf"
    ca.write_text("x")
    conf.write_text(
        f"[global]\nindex-url = https://own.example/simple\nfind-links = {tmp_path}\n"
        f"extra-index-url = file://{tmp_path} https://more.example/simple\n[install]\ntimeout = 9\n"
    )
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    monkeypatch.setenv("REPRISE_CA", str(ca))
    found = package_sources()
    lines = found.conf.splitlines()
    assert lines[0] == "[global]" and f"cert = {CA}" in lines and "timeout = 9" in lines
    assert "index-url = https://own.example/simple" in lines
    assert "extra-index-url = https://more.example/simple" in lines
    assert any(str(tmp_path) in note for note in found.notes)
    assert found.ca == ca and tmp_path in found.wheels
    monkeypatch.setenv("REPRISE_INDEX_URL", "https://site.example/simple")
    assert "index-url = https://site.example/simple" in package_sources().conf.splitlines()
    monkeypatch.setenv("REPRISE_WHEELS", str(tmp_path))
    alone = package_sources()
    assert "no-index = true" in alone.conf and "index-url" not in alone.conf
    monkeypatch.setenv("REPRISE_CA", str(tmp_path / "none"))
    with pytest.raises(OperatorError, match="file of certificates does not exist"):
        package_sources()


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("", f"site/verl@{DIGEST}"),
        (f"mirror.example/verl@{DIGEST}", f"mirror.example/verl@{DIGEST}"),
        (f"site/verl@sha256:{'c' * 64}", None),
        ("site/verl:v1", None),
    ],
)
def test_a_base_has_the_locked_digest(named: str, told: str | None) -> None:
    lock = parse_lock(LOCK)
    if told is None:
        with pytest.raises(OperatorError, match="expected a base with the locked digest"):
            base_of("no-engine", ROOT, KINDS["h20"], lock, named)
        return
    base = base_of("no-engine", ROOT, KINDS["h20"], lock, named)
    assert (base.reference, base.digest) == (told, DIGEST)


def test_no_password_in_the_sources_of_debian(tmp_path: Path) -> None:
    (tmp_path / "versions.lock").write_text(LOCK)
    args = {"APT_SOURCES": "https://a.example/d x main; https://me:secret@b.example/d x main"}
    with pytest.raises(OperatorError, match="has a password") as told:
        build_image(tmp_path / "versions.lock", KINDS["h20"], BuildOptions(args=args))
    assert "secret" not in str(told.value)


def held(identity: str, about: dict[str, object], *containers: str) -> str:
    lines = [f"= id {identity}", f"= provenance {json.dumps(about)}"]
    return "\n".join([*lines, *(f"= container {text}" for text in containers)])


def test_hosts_are_judged_each_and_together() -> None:
    lock = parse_lock(LOCK)
    good = {
        "machine": "h20",
        "base_digest": DIGEST,
        "lock_sha256": machine_hash(lock, "h20"),
        "freeze": {"python3": ["Tiny==1.0"]},
        "unresolved": [],
    }
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"

    def judged(**hosts: str) -> Report:
        parsed = {name: found for name, text in hosts.items() if (found := parse_held(text))}
        assert len(parsed) == len(hosts)
        return judge_images(lock, "h20", "reprise/h20:x", parsed)

    assert judged(a=held(one, good), b=held(one, good, f"/r {one}")).verdict is Verdict.OK
    cases = {
        "image-id": {"a": held(one, good), "b": held(two, good)},
        "image-running": {"a": held(one, good, f"/r {two}")},
        "image-base": {"a": held(one, good | {"base_digest": f"sha256:{'d' * 64}"})},
        "image-lock": {"a": held(one, good | {"lock_sha256": "0" * 64})},
        "image-packages": {"a": held(one, good | {"freeze": {"python3": ["tiny==2.0"]}})},
        "image-machine": {"a": held(one, good | {"machine": "musa"})},
    }
    for rule, hosts in cases.items():
        report = judged(**hosts)
        assert [finding.rule for finding in report.errors()] == [rule]
    missing = judged(a=held(one, good | {"unresolved": ["sglang"]}))
    assert missing.verdict is Verdict.UNKNOWN
    assert judged(a=f"= id {one}\n= provenance ").verdict is Verdict.UNKNOWN
    assert parse_held("") is None


def test_an_image_knows_itself(tmp_path: Path) -> None:
    python = sys.executable
    code = "import importlib.metadata as m\n"
    code += "for d in m.distributions(): print(f'{d.name}=={d.version}')"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    lock = parse_lock(LOCK)
    file = tmp_path / "provenance.json"
    about = {
        "machine": "h20",
        "lock_sha256": machine_hash(lock, "h20"),
        "freeze": {python: done.stdout.split()},
    }

    def state(changed: dict[str, object]) -> tuple[str, Verdict]:
        file.write_text(json.dumps(about | changed))
        report = Report("lock verify")
        row = verify_provenance(report, lock, ThisMachine(tmp_path, provenance=file))
        return row.state, report.verdict

    assert state({}) == ("ok", Verdict.OK)
    assert state({"lock_sha256": "0" * 64}) == ("drift", Verdict.PROBLEM)
    moved = [line for line in done.stdout.split() if not line.lower().startswith("rich==")]
    assert state({"freeze": {python: moved}}) == ("drift", Verdict.PROBLEM)
    assert state({"freeze": {"/none/python": []}}) == ("unknown", Verdict.UNKNOWN)
    assert state({"freeze": None}) == ("unknown", Verdict.UNKNOWN)
