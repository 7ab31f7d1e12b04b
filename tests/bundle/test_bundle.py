from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git

from reprise.bundle.archive import hashed, plan, read_part, write_part
from reprise.bundle.create import create
from reprise.bundle.manifest import FORMAT, Manifest
from reprise.bundle.open import verify_bundle
from reprise.bundle.setup import setup_from_bundle
from reprise.core.errors import OperatorError
from reprise.core.findings import Verdict
from reprise.flows.lock.verify import verify_entries
from reprise.lock import parse_lock, read_lock
from reprise.lock.requirements import pins_sha256, read_pins
from reprise.lock.rows import ThisMachine
from reprise.trees.checkout import Standing, inspect
from reprise.trees.setup import place_tree

ROOT = Path(__file__).resolve().parents[2]
PART = 200_000
CONTENT = random.Random(1).randbytes(700_000)


def wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A real wheel of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "VALUE = 1\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a tree of one submodule, an image and a data file; made once and copied."""
    base = tmp_path_factory.mktemp("original")
    root = base / "project"
    (root / "data").mkdir(parents=True)
    (root / "data/d.parquet").write_bytes(CONTENT)
    upstream, part = Upstream(base), Upstream(base, "part")
    sub = upstream.submodule("ext/part", part, part.commit(1), fetch=True)
    commit = upstream.commit(1)
    tree = run_git(upstream.work, "rev-parse", "HEAD^{tree}")
    (root / "versions.lock").write_text(
        f"""schema = 1
[tree.tool]
machines = ["h20"]
url = "file://{upstream.bare}"
path = "third_party/tool"
commit = "{commit}"
tree = "{tree}"
[tree.tool.submodule."ext/part"]
url = "{sub.url}"
commit = "{sub.commit}"
tree = "{sub.tree}"
fetch = true
[image.base]
machines = ["h20"]
repository = "a/b"
want = "t"
unpinned = "not here"
[data.d]
machines = ["h20"]
repo = "a/b"
revision = "{commit}"
file = "d.parquet"
path = "data/d.parquet"
sha256 = "{hashlib.sha256(CONTENT).hexdigest()}"
"""
    )
    run_git(root, "init", "-q", ".")
    run_git(root, "add", "versions.lock")
    run_git(root, "commit", "-qm", "project")
    place_tree(
        root, "tool", parse_lock((root / "versions.lock").read_text(encoding="utf-8")).tree["tool"]
    )
    return root


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return shutil.copytree(original, tmp_path / "project", symlinks=True)


