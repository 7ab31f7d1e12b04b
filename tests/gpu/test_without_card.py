"""The check of a GPU environment without a GPU, as far as it runs without torch for CUDA."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.test_env import ROOT, script

SCRIPT = ROOT / "scripts/gpu/check_without_card.py"

# All of torch that the inner half touches.
TORCH = """
class cuda:
    pass
"""


def inner(folder: Path, *modules: str, **more: object) -> list[str]:
    """Run the inner half on a folder of modules; what it says does not hold."""
    (folder / "torch.py").write_text(TORCH)
    job = folder / "job.json"
    job.write_text(json.dumps({"modules": modules, "configs": [], "model": "", **more}))
    subprocess.run(
        [sys.executable, str(SCRIPT.with_name("pretended_card.py")), str(job)],
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    wrong: list[str] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return wrong


def test_a_hopper_card_is_pretended_and_every_module_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "sees_a_card.py").write_text(
        "import torch\n"
        "assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)\n"
        "p = torch.cuda.get_device_properties(0)\n"
        "assert p.major * 10 + p.minor == 90 and p.total_memory > 139 << 30\n"
        "import transformer_engine_torch as te\n"
        "class Enum(te.DType): pass\n"
        "assert te.DType.kFloat32 == 0 and te.DType(1, a=2)\n"
    )
    (tmp_path / "lacks_a_package.py").write_text("import nobody_has_this\n")
    (tmp_path / "ends.py").write_text("import sys; sys.exit(3)\n")
    assert inner(tmp_path, "sees_a_card") == []
    wrong = inner(tmp_path, "lacks_a_package", "sees_a_card", "ends")
    assert len(wrong) == 2
    assert "import lacks_a_package: ModuleNotFoundError" in wrong[0]
    assert f"{tmp_path}/lacks_a_package.py:1" in wrong[0]
    assert wrong[1].startswith("import ends: SystemExit: 3")


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("nm")), reason="needs a C compiler")
def test_the_driver_has_what_the_libraries_ask_of_it_and_fails_every_call(tmp_path: Path) -> None:
    check = script("check_without_card")
    site, folder = tmp_path / "site", tmp_path / "stub"
    site.mkdir()
    folder.mkdir()
    source = tmp_path / "a.c"
    source.write_text(
        "int cuMemMap(void); int cudaMalloc(void); int cublasCreate(void);\n"
        "int use(void) { return cuMemMap() + cudaMalloc() + cublasCreate(); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", site / "kernels.abi3.so", source], check=True)
    check.driver_library(site, folder)
    driver = ctypes.CDLL(str(folder / "libcuda.so.1"))
    assert driver.cuMemMap() == 100
    assert not hasattr(driver, "cudaMalloc") and not hasattr(driver, "cublasCreate")


def test_what_is_missing_is_said_and_is_no_verdict(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--python", sys.executable, "--trees", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "lacks verl, Megatron-Bridge/src, Megatron-LM, TransferQueue" in done.stderr
    assert "fix: reprise setup" in done.stderr and "Traceback" not in done.stderr
