"""What a job would import from its package beyond the project and the locked commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Verdict
from reprise.core.project import Project
from reprise.flows.package import package_env, refuse_shadowed
from reprise.lock import parse_lock
from reprise.runs.ray.check_runtime_env import check_runtime_env, read_runtime_env
from reprise.runs.ray.importable import (
    check_ignored,
    check_shadowed,
    ignored_in_trees,
    known_modules,
    packages_of,
    pattern_of,
)
from reprise.runs.ray.working_dir import walk

ROOT = Path(__file__).resolve().parents[2]
LOCK = parse_lock((ROOT / "versions.lock").read_text(encoding="utf-8"))
KNOWN = known_modules(ROOT, LOCK)
SHIPPED = yaml.safe_load((ROOT / "runtime_env.yaml").read_text(encoding="utf-8"))


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def shadowed(root: Path, *path: str) -> dict[str, str]:
    """File to fix of what is found in `root` as the package, packed as the project packs."""
    report = Report("test")
    package = walk(root, SHIPPED["excludes"], respect_gitignore=False)
    check_shadowed(report, package, KNOWN, path, packages_of(LOCK))
    return {finding.where: finding.fix for finding in report.findings}


@pytest.mark.parametrize(
    "name",
    [
        "torch.py", "numpy/__init__.py", "yaml.so", "json.py", "tensordict.pyc", "verl/__init__.py",
        "ray.cpython-312-x86_64-linux-gnu.so", "sitecustomize.py", "flash_attn.abi3.so",
        "transformers/__init__.py", "PIL.py", "vllm/__init__.so",
    ],
)  # fmt: skip
def test_a_file_that_hides_a_library_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "reprise/__init__.py")
    assert list(shadowed(tmp_path)) == [name]


@pytest.mark.parametrize(
    "name",
    [
        # Folders without __init__.py hide nothing; own names; caches; data; deeper files.
        "wandb/run-1/files/config.yaml", "torch/notes.txt", "my_reward.py", "rewards/json.py",
        "__pycache__/torch.cpython-311.pyc", ".ipynb_checkpoints/torch.py", "torch.txt",
        "recipes/mine/torch.py", "scripts/json.py", "reprise/core/json.py", "tests/torch.py",
        "torch.dist-info/__init__.py", "Torch.py", "docs/ray.py", "third_party/verl/torch.md",
    ],
)  # fmt: skip
def test_what_hides_nothing_is_not_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    assert shadowed(tmp_path, "third_party/verl") == {}


def test_entries_of_pythonpath_are_looked_at_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        *("third_party/verl/verl/__init__.py", "third_party/verl/torch.py"),
        *("lib/json.py", "elsewhere/json.py"),
    )
    found = shadowed(tmp_path, "third_party/verl", "lib/", "/opt/x", ".")
    assert list(found) == ["third_party/verl/torch.py", "lib/json.py"]


def test_the_project_itself_hides_nothing() -> None:
    assert shadowed(ROOT, *SHIPPED["env_vars"]["PYTHONPATH"].split(":")) == {}


def test_each_named_file_is_what_python_would_import(tmp_path: Path) -> None:
    """The claim itself, tried in an interpreter as Ray starts it: the package comes first."""
    names = ["torch.py", "yaml/__init__.py", "ray.pyc", "json.py"]
    write(tmp_path, *names)
    code = (
        "import importlib.util, json as _, sys\n"
        "print(*(importlib.util.find_spec(n).origin for n in ('torch', 'yaml', 'ray')))\n"
    )
    out = subprocess.check_output(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd="/",
        text=True,
    )
    assert out.split() == [str(tmp_path / name) for name in names[:3]]
    assert sorted(shadowed(tmp_path)) == sorted(names)


@pytest.mark.parametrize("name", ["torch.py", "[ray]/json.py", "#a b/json.py", "!x/json.py "])
def test_the_printed_pattern_excludes_that_file_alone(tmp_path: Path, name: str) -> None:
    other = "sub/" + name
    write(tmp_path, name, other, "a/json.py")
    package = walk(tmp_path, [pattern_of(name)], respect_gitignore=False)
    assert set(package.files) == {other, "a/json.py"}


def test_the_fix_works_as_typed(tmp_path: Path) -> None:
    write(tmp_path, "torch.py")
    (tmp_path / "runtime_env.yaml").write_text(json.dumps(SHIPPED))

    def findings() -> list[tuple[str, str]]:
        env = read_runtime_env(tmp_path / "runtime_env.yaml")
        report = check_runtime_env(env, LOCK, "rehearsal")
        return [(f.rule, f.fix) for f in report.errors() if f.rule == "lock-shipped-shadowed"]

    ((_, fix),) = findings()
    assert "add /torch.py to excludes in runtime_env.yaml" in fix
    changed = {**SHIPPED, "excludes": [*SHIPPED["excludes"], "/torch.py"]}
    (tmp_path / "runtime_env.yaml").write_text(json.dumps(changed))
    assert findings() == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the lock's verl with everything that git can ignore in it."""
    tree = tmp_path / "third_party" / "verl"
    git(tree, "init", "-q")
    (tree / ".gitignore").write_text("wandb/\n*.so\n__pycache__/\n.ipynb_checkpoints\n")
    write(tree, "verl/__init__.py")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "first")
    (tree / ".git/info/exclude").write_text("/mine.py\n/linked\n/clone\n")
    write(
        tree,
        *("wandb/__init__.py", "wandb/run.json", "verl/[x]_C.so", "mine.py"),
        *("verl/__pycache__/a.pyc", ".ipynb_checkpoints/a-checkpoint.py"),
    )
    write(tmp_path, "elsewhere/deep/x.py")
    (tree / "linked").symlink_to(tmp_path / "elsewhere")
    git(tree / "clone", "init", "-q")
    write(tree, "clone/vllm/__init__.py")
    return tree


