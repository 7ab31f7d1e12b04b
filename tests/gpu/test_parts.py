"""A bundle for a bare machine: made, cut, put into place part by part by a script of its own."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git

from reprise.bundle.archive import hashed, plan, write_part
from reprise.bundle.create import create
from reprise.bundle.manifest import Manifest
from reprise.bundle.open import verify_bundle
from reprise.bundle.setup import setup_from_bundle
from reprise.bundle.site import read_trim, trim_site
from reprise.core.errors import OperatorError
from reprise.lock.read import read_lock
from reprise.trees.setup import place_tree
from tests.bundle.test_bundle import wheel

ROOT = Path(__file__).resolve().parents[2]
UNPART = ROOT / "scripts/gpu/unpart.py"
PART = 300_000
WEIGHTS = random.Random(7).randbytes(900_000)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one source tree, one site tree of one package, and a built model."""
    root = tmp_path / "project"
    (root / "scripts/gpu").mkdir(parents=True)
    (root / "scripts/gpu/unpart.py").write_bytes(UNPART.read_bytes())
    upstream = Upstream(tmp_path)
    commit = upstream.commit(1)
    tree = run_git(upstream.work, "rev-parse", "HEAD^{tree}")
    digests = {
        name: hashlib.sha256(wheel(tmp_path / "wheels", name).read_bytes()).hexdigest()
        for name in ("tinypack", "newer", "older")
    }
    digest = digests["tinypack"]
    (root / "requirements").mkdir()
    (root / "requirements/gpu.txt").write_text(f"tinypack==1.0 --hash=sha256:{digest}\n")
    # Of these the machine's Python decides, not the one that makes the bundle.
    (root / "requirements/operator.txt").write_text(
        f"newer==1.0 ; python_full_version >= '3.12' --hash=sha256:{digests['newer']}\n"
        f"older==1.0 ; python_full_version < '3.12' --hash=sha256:{digests['older']}\n"
    )
    trim = '[[leave_out]]\npattern = "tinypack-*/RECORD"\nwhy = "nothing reads it"\n'
    (root / "requirements/trim.toml").write_text(trim)
    (root / "versions.lock").write_text(
        f"""schema = 1
[tree.tool]
machines = ["gpu"]
url = "file://{upstream.bare}"
path = "third_party/tool"
commit = "{commit}"
tree = "{tree}"
[package.tinypack]
machines = ["gpu"]
name = "tinypack"
version = "1.0"
sha256 = ["{digest}"]
[environment.gpu]
machines = ["gpu"]
requirements = "requirements/gpu.txt"
python = "3.12"
folder = ".venv-gpu"
trim = "requirements/trim.toml"
[environment.operator]
machines = ["operator"]
requirements = "requirements/operator.txt"
python = "3.11"
folder = ".venv"
"""
    )
    (root / ".gitignore").write_text("/third_party/\n/.cache/\n")
    run_git(root, "init", "-q", "-b", "main")
    run_git(root, "add", "-A")
    run_git(root, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "one")
    lock = read_lock(root / "versions.lock")
    place_tree(root, "tool", lock.tree["tool"])
    (root / ".cache/models/m").mkdir(parents=True)
    (root / ".cache/models/m/model.safetensors").write_bytes(WEIGHTS)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return root


def make(project: Path) -> list[Path]:
    target = project.parent / "out" / "gpu.bundle"
    target.parent.mkdir(exist_ok=True)
    also = [Path(".cache/models")]
    report = create(project / "versions.lock", target, [], "gpu", PART, also=also)
    assert [f"{f.where}: {f.message}" for f in report.errors()] == []
    return [Path(row["file"]) for row in report.data["parts"]]


def unpart(into: Path, *parts: Path) -> subprocess.CompletedProcess[str]:
    # -S -E: the script may use nothing but Python itself.
    command = [sys.executable, "-S", "-E", str(UNPART), str(into), *map(str, parts)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_placed(project: Path, into: Path) -> None:
    placed = into / "project"
    assert (placed / ".cache/models/m/model.safetensors").read_bytes() == WEIGHTS
    assert (placed / "versions.lock").read_bytes() == (project / "versions.lock").read_bytes()
    for path in (project / "third_party/tool").rglob("*"):
        if path.is_file() and ".git" not in path.relative_to(project).parts:
            assert (placed / path.relative_to(project)).read_bytes() == path.read_bytes()
    code = "import tinypack; print(tinypack.VALUE)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(into / "site")},
        check=True,
    )
    assert done.stdout.strip() == "1"
    assert not list((into / "site").rglob("RECORD"))
    assert {path.name for path in (into / "operator").glob("*.py")} == {"newer.py"}


