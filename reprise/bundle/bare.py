"""Content of a bundle for a machine that has Python and torch, but neither git nor pip.

Everything is a .tar.xz whose path shows where it belongs: `project.tar.xz` is the project,
`trees/<name>.tar.xz` the packages of a source tree, `site/<name>-000.tar.xz` a part of an
environment's site tree (`site-sglang/…` of the one with SGLang), `operator/…` the same of what
`reprise` itself needs, `also/<path>` a file of the project's ignored folders, such as a model that
was built elsewhere. scripts/gpu/unpart.py puts them into place, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from reprise.bundle.entries import collect
from reprise.bundle.manifest import Manifest
from reprise.bundle.site import build_site, pack_checkout, pack_folder
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.lock.model import Entry, Environment, Lock, Package, Tree
from reprise.lock.requirements import read_pins
from reprise.trees.git import GitError, git

__all__ = [
    "UNPART",
    "bare_tree",
    "collect_bare",
    "further_files",
    "has_commits",
    "is_bare",
    "pinned_elsewhere",
]

UNPART = "scripts/gpu/unpart.py"
# The folder of environment.gpu; what others add to it is added to their site tree's folder too.
GPU_FOLDER = ".venv-gpu"
OnStep = Callable[[str, int, int | None], None]
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md")


def collect_bare(
    root: Path,
    folder: Path,
    lock: Lock,
    chosen: Sequence[str],
    also: Sequence[Path],
    on_step: OnStep,
    report: Report,
) -> tuple[dict[str, Path], list[str], list[str]]:
    """Make every archive in `folder`; files by their path in the bundle, entries, what is left out.

    `also` are files or folders below `root`. What is wrong with an entry goes into `report`.
    """
    files: dict[str, Path] = {"unpart.py": root / UNPART, "versions.lock": root / "versions.lock"}
    _project(root, folder, files, report)
    files |= further_files(root, also)

    def add(name: str, entry: Entry) -> bool:
        match entry:
            case Tree() if entry.path is not None:
                on_step(f"{name}: packing", 0, None)
                files[f"trees/{entry.path}.tar.xz"] = _tree(root, folder, name, entry)
            case Environment() if entry.trim is not None:
                on_step(f"{name}: site tree", 0, None)
                files.update(_site(root, folder, name, entry, entry.python))
                _operator(root, folder, lock, entry.python, files, on_step)
            case Package():
                return pinned_elsewhere(root, lock, chosen, entry) or _has_file(entry, files)
            case _:
                return False
        return True

    entries, left_out = collect(lock, chosen, add, report)
    return files, entries, left_out


def is_bare(manifest: Manifest) -> bool:
    """Whether a bundle has archives for a machine with neither git nor pip; it has their script."""
    return any(item.path == Path(UNPART).name for item in manifest.items)


def has_commits(root: Path, report: Report) -> bool:
    """Whether the project is a checkout; what a bundle leaves out of it is reported."""
    if not (root / ".git").exists():
        report.note("bundle-note.no-checkout", "project")
        return False
    if git("status", "--porcelain", "--untracked-files=no", cwd=root).strip():
        report.warn("bundle-project.uncommitted", "project")
    return True


def _project(root: Path, folder: Path, files: dict[str, Path], report: Report) -> None:
    if not has_commits(root, report):
        return
    head = git("rev-parse", "HEAD", cwd=root).strip()
    target = folder / f"project-{head}.tar.xz"
    if not target.exists():
        pack_checkout(target, root, head, ["."])
    files["project.tar.xz"] = target


def further_files(root: Path, also: Sequence[Path]) -> dict[str, Path]:
    """The files of `also` by their path in the bundle; folders with all that is in them.

    Raises OperatorError for what is not a file or folder below `root`.
    """
    files: dict[str, Path] = {}
    for given in also:
        path = given if given.is_absolute() else root / given
        found = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in found:
            inside = file.resolve().is_relative_to(root.resolve())
            if not inside or not file.is_file():
                raise OperatorError("bundle-also.outside", str(file), root=root)
            files[f"also/{file.resolve().relative_to(root.resolve()).as_posix()}"] = file
    return files


def bare_tree(root: Path, name: str, tree: Tree) -> list[str]:
    """What of a tree's checkout goes into the bundle: its packages and the licence.

    Git packs what it has at the commit, whatever is in the work tree. Raises OperatorError when
    the checkout does not have the locked commit.
    """
    checkout = root / (tree.path or "")
    where = f"tree.{name}"
    if tree.commit is None or not (checkout / ".git").exists():
        raise OperatorError(
            "bundle-tree.absent", where, folder=checkout, commit=tree.commit, name=name
        )
    try:
        found = git("rev-parse", f"{tree.commit}^{{tree}}", cwd=checkout).strip()
    except GitError as error:
        raise OperatorError(
            "bundle-tree.no-commit",
            where,
            folder=checkout,
            commit=tree.commit,
            reason=error.last_line,
            name=name,
        ) from error
    if tree.tree is not None and found != tree.tree:
        raise OperatorError(
            "bundle-tree.tree-hash",
            where,
            folder=checkout,
            commit=tree.commit,
            found=found,
            expected=tree.tree,
            name=name,
        )
    base = "" if tree.import_root in ("", ".") else f"{tree.import_root}/"
    package = (tree.import_package or "").split("/")[0]
    paths = [f"{base}{package}" if package else "."]
    return paths + [licence for licence in _LICENCES if (checkout / licence).is_file()]


def _tree(root: Path, folder: Path, name: str, tree: Tree) -> Path:
    assert tree.path is not None and tree.commit is not None
    target = folder / f"{name}-{tree.commit}.tar.xz"
    if not target.exists():
        pack_checkout(target, root / tree.path, tree.commit, bare_tree(root, name, tree))
    return target


def _site(
    root: Path, folder: Path, name: str, environment: Environment, python: str
) -> dict[str, Path]:
    trim = root / environment.trim if environment.trim is not None else None
    site = build_site(root / environment.requirements, trim, python, folder)
    packed = pack_folder(site, folder, f"{name}-{site.name}")
    beside = f"site{environment.folder.removeprefix(GPU_FOLDER)}"
    return {f"{beside}/{path.name}": path for path in packed}


def _operator(
    root: Path, folder: Path, lock: Lock, python: str, files: dict[str, Path], on_step: OnStep
) -> None:
    """The packages of `reprise` itself, for the machine's Python."""
    for name, environment in lock.environment.items():
        if "operator" in environment.machines:
            on_step(f"{name}: site tree", 0, None)
            packed = _site(root, folder, name, environment, python)
            files |= {f"operator/{path.name}": path for path in packed.values()}


def _has_file(package: Package, files: dict[str, Path]) -> bool:
    """Whether a file of the package is among the further ones."""
    named = package.name.replace("-", "_")
    also = [path for path, file in files.items() if file.name.startswith(named)]
    return any(sha256_file(files[path]) in package.sha256 for path in also)


def pinned_elsewhere(root: Path, lock: Lock, chosen: Sequence[str], package: Package) -> bool:
    """Whether one of the chosen site trees pins this very package; another version is an error."""
    for name in chosen:
        environment = lock.entry(name)
        if not isinstance(environment, Environment) or environment.trim is None:
            continue
        for pin in read_pins(root / environment.requirements):
            if pin.name != canonicalize_name(package.name):
                continue
            if pin.version == package.version and set(package.sha256) & set(pin.sha256):
                return True
            raise OperatorError(
                "bundle-package.version",
                f"package.{package.name}",
                file=environment.requirements,
                pinned=pin.version,
                locked=package.version,
            )
    return False
