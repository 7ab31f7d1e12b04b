"""Bring one commit of a git repository into an empty repository, from the first source that can."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.trees.checkout import LOCKED_REF
from reprise.trees.git import GitError, git, without_credentials

__all__ = ["Cause", "Fetched", "OnPhase", "cause_of", "fetch_bundle", "fetch_commit"]

# Called with what is being done and how far it is (0 to 1, None when git does not say).
OnPhase = Callable[[str, float | None], None]

_PERCENT = re.compile(r"(?:remote: )?([A-Z][a-z]+ (?:objects|deltas|files)):\s+(\d+)%")


class Cause(StrEnum):
    """Why git could not fetch, as far as its message tells."""

    REFUSED = "the server does not give single commits"
    ABSENT = "the server does not have this commit"
    DISK = "no space is left on the disk"
    CONNECTION = "the connection failed"
    OWNERSHIP = "git refuses a repository of another user"


_CAUSES = (
    (Cause.DISK, ("No space left on device", "Disk quota exceeded", "disk full")),
    (Cause.REFUSED, ("unadvertised object", "does not allow request for")),
    (Cause.ABSENT, ("not our ref", "couldn't find remote ref", "no such remote ref", "bad object")),
    (Cause.OWNERSHIP, ("dubious ownership",)),
)
# Nobody spoke at the other end: git's (libcurl's, ssh's) words for it.
_NO_ANSWER = (
    *("Could not resolve", "Failed to connect", "Couldn't connect", "Connection refused"),
    *("Connection timed out", "Operation timed out", "Network is unreachable", "No route to host"),
    *("unable to look up", "unable to connect"),
)


def cause_of(error: GitError) -> Cause:
    """The cause that git's message names; a broken connection where it names none."""
    for cause, marks in _CAUSES:
        if any(mark in error.stderr for mark in marks):
            return cause
    return Cause.CONNECTION


@dataclass(slots=True)
class Fetched:
    """Where a commit came from, and what the operator should know about the way."""

    url: str
    whole_history: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """The URL without a user and password in it."""
        return without_credentials(self.url)


def fetch_commit(repo: Path, commit: str, urls: Sequence[str], on_phase: OnPhase) -> Fetched:
    """Fetch `commit` into `repo` and mark it with refs/reprise/locked.

    Each source is asked for exactly this commit without history. One that only gives named refs is
    asked for the ref that stands at the commit, else for all of them. A source that fails is noted
    and the next is tried. Raises OperatorError when none has it, or when the disk is full, and
    CannotTell when none could be asked.
    """
    failures: list[str] = []
    answered = False
    for url in urls:
        fetched = Fetched(url)
        try:
            _fetch_from(repo, commit, fetched, on_phase)
        except GitError as error:
            cause = cause_of(error)
            if cause is Cause.DISK:
                raise _disk_full(repo, error) from error
            answered |= not any(mark in error.stderr for mark in _NO_ANSWER)
            failures.append(f"{fetched.shown}: {cause} ({error.last_line})")
            continue
        fetched.notes = [*(f"not from {failure}" for failure in failures), *fetched.notes]
        return fetched
    kind = OperatorError if answered else CannotTell
    raise kind(
        "fetch",
        commit,
        f"no source gave the locked commit: {'; '.join(failures)}",
        "check the network and repeat, name a mirror that has it (--mirror URL), or bring it in a "
        "bundle (--bundle FILE); if upstream removed it, only a copy can help",
    )