def git(folder: Path, *words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True)


HIDDEN = [
    ".ipynb_checkpoints/a-checkpoint.py", "clone/vllm/__init__.py", "linked/deep/x.py", "mine.py",
    "verl/[x]_C.so", "wandb/__init__.py",
]  # fmt: skip


def test_ignored_files_of_a_locked_checkout_are_found_and_not_packed(
    tmp_path: Path, checkout: Path
) -> None:
    found = ignored_in_trees(tmp_path, LOCK)
    assert found == [f"third_party/verl/{name}" for name in HIDDEN]
    patterns = [pattern_of(name) for name in found]
    excludes = [*SHIPPED["excludes"], *patterns]
    assert set(walk(tmp_path, excludes, False).files) == {
        "third_party/verl/.gitignore", "third_party/verl/verl/__init__.py",
        "third_party/verl/wandb/run.json", "elsewhere/deep/x.py",
    }  # fmt: skip
    packed = tmp_path.parent / f"{tmp_path.name}.zip"
    code = (
        "import json, sys; from pathlib import Path\n"
        "from ray._private.runtime_env.packaging import create_package\n"
        "create_package(sys.argv[1], Path(sys.argv[2]), False, excludes=json.loads(sys.argv[3]))\n"
    )
    arguments = [str(tmp_path), str(packed), json.dumps(excludes)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
    packed_code = {name for name in names if name.endswith((".py", ".so", ".pyc"))}
    assert packed_code == {"third_party/verl/verl/__init__.py", "elsewhere/deep/x.py"}
    report = Report("test")
    check_ignored(report, found)
    (finding,) = report.findings
    assert finding.where == "third_party/verl" and "6 files" in finding.message
    assert report.verdict is Verdict.OK


def test_the_command_of_the_finding_lists_them(tmp_path: Path, checkout: Path) -> None:
    report = Report("test")
    check_ignored(report, ignored_in_trees(tmp_path, LOCK))
    command = report.findings[0].fix.split("`")[1]
    assert command.startswith("git -C third_party/verl ")
    listed = subprocess.check_output(command, shell=True, cwd=tmp_path, text=True)
    for name in ("mine.py", "wandb/__init__.py", "clone/", "linked"):
        assert name in listed


def test_the_rehearsal_is_refused_before_it_starts(tmp_path: Path) -> None:
    for name in ("versions.lock", "runtime_env.yaml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    made = package_env(Project(tmp_path), (tmp_path / "runtime_env.yaml",), {})
    refuse_shadowed(Project(tmp_path), made)
    write(tmp_path, "torch.py")
    with pytest.raises(OperatorError, match=r"the job would import it as torch"):
        refuse_shadowed(Project(tmp_path), made)


def test_its_package_leaves_ignored_files_out(tmp_path: Path, checkout: Path) -> None:
    for name in ("versions.lock", "runtime_env.yaml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    made = package_env(Project(tmp_path), (tmp_path / "runtime_env.yaml",), {})
    assert "/third_party/verl/verl/\\[x\\]_C.so" in made["excludes"]


def test_a_project_without_checkouts_has_none(tmp_path: Path) -> None:
    assert ignored_in_trees(tmp_path, LOCK) == []
    report = Report("test")
    check_ignored(report, [])
    assert (report.findings, report.verdict) == ([], Verdict.OK)
