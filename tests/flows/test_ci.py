"""`reprise ci init`: files that the hosts' schemas accept, commands that can be typed; and what
its rehearsal job runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flows.test_fixes import TARGETS, accepts
from reprise.cli import app
from reprise.core.project import Project
from reprise.flows.ci.init import write_jobs

SCHEMAS = {
    "github": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with recipes of odd and even names, and no remote."""
    for name in ("mine", "qwen3-8b", "a_b.c-1"):
        folder = tmp_path / "recipes" / name
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text("{}\n")
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    return Project(tmp_path)


def valid(host: str, *files: Path) -> None:
    tool = Path(sys.executable).with_name("check-jsonschema")
    words = [tool, *SCHEMAS[host], *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def scripts(host: str, path: Path) -> list[str]:
    """The shell commands of a file of jobs."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))
    if host == "github":
        steps = [step for job in jobs["jobs"].values() for step in job["steps"]]
        return [line for step in steps for line in step.get("run", "").splitlines()]
    return [line for job in jobs.values() for line in job.get("script", [])]


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_the_files_are_valid_and_their_commands_can_be_typed(project: Project, host: str) -> None:
    report = write_jobs(project, ["mine", "qwen3-8b", "a_b.c-1"], host)
    assert report.exit_code == 0, report.findings
    files = [project.root / item["file"] for item in report.data["files"]]
    valid(host, *files)
    jobs = [path for path in files if path.name != ".gitlab-ci.yml"]
    assert len(jobs) == 3
    for path in jobs:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"@[A-Z]+@", text)
        assert sum(path.stem.removeprefix("reprise-") in text for text in scripts(host, path)) == 3
    for command in set(scripts(host, jobs[0])):
        words = shlex.split(command)
        if words[0] == "make":
            assert set(words[1:]) <= TARGETS
        else:
            assert words[0] == ".venv/bin/reprise"
            accepts(command.removeprefix(".venv/bin/"))


def test_a_schema_refuses_what_is_wrong(project: Project) -> None:
    """The validators are at work: each file with one fault is refused."""
    write_jobs(project, ["mine"], "github")
    write_jobs(project, ["mine"], "gitlab")
    for host, name, old, new in (
        ("github", ".github/workflows/reprise-mine.yml", "runs-on:", "runs_on:"),
        ("gitlab", ".gitlab/reprise-mine.yml", "when: on_failure", "when: sometimes"),
    ):
        path = project.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(AssertionError):
            valid(host, path)


def test_the_gitlab_pipeline_includes_every_recipe(project: Project) -> None:
    write_jobs(project, ["mine", "qwen3-8b"], "gitlab")
    pipeline = yaml.safe_load((project.root / ".gitlab-ci.yml").read_text(encoding="utf-8"))
    included = [item["local"] for item in pipeline["include"]]
    assert [(project.root / name).is_file() for name in included] == [True, True]
    jobs = [yaml.safe_load((project.root / n).read_text(encoding="utf-8")) for n in included]
    assert not jobs[0].keys() & jobs[1].keys(), "a job of one file would replace the other's"
    names = {name for one in jobs for name in one}
    for job in (job for one in jobs for job in one.values()):
        assert {job.get("extends"), *job.get("needs", [])} - {None} <= names


def test_judging_never_runs_code_of_a_pull_request(project: Project) -> None:
    write_jobs(project, ["mine"], "github")
    write_jobs(project, ["mine"], "gitlab")
    github = yaml.safe_load((project.root / ".github/workflows/reprise-mine.yml").read_text())
    assert "github.event_name != 'pull_request'" in github["jobs"]["judge"]["if"]
    assert github["permissions"] == {"contents": "read"}
    gitlab = yaml.safe_load((project.root / ".gitlab/reprise-mine.yml").read_text())
    (rule,) = gitlab["reprise-mine-judge"]["rules"]
    assert '!= "merge_request_event"' in rule["if"] and "$REPRISE_RUNS_DIR" in rule["if"]


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_no_file_of_the_user_is_changed(project: Project, host: str) -> None:
    first = ".github/workflows" if host == "github" else ".gitlab"
    own = project.root / first / "reprise-qwen3-8b.yml"
    own.parent.mkdir(parents=True)
    own.write_text("mine: true\n")
    report = write_jobs(project, ["mine", "qwen3-8b"], host)
    assert report.exit_code == 1 and report.findings[-1].where == str(own)
    assert own.read_text(encoding="utf-8") == "mine: true\n"
    assert [path.name for path in own.parent.iterdir()] == ["reprise-qwen3-8b.yml"]
    own.unlink()
    own.symlink_to("nowhere")
    assert write_jobs(project, ["qwen3-8b"], host).exit_code == 1
    assert own.is_symlink() and not own.exists()


def test_the_same_command_again_changes_nothing(project: Project) -> None:
    write_jobs(project, ["mine"], "gitlab")
    before = {path: path.read_bytes() for path in project.root.rglob("*.yml")}
    report = write_jobs(project, ["mine"], "gitlab")
    assert report.exit_code == 0
    assert {item["state"] for item in report.data["files"]} == {"unchanged"}
    assert {path: path.read_bytes() for path in project.root.rglob("*.yml")} == before


def test_a_pipeline_of_the_user_is_kept_and_the_line_to_add_is_named(project: Project) -> None:
    pipeline = project.root / ".gitlab-ci.yml"
    pipeline.write_text("include:\n  - local: other.yml\n")
    report = write_jobs(project, ["mine"], "gitlab")
    assert report.exit_code == 0
    assert pipeline.read_text(encoding="utf-8") == "include:\n  - local: other.yml\n"
    (found,) = [item for item in report.findings if item.where == ".gitlab-ci.yml"]
    assert found.fix == "add below `include:` - local: .gitlab/reprise-mine.yml"
    pipeline.write_text(
        pipeline.read_text(encoding="utf-8") + "  - local: .gitlab/reprise-mine.yml\n"
    )
    again = write_jobs(project, ["mine"], "gitlab")
    assert not [item for item in again.findings if item.where == ".gitlab-ci.yml"]
    valid("gitlab", pipeline)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("git@github.com:some/one.git", ".github"),
        ("https://gitlab.example.org/team/one.git", ".gitlab"),
        ("ssh://git@code.example.org/one.git", None),
        (None, None),
    ],
)
def test_the_host_is_that_of_the_remote_or_is_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, url: str | None, written: str | None
) -> None:
    if url is not None:
        subprocess.run(["git", "-C", project.root, "remote", "add", "origin", url], check=True)
    (project.root / "versions.lock").touch()
    monkeypatch.chdir(project.root)
    monkeypatch.setattr("reprise.cli.commands.ci.init.find_project", lambda: project)
    done = CliRunner().invoke(app, ["ci", "init", "mine", "--json"])
    said: dict[str, Any] = json.loads(done.stdout)
    if written is None:
        assert done.exit_code == 1 and "--host github" in said["findings"][0]["fix"]
    else:
        assert done.exit_code == 0 and (project.root / written).is_dir()


def test_what_no_job_could_use_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    (outside / "far").mkdir(parents=True)
    (outside / "far/recipe.yaml").write_text("{}\n")
    monkeypatch.setenv("REPRISE_RECIPES", str(outside))
    assert "outside the project" in write_jobs(project, ["far"], "github").findings[0].message
    odd = project.recipes / "a b;c"
    odd.mkdir()
    (odd / "recipe.yaml").write_text("{}\n")
    assert write_jobs(project, ["a b;c"], "github").exit_code == 1
    assert not (project.root / ".github").exists()
    done = CliRunner().invoke(app, ["ci", "init", "no-such", "--host", "github", "--json"])
    assert done.exit_code == 1 and "no-such" in done.stdout
    done = CliRunner().invoke(app, ["ci", "init", "hy3", "--host", "svn", "--json"])
    assert done.exit_code == 1 and "github, gitlab" in done.stdout


def test_the_newest_run_is_judged_or_named_but_not_both(tmp_path: Path) -> None:
    words = ["reproduce", "hy3", "--newest", "--json"]
    environment = {"RUNS_DIR": str(tmp_path)}
    done = CliRunner().invoke(app, words, env=environment)
    assert done.exit_code == 2 and "run-missing" in done.stdout
    done = CliRunner().invoke(app, [*words, "--run", "x"], env=environment)
    assert done.exit_code == 1 and "leave out --run" in done.stdout
