"""Files in a job's package that Python would import and nobody meant to send.

Ray puts the unpacked package first on PYTHONPATH of each process, before the entries of
runtime_env.yaml and before site-packages (set_pythonpath_in_context in Ray 2.60's
_private/runtime_env/working_dir.py): a torch.py in it hides torch on every node.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from reprise.core.findings import Report
from reprise.lock.model import Lock
from reprise.runs.ray.working_dir import Upload
from reprise.trees.checkout import ignored_imports
from reprise.trees.git import GitError

__all__ = [
    "check_ignored",
    "check_shadowed",
    "ignored_in_trees",
    "known_modules",
    "packages_of",
    "pattern_of",
]

SUFFIXES = (".py", ".pyc", ".so", ".pyd")
# Modules whose distribution has another name, and those that only an image has.
_OTHER_NAMES = (
    *("PIL", "absl", "attr", "cv2", "dateutil", "dns", "dotenv", "flash_attn", "functorch"),
    *("google", "grpc", "hydra", "jwt", "markdown_it", "mbridge", "megatron", "pkg_resources"),
    *("proto", "sglang", "torch_musa", "torchgen", "transfer_queue", "transformer_engine"),
    *("verl", "vllm", "yaml", "zmq"),
    # Those that a job imports first, wherever the requirements are.
    *("numpy", "ray", "tensordict", "torch", "transformers"),
    # Not libraries: site.py runs them in every process.
    *("sitecustomize", "usercustomize"),
)
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)
_MOST = 10


def known_modules(root: Path, lock: Lock) -> frozenset[str]:
    """Top-level modules of the standard library and of what the lock's environments install."""
    found = {*sys.stdlib_module_names, *_OTHER_NAMES}
    for environment in lock.environment.values():
        path = root / environment.requirements
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= {re.sub(r"[-.]", "_", name).lower() for name in _PINNED.findall(text)}
    return frozenset(found)


def packages_of(lock: Lock) -> dict[str, str]:
    """The package that belongs in each entry of PYTHONPATH, for all machines of the lock."""
    return {
        str(PurePosixPath(tree.path) / tree.import_root): tree.import_package
        for tree in lock.tree.values()
        if tree.path and tree.import_package
    }


def _modules(package: Upload, folder: str) -> Iterator[tuple[str, str]]:
    """(file, module) of what `import` finds directly in `folder` of the package."""
    start = f"{folder}/" if folder else ""
    for path in package.files:
        if not path.startswith(start):
            continue
        inner = PurePosixPath(path[len(start) :])
        if inner.suffix not in SUFFIXES:
            continue
        # "torch.cpython-312-x86_64-linux-gnu.so" and "torch.abi3.so" are torch as well.
        name = inner.name.partition(".")[0]
        if len(inner.parts) == 1:
            yield path, name
        elif len(inner.parts) == 2 and name == "__init__":
            yield path, inner.parts[0]


def check_shadowed(
    report: Report,
    package: Upload,
    known: Collection[str],
    python_path: Iterable[str] = (),
    expected: Mapping[str, str] | None = None,
) -> None:
    """Rule lock-shipped-shadowed: no packed file is imported in place of a `known` module.

    Looks at the package's own folder and at the relative entries of `python_path`; `expected`
    gives the package that belongs in an entry.
    """
    entries = ["", *(str(PurePosixPath(item)) for item in python_path if item[:1] != "/")]
    found: dict[str, str] = {}
    for entry in dict.fromkeys(entries):
        meant = (expected or {}).get(entry, "").partition("/")[0]
        for file, module in _modules(package, "" if entry == "." else entry):
            if module in known and module != meant:
                found.setdefault(file, module)
    for file, module in [*found.items()][:_MOST]:
        report.failed(
            "lock-shipped-shadowed.imported",
            file,
            file=file,
            module=module,
            pattern=pattern_of(file),
        )
    if len(found) > _MOST:
        report.failed("lock-shipped-shadowed.more", "runtime_env.yaml", count=len(found) - _MOST)
    report.settle("lock-shipped-shadowed")


def ignored_in_trees(root: Path, lock: Lock) -> list[str]:
    """Importable files that git ignores in checkouts of the lock, relative to `root`.

    A checkout that git cannot read is left out: `lock verify` reports it.
    """
    found: list[str] = []
    paths: set[str] = set()
    for tree in lock.tree.values():
        if tree.path:
            fetched = (place for place, sub in tree.submodule.items() if sub.fetch)
            paths |= {tree.path, *(f"{tree.path}/{place}" for place in fetched)}
    for path in sorted(paths):
        if not (root / path / ".git").exists():
            continue
        try:
            found += [f"{path}/{name}" for name in ignored_imports(root / path)]
        except GitError:
            continue
    return found


def pattern_of(path: str) -> str:
    """A gitignore pattern that matches `path`, seen from the package's folder, and nothing else."""
    escaped = re.sub(r"([\\*?\[\]!#])", r"\\\1", path)
    return "/" + re.sub(r" $", "[ ]", escaped)


def check_ignored(report: Report, left_out: Iterable[str]) -> None:
    """Rule lock-shipped-ignored: name what was left out of the package, by checkout."""
    by_tree: dict[str, list[str]] = {}
    for name in left_out:
        parts = name.split("/")
        by_tree.setdefault("/".join(parts[:2]), []).append("/".join(parts[2:]))
    for tree, names in sorted(by_tree.items()):
        shown = ", ".join(names[:5])
        report.warn(
            "lock-shipped-ignored.not-locked", tree, count=len(names), files=shown, tree=tree
        )
    report.settle("lock-shipped-ignored")
