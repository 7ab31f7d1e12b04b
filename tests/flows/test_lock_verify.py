from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git

from reprise.core.errors import OperatorError
from reprise.core.findings import Report, Severity, State, Verdict
from reprise.flows.lock.answers import combine
from reprise.flows.lock.reality import verify
from reprise.flows.lock.verify import verify_entries
from reprise.lock import parse_lock
from reprise.lock.contradict import compare, in_installed, in_tree, judge_recipe
from reprise.lock.installed import query
from reprise.lock.rows import ThisMachine
from reprise.trees.setup import place_tree

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def write_lock(folder: Path, text: str) -> Path:
    path = folder / "versions.lock"
    path.write_text("schema = 1\n" + textwrap.dedent(text))
    return path


def tree_text(upstream: Upstream, commit: str, name: str = "tool") -> str:
    tree = run_git(upstream.work, "rev-parse", f"{commit}^{{tree}}")
    return (
        f'[tree.{name}]\nmachines = ["h20"]\nurl = "file://{upstream.bare}"\n'
        f'path = "third_party/{name}"\ncommit = "{commit}"\ntree = "{tree}"\n'
    )


def states(folder: Path, machine: str = "h20", **more: object) -> dict[str, str]:
    lock = parse_lock((folder / "versions.lock").read_text(encoding="utf-8"))
    names = [name for name, _ in lock.entries(machine)]  # type: ignore[arg-type]
    _, rows = verify_entries(lock, names, ThisMachine(folder, **more))  # type: ignore[arg-type]
    return {row.entry: row.state for row in rows}


def test_a_checkout_is_ok_dirty_moved_missing_or_something_else(
    tmp_path: Path, upstream: Upstream
) -> None:
    commit = upstream.commit(1)
    path = write_lock(tmp_path, tree_text(upstream, commit))
    assert states(tmp_path) == {"tree.tool": "missing"}
    lock = parse_lock(path.read_text(encoding="utf-8"))
    checkout = place_tree(tmp_path, "tool", lock.tree["tool"]).path
    assert states(tmp_path) == {"tree.tool": "ok"}
    (checkout / "run.log").write_text("ignored by git\n")
    assert states(tmp_path) == {"tree.tool": "ok"}
    (checkout / "tool/__init__.py").write_text("VALUE = 7\n")
    assert states(tmp_path) == {"tree.tool": "dirty"}
    run_git(checkout, "commit", "-qam", "mine")
    assert states(tmp_path) == {"tree.tool": "drift"}
    shutil.rmtree(checkout / ".git")
    assert states(tmp_path) == {"tree.tool": "drift"}
    report = verify(path, [], "h20", ThisMachine(tmp_path))
    assert report.verdict is Verdict.PROBLEM
    assert report.data["rows"][0]["state"] == "drift"


@pytest.mark.parametrize("how", [".gitignore", "exclude"])
def test_what_git_ignores_and_python_imports_is_a_finding(
    tmp_path: Path, upstream: Upstream, how: str
) -> None:
    path = write_lock(tmp_path, tree_text(upstream, upstream.commit(1)))
    checkout = place_tree(
        tmp_path, "tool", parse_lock(path.read_text(encoding="utf-8")).tree["tool"]
    ).path
    exclude = checkout / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("wandb/\n*.so\n*.log\n__pycache__/\n")
    (checkout / "tool/__pycache__").mkdir()
    for harmless in ("tool/__pycache__/x.cpython-311.pyc", "tool/x.log"):
        (checkout / harmless).write_text("")
    assert states(tmp_path) == {"tree.tool": "ok"}
    (checkout / "wandb").mkdir()
    (checkout / ("wandb/__init__.py" if how == "exclude" else "tool/fast.so")).write_text("")
    _, (row,) = verify_entries(
        parse_lock(path.read_text(encoding="utf-8")), ["tree.tool"], ThisMachine(tmp_path)
    )
    assert row.state == "dirty" and "1 ignored files that Python would import" in row.found
    # The fix lists it as typed.
    command = row.fix.split("`")[1].split()
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ("wandb/__init__.py" if how == "exclude" else "tool/fast.so") in listed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_checkout_of_another_user_is_unknown(tmp_path: Path, upstream: Upstream) -> None:
    path = write_lock(tmp_path, tree_text(upstream, upstream.commit(1)))
    checkout = place_tree(
        tmp_path, "tool", parse_lock(path.read_text(encoding="utf-8")).tree["tool"]
    ).path
    subprocess.run(["chown", "-R", "12345", str(checkout)], check=True)
    report, (row,) = verify_entries(
        parse_lock(path.read_text(encoding="utf-8")), ["tree.tool"], ThisMachine(tmp_path)
    )
    assert row.state == "unknown"
    assert report.exit_code == 2
    assert "safe.directory" in row.fix