def fetch_bundle(repo: Path, commit: str, bundle: Path) -> Fetched:
    """Fetch `commit` into `repo` from a git bundle that was made of a checkout without history.

    Raises OperatorError when the bundle holds another commit or cannot be read.
    """
    # Tells git that the commit's parents are left out on purpose.
    (repo / ".git" / "shallow").write_text(f"{commit}\n")
    fix = "make the bundle again from this lock"
    try:
        git("fetch", "-q", "--no-tags", "--", str(bundle), f"+{LOCKED_REF}:{LOCKED_REF}", cwd=repo)
        found = git("rev-parse", f"{LOCKED_REF}^{{commit}}", cwd=repo).strip()
    except GitError as error:
        if cause_of(error) is Cause.DISK:
            raise _disk_full(repo, error) from error
        raise OperatorError("bundle-tree", str(bundle), error.last_line, fix) from error
    if found != commit:
        message = f"holds commit {found}, the lock says {commit}"
        raise OperatorError("bundle-tree", str(bundle), message, fix)
    return Fetched(str(bundle))


def _disk_full(repo: Path, error: GitError) -> OperatorError:
    return OperatorError("disk-space.space-left-disk", str(repo.parent), last_line=error.last_line)


def _fetch_from(repo: Path, commit: str, fetched: Fetched, on_phase: OnPhase) -> None:
    """Fetch from one source; raises GitError, with LOCKED_REF unset, when it cannot."""
    try:
        _git_fetch(repo, fetched.url, f"+{commit}:{LOCKED_REF}", on_phase, shallow=True)
        return
    except GitError as error:
        if cause_of(error) not in (Cause.REFUSED, Cause.ABSENT):
            raise
        refused = error
    ref = _ref_at(fetched.url, commit)
    if ref is not None:
        fetched.notes.append(
            f"{fetched.shown} does not give single commits: taken by its name {ref}"
        )
        _git_fetch(repo, fetched.url, f"+{ref}:{LOCKED_REF}", on_phase, shallow=True)
    elif cause_of(refused) is Cause.ABSENT:
        raise refused
    else:
        fetched.whole_history = True
        message = "does not give single commits and no name stands at it: fetched its whole history"
        fetched.notes.append(f"{fetched.url} {message}")
        _fetch_all(repo, commit, fetched.url, on_phase)
    found = git("rev-parse", f"{LOCKED_REF}^{{commit}}", cwd=repo).strip()
    # An annotated tag is peeled; a name that moved meanwhile must not pass for the commit.
    git("update-ref", LOCKED_REF, found, cwd=repo)
    if found != commit:
        git("update-ref", "-d", LOCKED_REF, cwd=repo)
        raise GitError(["fetch"], 1, f"fatal: {ref} moved to {found} meanwhile")


def _ref_at(url: str, commit: str) -> str | None:
    """The name of a branch or tag of `url` that stands at `commit`, or None."""
    for line in git("ls-remote", "--heads", "--tags", "--", url).splitlines():
        found, _, name = line.partition("\t")
        if found == commit:
            return name.removesuffix("^{}")
    return None


def _fetch_all(repo: Path, commit: str, url: str, on_phase: OnPhase) -> None:
    """Fetch every branch and tag, and keep the one commit's name."""
    _git_fetch(repo, url, "+refs/heads/*:refs/reprise/all/heads/*", on_phase, shallow=False)
    if not _has(repo, commit):
        _git_fetch(repo, url, "+refs/tags/*:refs/reprise/all/tags/*", on_phase, shallow=False)
    found = _has(repo, commit)
    if found:
        git("update-ref", LOCKED_REF, commit, cwd=repo)
    names = git("for-each-ref", "--format=%(refname)", "refs/reprise/all", cwd=repo).split()
    for name in names:
        git("update-ref", "-d", name, cwd=repo)
    if not found:
        raise GitError(["fetch"], 128, f"fatal: not our ref {commit}")


def _has(repo: Path, commit: str) -> bool:
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}", cwd=repo)
    except GitError:
        return False
    return True


def _git_fetch(repo: Path, url: str, refspec: str, on_phase: OnPhase, shallow: bool) -> None:
    options = ["--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
    options += ["--no-auto-gc", *(["--depth=1"] if shallow else [])]

    def show(line: str) -> None:
        if found := _PERCENT.match(line):
            on_phase(found[1].lower(), int(found[2]) / 100)

    git("fetch", *options, "--", url, refspec, cwd=repo, on_line=show)
