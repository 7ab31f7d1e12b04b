"""The GPU environment around a machine's own Python, as far as it can be made without a card."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/gpu/env.py"


@pytest.fixture(scope="module")
def env() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_env", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_site_tree_comes_before_the_machines_packages(env: ModuleType, tmp_path: Path) -> None:
    site, venv = tmp_path / "site", tmp_path / "venv"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm/__init__.py").write_text("HERE = __file__\n")
    # The machine has a tomlkit of its own; the site tree's wins, and what only it has stays.
    (site / "tomlkit").mkdir()
    (site / "tomlkit/__init__.py").write_text("")
    facts = env.base_facts(sys.executable)
    env.make_venv(sys.executable, facts, site, venv)
    python = venv / "bin/python"
    assert run(python, "import tomlkit; print(tomlkit.__file__)").startswith(str(site))
    assert run(python, "import numpy; print(numpy.__file__)").startswith(facts["site"][0])
    code = (
        "from importlib.metadata import entry_points as e;"
        "groups = 'verl.plugins', 'vllm.general_plugins', 'sglang.srt.plugins';"
        "print(*(p.value.removeprefix('reprise_plugins.') for g in groups for p in e(group=g)))"
    )
    assert run(python, code).split() == [
        "verl_entry",
        "experts_entry",
        "vllm_entry:register",
        "written_vllm:register",
        "written_sglang:register",
    ]
    assert (venv / "lib").glob("python3*/site-packages/reprise_plugins/bridges.py")
    # Once more: nothing is there twice.
    env.make_venv(sys.executable, facts, site, venv)
    assert run(python, code).count("verl_entry") == 1


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"python": "3.11.7", "torch": "2.11.0", "cuda": "13.0"}, "is for 3.12"),
        ({"python": "3.12.3"}, "has no torch"),
        ({"python": "3.12.3", "torch": "2.11.0+cpu", "cuda": None}, "without CUDA"),
    ],
)
def test_an_interpreter_that_will_not_do(
    env: ModuleType, facts: dict[str, object], message: str
) -> None:
    with pytest.raises(env.Problem, match=message) as caught:
        env.check_base(facts, "/x/python3")
    assert "GPU_PYTHON" in caught.value.fix


def test_the_command_says_what_is_missing_and_changes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"GPU_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "fix: " in done.stderr and "Traceback" not in done.stderr
    assert not (ROOT / ".venv-gpu").exists()


def test_a_folder_that_is_no_site_tree(env: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(env.Problem, match="is not a site tree"):
        env.find_site(str(tmp_path))


def test_what_the_lock_says_the_machine_brings_is_what_the_site_tree_leaves_out(
    env: ModuleType,
) -> None:
    from reprise.lock.read import read_lock

    lock = read_lock(ROOT / "versions.lock")
    environment = lock.environment["gpu"]
    pins = (ROOT / environment.requirements).read_text(encoding="utf-8")
    names = set(environment.provided) - {"python", "cuda", "driver"}
    assert names >= {"torch", "triton", "numpy"}
    assert all(f"\n{name}==" not in f"\n{pins}" for name in names)
    assert set(env.PROVIDED) >= names
