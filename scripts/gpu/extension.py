"""TransformerEngine in an environment of env.py: one symbol that cuBLASLt lacks, and its extension.

The extension for torch has no wheel. It is built once (85 s on 16 cores), and every environment of
the project takes the same wheel from .cache/gpu-wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

from basics import ROOT, Problem, put, run_in

WHEELS = ROOT / ".cache" / "gpu-wheels"
# The source distribution of versions.lock's package.transformer-engine-torch.
EXTENSION = "transformer_engine_torch"
SYMBOL = "cublasLtGroupedMatrixLayoutInit_internal"


def add_cublas_symbol(venv: Path) -> bool:
    """Give TransformerEngine the one symbol that this machine's cuBLASLt is too old for.

    The wheel of 2.15 for CUDA 13 was built against cuBLASLt 13.2; torch 2.11 has 13.1, which
    lacks a function of grouped products on Blackwell. A library that answers "not supported" (15)
    is loaded before it in every process. Returns whether that was needed.
    """
    library = venv / "lib" / "libreprise_cublaslt.so"
    own = next(venv.glob("lib/python3*/site-packages"))
    if library.is_file() and (own / "reprise_cublaslt.pth").is_file():
        return True
    probe = (
        "import ctypes, torch\n"
        "try: lib = ctypes.CDLL('libcublasLt.so.13')\n"
        "except OSError: lib = ctypes.CDLL(None)\n"
        f"print(hasattr(lib, {SYMBOL!r}))\n"
    )
    if run_in(venv, probe).stdout.strip().endswith("True"):
        return False
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Problem("no C compiler found, needed to build one small library", "install gcc")
    source = library.with_suffix(".c")
    source.write_text(f"int {SYMBOL}(void) {{ return 15; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    # A line of a .pth file that begins with `import` is run at the start of every process.
    line = f"import ctypes; ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)\n"
    put(own / "reprise_cublaslt.pth", line)
    return True


def needs_of_transformer_engine(venv: Path) -> None:
    """Raise Problem when the machine lacks a package that TransformerEngine imports for torch."""
    code = "import importlib.util; print(importlib.util.find_spec('onnxscript') is not None)"
    if run_in(venv, code).stdout.strip() == "False":
        message = "onnxscript is not found, which TransformerEngine imports and no site tree has"
        raise Problem(message, "pip install onnxscript, for the Python that has torch")


def build_extension(venv: Path) -> float:
    """Build and install TransformerEngine's torch extension; the seconds it took, 0 if it is there.

    A wheel that an earlier build left in .cache/gpu-wheels is taken.
    """
    own = next(venv.glob("lib/python3*/site-packages"))
    if list(own.glob(f"{EXTENSION}-*.dist-info")):
        return 0.0
    started = time.monotonic()
    WHEELS.mkdir(parents=True, exist_ok=True)
    wheels = sorted(WHEELS.glob(f"{EXTENSION}-*.whl"))
    if not wheels:
        sources = sorted(WHEELS.glob(f"{EXTENSION}-*.tar.gz"))
        what = str(sources[0]) if sources else "transformer-engine-torch==2.15.0"
        log = WHEELS / "build.log"
        variables = os.environ | build_paths(venv)
        command = [str(venv / "bin" / "python"), "-m", "pip", "wheel", "--no-deps", "-v"]
        command += ["--no-build-isolation", "-w", str(WHEELS), what]
        with log.open("w") as output:
            code = subprocess.run(command, env=variables, stdout=output, stderr=output, check=False)
        wheels = sorted(WHEELS.glob(f"{EXTENSION}-*.whl"))
        if code.returncode != 0 or not wheels:
            raise Problem(f"TransformerEngine's extension was not built: see {log}", "read it", 1)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(own)
    return time.monotonic() - started


def build_paths(venv: Path) -> dict[str, str]:
    """Compiler settings: this GPU alone, all cores, headers of the machine's NVIDIA packages."""
    found = run_in(venv, "import nvidia, os; print(os.pathsep.join(nvidia.__path__))").stdout
    roots = [Path(text) for text in found.strip().split(os.pathsep) if text]
    headers = [str(path) for root in roots for path in sorted(root.glob("*/include"))]
    if shutil.which("nvcc") or Path("/usr/local/cuda/include").is_dir():
        # The toolkit has CUDA's own headers; of the packages only cuDNN's and NCCL's are wanted.
        headers = [path for path in headers if not Path(path, "cuda_runtime.h").is_file()]
    arch = run_in(venv, "import torch; print('%d.%d' % torch.cuda.get_device_capability())")
    values = {
        "MAX_JOBS": str(os.cpu_count() or 1),
        "NVTE_FRAMEWORK": "pytorch",
        # Otherwise it looks for a finished wheel on the network first.
        "NVTE_PYTORCH_FORCE_BUILD": "TRUE",
        "TORCH_CUDA_ARCH_LIST": arch.stdout.strip() or "9.0",
        "CPATH": os.pathsep.join([*headers, os.environ.get("CPATH", "")]).strip(os.pathsep),
    }
    cudnn = [str(root / "cudnn") for root in roots if (root / "cudnn").is_dir()]
    if cudnn:
        values["CUDNN_PATH"] = values["CUDNN_HOME"] = cudnn[0]
    return values
