"""Write the jobs of a recipe for GitHub Actions or GitLab; never over a file that exists."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import yaml

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.recipe.folders import home_of
from reprise.trees.git import git

__all__ = ["HOSTS", "write_jobs"]

COMMAND = "ci init"
HOSTS = ("github", "gitlab")
_PIPELINE = ".gitlab-ci.yml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_jobs(project: Project, names: Sequence[str], host: str | None = None) -> Report:
    """Write the job files of the recipes `names` into the project's repository.

    `host` is one of HOSTS, None for that of the remote `origin`. A file that exists with other
    content is an error, and then nothing is written. `data`: `files`, each with its state (written
    or unchanged). Raises OperatorError for an unknown recipe or host.
    """
    if not (project.root / ".git").exists():
        raise OperatorError("ci-repository.none", str(project.root))
    host = host or _host(project)
    if host not in HOSTS:
        raise OperatorError("ci-host.unknown", host, known=", ".join(HOSTS))
    report = Report(COMMAND)
    for name in names:
        _recipe(project, name, report)
    if any(report.errors()):
        return report
    wanted = _github(project, names) if host == "github" else _gitlab(project, names, report)
    new = [path for path in wanted if not _kept(project.root / path, wanted[path], report)]
    if any(report.errors()):
        return report
    for path in new:
        _write_new(project.root / path, wanted[path])
    report.passed("ci-files")
    states = {path: "written" if path in new else "unchanged" for path in wanted}
    report.data["files"] = [{"file": path, "state": state} for path, state in states.items()]
    report.note("ci-files.next", str(project.root), files=" ".join(wanted))
    for name in names:
        folder = project.recipes / name / "reference"
        if not (folder / "reference.toml").is_file():
            report.note("ci-judge.no-reference", name, name=name)
    return report


def _host(project: Project) -> str:
    """The host of `origin`, by its URL."""
    try:
        url = git("remote", "get-url", "origin", cwd=project.root).strip()
    except CannotTell:
        url = ""
    found = [host for host in HOSTS if host in url.lower()]
    if len(found) != 1:
        raise OperatorError("ci-host.not-known", url or "origin", known=" or ".join(HOSTS))
    return found[0]


def _recipe(project: Project, name: str, report: Report) -> None:
    home = home_of(project.recipes, name)
    if home != project.recipes:
        report.failed("ci-recipe.outside", str(home / name), name=name)
    elif not _NAME.fullmatch(name):
        report.failed("ci-recipe.name", name)
    report.settle("ci-recipe")


def _filled(template: str, **values: str) -> str:
    text = (resources.files("reprise.flows.ci") / template).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _github(project: Project, names: Sequence[str]) -> dict[str, str]:
    branch = _branch(project)
    return {
        f".github/workflows/reprise-{name}.yml": _filled("github.yml", NAME=name, BRANCH=branch)
        for name in names
    }


def _branch(project: Project) -> str:
    """The default branch of `origin` as YAML; where git does not know it, `main`."""
    try:
        named = git("symbolic-ref", "--short", "refs/remotes/origin/HEAD", cwd=project.root)
        branch = named.strip().partition("/")[2]
    except CannotTell:
        branch = ""
    return yaml.safe_dump(branch or "main", default_style='"').strip()


def _gitlab(project: Project, names: Sequence[str], report: Report) -> dict[str, str]:
    files = {f".gitlab/reprise-{name}.yml": _filled("gitlab.yml", NAME=name) for name in names}
    pipeline = project.root / _PIPELINE
    included = "".join(f"  - local: {path}\n" for path in files)
    if not os.path.lexists(pipeline):
        return files | {_PIPELINE: f"include:\n{included}"}
    text = pipeline.read_text(encoding="utf-8", errors="replace")
    if missing := [path for path in files if path not in text]:
        lines = " ".join(f"- local: {path}" for path in missing)
        report.warn("ci-files.include", _PIPELINE, lines=lines)
    return files


def _kept(path: Path, text: str, report: Report) -> bool:
    """Whether the file exists already, with this text; another text is an error."""
    if not os.path.lexists(path):
        return False
    try:
        same = path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        report.failed("ci-files.exists", str(path))
    return same


def _write_new(path: Path, text: str) -> None:
    """Write a file that must not exist: one that appears meanwhile is not replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with made.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(made, path)
    except FileExistsError:
        raise OperatorError("ci-files.exists", str(path)) from None
    finally:
        made.unlink(missing_ok=True)