def test_data_is_hashed(tmp_path: Path) -> None:
    content = b"rows"
    digest = "85a61df2f5aea77b21de4c2926a5e6d5b8d58e5d6ba2a8bc2f4f2a5a2b9e3e8b"
    write_lock(
        tmp_path,
        f"""
        [data.d]
        machines = ["h20"]
        repo = "a/b"
        revision = "{"a" * 40}"
        file = "d.parquet"
        path = "data/d.parquet"
        bytes = {len(content)}
        sha256 = "{digest}"
        """,
    )
    assert states(tmp_path) == {"data.d": "missing"}
    (tmp_path / "data").mkdir()
    file = tmp_path / "data/d.parquet"
    file.write_bytes(content)
    assert states(tmp_path) == {"data.d": "drift"}
    found = subprocess.check_output(["sha256sum", str(file)], text=True).split()[0]
    lock = tmp_path / "versions.lock"
    lock.write_text(lock.read_text(encoding="utf-8").replace(digest, found))
    assert states(tmp_path) == {"data.d": "ok"}
    elsewhere = tmp_path / "shared/data"
    elsewhere.mkdir(parents=True)
    shutil.move(file, elsewhere)
    assert states(tmp_path) == {"data.d": "missing"}
    assert states(tmp_path, data=tmp_path / "shared") == {"data.d": "ok"}
    (elsewhere / "d.parquet").write_bytes(b"rowS")
    assert states(tmp_path, data=tmp_path / "shared") == {"data.d": "drift"}
    (elsewhere / "d.parquet").write_bytes(b"rows and more")
    assert states(tmp_path, data=tmp_path / "shared") == {"data.d": "drift"}


def test_packages_are_asked_of_the_interpreter(tmp_path: Path) -> None:
    installed = query(Path(sys.executable))
    version = installed.distributions["pydantic"].version
    write_lock(
        tmp_path,
        "".join(
            f'[package.{key}]\nmachines = ["h20"]\nname = "{name}"\nversion = "{wanted}"\n'
            for key, name, wanted in [
                ("right", "Pydantic", version),
                ("wrong", "pydantic", "1.0"),
                ("absent", "no-such-thing", "1.0"),
            ]
        ),
    )
    assert set(states(tmp_path).values()) == {"unknown"}
    assert states(tmp_path, python=Path(sys.executable)) == {
        "package.right": "ok",
        "package.wrong": "drift",
        "package.absent": "missing",
    }
    assert set(states(tmp_path, python=tmp_path / "python").values()) == {"unknown"}


def test_an_image_without_engine_or_digest_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE_ENGINE", "no-such-engine")
    image = '[image.{}]\nmachines = ["h20"]\nrepository = "a/b"\nwant = "t"\n{}\n'
    digest = f'digest = "sha256:{"a" * 64}"'
    path = write_lock(tmp_path, image.format("x", digest) + image.format("y", 'unpinned = "why"'))
    assert states(tmp_path) == {"image.x": "unknown", "image.y": "unknown"}
    (tmp_path / "runtime_env.yaml").write_text("working_dir: ./\n")
    assert verify(path, [], "h20", ThisMachine(tmp_path)).exit_code == 2


