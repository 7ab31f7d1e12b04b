"""Fetch the locked data files into their place, then check them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, State
from reprise.core.project import Project
from reprise.data.check.check import Progress
from reprise.data.fetch import Fetched, Places, Wanted, count_rows, fetch
from reprise.flows.data_check import INSTEAD, CheckRequest, check_data, data_dir, own_files
from reprise.hub.huggingface import Hub, retries_told
from reprise.hub.verified import Verified
from reprise.lock.model import Data
from reprise.lock.read import read_lock, resolve_name
from reprise.recipe.card import card_of
from reprise.recipe.folders import recipe_names

__all__ = ["FetchRequest", "data_dir", "fetch_data"]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch: lock entries (all data when empty), from where, and how carefully."""

    names: tuple[str, ...] = ()
    mirror: str | None = None
    local: Path | None = None
    deep: bool = False
    replace: bool = False
    check: bool = True


def _wanted(project: Project, name: str, entry: Data) -> Wanted:
    if entry.missing or entry.sha256 is None:
        raise OperatorError("data-unpinned.no-digest", f"data.{name}", name=name)
    target = data_dir(project) / entry.path
    return Wanted(
        name,
        entry.repo or "",
        entry.revision or "",
        entry.file,
        target,
        entry.sha256,
        entry.bytes,
        entry.rows,
    )


def _roles(project: Project) -> dict[str, str]:
    """For each data entry "train" or "val", as the recipe cards use it."""
    roles: dict[str, str] = {}
    for model in recipe_names(project.recipes):
        card = card_of(project.recipes, model)
        roles |= {name: role for name, role in ((card.train, "train"), (card.validation, "val"))
                  if name}  # fmt: skip
    return roles


def fetch_data(
    project: Project,
    request: FetchRequest,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """`reprise data fetch`: every file is tried; what is newly placed is then checked.

    A set for which the environment names another file (TRAIN_FILES, VAL_FILES) is not fetched
    unless it is asked for by name: that file is checked instead.
    """
    if request.local is not None and request.mirror:
        raise OperatorError("data-source.two-sources", "--from and --mirror")
    report = Report("data fetch")
    lock = read_lock(project.lock)
    roles = _roles(project)
    names = [resolve_name(lock, name, ("data",)).partition(".")[2] for name in request.names]
    instead = {} if names else {role: own_files(role) for role in INSTEAD}
    fresh: dict[str, list[Path]] = {"train": [], "val": []}
    report.data["files"] = []
    hub = functools.cache(Hub)  # one that is unreachable is not asked again for the next file
    for name in names or list(lock.data):
        role = roles.get(name, "train")
        if instead.get(role):
            report.note("data-fetch.other-files", f"data.{name}", variable=INSTEAD[role])
            continue
        if name not in lock.data:
            known = ", ".join(lock.data)
            report.failed("data-fetch.unknown-entry", name, known=known)
            continue
        places = Places(_hubs(hub, request.mirror, lock.data[name].mirrors), request.local)
        with retries_told(say):
            done = _fetch_one(report, project, (name, lock.data[name]), request, places, progress)
        if done is not None and (done.how != "present" or request.deep):
            fresh[role].append(done.wanted.target)
    if not report.checks:
        report.passed("data-fetch")
    for role, files in instead.items():
        fresh[role].extend(map(Path, files))
    if request.check and (fresh["train"] or fresh["val"]):
        fetched = CheckRequest(tuple(fresh["train"]), tuple(fresh["val"]))
        checked = check_data(project, fetched, progress, say)
        # This command promises the bytes: without verl's source, the rest stays a warning.
        checked.checks = [
            done
            for done in checked.checks
            if (done.rule, done.state) != ("data-source", State.UNKNOWN)
        ]
        report.absorb(checked)
        report.data["checked"] = checked.data["files"]
    return report


def _fetch_one(
    report: Report,
    project: Project,
    named: tuple[str, Data],
    request: FetchRequest,
    places: Places,
    progress: Progress | None,
) -> Fetched | None:
    name, entry = named
    try:
        wanted = _wanted(project, name, entry)
        size = wanted.bytes
        done = fetch(
            wanted,
            places,
            Verified(project.cache / "verified.json"),
            request.deep,
            request.replace,
            None if progress is None else lambda count: progress(f"fetch {name}", count, size),
        )
        if done.how != "present":
            count_rows(wanted)
    except OperatorError as error:
        failed = error.report(report.command)
        if failed.findings[0] not in report.findings:
            report.absorb(failed)
        return None
    report.data["files"].append(done.to_json())
    return done


def _hubs(
    hub: Callable[[str | None], Hub], mirror: str | None, mirrors: Sequence[str]
) -> list[Hub]:
    """The named mirror alone, else HF_ENDPOINT or the public hub, then the lock's mirrors."""
    return [hub(mirror)] if mirror else [hub(None), *(hub(url) for url in mirrors)]
