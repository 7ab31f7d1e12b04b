"""What every command owes its operator: its own name, and nothing passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from reprise import __version__
from reprise.cli import app

ROOT = Path(__file__).resolve().parents[2]


def answer(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A finished run of the rehearsal, as far as it is looked at before it is judged."""
    facts = {"state": "finished", "model": "rehearsal", "id": "x", "steps": 2}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [("hosts",), ("doctor",), ("cluster", "up"), ("cluster", "status"), ("train", "hy3")],
    ids=" ".join,
)
def test_a_report_bears_the_name_of_its_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "hosts"
    file.write_text("gpu-a slot=8\n")
    code, report = answer(*command, str(file))
    assert (code, report["verdict"]) == (1, "problem")
    assert report["command"] == " ".join(command).removesuffix(" hy3")


def test_a_missing_hostfile_is_told_by_a_fix_that_holds_for_every_command(tmp_path: Path) -> None:
    _, report = answer("hosts", str(tmp_path / "nope"))
    assert "reprise init" in report["findings"][0]["fix"]


@pytest.mark.parametrize(
    "setting",
    [
        *(("--seed", "1"), ("--steps", "3"), ("--arch", "hy3"), ("--platform", "cpu")),
        *(("--engine", "fsdp"), ("--", "rehearsal", "data.seed=3")),
    ],
    ids=" ".join,
)
def test_a_finished_run_takes_no_settings(finished: Path, setting: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["reproduce", "--json", "--run", str(finished), *setting])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["rule"] == "reproduce-run"


def test_a_run_is_not_judged_by_another_recipes_reference(finished: Path) -> None:
    code, report = answer("reproduce", "--run", str(finished), "hy3")
    assert code == 1
    told = report["findings"][0]
    assert told["message"] == "expected a run of hy3, found a run of rehearsal"
    assert told["fix"] == f"make reproduce MODEL=rehearsal RUN={finished}"
    assert sorted(path.name for path in finished.iterdir()) == ["run.json"]


def test_a_finished_run_is_not_taken_up_whatever_its_file_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "hy3" / "a b"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"state": "finished"}')
    code, report = answer("train", "--resume", str(folder))
    assert code == 1
    assert report["findings"][0]["fix"] == f"judge it: make reproduce MODEL=hy3 RUN='{folder}'"


@pytest.mark.parametrize("more", [(), ("--run", "nope")], ids=["train", "judge"])
def test_an_unknown_recipe_is_named_as_such(more: tuple[str, ...]) -> None:
    code, report = answer("reproduce", "hy4", *more)
    assert code == 1
    message = report["findings"][0]["message"]
    assert message.startswith("unknown recipe, did you mean hy3; available: ")


def test_data_that_is_not_there_is_told_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    code, report = answer("data", "check", "--model", "hy3")
    assert code == 1
    fixes = {item["fix"] for item in report["findings"]}
    assert fixes == {f"make data (fetches it to DATA_DIR, now {tmp_path})"}
    _, own = answer("data", "check", str(tmp_path / "mine.parquet"))
    assert "make data" not in own["findings"][0]["fix"]


def _leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        return [x for n, c in command.commands.items() for x in _leaves(c, (*path, n))]
    return [(path, command)]


def test_every_command_answers_in_json() -> None:
    leaves = _leaves(get_command(app))
    assert len(leaves) > 30
    lacking = [
        " ".join(path)
        for path, command in leaves
        if "--json" not in {option for p in command.params for option in p.opts}
    ]
    # That one prints what the command inside the container prints.
    assert lacking == ["image run"]


def typed(
    *arguments: str | bytes, out: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return subprocess.run(
        [sys.executable, "-m", "reprise", *arguments],
        cwd=ROOT,
        env=os.environ | plain | environment,
        stdout=out,
        stderr=subprocess.PIPE,
        check=False,
    )


def test_a_terminal_that_knows_no_such_letters_is_told_all_the_same() -> None:
    name = "路径/hôsts"
    # As bytes: where the tests' own locale has no such letters, Python cannot pass them on.
    done = typed("hosts", name.encode())
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"hostfile not found" in done.stdout
    where = json.loads(typed("hosts", name.encode(), "--json").stdout)["findings"][0]["where"]
    assert where.isascii() and where.endswith("sts")
    plain = typed("hosts", name.encode(), "--json", PYTHONUTF8="1", PYTHONIOENCODING="ascii")
    assert plain.stdout.isascii()
    assert json.loads(plain.stdout)["findings"][0]["where"].endswith(name)


def test_a_name_that_is_no_utf8_does_not_break_the_object() -> None:
    for encoding in ("utf-8", "ascii"):
        done = typed("hosts", b"/h\xff", "--json", PYTHONUTF8="1", PYTHONIOENCODING=encoding)
        assert json.loads(done.stdout)["findings"][0]["where"] == "/h\\udcff"


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_an_answer_that_cannot_be_written_is_not_fine(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = typed("recipe", "list", *more, out=full.fileno())
    assert done.returncode == 2
    expected = b"error standard output: the answer could not be written: No space left on device\n"
    assert done.stderr == expected


@pytest.mark.parametrize(
    "command",
    [
        ("data", "fetch", "aime-2024", "--mirror", "http://me:hush@127.0.0.1:1"),
        ("train", "hy3", "--address", "http://me:hush@head:8265"),
    ],
    ids=lambda command: command[0],
)
def test_a_login_in_a_url_is_never_shown(command: tuple[str, ...], tmp_path: Path) -> None:
    for more in ((), ("--json",)):
        done = typed(*command, *more, DATA_DIR=str(tmp_path))
        assert done.returncode in (1, 2), done.stdout
        assert b"***@" in done.stdout
        assert b"hush" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "command", "said"),
    [
        ("lock check --nope", "lock check", "No such option: --nope"),
        ("data convert", "data convert", "Missing argument 'IN'."),
        ("lock nope", "lock", "No such command 'nope'."),
        ("train --seed", "train", "Option '--seed' requires an argument."),
        ("reproduce --ranks 3", "reproduce", "Input should be less than or equal to 2"),
        ("lock", "lock", "expected a command before --json"),
    ],
)
def test_a_command_typed_wrongly_is_told_in_json_too(words: str, command: str, said: str) -> None:
    first, *rest = words.split()
    done = typed(first, "--json", *rest) if rest == ["--seed"] else typed(first, *rest, "--json")
    assert (done.returncode, done.stderr) == (2, b"")
    report = json.loads(done.stdout)
    assert (report["command"], report["verdict"]) == (command, "unknown")
    (told,) = report["findings"]
    assert said in told["message"]
    assert told["fix"].startswith(f"reprise {command} --help")


def test_a_command_typed_wrongly_is_told_in_words_where_no_json_was_asked_for() -> None:
    done = typed("recipe", "show", "--nope", "--", "--json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"No such option: --nope" in done.stderr


@pytest.mark.parametrize("endpoint", ["http://[", "http://a:b"])
def test_an_endpoint_that_is_no_url_is_told(endpoint: str) -> None:
    done = typed("data", "fetch", "--json", HF_ENDPOINT=endpoint)
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout)["findings"][0]["where"] == "HF_ENDPOINT"
    assert (
        b"error HF_ENDPOINT: not a valid URL: "
        in typed("data", "fetch", HF_ENDPOINT=endpoint).stdout
    )
    assert typed("recipe", "list", HF_ENDPOINT=endpoint).returncode == 0


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"reprise {__version__}\n")
