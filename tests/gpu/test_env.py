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
    return script("env")


def script(name: str) -> ModuleType:
    """A script of scripts/gpu, which imports those beside it as it does when it is run."""
    folder = str(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", SCRIPT.with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
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
        env.find_site(str(tmp_path), env.KINDS["vllm"])
    (tmp_path / "vllm").mkdir()
    assert env.find_site(str(tmp_path), env.KINDS["vllm"]) == tmp_path
    with pytest.raises(env.Problem, match="it has no sglang"):
        env.find_site(str(tmp_path), env.KINDS["sglang"])


@pytest.mark.parametrize(("rollout", "name"), [("vllm", "gpu"), ("sglang", "gpu-sglang")])
def test_what_the_lock_says_the_machine_brings_is_what_the_site_tree_leaves_out(
    env: ModuleType, rollout: str, name: str
) -> None:
    from reprise.flows.target import gpu_environment
    from reprise.lock.read import read_lock
    from reprise.trees.environments import rollout_options

    lock = read_lock(ROOT / "versions.lock")
    environment, kind = lock.environment[name], env.KINDS[rollout]
    pins = (ROOT / environment.requirements).read_text(encoding="utf-8")
    names = set(environment.provided) - {"python", "cuda", "driver"}
    assert names >= {"torch", "triton", "numpy"}
    assert all(f"\n{name}==" not in f"\n{pins}" for name in names)
    assert set(env.PROVIDED) >= names
    # The script, the flows and the lock mean the same folder and the same requirements.
    assert rollout_options(environment) == ([] if rollout == "vllm" else ["--rollout", rollout])
    assert kind.venv.name == environment.folder == gpu_environment(rollout)
    assert environment.requirements == f"requirements/{kind.requirements}.txt"
    assert f"\n{kind.package}==" in f"\n{pins}"


def test_the_two_environments_agree_in_all_that_trains() -> None:
    from reprise.lock.requirements import read_pins

    vllm, sglang = (
        {pin.name: pin.version for pin in read_pins(ROOT / f"requirements/{name}.txt")}
        for name in ("gpu", "gpu-sglang")
    )
    differing = {name for name in vllm.keys() & sglang.keys() if vllm[name] != sglang[name]}
    # SGLang pins these three; none of them computes a gradient.
    assert differing == {"apache-tvm-ffi", "openai", "openai-harmony"}
    assert {"torch", "flashinfer-python", "ipython"}.isdisjoint(sglang)


SGLANG_IMPORTS = """
from flashinfer.sampling import min_p_sampling_from_probs, top_k_top_p_sampling_from_probs
from flashinfer.prefill import cudnn_batch_prefill_with_kv_cache
from IPython.display import HTML, display
import IPython
assert IPython.get_ipython() is None
display(HTML("<b>text</b>"))
for call in (min_p_sampling_from_probs, cudnn_batch_prefill_with_kv_cache):
    try: call(1, key=2)
    except RuntimeError as error: print(error)
"""


def test_stand_ins_say_what_is_missing_and_never_hide_the_real_package(
    env: ModuleType, tmp_path: Path
) -> None:
    site, venv = tmp_path / "site", tmp_path / "venv"
    (site / "sglang").mkdir(parents=True)
    facts = {"python": env.base_facts(sys.executable)["python"], "site": []}
    env.make_venv(sys.executable, facts, site, venv)
    own = next((venv / "lib").glob("python3*/site-packages"))
    parts = script("sglang_parts")
    assert parts.place_stand_ins(venv, own) == ["IPython", "flashinfer"]
    said = run(venv / "bin/python", SGLANG_IMPORTS).splitlines()
    assert said[0] == "<b>text</b>"
    assert [line.partition(" is FlashInfer's")[0] for line in said[1:]] == [
        "flashinfer.sampling.min_p_sampling_from_probs",
        "flashinfer.prefill.cudnn_batch_prefill_with_kv_cache",
    ]
    assert all("sampling_backend=pytorch" in line for line in said[1:])
    # Later the site tree has FlashInfer itself.
    (site / "flashinfer").mkdir()
    (site / "flashinfer/__init__.py").write_text("REAL = 1\n")
    assert parts.place_stand_ins(venv, own) == ["IPython"]
    assert run(venv / "bin/python", "import flashinfer; print(flashinfer.REAL)") == "1"


def test_bytecode_is_written_once_for_each_state(
    env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on the machine of the trials, whose image forbids it to every Python.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    site, venv = tmp_path / "site", tmp_path / "venv"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm/__init__.py").write_text("A = 1\n")
    (site / "vllm/template.py").write_text("{{ no python }}\n")
    facts = {"python": env.base_facts(sys.executable)["python"], "site": [], "versions": {}}
    env.make_venv(sys.executable, facts, site, venv)
    # Of the project's own folders none.
    monkeypatch.setattr(env, "ROOT", tmp_path)
    env.compile_all(venv, facts, site)
    (written,) = (site / "vllm/__pycache__").glob("__init__.*.pyc")
    first = written.stat().st_mtime_ns
    written.unlink()
    env.compile_all(venv, facts, site)
    assert not written.exists()
    (site / "another").mkdir()
    env.compile_all(venv, facts, site)
    assert written.stat().st_mtime_ns > first


def test_a_machine_without_a_package_of_transformer_engine_is_refused(
    env: ModuleType, tmp_path: Path
) -> None:
    site, venv = tmp_path / "site", tmp_path / "venv"
    (site / "vllm").mkdir(parents=True)
    facts = {"python": env.base_facts(sys.executable)["python"], "site": []}
    env.make_venv(sys.executable, facts, site, venv)
    with pytest.raises(env.Problem, match="onnxscript") as caught:
        env.needs_of_transformer_engine(venv)
    assert "pip install onnxscript" in caught.value.fix
    (site / "onnxscript.py").touch()
    env.needs_of_transformer_engine(venv)