def test_parts_come_one_at_a_time_in_any_order_each_removed_before_the_next(
    project: Path, tmp_path: Path
) -> None:
    parts = make(project)
    assert len(parts) > 3
    assert all(part.stat().st_size <= PART for part in parts)
    assert verify_bundle(parts[0].with_suffix("")).exit_code == 0
    into, left = tmp_path / "opened", list(parts)
    random.Random(3).shuffle(left)
    while left:
        part = left.pop()
        done = unpart(into, part)
        part.unlink()
        assert done.returncode == (2 if left else 0), done.stderr
        for other in left:
            assert str(int(other.name[-3:])) in done.stdout
    check_placed(project, into)


def test_a_part_that_comes_twice_changes_nothing(project: Path, tmp_path: Path) -> None:
    parts = make(project)
    assert unpart(tmp_path / "opened", *parts, parts[0], parts[-1]).returncode == 0
    check_placed(project, tmp_path / "opened")


@pytest.mark.parametrize("share", [0.0005, 0.3, 0.7, 0.95])
def test_a_flipped_bit_is_refused_with_the_name_of_the_part(
    project: Path, tmp_path: Path, share: float
) -> None:
    part = make(project)[1]
    content = bytearray(part.read_bytes())
    content[int(len(content) * share)] ^= 4
    broken = tmp_path / part.name
    broken.write_bytes(content)
    done = unpart(tmp_path / "opened", broken)
    assert done.returncode == 1
    assert part.name in done.stderr and "copy it again" in done.stderr
    # Nothing of it counts: the sound part is taken afterwards.
    assert unpart(tmp_path / "opened", part).returncode == 2


def test_a_cut_part_and_one_of_another_bundle(project: Path, tmp_path: Path) -> None:
    parts = make(project)
    cut = tmp_path / parts[1].name
    cut.write_bytes(parts[1].read_bytes()[:100_000])
    assert unpart(tmp_path / "opened", cut).returncode == 1
    assert unpart(tmp_path / "opened", parts[0]).returncode == 2
    (project / ".cache/models/m/more.json").write_text("{}")
    for part in parts:
        part.unlink()
    other = make(project)[0]
    done = unpart(tmp_path / "opened", other)
    assert done.returncode == 1 and "another bundle" in done.stderr


def test_the_bundle_says_what_it_left_out_and_why_it_may(project: Path, tmp_path: Path) -> None:
    unpart(tmp_path / "opened", *make(project))
    record = json.loads((tmp_path / "opened/site/reprise-site.json").read_text(encoding="utf-8"))
    assert record["python"] == "3.12"
    assert list(record["left_out_bytes"]) == ["tinypack-*/RECORD"]


def test_the_site_tree_with_sglang_stands_beside_that_with_vllm(
    project: Path, tmp_path: Path
) -> None:
    """A machine can have both: each bundle is opened into the same folder, one after the other."""
    lock = project / "versions.lock"
    lock.write_text(
        lock.read_text(encoding="utf-8").replace(
            "[environment.operator]",
            """[environment.gpu-sglang]
machines = ["gpu-sglang"]
requirements = "requirements/gpu.txt"
python = "3.12"
folder = ".venv-gpu-sglang"
trim = "requirements/trim.toml"
[environment.operator]""",
        )
    )
    target = tmp_path / "out" / "sglang.bundle"
    target.parent.mkdir()
    report = create(lock, target, [], "gpu-sglang")
    assert [f.message for f in report.errors()] == []
    assert "environment.gpu" not in report.data["entries"]
    for parts in ([target], make(project)):
        opened = tmp_path / "opened"
        done = unpart(opened, *parts)
        assert done.returncode == 0, done.stderr
    for site in ("site", "site-sglang"):
        assert (opened / site / "tinypack.py").is_file()
        assert (opened / site / "reprise-site.json").is_file()


def test_a_trim_rule_that_fits_nothing_is_an_error(project: Path) -> None:
    (project / "requirements/trim.toml").write_text(
        '[[leave_out]]\npattern = "gone/*"\nwhy = "it was big"\n'
    )
    report = create(project / "versions.lock", project.parent / "b", [], "gpu")
    assert [f.message for f in report.errors()] == ["these patterns match no file: gone/*"]


