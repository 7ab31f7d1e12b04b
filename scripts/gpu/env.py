#!/usr/bin/env python3
"""Make .venv-gpu around this machine's own Python 3.12 and torch. Safe to repeat.

    scripts/gpu/env.py [--site FOLDER] [--engine megatron]

FOLDER is the site tree of environment.gpu: `site` next to the project where the bundle's parts were
put into place, else it is installed from the package index into .cache/gpu-site. Where the tree has
TransformerEngine its torch extension is built too (85 s on 16 cores), from its source distribution:
verl imports Megatron-LM with either engine, and that imports TransformerEngine where it finds it.

.venv-gpu has no copy of anything: a .pth file puts the site tree first and this machine's packages
after it. provided.json lists the packages of the machine. GPU_PYTHON names another interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-gpu"
WHEELS = ROOT / ".cache" / "gpu-wheels"
# What is the machine's own: the names that requirements/gpu-overrides.txt leaves out for it.
PROVIDED = ("torch", "triton", "numpy", "numba", "scipy", "sentencepiece", "tiktoken")
# The source distribution of versions.lock's package.transformer-engine-torch.
EXTENSION = "transformer_engine_torch"
SYMBOL = "cublasLtGroupedMatrixLayoutInit_internal"


class Problem(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, message: str, fix: str, code: int = 2) -> None:
        super().__init__(message)
        self.fix = fix
        self.code = code


def base_facts(python: str) -> dict:
    """Version, import path and provided distributions of the interpreter `python`."""
    code = (
        "import json, sys, sysconfig\n"
        "from importlib import metadata\n"
        "def version(name):\n"
        "    try: return metadata.version(name)\n"
        "    except metadata.PackageNotFoundError: return None\n"
        f"names = {PROVIDED!r}\n"
        "facts = dict(python=sys.version.split()[0], prefix=sys.prefix,"
        " site=sorted({sysconfig.get_path('purelib'), sysconfig.get_path('platlib')}),"
        " versions={n: version(n) for n in names})\n"
        "try:\n"
        "    import torch; facts['torch'] = torch.__version__; facts['cuda'] = torch.version.cuda\n"
        "except ImportError: pass\n"
        "print(json.dumps(facts))\n"
    )
    done = subprocess.run(
        [python, "-c", code], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise Problem(f"{python} does not run: {last}", "name another: GPU_PYTHON=/path/to/python3")
    return json.loads(done.stdout.strip().splitlines()[-1])


def check_base(facts: dict, python: str) -> None:
    """Refuse an interpreter that the site tree was not made for."""
    if not facts["python"].startswith("3.12."):
        raise Problem(
            f"{python} is Python {facts['python']}; the GPU environment is for 3.12",
            "name one that has torch for CUDA: GPU_PYTHON=/path/to/python3.12",
        )
    if not facts.get("cuda"):
        found = f"torch {facts['torch']} without CUDA" if facts.get("torch") else "no torch"
        raise Problem(
            f"{python} has {found}; the GPU environment uses the machine's torch for CUDA",
            "install torch 2.11 for the machine's CUDA, or name another: GPU_PYTHON=...",
        )


def make_venv(python: str, facts: dict, site: Path, venv: Path = VENV) -> None:
    """A virtual environment whose import path is: itself, the site tree, the machine's packages."""
    if not (venv / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    major, minor, *_ = facts["python"].split(".")
    own = venv / "lib" / f"python{major}.{minor}" / "site-packages"
    lines = [str(site.resolve()), *facts["site"]]
    put(own / "reprise_gpu.pth", "".join(f"{line}\n" for line in lines))
    # TransformerEngine looks for CUDA's libraries in the folder of this very environment.
    for machine in facts["site"]:
        libraries, link = Path(machine) / "nvidia", own / "nvidia"
        if libraries.is_dir() and not link.exists():
            link.symlink_to(libraries)
    # Ray's dashboard, which has the Jobs API, does not start without a folder for its web page.
    page = site / "ray" / "dashboard" / "client" / "build"
    if (site / "ray").is_dir() and not (page / "static").is_dir():
        (page / "static").mkdir(parents=True)
        (page / "index.html").touch()
    install_plugins(own)
    starter = f"#!{venv / 'bin' / 'python'}\nfrom ray.scripts.scripts import main\n\nmain()\n"
    put(venv / "bin" / "ray", starter, 0o755)


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole, and only when it changes: a run may be reading it at this moment."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    half = path.with_name(f"{path.name}.half")
    half.write_text(text)
    half.chmod(mode)
    half.replace(path)


def install_plugins(own: Path) -> None:
    """The project's plug-ins with their entry points, as an installer would lay them down."""
    import tomllib

    about = tomllib.loads((ROOT / "plugins" / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    source, target = ROOT / "plugins" / "src" / "reprise_plugins", own / "reprise_plugins"
    files = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
    there = {path.name: path.read_bytes() for path in target.glob("*.*") if path.is_file()}
    if files == there:
        # A run may be importing them at this moment.
        return
    for old in own.glob("reprise_plugins*"):
        shutil.rmtree(old)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    info = own / f"reprise_plugins-{about['version']}.dist-info"
    info.mkdir()
    header = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (info / "METADATA").write_text(header)
    points = []
    for group, entries in about["entry-points"].items():
        points += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(points))
    (info / "INSTALLER").write_text("scripts/gpu/env.py\n")


def find_site(given: str | None) -> Path:
    """The site tree: as named, next to the project, or installed from the index."""
    if given:
        path = Path(given)
        if not (path / "vllm").is_dir():
            raise Problem(f"{path} is not a site tree: it has no vllm", "name its folder")
        return path
    beside = ROOT.parent / "site"
    if (beside / "reprise-site.json").is_file():
        return beside
    cached = ROOT / ".cache" / "gpu-site"
    if not (cached / ".complete").is_file():
        shutil.rmtree(cached, ignore_errors=True)
        command = [python_of(), "-m", "pip", "install", "--no-deps", "--require-hashes"]
        command += ["--target", str(cached), "-r", str(ROOT / "requirements" / "gpu.txt")]
        if subprocess.run(command, check=False).returncode != 0:
            fix = "make the index reachable, or use a bundle: docs/gpu.md"
            raise Problem("the packages of requirements/gpu.txt could not be installed", fix)
        (cached / ".complete").touch()
    return cached


def python_of() -> str:
    """The machine's interpreter."""
    return os.environ.get("GPU_PYTHON") or shutil.which("python3") or sys.executable


def run_in(venv: Path, code: str) -> subprocess.CompletedProcess:
    """Run Python code in the environment."""
    command = [str(venv / "bin" / "python"), "-c", code]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )


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


def build_extension(venv: Path) -> float:
    """Build and install TransformerEngine's torch extension; the seconds it took, 0 if it is there.

    A wheel that an earlier build left in .cache/gpu-wheels is taken.
    """
    import time
    import zipfile

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


def main() -> int:
    """Make or repair the environment; one line says what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--site", help="the site tree, where it is not found by itself")
    parser.add_argument("--engine", default="fsdp", choices=("fsdp", "megatron"))
    options = parser.parse_args()
    python = python_of()
    try:
        facts = base_facts(python)
        check_base(facts, python)
        site = find_site(options.site)
        make_venv(python, facts, site)
        provided = {**facts["versions"], "python": facts["python"], "cuda": facts["cuda"]}
        if options.engine == "megatron" or (site / "transformer_engine").is_dir():
            provided["cublaslt_symbol_added"] = add_cublas_symbol(VENV)
            provided["extension_seconds"] = round(build_extension(VENV), 1)
        put(VENV / "provided.json", json.dumps(provided, indent=2) + "\n")
    except Problem as problem:
        print(f"error: {problem}\n    fix: {problem.fix}", file=sys.stderr)
        return problem.code
    print(f"{VENV}: Python {facts['python']}, torch {facts['torch']}, site tree {site}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
