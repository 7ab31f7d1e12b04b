from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from lock.servers import Upstream, run_git
from reprise.cli.commands import bundle as cli_bundle
from reprise.cli.commands import lock as cli_lock
from reprise.cli.commands import setup as cli_setup

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "recipes").mkdir(parents=True)
    upstream = Upstream(tmp_path)
    commit = upstream.commit(1)
    tree = run_git(upstream.work, "rev-parse", "HEAD^{tree}")
    (root / "versions.lock").write_text(
        f'schema = 1\n[tree.tool]\nmachines = ["gpu"]\nwant = "main"\n'
        f'url = "https://github.com/o/tool.git"\npath = "third_party/tool"\n'
        f'commit = "{commit}"\ntree = "{tree}"\n'
    )
    (tmp_path / "mirror/o").mkdir(parents=True)
    (tmp_path / "mirror/o/tool.git").symlink_to(upstream.bare)
    return root


APP = typer.Typer()
for module in (cli_lock, cli_setup, cli_bundle):
    module.register(APP)


@pytest.fixture(autouse=True)
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def run(*args: str, **env: str) -> Result:
    done = CliRunner().invoke(APP, args, env=env)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def answer(*args: str, **env: str) -> tuple[int, dict[str, Any]]:
    done = run(*args, "--json", **env)
    return done.exit_code, json.loads(done.stdout)


def test_setup_verify_update_and_bundle_by_hand(project: Path, tmp_path: Path) -> None:
    mirror = f"file://{tmp_path}/mirror"
    assert answer("lock", "check")[0] == 0
    code, body = answer("lock", "verify", "--machine", "gpu")
    assert (code, body["rows"][0]["state"]) == (1, "missing")
    code, body = answer("setup", "--machine", "gpu", "--mirror", mirror)
    assert (code, body["verdict"], body["trees"][0]["state"]) == (0, "ok", "fetched")
    code, body = answer("setup", "tool", REPRISE_MIRROR=mirror)
    assert body["trees"][0]["state"] == "already"
    assert answer("lock", "verify", "--machine", "gpu")[0] == 0
    (project / "third_party/tool/mine.py").write_text("x\n")
    code, body = answer("setup", "tool")
    assert (code, body["findings"][0]["severity"]) == (1, "error")
    (project / "third_party/tool/mine.py").unlink()
    code, body = answer("lock", "update", "tool", "--mirror", mirror)
    assert (code, body["moved"]) == (0, [])
    bundle = str(tmp_path / "b")
    code, body = answer("bundle", "create", bundle, "tool")
    assert (code, body["entries"]) == (0, ["tree.tool"])
    assert answer("bundle", "verify", bundle)[0] == 0
    shutil.rmtree(project / "third_party")
    code, body = answer("setup", "--bundle", bundle)
    assert (code, body["trees"][0]["state"]) == (0, "fetched")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["lock", "check", "nowhere.lock"], 1),
        (["lock", "verify", "nothing"], 1),
        (["lock", "verify", "--machine", "toaster"], 1),
        (["lock", "update", "nothing"], 1),
        (["setup", "nothing"], 1),
        (["setup", "--mirror", "--upload-pack=x"], 1),
        (["setup", "--bundle", "nowhere"], 1),
        (["bundle", "verify", "nowhere"], 1),
        (["bundle", "create", "b", "--part-size", "much"], 1),
        (["lock", "image", "tool"], 1),
        (["lock", "image"], 2),
    ],
)
def test_what_an_operator_can_get_wrong(args: list[str], code: int) -> None:
    got, body = answer(*args)
    assert got == code
    assert body["findings"] or code == 2
    for finding in body["findings"]:
        assert finding["message"] and finding["fix"]


def test_what_people_read(project: Path) -> None:
    done = run("lock", "check", str(ROOT / "versions.lock"))
    assert "image.h20 is not pinned" in done.stdout
    assert "fix: `reprise lock image image.h20 --write`" in done.stdout
    done = run("lock", "verify", "--machine", "gpu")
    assert "missing" in done.stdout and "error tree.tool" in done.stdout
    done = run("setup", "--machine", "gpu", REPRISE_MIRROR="file:///nowhere")
    assert done.exit_code == 1
    assert "tool: failed" in done.stderr and "setup: problem" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_git_s_refusal_of_a_checkout_of_another_user_is_told(project: Path, tmp_path: Path) -> None:
    run_git(project, "init", "-q")
    subprocess.run(["chown", "-R", "12345", str(project)], check=True)
    code, report = answer("bundle", "create", str(tmp_path / "b"), "tree.tool", HOME=str(tmp_path))
    assert (code, report["verdict"]) == (1, "problem")
    told, missing = report["findings"]
    assert missing["where"] == "tree.tool"
    assert "dubious ownership" in told["message"]
    assert told["fix"].startswith(f"git config --global --add safe.directory {project}")


def test_a_setup_that_reached_no_source_could_not_find_out(project: Path, tmp_path: Path) -> None:
    lock = project / "versions.lock"
    text = lock.read_text(encoding="utf-8")
    lock.write_text(text.replace("https://github.com/o/tool.git", "http://127.0.0.1:1/tool.git"))
    code, report = answer("setup", "tree.tool")
    assert (code, report["verdict"]) == (2, "unknown")
    assert "the connection failed" in report["findings"][0]["message"]
    # A source that answers, and has not got it, is another matter.
    here = f"file://{tmp_path}/mirror/o/tool.git"
    lock.write_text(
        re.sub(r'commit = ".*"', f'commit = "{"1" * 40}"', text).replace(
            "https://github.com/o/tool.git", here
        )
    )
    code, report = answer("setup", "tree.tool")
    assert (code, report["verdict"]) == (1, "problem"), report
