#!/usr/bin/env python3
"""Make .venv-gpu, or .venv-gpu-sglang, around this machine's own Python 3.12 and torch.

    scripts/gpu/env.py [--rollout vllm|sglang] [--site FOLDER] [--engine megatron]

Safe to repeat. FOLDER is the site tree of environment.gpu or environment.gpu-sglang: `site` or
`site-sglang` next to the project where the bundle's parts were put into place, else it is installed
from the package index into .cache/gpu-site or .cache/gpu-sglang-site. Where the tree has
TransformerEngine its torch extension is built too (85 s on 16 cores), once for both environments:
verl imports Megatron-LM with either engine, and that imports TransformerEngine where it finds it.

The environment has no copy of anything: a .pth file puts the site tree first and this machine's
packages after it. provided.json lists the packages of the machine. Everything that a run imports is
compiled to bytecode here, since a machine may forbid runs to write it. GPU_PYTHON names another
interpreter.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from basics import ROOT, Problem, put
from extension import add_cublas_symbol, build_extension, needs_of_transformer_engine
from sglang_parts import prepare_sglang

# What is the machine's own: the names that requirements/gpu-overrides.txt leaves out for it.
PROVIDED = (
    "torch",
    "triton",
    "numpy",
    "numba",
    "scipy",
    "sentencepiece",
    "tiktoken",
    "onnxscript",
)


class Kind(NamedTuple):
    """The environment of one rollout engine.

    `package` is imported from its site tree, `beside` the tree's folder next to the project,
    `requirements` the file that it is installed from.
    """

    package: str
    venv: Path
    beside: str
    requirements: str


KINDS = {
    "vllm": Kind("vllm", ROOT / ".venv-gpu", "site", "gpu"),
    "sglang": Kind("sglang", ROOT / ".venv-gpu-sglang", "site-sglang", "gpu-sglang"),
}


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


def make_venv(python: str, facts: dict, site: Path, venv: Path) -> None:
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


def compile_all(venv: Path, facts: dict, site: Path) -> None:
    """Write the bytecode of all that a run imports, on all cores, when something has changed."""
    own = next(venv.glob("lib/python3*/site-packages"))
    trees = [ROOT / "third_party", ROOT / "recipes"]
    machine = [Path(folder) / name for folder in facts["site"] for name in PROVIDED]
    folders = [path for path in (site.resolve(), own, *trees, *machine) if path.is_dir()]
    mark = venv / "compiled.json"
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == state_of(folders):
        return
    command = [str(venv / "bin" / "python"), "-m", "compileall", "-q", "-j", "0"]
    # Templates and files for other versions of Python do not compile; nothing imports them.
    command += [*map(str, folders)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    put(mark, json.dumps(state_of(folders)))


def state_of(folders: list[Path]) -> dict[str, str]:
    """What changes when packages of a folder do: names and times of its entries, as a digest."""
    states = {}
    for folder in folders:
        there = (path for path in folder.glob("*") if path.name != "__pycache__")
        lines = sorted(f"{path.name} {path.stat().st_mtime_ns}\n" for path in there)
        states[str(folder)] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return states


@contextmanager
def alone() -> Iterator[None]:
    """Two set-ups, and two builds of the extension, wait for each other."""
    folder = ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    with (folder / "gpu-env.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_site(given: str | None, kind: Kind) -> Path:
    """The site tree: as named, next to the project, or installed from the index."""
    if given:
        path = Path(given)
        if not (path / kind.package).is_dir():
            raise Problem(f"{path} is not a site tree: it has no {kind.package}", "name its folder")
        return path
    beside = ROOT.parent / kind.beside
    if (beside / "reprise-site.json").is_file():
        return beside
    cached = ROOT / ".cache" / f"{kind.requirements}-site"
    if not (cached / ".complete").is_file():
        shutil.rmtree(cached, ignore_errors=True)
        file = ROOT / "requirements" / f"{kind.requirements}.txt"
        command = [python_of(), "-m", "pip", "install", "--no-deps", "--require-hashes"]
        command += ["--target", str(cached), "-r", str(file)]
        if subprocess.run(command, check=False).returncode != 0:
            fix = "make the index reachable, or use a bundle: docs/gpu.md"
            raise Problem(f"the packages of {file.name} could not be installed", fix)
        (cached / ".complete").touch()
    return cached


def python_of() -> str:
    """The machine's interpreter."""
    return os.environ.get("GPU_PYTHON") or shutil.which("python3") or sys.executable


def make(python: str, kind: Kind, engine: str, given: str | None) -> str:
    """Make or repair the environment; one line that says what it is. Raises Problem."""
    facts = base_facts(python)
    check_base(facts, python)
    site, venv = find_site(given, kind), kind.venv
    make_venv(python, facts, site, venv)
    provided = {**facts["versions"], "python": facts["python"], "cuda": facts["cuda"]}
    if kind.package == "sglang":
        provided |= prepare_sglang(venv)
    if engine == "megatron" or (site / "transformer_engine").is_dir():
        needs_of_transformer_engine(venv)
        provided["cublaslt_symbol_added"] = add_cublas_symbol(venv)
        provided["extension_seconds"] = round(build_extension(venv), 1)
    compile_all(venv, facts, site)
    put(venv / "provided.json", json.dumps(provided, indent=2) + "\n")
    return f"{venv}: Python {facts['python']}, torch {facts['torch']}, site tree {site}"


def main() -> int:
    """Make or repair the environment; one line says what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--site", help="the site tree, where it is not found by itself")
    parser.add_argument("--engine", default="fsdp", choices=("fsdp", "megatron"))
    parser.add_argument("--rollout", default="vllm", choices=sorted(KINDS))
    options = parser.parse_args()
    kind = KINDS[options.rollout]
    try:
        with alone():
            print(make(python_of(), kind, options.engine, options.site))
    except Problem as problem:
        print(f"error: {problem}\n    fix: {problem.fix}", file=sys.stderr)
        return problem.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
