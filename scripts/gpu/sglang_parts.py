"""What an environment with SGLang has beside its packages.

SGLang imports FlashInfer and IPython without asking whether they are there; stand_ins/ has the few
names. It compiles kernels at its first batch, with the compilers of the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from basics import ROOT, Problem, put, run_in

STAND_INS = ROOT / "scripts" / "gpu" / "stand_ins"


def prepare_sglang(venv: Path) -> dict:
    """Put the stand-ins into place; facts for provided.json.

    Raises Problem when a library of the machine is missing.
    """
    own = next(venv.glob("lib/python3*/site-packages"))
    placed = place_stand_ins(venv, own)
    if run_in(venv, "import ctypes; ctypes.CDLL('libnuma.so.1')").returncode != 0:
        raise Problem("libnuma.so.1 is not found, which SGLang's kernels need", "install libnuma1")
    return {
        "stand_ins": placed,
        # g++ 12 fails on one of its kernels.
        "nvcc": line_of("nvcc", "--version", containing="release"),
        "g++": line_of(os.environ.get("CUDAHOSTCXX") or "g++", "--version"),
    }


def place_stand_ins(venv: Path, own: Path) -> list[str]:
    """Put each module of stand_ins/ where no real one is installed; their names."""
    names = sorted(path.name for path in STAND_INS.iterdir() if path.is_dir())
    code = (
        "import importlib.util, sys\n"
        f"sys.path = [p for p in sys.path if p != {str(own)!r}]\n"
        f"print(*(n for n in {names!r} if importlib.util.find_spec(n)))\n"
    )
    real = run_in(venv, code).stdout.split()
    for name in names:
        target = own / name
        if name in real:
            shutil.rmtree(target, ignore_errors=True)
            continue
        target.mkdir(exist_ok=True)
        for file in (STAND_INS / name).glob("*.py"):
            put(target / file.name, file.read_text(encoding="utf-8"))
    return [name for name in names if name not in real]


def line_of(*command: str, containing: str = "") -> str | None:
    """The first line that a command prints with `containing` in it; None where it does not run."""
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return next((line.strip() for line in done.stdout.splitlines() if containing in line), None)
