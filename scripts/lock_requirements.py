"""Rewrite requirements/*.txt from requirements/*.in: one version and all hashes a package.

uv (it comes with the test environment) resolves them from an index. Versions that already stand
in a .txt file are kept where the .in file still allows them; `--upgrade` asks for the newest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
UV = str(Path(sys.executable).with_name("uv"))

# Builds of torch 2.13.0 without CUDA for Linux. Public indexes carry the CUDA build under the same
# version, so its hashes come from the index and these are added. The first was compared with a
# wheel file, the others stand as published in PyTorch's own CPU index.
TORCH = "torch==2.13.0"
TORCH_CPU_HASHES = {
    "cp311 x86_64": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "cp312 x86_64": "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    "cp311 aarch64": "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
    "cp312 aarch64": "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
}
CUDA_ONLY = re.compile(r"(nvidia|cuda)-")


def compile_file(name: str, *options: str) -> None:
    """Resolve `name`.in into `name`.txt for Python 3.11 and 3.12."""
    command = [UV, "pip", "compile", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command += ["--no-emit-index-url", "--no-emit-find-links", *options]
    print(f"{name}.in -> {name}.txt", flush=True)
    subprocess.run([*command, f"{name}.in", "-o", f"{name}.txt"], cwd=FOLDER, check=True)


def blocks(text: str) -> list[str]:
    """Split a requirements file into one text a package, hashes included."""
    return re.findall(r"^\S.*(?:\n[ ]+.*)*\n", text, flags=re.MULTILINE)


def split_rehearsal() -> None:
    """Add the CPU builds' hashes to torch; move what only a CUDA build needs to its own file."""
    path = FOLDER / "rehearsal.txt"
    found = blocks(path.read_text(encoding="utf-8"))
    torch = [block for block in found if block.startswith(f"{TORCH} ")]
    if len(torch) != 1:
        sys.exit(f"{path}: expected one line {TORCH}, found {len(torch)}: update TORCH_CPU_HASHES")
    hashes = sorted(set(re.findall(r"[0-9a-f]{64}", torch[0])) | set(TORCH_CPU_HASHES.values()))
    lines = [TORCH, *(f"    --hash=sha256:{value}" for value in hashes)]
    merged = " \\\n".join(lines) + "\n"
    plain = [block for block in found if not CUDA_ONLY.match(block)]
    path.write_text("".join(merged if block == torch[0] else block for block in plain))
    cuda = [block for block in found if CUDA_ONLY.match(block)]
    (FOLDER / "rehearsal-cuda.txt").write_text("".join(cuda))


def compile_gpu(name: str, *options: str) -> None:
    """Resolve `name`.in for the one platform that it is made for: Python 3.12, x86_64 Linux."""
    command = [UV, "pip", "compile", "--python-version", "3.12"]
    command += ["--python-platform", "x86_64-manylinux_2_39", "--override", f"{name}-overrides.txt"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command += ["--no-emit-index-url", "--no-emit-find-links", *options]
    print(f"{name}.in -> {name}.txt", flush=True)
    subprocess.run([*command, f"{name}.in", "-o", f"{name}.txt"], cwd=FOLDER, check=True)


def main() -> None:
    """Compile uv and the five environments; unknown arguments are passed on to uv."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other options go to uv.")
    parser.add_argument("--upgrade", action="store_true", help="ask for the newest versions")
    known, options = parser.parse_known_args()
    options += ["--upgrade"] if known.upgrade else []
    compile_file("uv", *options)
    compile_file("operator", *options)
    compile_file("dev", *options)
    compile_file("rehearsal", "--override", "rehearsal-overrides.txt", *options)
    split_rehearsal()
    compile_gpu("gpu", *options)
    compile_gpu("gpu-sglang", *options)


if __name__ == "__main__":
    main()
