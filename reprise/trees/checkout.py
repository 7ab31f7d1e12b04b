"""The actual state of a checkout, compared with the lock."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from reprise.trees.git import GitError, git

__all__ = ["LOCKED_REF", "Checkout", "Standing", "gitlinks", "ignored_imports", "inspect"]

# Set by `reprise setup` at the commit that it fetched; an operator's own work never moves it.
LOCKED_REF = "refs/reprise/locked"


class Standing(StrEnum):
    """How a folder compares with the lock."""

    OK = "ok"
    MISSING = "missing"
    FOREIGN = "foreign"  # a folder with files in it that is not a git checkout
    DIRTY = "dirty"  # at the locked commit, with other contents
    MOVED = "moved"  # at another commit
    SUPERSEDED = "superseded"  # clean at the commit that the lock named before
    WRONG_TREE = "wrong-tree"  # the locked commit has another tree than the lock says
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Checkout:
    """What `inspect` found. `changed` and `untracked` are paths relative to the checkout.

    `hidden` are files that git ignores (.gitignore, .git/info/exclude, core.excludesFile) and that
    Python would import.
    """

    path: Path
    standing: Standing
    head: str = ""
    tree: str = ""
    changed: list[str] = field(default_factory=list)
    untracked: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def clean(self) -> bool:
        """No tracked file differs and no file is there that git neither tracks nor ignores."""
        return not self.changed and not self.untracked


def inspect(path: Path, commit: str, tree: str | None) -> Checkout:
    """Compare the checkout at `path` with a commit and, where it is known, its tree hash.

    Every tracked file is read and hashed again: sizes and times that git remembers are not
    trusted. Nothing in the checkout is written, not even its index.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return Checkout(path, Standing.MISSING)
    if not (path / ".git").exists():
        return Checkout(path, Standing.FOREIGN, problem="not a git checkout")
    try:
        return _inspect(path, commit, tree)
    except GitError as error:
        return Checkout(path, Standing.UNKNOWN, problem=error.last_line)


def _inspect(path: Path, commit: str, tree: str | None) -> Checkout:
    try:
        head = git("rev-parse", "--verify", "-q", "HEAD^{commit}", cwd=path).strip()
    except GitError as error:
        if error.stderr:
            raise
        return Checkout(path, Standing.FOREIGN, problem="its repository has no commit")
    found = Checkout(path, Standing.OK, head, git("rev-parse", "HEAD^{tree}", cwd=path).strip())
    found.changed, found.untracked = _changed(path), _untracked(path)
    found.hidden = ignored_imports(path)
    if head != commit:
        ours = _locked_ref(path) == head
        found.standing = Standing.SUPERSEDED if ours and found.clean else Standing.MOVED
    elif tree is not None and found.tree != tree:
        found.standing = Standing.WRONG_TREE
    elif not found.clean:
        found.standing = Standing.DIRTY
    return found


def _locked_ref(path: Path) -> str:
    try:
        return git("rev-parse", "--verify", "-q", LOCKED_REF, cwd=path).strip()
    except GitError:
        return ""


def _changed(path: Path) -> list[str]:
    """Tracked files whose contents or modes differ from HEAD, by reading all of them."""
    with tempfile.TemporaryDirectory(prefix="reprise-index-") as folder:
        # An index without remembered times makes git hash every file.
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        git("read-tree", "HEAD", cwd=path, env=env)
        try:
            git("update-index", "-q", "--refresh", "--ignore-submodules", cwd=path, env=env)
        except GitError as error:
            if error.stderr:
                raise
        listed = git(
            "diff-files", "--name-only", "-z", "--ignore-submodules=all", cwd=path, env=env
        )
        staged = git("diff-index", "--cached", "--name-only", "-z", "HEAD", cwd=path)
    return sorted({name for name in (listed + staged).split("\0") if name})


def _untracked(path: Path) -> list[str]:
    listed = git("ls-files", "--others", "--exclude-standard", "-z", cwd=path)
    return sorted(name for name in listed.split("\0") if name)


_IMPORTED = (".py", ".so", ".pyd", ".pth", ".pyc")


def ignored_imports(path: Path) -> list[str]:
    """Ignored files that an import would find; not the caches that Python writes itself.

    Files of a repository within the checkout, and of a folder behind a link, which git gives as
    one name, are among them. Raises GitError.
    """
    listed = git("ls-files", "--others", "--ignored", "--exclude-standard", "-z", cwd=path)
    names: list[str] = []
    for name in listed.split("\0"):
        if name and (path / name).is_dir():
            names += [item.relative_to(path).as_posix() for item in _files_below(path / name)]
        else:
            names.append(name)
    found = (name for name in names if name.endswith(_IMPORTED))
    return sorted(name for name in found if "__pycache__" not in name.split("/"))


def _files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder, which may be a link itself; links within are not followed."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        yield from (Path(parent, name) for name in files)


def gitlinks(path: Path, commit: str) -> dict[str, str]:
    """The submodules that `commit` records, as {path: commit}. Raises GitError."""
    result: dict[str, str] = {}
    for line in git("ls-tree", "-r", "-z", commit, cwd=path).split("\0"):
        head, _, name = line.partition("\t")
        if head.startswith("160000 commit "):
            result[name] = head.split()[2]
    return result