def test_a_package_of_another_version_than_the_site_trees_is_an_error(project: Path) -> None:
    text = (
        (project / "versions.lock")
        .read_text(encoding="utf-8")
        .replace('version = "1.0"', 'version = "2.0"')
    )
    (project / "versions.lock").write_text(text)
    report = create(project / "versions.lock", project.parent / "b", [], "gpu")
    assert "requirements/gpu.txt pins 1.0, the lock 2.0" in next(report.errors()).message


def test_what_lies_outside_the_project_is_not_carried(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    report = create(
        project / "versions.lock", tmp_path / "b", [], "gpu", also=[tmp_path / "secret"]
    )
    assert [finding.message for finding in report.errors()] == ["not a file inside the project"]
    assert not (tmp_path / "b").exists()


def test_a_missing_tree_is_reported_before_any_site_tree_is_made(project: Path) -> None:
    shutil.rmtree(project / "third_party/tool/.git")
    (project / "requirements/trim.toml").unlink()
    report = create(project / "versions.lock", project.parent / "b", [], "gpu")
    fixes = {finding.rule: finding.fix for finding in report.errors()}
    assert fixes == {
        "tree.tool": "`reprise setup tree.tool`",
        "environment.gpu": f"`git checkout -- requirements/trim.toml` in {project}",
    }
    assert not (project.parent / "b.work").exists()


@pytest.mark.parametrize("name", ["gpu", "gpu-sglang"])
def test_the_projects_own_trim_files_give_a_reason_for_each_rule(name: str) -> None:
    trim = read_trim(ROOT / f"requirements/{name}-trim.toml")
    rules = trim.leave_out
    assert len({rule.pattern for rule in rules}) == len(rules) > 0
    assert all(len(rule.why) >= 5 for rule in (*rules, *trim.moves))


MOVE = """
[[move]]
from = "tinypack/__init__.py"
to = "tinypack/deeper/here.py"
why = "it is looked for there"

[[leave_out]]
pattern = "tinypack/*.txt"
why = "nothing reads it"
"""


def test_a_file_can_stand_where_it_is_looked_for(tmp_path: Path) -> None:
    package = tmp_path / "site/tinypack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("A = 1\n")
    (package / "notes.txt").write_text("12345")
    (tmp_path / "trim.toml").write_text(MOVE)
    trim = read_trim(tmp_path / "trim.toml")
    assert trim_site(tmp_path / "site", trim) == {"tinypack/*.txt": 5}
    there = sorted(p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file())
    assert there == ["deeper/here.py"]
    # The package has changed: what was moved is not where it was.
    with pytest.raises(OperatorError, match=r"tinypack/__init__\.py"):
        trim_site(tmp_path / "site", trim)


@pytest.mark.parametrize("name", ["../x.so", "/etc/passwd", "a//b", "a/./b", ""])
@pytest.mark.parametrize("key", ["from", "to"])
def test_a_move_stays_inside_the_tree(tmp_path: Path, key: str, name: str) -> None:
    old = "tinypack/__init__.py" if key == "from" else "tinypack/deeper/here.py"
    (tmp_path / "trim.toml").write_text(MOVE.replace(f'{key} = "{old}"', f'{key} = "{name}"'))
    with pytest.raises(OperatorError) as caught:
        read_trim(tmp_path / "trim.toml")
    assert caught.value.rule == "site-trim"


def test_each_reader_names_the_command_for_the_other_content(project: Path, tmp_path: Path) -> None:
    parts = make(project)
    bundle = parts[0].with_suffix("")
    with pytest.raises(OperatorError) as caught:
        setup_from_bundle(project / "versions.lock", bundle, [], "gpu")
    assert caught.value.rule == "bundle-content"
    # The fix works as typed, in the shell.
    fix = caught.value.fix.replace("DIR", shlex.quote(str(tmp_path / "opened")))
    subprocess.run(fix, shell=True, cwd=ROOT, check=True, capture_output=True)
    check_placed(project, tmp_path / "opened")

    plain = tmp_path / "plain.bundle"
    wheels = {"wheels/tinypack.whl": wheel(tmp_path / "wheels", "tinypack")}
    (pieces,) = plan([(path, file.stat().st_size) for path, file in wheels.items()], None)
    item, done = hashed(pieces[0].path, wheels[pieces[0].path], pieces)
    write_part(plain, Manifest(1, 1, (item,), tuple(done), {}), wheels)
    refused = unpart(tmp_path / "other", plain)
    assert refused.returncode == 1
    assert f"reprise setup --bundle {plain}" in refused.stderr