def test_inside_an_image_its_provenance_is_read(tmp_path: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    write_lock(
        tmp_path,
        f'[image.x]\nmachines = ["h20"]\nrepository = "a/b"\nwant = "t"\ndigest = "{digest}"\n',
    )
    file = tmp_path / "provenance.json"
    for content, state in [
        (json.dumps({"base_digest": digest}), "ok"),
        (json.dumps({"base_digest": f"sha256:{'b' * 64}"}), "drift"),
        ("{}", "unknown"),
        ("not json", "unknown"),
    ]:
        file.write_text(content)
        assert states(tmp_path, provenance=file) == {"image.x": state}


def test_a_tag_that_moved_is_a_warning_and_an_unknown_server_unknown(
    tmp_path: Path, upstream: Upstream
) -> None:
    commit = upstream.commit(1)
    run_git(upstream.work, "tag", "v1")
    run_git(upstream.work, "push", "-q", "origin", "v1")
    path = write_lock(tmp_path, tree_text(upstream, commit) + 'want = "v1"\n')
    place_tree(tmp_path, "tool", parse_lock(path.read_text(encoding="utf-8")).tree["tool"])
    assert verify(path, ["tool"], "h20", ThisMachine(tmp_path), remote=()).findings == []
    new = upstream.commit(2)
    run_git(upstream.work, "tag", "-f", "v1")
    run_git(upstream.work, "push", "-qf", "origin", "v1")
    report = verify(path, ["tool"], "h20", ThisMachine(tmp_path), remote=())
    assert report.verdict is Verdict.OK
    (finding,) = report.findings
    assert finding.severity is Severity.WARNING
    assert commit in finding.message and new in finding.message
    shutil.rmtree(upstream.bare)
    assert verify(path, ["tool"], "h20", ThisMachine(tmp_path), remote=()).exit_code == 2


def test_the_answers_of_many_hosts_are_put_together(tmp_path: Path, upstream: Upstream) -> None:
    path = write_lock(tmp_path, tree_text(upstream, upstream.commit(1)))
    answers = tmp_path / "answers"
    answers.mkdir()

    def answer(host: str) -> None:
        body = json.dumps(verify(path, ["tool"], "h20", ThisMachine(tmp_path)).to_json())
        (answers / f"{host}.json").write_text(body)

    answer("node-1")
    place_tree(tmp_path, "tool", parse_lock(path.read_text(encoding="utf-8")).tree["tool"])
    answer("node-2")
    report = combine(answers)
    assert report.exit_code == 1
    assert [(row["host"], row["state"]) for row in report.data["rows"]] == [
        ("node-1", "missing"),
        ("node-2", "ok"),
    ]
    assert report.data["differing"] == ["tree.tool"]
    assert [item.where for item in report.errors()] == ["node-1: tree.tool"]
    answer("node-1")
    assert combine(answers).verdict is Verdict.OK
    for content in ("", "[]", '{"command": "lock verify"}', '{"command": "other"}'):
        (answers / "node-3.json").write_text(content)
        assert combine(answers).exit_code == 2
    with pytest.raises(OperatorError, match="no answers"):
        combine(tmp_path / "nowhere")


CONTRADICTION = """
[contradiction.known]
machines = ["h20"]
declared_by = "tree.tool"
in_file = "requirements.txt"
declares = "transformers != 5.6.0"
locked = "package.transformers"
verified_with = "5.6.0"
why_right = "it is not used"
not_when = "use 5.6.1 or later"
tripped_by = "transformers-flash-attention"
"""


def contradicting(tmp_path: Path, upstream: Upstream, files: dict[str, str], more: str) -> Path:
    for name, content in files.items():
        (upstream.work / name).write_text(content)
    text = tree_text(upstream, upstream.commit(1)) + (
        '[package.transformers]\nmachines = ["h20"]\nname = "transformers"\nversion = "5.6.0"\n'
    )
    return write_lock(tmp_path, text + more)


def found(path: Path) -> Report:
    lock = parse_lock(path.read_text(encoding="utf-8"))
    checkout = place_tree(path.parent, "tool", lock.tree["tool"]).path
    report = Report("x")
    compare(report, lock, "h20", in_tree(lock, "h20", "tool", checkout), {"tree.tool"})
    return report


REQUIREMENTS = {"requirements.txt": "ray\ntransformers!=5.6.0  # broken\nnumpy>=2\n"}


def test_a_contradiction_that_is_not_recorded_fails(tmp_path: Path, upstream: Upstream) -> None:
    report = found(contradicting(tmp_path, upstream, REQUIREMENTS, ""))
    (finding,) = report.errors()
    assert finding.where == "third_party/tool/requirements.txt:2"
    assert "transformers!=5.6.0" in finding.message and "5.6.0" in finding.message


def test_a_recorded_contradiction_is_a_warning(tmp_path: Path, upstream: Upstream) -> None:
    report = found(contradicting(tmp_path, upstream, REQUIREMENTS, CONTRADICTION))
    assert report.verdict is Verdict.OK
    (finding,) = report.findings
    assert finding.severity is Severity.WARNING
    assert "it is not used" in finding.message and "5.6.1" in finding.fix


def test_a_recorded_contradiction_that_is_gone_fails(tmp_path: Path, upstream: Upstream) -> None:
    files = {"requirements.txt": "transformers\n"}
    report = found(contradicting(tmp_path, upstream, files, CONTRADICTION))
    (finding,) = report.errors()
    assert finding.where == "contradiction.known"
    assert "no longer declares" in finding.message


def test_a_contradiction_whose_declarer_is_not_here_is_unknown(
    tmp_path: Path, upstream: Upstream
) -> None:
    path = contradicting(tmp_path, upstream, REQUIREMENTS, CONTRADICTION)
    report = Report("x")
    compare(report, parse_lock(path.read_text(encoding="utf-8")), "h20", [], set())
    assert [check.state for check in report.checks] == [State.UNKNOWN]


def test_every_way_of_declaring_is_read(tmp_path: Path, upstream: Upstream) -> None:
    files = {
        "pyproject.toml": """
            [project]
            requires-python = ">=3.12,<3.13"
            dependencies = ["transformers>=5.8.1,<5.9.0"]
            [tool.uv]
            override-dependencies = ["modelopt==0.44.0rc5", "torch; sys_platform == 'never'"]
        """,
        "setup.py": "raise SystemExit\ninstall_requires = ['numpy>=3', name]\n",
    }
    more = (
        '[image.i]\nmachines = ["h20"]\nrepository = "a/b"\nwant = "t"\nunpinned = "x"\n'
        '[image.i.contents]\npython = "3.10.12"\nnumpy = "2.1"\nmodelopt = "0.44.0"\ntorch = "1"\n'
    )
    report = found(contradicting(tmp_path, upstream, files, more))
    assert {finding.message.split(",")[0] for finding in report.errors()} == {
        "requires python<3.13",
        "requires transformers<5.9.0",
        "requires numpy>=3",
        "requires modelopt==0.44.0rc5",
    }


def test_an_environment_contradicts_itself(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name, requires in {"one": ["two>=2", "three; extra == 'x'", "four"], "two": []}.items():
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {item}" for item in requires)]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
    # A real interpreter whose only packages are these two.
    python = tmp_path / "python"
    own, packages = shlex.quote(sys.executable), shlex.quote(str(site))
    python.write_text(f'#!/bin/sh\nshift\ncd /\nPYTHONPATH={packages} exec {own} -S "$@"\n')
    python.chmod(0o755)
    conflicts = {(item.requirement, item.version) for item in in_installed("e", query(python))}
    assert conflicts == {("two>=2", "1.0"), ("four", "absent")}


def test_the_shipped_contradictions_matter_for_flash_attention_only() -> None:
    lock = parse_lock((ROOT / "versions.lock").read_text(encoding="utf-8"))
    fine = judge_recipe(lock, "h20", {"tracker-wandb": "the logger"})
    assert fine.verdict is Verdict.OK
    assert [item.where for item in fine.findings] == ["contradiction.transformers-verl"]
    # What the guide's model does says nothing of another recipe; facts that are not known neither.
    own = judge_recipe(lock, "h20", {}, lambda fact: f"{fact}: strategy=megatron").findings[0]
    assert "strategy=megatron" in own.message and "Hy3" not in own.message
    unknown = judge_recipe(lock, "h20", None)
    assert unknown.verdict is Verdict.UNKNOWN and "not known" in unknown.findings[0].message
    report = judge_recipe(lock, "h20", {"transformers-flash-attention": "strategy=fsdp"})
    (finding,) = report.errors()
    assert "transformers!=5.6.0" in finding.message and "strategy=fsdp" in finding.message
    assert "5.6.1 or later" in finding.fix
    (tracker,) = judge_recipe(lock, "rehearsal", {"tracker-wandb": "the logger"}).errors()
    assert tracker.where == "contradiction.rehearsal-wandb"
    assert judge_recipe(lock, "musa", {"transformers-flash-attention": "x"}).findings == []


def test_the_report_is_one_json_object(tmp_path: Path, upstream: Upstream) -> None:
    path = write_lock(tmp_path, tree_text(upstream, upstream.commit(1)))
    body = json.loads(json.dumps(verify(path, ["tool"], "h20", ThisMachine(tmp_path)).to_json()))
    assert body["rows"][0]["entry"] == "tree.tool"
    assert body["machine"] == "h20" and len(body["sha256"]) == 64
