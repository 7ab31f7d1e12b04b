"""What docker/h20/Dockerfile.source takes from elsewhere, small: the CUDA image, source archives,
the repositories with their commits, the two differences of vLLM.

Each source checks while it is built that the Dockerfile set for it what the real one needs.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from reprise.core.files import sha256_file
from tests.images.bed import Engine
from tests.lock.servers import run_git

# Ubuntu's and NVIDIA's packages that Debian does not have, and one that is big: newer than any.
_DEBS = ("python3.12", "python3.12-dev", "python3.12-venv", "ffmpeg", "cudnn9-cuda-13")
_DEBS += ("libcudnn9-dev-cuda-13", "libcudnn9-headers-cuda-13")
_BASE = """
FROM {base}
RUN set -eu; for name in {debs}; do \
        mkdir -p /tmp/deb/DEBIAN; \
        printf '%s: %s\\n' Package "$name" Version 99:1 Architecture all Maintainer x \
            Description x >/tmp/deb/DEBIAN/control; \
        if [ "$name" = python3.12 ]; then \
            mkdir -p /tmp/deb/usr/bin; ln -s python3 /tmp/deb/usr/bin/python3.12; fi; \
        dpkg-deb --build /tmp/deb /tmp/one.deb >/dev/null; dpkg -i /tmp/one.deb >/dev/null; \
        rm -rf /tmp/deb /tmp/one.deb; \
    done
"""
# Commit 1 of each repository is the one to build; a later one stands where its branch ends.
_SETUP = """import os
import setuptools

{checks}
setuptools.setup(name="{name}", version="1.0", packages={packages!r}, include_package_data=True)
"""
_ENVIRON = "assert os.environ.get({key!r}) == {value!r}, {key!r}"
_NVSHMEM = "os.environ['NVSHMEM_DIR'] + '/lib/libnvshmem_host.so'"
_CHECKS: dict[str, list[str]] = {
    "NVIDIA/apex": [
        _ENVIRON.format(key="APEX_CPP_EXT", value="1"),
        _ENVIRON.format(key="APEX_CUDA_EXT", value="1"),
        "assert os.path.isfile('deep/part/inside.txt'), 'the submodule is not there'",
    ],
    "NVIDIA/TransformerEngine": [
        _ENVIRON.format(key="NVTE_FRAMEWORK", value="pytorch"),
        _ENVIRON.format(key="MAX_JOBS", value="32"),
    ],
    "deepseek-ai/DeepEP": [
        f"assert os.readlink({_NVSHMEM}) == 'libnvshmem_host.so.3' and os.path.exists({_NVSHMEM})",
        _ENVIRON.format(key="TORCH_CUDA_ARCH_LIST", value="9.0;10.0"),
        "assert os.environ['CPATH'].endswith('/include/cccl')",
    ],
    "ISEEKYAN/mbridge": [],
    "NVIDIA/Megatron-LM": [],
}
_GDRCOPY = "lib_install:\n\tmkdir -p $(prefix)/lib\n\techo one >$(prefix)/lib/libgdrapi.so.2\n"


def source_base(engine: Engine, folder: Path, debian: str) -> str:
    """Debian with stand-ins for what only the CUDA image's sources have; its name."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(_BASE.format(base=debian, debs=" ".join(_DEBS)))
    engine.docker("build", "--quiet", "--tag", "standin/cuda:v1", str(folder))
    return "standin/cuda:v1"


def tiny_sdist(
    folder: Path, name: str, version: str, files: Mapping[str, str], check: str = ""
) -> Path:
    """A source archive: `files` by their paths, and a setup.py that runs `check` first."""
    plain = name.replace("-", "_")
    packages = sorted({path.rpartition("/")[0].replace("/", ".") for path in files if "/" in path})
    setup = f"import os\nimport setuptools\n{check}\nsetuptools.setup(name={name!r}, "
    setup += f"version={version!r}, packages={packages!r}, package_data={{'': ['*']}})\n"
    path = folder / f"{plain}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in {**files, "setup.py": setup}.items():
            item = tarfile.TarInfo(f"{plain}-{version}/{file}")
            item.size = len(text)
            archive.addfile(item, io.BytesIO(text.encode()))
    return path


def pinned(files: list[Path]) -> str:
    """The archives as a requirements file with hashes."""
    lines = []
    for file in files:
        name, version = file.name.removesuffix(".tar.gz").split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{sha256_file(file)}\n")
    return "".join(lines)


def repositories(folder: Path) -> dict[str, str]:
    """Repositories below `folder` as a host has them: OWNER/NAME to the commit to build."""
    part = _repository(folder / "NVIDIA" / "part.git", {"inside.txt": "x\n"})
    commits = {}
    for name, checks in _CHECKS.items():
        package = name.rpartition("/")[2].lower().replace("-", "_")
        setup = _SETUP.format(checks="\n".join(checks), name=package, packages=[package])
        files = {"setup.py": setup, f"{package}/__init__.py": "COMMIT = 1\n"}
        modules = {"deep/part": part} if name == "NVIDIA/apex" else {}
        commits[name] = _repository(folder / f"{name}.git", files, modules)
    commits["NVIDIA/gdrcopy"] = _repository(
        folder / "NVIDIA" / "gdrcopy.git", {"Makefile": _GDRCOPY}
    )
    return commits


def _repository(
    folder: Path, files: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> str:
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main", ".")
    listed = ""
    for place, commit in (modules or {}).items():
        listed += f'[submodule "{place}"]\n\tpath = {place}\n'
        listed += "\turl = https://github.com/NVIDIA/part.git\n"
        run_git(folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{place}")
    for path, text in {**files, ".gitmodules": listed}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
        run_git(folder, "add", path)
    run_git(folder, "commit", "-qm", "one")
    commit = run_git(folder, "rev-parse", "HEAD")
    for path in (path for path in files if path != "setup.py"):
        (folder / path).write_text("raise SystemExit('a later commit')\n")
    run_git(folder, "commit", "-qam", "two")
    return commit


def with_commits(dockerfile: Path, commits: Mapping[str, str]) -> set[str]:
    """Name our commits in a copy of the Dockerfile; which repositories it names."""
    pattern = re.compile(r"(?<=\.sh )(\S+/\S+) [0-9a-f]{40}")
    text = dockerfile.read_text(encoding="utf-8")
    named = {found[1] for found in pattern.finditer(text)}
    dockerfile.write_text(pattern.sub(lambda found: f"{found[1]} {commits[found[1]]}", text))
    return named


def differences(folder: Path) -> None:
    """Both differences of a vLLM whose x.py says one and two, and their sums."""
    sums = ""
    for name, old, new in (("44483.diff", "one", "three"), ("45589.diff", "two", "four")):
        text = f"--- a/vllm/{old}.py\n+++ b/vllm/{old}.py\n@@ -1,1 +1,1 @@\n"
        text += f"-VALUE = {old!r}\n+VALUE = {new!r}\n"
        (folder / name).write_text(text)
        sums += f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"
    (folder / "SHA256SUMS").write_text(sums)
