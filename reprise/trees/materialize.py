"""One commit as a checked-out repository, whatever the operator's own git settings are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.trees.checkout import LOCKED_REF
from reprise.trees.fetch import Cause, Fetched, OnPhase, cause_of, fetch_bundle, fetch_commit
from reprise.trees.git import GitError, git

__all__ = ["materialize", "system_error"]

_CONFIG = {
    # The operator's own settings must not change the bytes of a checkout or run a hook in it.
    "core.autocrlf": "false",
    "core.hooksPath": "/dev/null",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
}


def materialize(
    folder: Path, origin: str, commit: str, tree: str | None, urls: Sequence[str], phase: OnPhase
) -> Fetched:
    """A repository at `folder`, checked out at `commit`, whose tree hash is `tree` (if known).

    `origin` is what its remote is called by, `urls` what is asked, one after the other. Raises
    OperatorError for another tree, a full disk, and a commit that no source has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        git("init", "-q", "--template=", ".", cwd=folder)
        for key, value in (_CONFIG | {"remote.origin.url": origin}).items():
            git("config", key, value, cwd=folder)
        phase("fetching", None)
        bundled = len(urls) == 1 and urls[0].endswith(".bundle") and Path(urls[0]).is_file()
        if bundled:
            fetched = fetch_bundle(folder, commit, Path(urls[0]).absolute())
        else:
            fetched = fetch_commit(folder, commit, urls, phase)
        found = git("rev-parse", f"{commit}^{{tree}}", cwd=folder).strip()
        if tree is not None and found != tree:
            raise OperatorError(
                "tree-hash.lock-says-tree", commit, tree=tree, shown=fetched.shown, found=found
            )
        phase("checking out", None)
        git("checkout", "-q", "--detach", LOCKED_REF, cwd=folder)
    except GitError as error:
        raise _git_failed(error, folder) from error
    return fetched


def _git_failed(error: GitError, folder: Path) -> OperatorError:
    if cause_of(error) is Cause.DISK:
        return system_error(OSError(28, "No space left on device"), folder)
    fix = "read git's message above, then repeat the command"
    return OperatorError("git", str(folder), error.last_line, fix)


def system_error(error: OSError, folder: Path) -> OperatorError:
    """What the operator can do about a disk or permissions."""
    rule = "disk-space" if error.errno in (28, 122) else "system"
    message = f"{error.strerror or error}; nothing was left behind"
    return OperatorError(rule, str(folder.parent), message, "free some space, check permissions")
