"""The examples of CONTRIBUTING.md, applied to a copy of the project as they stand, and run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("reprise", "recipes", "scripts", "tests", "requirements", "docs", "plugins", "benchmarks")
FILES = ("versions.lock", "pyproject.toml", "runtime_env.yaml", "Makefile", "README.md")
# What the copy only reads.
SHARED = (".venv", ".venv-rehearsal", ".cache", "third_party")
PLACE = re.compile(r"# (\S+), (?:(new file|at the end)|(above|below) `(.+)`)")


def blocks() -> Iterator[tuple[str, str]]:
    """(first line, the rest) of every fenced block."""
    for match in re.finditer(r"^```\w+\n(.*?)\n(.*?)^```$", PAGE, re.S | re.M):
        yield match[1], match[2]


def commands() -> list[list[str]]:
    """The indented commands of the examples, as a shell splits them."""
    examples = PAGE[PAGE.index("### ") :]
    # Blocks are left out: they have indented lines, too.
    text = re.sub(r"^```.*?^```$", "", examples, flags=re.S | re.M)
    return [shlex.split(line) for line in re.findall(r"^    (\S.*)$", text, re.M)]


def apply(root: Path, first: str, rest: str) -> str:
    """Put a block into its place; the file's path."""
    match = PLACE.fullmatch(first)
    assert match is not None, f"a block begins with its file and place, found: {first}"
    name, whole, side, anchor = match.groups()
    path = root / name
    if whole == "new file":
        assert not path.exists(), name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rest, encoding="utf-8")
        return str(name)
    text = path.read_text(encoding="utf-8")
    if whole == "at the end":
        gap = "\n\n" if name.endswith(".py") else "\n"
        path.write_text(text + gap + rest, encoding="utf-8")
        return str(name)
    lines = text.splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if line.strip() == anchor]
    # Two lines separate functions; in a block of their own they would be its end.
    lines.insert(at + (side == "below"), rest + "\n\n" * rest.startswith("def "))
    path.write_text("".join(lines), encoding="utf-8")
    return str(name)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A copy of the project with every example in it, and the files that they changed."""
    root = tmp_path_factory.mktemp("contributed")
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "*.egg-info")
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, root / name)
    for name in SHARED:
        if (ROOT / name).exists():
            (root / name).symlink_to(ROOT / name)
    return root, sorted({apply(root, *block) for block in blocks()})


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # The copy's package, not the one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_every_kind_of_change_has_an_example() -> None:
    kinds = re.findall(r"^\| \[(.+?)\]\(#(.+?)\)", PAGE, re.M)
    titles = re.findall(r"^### (.+)$", PAGE, re.M)
    assert [name.removeprefix("an ").removeprefix("a ") for name, _ in kinds] == [
        title.removeprefix("An ").removeprefix("A ") for title in titles
    ]
    assert [anchor for _, anchor in kinds] == [title.lower().replace(" ", "-") for title in titles]
    assert len(titles) == 6


def test_the_examples_are_as_the_linters_want_them(project: tuple[Path, list[str]]) -> None:
    root, changed = project
    python = [name for name in changed if name.endswith(".py")]
    for command in (["check"], ["format", "--check"]):
        done = run(root, ".venv/bin/ruff", *command, "--no-cache", *python)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_examples_pass(project: tuple[Path, list[str]]) -> None:
    """All of them in one process: most of the time goes into its start."""
    root, changed = project
    asked = [command[3:] for command in commands() if command[1:3] == ["-m", "pytest"]]
    named = {word for words in asked for word in words if word.startswith("tests/")}
    wanted = [name for name in changed if re.search(r"/test_\w+\.py$", name)]
    assert len(asked) == 5
    assert all(any(name.startswith(word) for word in named) for name in wanted)
    # Of tests/core/test_rules.py what concerns the new texts: all of it takes eleven seconds.
    only = (
        "gradient or overcommit or data-shuffle or disk_logger or doctor_knows "
        "or test_a_call or test_every_text_is_used"
    )
    words = [*wanted, "tests/core/test_rules.py", "-n0", "-p", "no:cacheprovider", "-k", only]
    done = run(root, ".venv/bin/python", "-m", "pytest", *words)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ("lock check", 0, "lock check: ok"),
        ("recipe check mine", 0, "recipe check: ok"),
        pytest.param(
            *("recipe check qwen3-8b -- data.shuffle=False", 0, "expected data.shuffle True"),
            marks=pytest.mark.full,
        ),
        ("explain gpu-model", 0, "gpu-model"),
    ],
)
def test_a_command_of_the_examples(
    project: tuple[Path, list[str]], words: str, code: int, shown: str
) -> None:
    command = [".venv/bin/reprise", *shlex.split(words)]
    assert command in commands()
    done = run(project[0], *command)
    assert done.returncode == code, done.stdout + done.stderr
    assert shown in done.stdout


def test_the_probe_still_is_a_shell_script(project: tuple[Path, list[str]]) -> None:
    (command,) = [words for words in commands() if words[0].endswith("shellcheck")]
    done = run(project[0], *command)
    assert done.returncode == 0, done.stdout
