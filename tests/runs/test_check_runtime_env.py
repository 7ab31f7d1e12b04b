from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.findings import Severity, Verdict
from reprise.lock import parse_lock
from reprise.runs.ray.check_runtime_env import check_runtime_env, read_runtime_env
from reprise.runs.ray.working_dir import MIB, walk

ROOT = Path(__file__).resolve().parents[2]
LOCK = parse_lock((ROOT / "versions.lock").read_text(encoding="utf-8"))


def fill(root: Path, files: dict[str, int]) -> None:
    for name, size in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)


def env_file(root: Path, excludes: list[str], python_path: str) -> Path:
    path = root / "runtime_env.yaml"
    body = {"working_dir": "./", "excludes": excludes, "env_vars": {"PYTHONPATH": python_path}}
    path.write_text(json.dumps(body))
    return path


def shipped_by_ray(root: Path, excludes: list[str], gitignore: bool) -> set[str]:
    """What Ray itself puts into the package, read back from the zip it makes."""
    code = (
        "import json, sys, zipfile; from pathlib import Path\n"
        "from ray._private.runtime_env.packaging import create_package\n"
        "target = Path(sys.argv[2])\n"
        "folder, excludes = sys.argv[1], json.loads(sys.argv[3])\n"
        "create_package(folder, target, sys.argv[4] == '1', excludes=excludes)\n"
        "print(json.dumps([n for n in zipfile.ZipFile(target).namelist() if n[-1] != '/']))\n"
    )
    target = root.parent / f"package-{gitignore}.zip"
    arguments = [str(root), str(target), json.dumps(excludes), str(int(gitignore))]
    output = subprocess.check_output([sys.executable, "-c", code, *arguments], text=True)
    return set(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize("gitignore", [True, False])
def test_the_package_is_what_ray_makes(tmp_path: Path, gitignore: bool) -> None:
    root = tmp_path / "w"
    fill(
        root,
        {
            ".git/pack": 10, "a/b.py": 1, "a/.git/pack": 1, "a/lib/c.py": 1, "lib/d.py": 1,
            "logs/x": 1, "a/log.py": 1, "a/keep.log": 1, "data/x.parquet": 1, "deep/data/y.py": 1,
            "sub/build/z.py": 1, "sub/.hidden": 1, "tests/t.py": 1, "a/tests/t.py": 1, "r/s.py": 1,
        },
    )  # fmt: skip
    (root / ".gitignore").write_text("lib/\n*.log\n!keep.log\n/logs\n")
    (root / "a/.gitignore").write_text("log*\n")
    (root / "sub/.gitignore").write_text("build/\n")
    (root / "r/.rayignore").write_text("s.py\n")
    excludes = ["/.git", "/data", "/tests/", "*.pyc"]
    package = walk(root, excludes, gitignore)
    assert set(package.files) == shipped_by_ray(root, excludes, gitignore)
    assert package.bytes == len(package.files) + sum(
        (root / name).stat().st_size - 1 for name in package.files
    )


def test_a_package_that_is_too_big_names_its_largest_folders(tmp_path: Path) -> None:
    root = tmp_path / "verl"
    fill(
        root,
        {
            ".git/pack": 900 * MIB,
            "third_party/Megatron-Bridge/.git/pack": 120 * MIB,
            "third_party/Megatron-Bridge/src/x.py": 10,
            "DAPO-Math-17k/dapo-math-17k.parquet": 290 * MIB,
            "verl/__init__.py": 9,
            **{f"small/f{number}.txt": 100 * 1024 for number in range(300)},
        },
    )
    env = read_runtime_env(env_file(root, ["/.git/"], "third_party/Megatron-Bridge/src"))
    report = check_runtime_env(env, LOCK, "rehearsal")
    finding = next(item for item in report.findings if item.rule == "lock-shipped-size")
    assert finding.severity is Severity.ERROR
    assert "439 MiB" in finding.message
    order = ["DAPO-Math-17k 290 MiB", "third_party/Megatron-Bridge/.git 120 MiB", "small 29 MiB"]
    positions = [finding.message.index(text) for text in order]
    assert positions == sorted(positions)
    assert "/DAPO-Math-17k, /third_party/Megatron-Bridge/.git" in finding.fix
    assert "/small" not in finding.fix, "without the two it is below half"
    assert "absolute paths that every node shares" in finding.fix
    half = read_runtime_env(env_file(root, [".git", "/DAPO-Math-17k"], ""))
    (root / "small/more").write_bytes(b"")
    with (root / "small/more").open("wb") as file:
        file.truncate(30 * MIB)
    report = check_runtime_env(half, LOCK, "rehearsal")
    assert [item.severity for item in report.findings if item.rule == "lock-shipped-size"] == [
        Severity.WARNING
    ]


def test_code_that_an_ignore_file_drops_is_named_with_the_line(tmp_path: Path) -> None:
    root = tmp_path / "t"
    names = ["third_party/X/x/__init__.py", "third_party/X/x/logging.py"]
    names += ["third_party/X/lib/core.py", "pkg/logging.py", "assets/w.pt", "assets/w.safetensors"]
    fill(root, dict.fromkeys(names, 2))
    (root / ".gitignore").write_text("lib/\n**/*.pt\n")
    (root / "third_party/X/.gitignore").write_text("log*\n")
    env = read_runtime_env(env_file(root, [], "third_party/X"))
    package = walk(root, [], respect_gitignore=True)
    assert {item.path: item.because for item in package.dropped} == {
        "assets/w.pt": ".gitignore:2",
        "third_party/X/lib/core.py": ".gitignore:1",
        "third_party/X/x/logging.py": "third_party/X/.gitignore:1",
    }
    report = check_runtime_env(env, LOCK, "rehearsal", respect_gitignore=True)
    errors = {item.where: item for item in report.errors() if item.rule == "lock-shipped-ignored"}
    assert set(errors) == {".gitignore:1", "third_party/X/.gitignore:1"}
    assert "RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1" in errors[".gitignore:1"].fix
    assert check_runtime_env(env, LOCK, "rehearsal").verdict is Verdict.OK


def h20_tree(root: Path) -> None:
    fill(
        root,
        {
            "third_party/verl/verl/__init__.py": 1,
            "third_party/Megatron-Bridge/src/megatron/bridge/__init__.py": 1,
            "third_party/Megatron-LM/megatron/core/__init__.py": 1,
            "third_party/TransferQueue/transfer_queue/__init__.py": 1,
        },
    )


SHIPPED = ROOT / "runtime_env.yaml"


def test_the_shipped_environment_is_right_for_both_platforms(tmp_path: Path) -> None:
    (tmp_path / "runtime_env.yaml").write_bytes(SHIPPED.read_bytes())
    h20_tree(tmp_path)
    report = check_runtime_env(read_runtime_env(tmp_path / "runtime_env.yaml"), LOCK, "h20")
    assert report.verdict is Verdict.OK
    musa = check_runtime_env(read_runtime_env(tmp_path / "runtime_env.yaml"), LOCK, "musa")
    assert [item.message.split()[2] for item in musa.errors()] == [
        "third_party/verl-hardware-plugin"
    ]
    fill(tmp_path, {"third_party/verl-hardware-plugin/verl_hardware_plugin/__init__.py": 1})
    musa = check_runtime_env(read_runtime_env(tmp_path / "runtime_env.yaml"), LOCK, "musa")
    assert musa.verdict is Verdict.OK


def test_a_clone_inside_a_clone_and_a_missing_source_folder(tmp_path: Path) -> None:
    h20_tree(tmp_path)
    queue = tmp_path / "third_party/TransferQueue"
    (queue / "transfer_queue").rename(queue / "moved")
    (queue / "TransferQueue").mkdir()
    (queue / "moved").rename(queue / "TransferQueue/transfer_queue")
    (tmp_path / "third_party/Megatron-Bridge/src").rename(tmp_path / "elsewhere")
    paths = "third_party/verl:third_party/Megatron-Bridge/src:third_party/Megatron-LM"
    paths += ":third_party/TransferQueue"
    env = read_runtime_env(env_file(tmp_path, ["/.git/"], paths))
    one, two = list(check_runtime_env(env, LOCK, "h20").errors())
    assert "should contain megatron/bridge" in one.message and "does not exist" in one.message
    assert "third_party/TransferQueue/TransferQueue/transfer_queue" in two.message
    assert "clone inside a clone" in two.message


def test_an_entry_that_is_excluded_or_forgotten(tmp_path: Path) -> None:
    h20_tree(tmp_path)
    paths = "third_party/verl:third_party/Megatron-Bridge/src:nothing"
    env = read_runtime_env(env_file(tmp_path, ["/third_party/verl/verl"], paths))
    messages = [item.message for item in check_runtime_env(env, LOCK, "h20").errors()]
    assert any("no file of third_party/verl/verl is packed" in text for text in messages)
    assert any("nothing contains no packed file" in text for text in messages)
    assert any("lacks third_party/TransferQueue" in text for text in messages)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("excludes: [\n", "runtime_env.yaml:2"),
        ("- a\n", "runtime_env.yaml"),
        ("excludes: x\n", "runtime_env.yaml"),
        ("working_dir: gcs://x.zip\n", "runtime_env.yaml"),
        ("env_var:\n  PYTHONPATH: x\n", "runtime_env.yaml"),
    ],
)
def test_a_file_that_is_no_runtime_environment(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "runtime_env.yaml"
    path.write_text(text)
    with pytest.raises(OperatorError) as caught:
        read_runtime_env(path)
    assert Path(caught.value.where).name == where
