"""What a shell gets when it asks to complete a command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPRISE = Path(sys.executable).with_name("reprise")


def complete(words: str) -> list[str]:
    """The answers to bash for a line whose last word is to be completed."""
    environment = {
        **os.environ,
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_REPRISE_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [str(REPRISE)], env=environment, capture_output=True, encoding="utf-8", check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("reprise reh", ["rehearsal"]),
        ("reprise recipe ch", ["check"]),
        ("reprise doctor --mac", ["--machine"]),
        ("reprise nothing-like-this", []),
    ],
)
def test_words_are_completed(words: str, expected: list[str]) -> None:
    assert complete(words) == expected


def test_the_first_word_is_any_command() -> None:
    found = set(complete("reprise  ") or complete("reprise e"))
    assert "explain" in found


def test_the_scripts_of_the_shells_can_be_shown() -> None:
    done = subprocess.run(
        [str(REPRISE), "--show-completion", "bash"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_REPRISE_COMPLETE=complete_bash" in done.stdout
