"""What scripts and recipes of make capture: never a command's findings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A program of this project, where a command begins: its output is for a person, or it is --json.
OURS = re.compile(
    r"""(?:^|[;&|({\n]|\b(?:then|do|else|if|while|exec|env|timeout\s+\S+)\s)\s*(?:\w+=\S*\s+)*
    ["']?(?:\$\(?\{?(?:REPRISE|OPERATOR|DEV|REHEARSAL|reprise)\b
    |\S*\breprise["']?\s|\S*python\S*["']?\s+-m\s+reprise\b
    |\S*scripts/\S+\.(?:sh|py)\b|make\s)""",
    re.X,
)
PLACES = ("Makefile", "scripts", "docker", ".ci", "docs", "README.md", "README.zh.md")


def captures(text: str) -> Iterator[str]:
    """What is inside each `$(...)` and each backquoted command of a shell text."""
    for start in (found.end() for found in re.finditer(r"\$\((?!\()", text)):
        depth, end = 1, start
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[start : end - 1]


def shell_of(path: Path) -> str:
    """Its shell: of a recipe of make with the dollars that the shell gets, without make's own."""
    text = path.read_text(encoding="utf-8")
    if path.name != "Makefile":
        return text
    recipes = "\n".join(line for line in text.splitlines() if line.startswith("\t"))
    return re.sub(r"(?<!\$)\$\((\w+)\)", r"$\1", recipes).replace("$$", "$")


def captured(text: str) -> list[str]:
    return [inside for inside in captures(text) if OURS.search(inside)]


def test_nothing_captures_findings() -> None:
    listed = subprocess.check_output(["git", "ls-files", "--", *PLACES], cwd=ROOT, text=True)
    files = [ROOT / name for name in listed.split("\n") if name]
    shells = [
        path for path in files
        if path.name == "Makefile" or path.suffix in (".sh", ".md") or path.parent.name == ".ci"
    ]  # fmt: skip
    assert len(shells) > 20
    assert {str(path): found for path in shells if (found := captured(shell_of(path)))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "image=$($REPRISE image build -- cpu) && scripts/demo_cluster.sh",
        'x="$(cd /x; "$reprise" runs | head -1)"',
        "x=$(.venv/bin/reprise runs)",
        "x=$(RUNS_DIR=/x python3 -m reprise runs)",
        "x=$(if true; then scripts/venv.sh dev; fi)",
    ],
)
def test_a_capture_is_found(text: str) -> None:
    assert captured(text)


def test_other_captures_are_left_alone() -> None:
    text = 'a=$(cat "$name") b=$(echo ~/.local/state/reprise/*/token) c=$(date +%s) $((1 + 2))'
    assert captured(text) == []


def test_the_demo_shows_what_the_build_says(tmp_path: Path) -> None:
    """With the real recipe: what the build prints reaches the person, the name the script."""
    (tmp_path / "scripts").mkdir()
    for name in ("Makefile", "scripts/variables.awk"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    programs = {
        "scripts/venv.sh": "",
        "scripts/demo_cluster.sh": 'printf "<%s>\\n" "$@"',
        ".venv/bin/reprise": """while [ "$1" != --name-file ]; do shift; done
            echo "note pip: an index is on this machine [image-sources]"
            [ -z "${FAIL:-}" ] || { echo "error: the engine has no buildx"; exit 1; }
            echo reprise/cpu:1 >"$2"; echo reprise/cpu:1""",
    }
    for name, text in programs.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    def demo(**variables: str) -> subprocess.CompletedProcess[str]:
        words = [f"{name}={value}" for name, value in variables.items()]
        command = ["env", *words, "make", "--no-print-directory", "demo-cluster"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = demo(KEEP="1")
    assert done.returncode == 0, done.stderr
    assert "note pip: an index is on this machine" in done.stdout
    assert done.stdout.endswith("<reprise/cpu:1>\n<--keep>\n")
    done = demo(FAIL="1")
    assert done.returncode == 2
    assert "error: the engine has no buildx" in done.stdout and "<" not in done.stdout
    assert list((tmp_path / ".cache").iterdir()) == []