@pytest.fixture
def with_wheels(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same project with an environment and a package, and an index that has their wheels."""
    index = tmp_path / "index"
    one, two = wheel(index, "one"), wheel(index, "two")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (project / "requirements").mkdir()
    file = project / "requirements/operator.txt"
    file.write_text(f"one==1.0 \\\n    --hash=sha256:{digest(one)}\n")
    with (project / "versions.lock").open("a") as lock:
        lock.write(
            f"""[package.two]
machines = ["h20"]
name = "two"
version = "1.0"
sha256 = ["{digest(two)}"]
[environment.operator]
machines = ["operator"]
requirements = "requirements/operator.txt"
python = "3.11 or 3.12"
folder = ".venv"
sha256 = "{digest(file)}"
pins_sha256 = "{pins_sha256(read_pins(file))}"
"""
        )
    return project


@pytest.fixture
def offline(tmp_path: Path, project: Path) -> Path:
    """Another machine: the lock alone, and nothing that it could fetch from."""
    root = tmp_path / "offline"
    root.mkdir()
    text = (project / "versions.lock").read_text(encoding="utf-8")
    (root / "versions.lock").write_text(text.replace("file://", "file:///nowhere"))
    return root


def make(project: Path, target: Path, part_size: int | None = PART) -> list[Path]:
    report = create(project / "versions.lock", target, [], "h20", part_size)
    assert report.verdict is Verdict.OK, report.findings
    assert not target.with_name(f"{target.name}.work").exists()
    return [Path(row["file"]) for row in report.data["parts"]]


def test_two_commands_for_one_bundle_take_turns(project: Path, tmp_path: Path) -> None:
    """The first removes its folder at the end: the second, which waited in it, makes one anew."""
    work = tmp_path / "b.work"
    work.mkdir()
    other = (work / ".lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    steps = []

    def on_step(title: str, done: int, total: int | None) -> None:
        steps.append(title)
        if title.startswith("waiting") and not other.closed:
            shutil.rmtree(work)
            other.close()

    report = create(project / "versions.lock", tmp_path / "b", [], "h20", PART, on_step=on_step)
    assert report.verdict is Verdict.OK, report.findings
    assert steps[:2] == ["checking entries", "waiting for another bundle create"]
    assert other.closed and not work.exists()


def test_everything_that_is_missing_is_reported_before_any_work(
    with_wheels: Path, tmp_path: Path
) -> None:
    shutil.rmtree(with_wheels / "third_party/tool")
    (with_wheels / "data/d.parquet").write_bytes(CONTENT[:-1])
    (with_wheels / "requirements/operator.txt").unlink()
    report = create(with_wheels / "versions.lock", tmp_path / "b", [], "h20")
    found = {finding.rule: finding for finding in report.errors()}
    assert list(found) == ["tree.tool", "data.d", "environment.operator"]
    assert "is not a checkout of it, expected commit" in found["tree.tool"].message
    assert found["tree.tool"].fix == "`reprise setup tree.tool`"
    assert found["data.d"].fix.endswith("`reprise data fetch data.d`")
    assert list(tmp_path.glob("b*")) == []


def test_parts_come_one_at_a_time_to_a_machine_without_network(
    project: Path, offline: Path, tmp_path: Path
) -> None:
    parts = make(project, tmp_path / "b")
    assert len(parts) > 3
    assert all(path.stat().st_size <= PART for path in parts)
    assert verify_bundle(tmp_path / "b").verdict is Verdict.OK
    names = ["tree.tool", "data.d"]
    for left in range(len(parts) - 1, 0, -1):
        part = parts.pop(random.Random(left).randrange(len(parts)))
        report = setup_from_bundle(offline / "versions.lock", part, names, "h20")
        assert report.exit_code == 2
        assert len(report.data["missing"]) == left
        part.unlink()
    report = setup_from_bundle(offline / "versions.lock", parts[0], names, "h20")
    assert report.verdict is Verdict.OK, report.findings
    tree = parse_lock((project / "versions.lock").read_text(encoding="utf-8")).tree["tool"]
    checkout = offline / "third_party/tool"
    assert inspect(checkout, tree.commit or "", tree.tree).standing is Standing.OK
    assert (checkout / "ext/part/file1.txt").exists()
    assert (offline / "data/d.parquet").read_bytes() == CONTENT
    again = setup_from_bundle(offline / "versions.lock", parts[0], names, "h20")
    assert again.verdict is Verdict.OK
    assert again.data["trees"][0]["state"] == "already"


def test_the_wheels_of_environments_and_packages_come_along(
    with_wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_wheels / "versions.lock"
    report = create(path, tmp_path / "b", ["package.two"], "h20")
    assert report.data["entries"] == ["package.two", "environment.operator"]
    names = {item.path for item in read_part(tmp_path / "b").items}
    assert {"wheels/one-1.0-py3-none-any.whl", "wheels/two-1.0-py3-none-any.whl"} <= names
    wheel(tmp_path / "index", "two").write_bytes(b"not the locked wheel")
    report = create(path, tmp_path / "c", ["package.two"], "h20")
    assert [item.where for item in report.errors()] == ["two"]
    assert not (tmp_path / "c").exists()


def test_verls_config_files_come_along_for_the_check_of_recipes(
    with_wheels: Path, tmp_path: Path
) -> None:
    verl = wheel(tmp_path / "index", "verl", "0.9.0")
    file = with_wheels / "requirements/verl-configs.txt"
    file.write_text(f"verl==0.9.0 \\\n    --hash=sha256:{digest(verl)}\n")
    lock = with_wheels / "versions.lock"
    assert create(lock, tmp_path / "b", ["data.d"], "h20").verdict is Verdict.OK
    away = shutil.copytree(with_wheels / "requirements", tmp_path / "away/requirements").parent
    shutil.copy(lock, away)
    for _ in range(2):
        report = setup_from_bundle(away / "versions.lock", tmp_path / "b", ["data.d"], "h20")
        assert report.verdict is Verdict.OK, report.findings
        assert (away / ".cache/verl-0.9.0/verl.py").read_text(encoding="utf-8") == "VALUE = 1\n"
    # Without an index that has them there is no bundle.
    file.write_text(f"verl==0.9.0 \\\n    --hash=sha256:{'0' * 64}\n")
    report = create(lock, tmp_path / "c", ["data.d"], "h20")
    assert [item.rule for item in report.errors()] == ["bundle-configs"]


def test_a_build_of_torch_for_the_cpu_is_preferred(with_wheels: Path, tmp_path: Path) -> None:
    index, path = tmp_path / "index", with_wheels / "versions.lock"
    builds = [wheel(index, "torch"), wheel(index, "torch", "1.0+cpu")]
    file = with_wheels / "requirements/operator.txt"
    before = digest(file), pins_sha256(read_pins(file))
    hashes = " ".join(f"--hash=sha256:{digest(build)}" for build in builds)
    file.write_text(f"{file.read_text(encoding='utf-8')}torch==1.0 {hashes}\n")
    text = path.read_text(encoding="utf-8").replace(before[0], digest(file))
    path.write_text(text.replace(before[1], pins_sha256(read_pins(file))))
    create(path, tmp_path / "b", ["package.two"], "h20")
    names = {Path(item.path).name for item in read_part(tmp_path / "b").items}
    assert "torch-1.0+cpu-py3-none-any.whl" in names
    assert "torch-1.0-py3-none-any.whl" not in names


def test_one_flipped_bit_anywhere_is_refused_with_the_part(
    project: Path, offline: Path, tmp_path: Path
) -> None:
    parts = make(project, tmp_path / "b")
    choose = random.Random(7)
    # Every kind of place: headers, manifest, contents, padding, the end.
    places = [(part, at) for part in parts for at in (0, 100, 512, 700, part.stat().st_size - 1)]
    places += [(part := choose.choice(parts), choose.randrange(PART // 2)) for _ in range(40)]
    for part, at in places:
        content = bytearray(part.read_bytes())
        content[at % len(content)] ^= 1 << choose.randrange(8)
        good = part.read_bytes()
        part.write_bytes(content)
        report = verify_bundle(tmp_path / "b")
        assert [item.where for item in report.errors()] == [part.name], at
        with pytest.raises(OperatorError, match="damaged") as caught:
            setup_from_bundle(offline / "versions.lock", part, ["tree.tool"], "h20")
        assert caught.value.where == part.name
        part.write_bytes(good)
    assert not (offline / "third_party").exists()
    assert verify_bundle(tmp_path / "b").verdict is Verdict.OK


def test_a_cut_or_longer_or_missing_part(project: Path, tmp_path: Path) -> None:
    parts = make(project, tmp_path / "b")
    good = parts[1].read_bytes()
    for content in (good[:-1], good[: len(good) // 2], good + b"\0", b"", b"something else" * 99):
        parts[1].write_bytes(content)
        assert verify_bundle(tmp_path / "b").exit_code == 1
    parts[1].unlink()
    report = verify_bundle(tmp_path / "b")
    assert report.exit_code == 2
    assert report.data["missing"] == [2]
    with pytest.raises(OperatorError, match="no such bundle"):
        verify_bundle(tmp_path / "other")


def test_creation_takes_up_where_it_stopped(project: Path, tmp_path: Path) -> None:
    parts = make(project, tmp_path / "b")
    # The state that an interruption between two parts leaves: some parts, and what was staged.
    before = {part: part.stat().st_ino for part in parts}
    removed = parts[-1].read_bytes()
    parts[-1].unlink()
    again = make(project, tmp_path / "b")
    assert again == parts
    assert parts[-1].read_bytes() == removed
    assert {part: part.stat().st_ino for part in parts[:-1]} == {
        part: before[part] for part in parts[:-1]
    }


def test_nothing_else_is_overwritten(project: Path, tmp_path: Path) -> None:
    target = tmp_path / "b"
    target.write_bytes(b"precious")
    with pytest.raises(OperatorError, match="not a valid part"):
        create(project / "versions.lock", target, ["tree.tool"], "h20")
    assert target.read_bytes() == b"precious"
    target.unlink()
    make(project, target, None)
    (project / "data/d.parquet").unlink()
    with pytest.raises(OperatorError, match="another bundle"):
        create(project / "versions.lock", target, ["tree.tool"], "h20")


def test_what_is_not_as_locked_does_not_go_in(project: Path, tmp_path: Path) -> None:
    (project / "data/d.parquet").write_bytes(CONTENT[:-1])
    (project / "third_party/tool/tool/__init__.py").write_text("mine\n")
    report = create(project / "versions.lock", tmp_path / "b", [], "h20")
    assert {item.where for item in report.errors()} == {"data.d", "tree.tool"}
    assert not (tmp_path / "b").exists()


def test_a_data_file_that_differs_is_not_overwritten(
    project: Path, offline: Path, tmp_path: Path
) -> None:
    make(project, tmp_path / "b", None)
    (offline / "data").mkdir()
    (offline / "data/d.parquet").write_bytes(b"mine")
    report = setup_from_bundle(offline / "versions.lock", tmp_path / "b", ["data.d"], "h20")
    (finding,) = report.errors()
    assert "was not touched" in finding.message
    assert (offline / "data/d.parquet").read_bytes() == b"mine"


def test_data_goes_where_the_recipes_look_for_it(
    project: Path, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, tmp_path / "b", None)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "share"))
    setup_from_bundle(offline / "versions.lock", tmp_path / "b", ["data.d"], "h20")
    assert (tmp_path / "share/data/d.parquet").read_bytes() == CONTENT
    assert not (offline / "data").exists()
    lock = read_lock(offline / "versions.lock")
    assert verify_entries(lock, ["data.d"], ThisMachine(offline))[1][0].state == "ok"
    assert (
        verify_entries(lock, ["data.d"], ThisMachine(offline, data=offline))[1][0].state
        == "missing"
    )


def test_a_bundle_of_another_commit_is_refused(
    project: Path, offline: Path, tmp_path: Path
) -> None:
    make(project, tmp_path / "b", None)
    path = offline / "versions.lock"
    tree = parse_lock(path.read_text(encoding="utf-8")).tree["tool"]
    path.write_text(path.read_text(encoding="utf-8").replace(tree.commit or "", "3" * 40))
    report = setup_from_bundle(path, tmp_path / "b", ["tree.tool"], "h20")
    assert report.verdict is Verdict.PROBLEM
    assert any("has commit" in item.message for item in report.errors())
    assert any(item.rule == "bundle-lock" for item in report.findings)
    assert not (offline / "third_party/tool").exists()


@pytest.mark.parametrize("size", [PART, None])
def test_a_machine_with_a_shell_alone_can_open_it(
    project: Path, tmp_path: Path, size: int | None
) -> None:
    parts = make(project, tmp_path / "b", size)
    script = ROOT / "scripts/unbundle.sh"
    into = tmp_path / "opened"
    subprocess.run(["sh", str(script), str(into), *map(str, parts)], check=True)
    manifest = read_part(parts[0])
    assert {str(path.relative_to(into)) for path in into.rglob("*") if path.is_file()} == {
        item.path for item in manifest.items
    }
    for item in manifest.items:
        assert digest(into / item.path) == item.sha256
    run_git(tmp_path, "clone", "-q", str(into / "git/project.bundle"), "cloned")
    assert (tmp_path / "cloned/versions.lock").exists()


@pytest.mark.parametrize("fault", ["missing", "changed", "mixed"])
def test_the_shell_compares_parts_and_sums(project: Path, tmp_path: Path, fault: str) -> None:
    parts = make(project, tmp_path / "b", PART)
    given = [str(path) for path in parts]
    if fault == "missing":
        del given[1]
    elif fault == "changed":
        content = bytearray(parts[-1].read_bytes())
        place = content.rindex(b"\1", 0, len(content) - 2048) if b"\1" in content else 2000
        content[place] ^= 1
        parts[-1].write_bytes(bytes(content))
    else:
        (project / "new.txt").write_text("x")
        run_git(project, "add", "-A")
        run_git(project, "-c", "user.name=u", "-c", "user.email=u@h", "commit", "-qm", "c")
        given[-1] = str(make(project, tmp_path / "other", PART)[-1])
    script = ROOT / "scripts/unbundle.sh"
    done = subprocess.run(
        ["sh", str(script), str(tmp_path / "opened"), *given],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    words = {
        "missing": "missing of",
        "changed": "differ from the manifest",
        "mixed": "another bundle",
    }
    assert words[fault] in done.stderr and "fix: " in done.stderr
    assert not (tmp_path / "opened/versions.lock").exists()


def test_what_the_bundle_lacks_is_an_error(project: Path, offline: Path, tmp_path: Path) -> None:
    make(project, tmp_path / "b", None)
    path = offline / "versions.lock"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text + '\n[data.more]\nmachines = ["h20"]\nrepo = "a/b"\nfile = "c"\npath = "d"\n'
    )
    report = setup_from_bundle(path, tmp_path / "b", ["data.more"], "h20")
    assert report.exit_code == 1
    (error,) = [item for item in report.errors() if item.rule == "bundle-complete"]
    assert "data.more" in error.message and error.fix.startswith(
        "reprise bundle create FILE data.more"
    )
    # Without names, one entry of several is a note.
    report = setup_from_bundle(path, tmp_path / "b", [], "h20")
    assert report.exit_code == 0
    assert any("data.more" in item.message for item in report.findings)


def test_a_manifest_cannot_lead_out_of_the_bundle(tmp_path: Path) -> None:
    for path in ("../up", "/etc/passwd", "a/../../b", ""):
        item, pieces = hashed(path, Path(__file__), plan([(path, 10)], None)[0])
        manifest = Manifest(1, 1, (item,), tuple(pieces), {})
        write_part(tmp_path / "b", manifest, {path: Path(__file__)})
        with pytest.raises(OperatorError, match="leads out of the bundle"):
            read_part(tmp_path / "b")


def test_a_manifest_of_something_else(tmp_path: Path) -> None:
    for body in (b"[]", b"{}", json.dumps({"format": "other"}).encode(), b"\xff", b"1"):
        info = tarfile.TarInfo(f"manifest-{hashlib.sha256(body).hexdigest()}.json")
        info.size = len(body)
        with tarfile.open(tmp_path / "b", "w", format=tarfile.GNU_FORMAT) as file:
            file.addfile(info, io.BytesIO(body))
        with pytest.raises(OperatorError, match="damaged, or not a part"):
            read_part(tmp_path / "b")
    assert FORMAT == "reprise-bundle-1"


@pytest.mark.parametrize(
    ("name", "part_size", "rule"),
    [
        ("folder", None, "bundle-exists"),
        ("other", None, "bundle-exists"),
        ("new", 0, "part-size"),
        ("new", 100, "part-size"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_fetched(
    tmp_path: Path, name: str, part_size: int | None, rule: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").write_text("something of the user's")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OperatorError) as caught:
        create(ROOT / "versions.lock", tmp_path / name, [], "operator", part_size)
    assert caught.value.rule == rule
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "other").read_text(encoding="utf-8") == "something of the user's"


def test_parts_too_small_for_their_list_are_refused() -> None:
    with pytest.raises(OperatorError, match="too little room"):
        plan([(f"file{number}", 10) for number in range(1000)], 100_000)


def test_memory_does_not_grow_with_the_bundle(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from reprise.bundle.archive import *\n"
        "from reprise.bundle.manifest import Manifest\n"
        "source = Path(sys.argv[1]); size = source.stat().st_size\n"
        "item, pieces = hashed('f', source, plan([('f', size)], None)[0])\n"
        "write_part(Path(sys.argv[2]), Manifest(1, 1, (item,), tuple(pieces), {}), {'f': source})\n"
        "read_part(Path(sys.argv[2]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for size in (2**20, 200 * 2**20):
        source, target = tmp_path / f"s{size}", tmp_path / f"t{size}"
        with source.open("wb") as file:
            file.truncate(size)
        command = [sys.executable, "-c", code, str(source), str(target)]
        peaks.append(int(subprocess.check_output(command)))
        target.unlink()
    assert peaks[1] - peaks[0] < 32 * 1024


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_keeps_what_is_laid_out(project: Path, offline: Path, tmp_path: Path) -> None:
    parts = make(project, tmp_path / "b")
    cache = offline / ".cache"
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(cache)], check=True)
    try:
        with pytest.raises(OperatorError) as caught:
            setup_from_bundle(offline / "versions.lock", tmp_path / "b", ["tree.tool"], "h20")
        assert caught.value.rule == "disk-space"
        done = len(list(cache.glob("bundles/*/.parts/*")))
        assert 0 < done < len(parts)
        subprocess.run(["mount", "-o", "remount,size=64m", str(cache)], check=True)
        report = setup_from_bundle(offline / "versions.lock", tmp_path / "b", ["tree.tool"], "h20")
        assert report.verdict is Verdict.OK
    finally:
        subprocess.run(["umount", str(cache)], check=True)
