"""Ask servers whether the tags in the lock still name the locked commits and digests."""

from __future__ import annotations

from collections.abc import Sequence

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.hub.registry import resolve_tag
from reprise.lock.model import Image, Lock, Tree
from reprise.trees.git import GitError, git
from reprise.trees.sources import Mirror, urls_for

__all__ = ["check_remote"]

_STAYS = "no action needed: the locked value stays valid; to move: `reprise lock update {} --to {}`"


def check_remote(
    report: Report, lock: Lock, names: Sequence[str], mirrors: Sequence[Mirror] = ()
) -> None:
    """Ask where the tags of trees and images point now, and add the answers to `report`.

    A tag that moved is a warning: runs continue with the locked commit or digest. Branches move by
    nature and are skipped. A server that does not answer is unknown.
    """
    for name in names:
        entry = lock.entry(name)
        rule, want = f"{name} want", entry.want if entry is not None else ""
        try:
            if isinstance(entry, Tree) and entry.want and entry.commit:
                now, locked = _tag(urls_for(entry.url, mirrors)[0], entry.want), entry.commit
            elif isinstance(entry, Image) and entry.digest:
                found = resolve_tag(entry.repository, entry.want, entry.platform)
                now, locked = found.digest, entry.digest
            else:
                continue
        except CannotTell as error:
            report.unknown(rule, name, f"{error.where}: {error.message}", error.fix)
            continue
        except OperatorError as error:
            report.warn(rule, name, f"{error.where} {error.message}", error.fix)
            now = locked = ""
        if now and now != locked:
            message = f"the tag {want} moved: locked {locked}, now {now}"
            report.warn(rule, name, message, _STAYS.format(name, want))
        report.passed(rule)


def _tag(url: str, want: str) -> str:
    """The commit that the tag `want` names now, '' for an unknown tag."""
    ref = f"refs/tags/{want.removeprefix('refs/tags/')}"
    try:
        lines = git("ls-remote", "--", url, ref, f"{ref}^{{}}").splitlines()
    except GitError as error:
        raise CannotTell("git.server", url, reason=error.last_line) from error
    return lines[-1].partition("\t")[0] if lines else ""
