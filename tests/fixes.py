"""The commands of printed fixes: found in the text as a reader finds them, and run as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.rules import text_of

# Between backticks, or from the beginning of a clause to the remark or the next clause.
_COMMAND = re.compile(
    r"`([^`]+)`"
    r"|(?:^|(?<=[;:] )|(?<=, )|(?<=or )|(?<=then )|(?<=\())"
    r"((?:reprise|git|make|sh|mv) (?!the |it |this |an )[^`()]+?)(?= \(|\)|;|, | or |$)"
)


def commands(fix: str) -> list[str]:
    """The commands of a fix, in their order."""
    return [first or second for first, second in _COMMAND.findall(fix)]


def is_text(name: str, message: str) -> bool:
    """Whether `message` is the registry's text `name` (`rule.text`) with some values."""
    parts = re.split(r"\{[^}]*\}", text_of(name).message)
    # Rows and the like may follow.
    return re.match(".*".join(map(re.escape, parts)), message, re.DOTALL) is not None


def run(command: str, folder: Path, variables: Mapping[str, str] | None = None) -> int:
    """Run `command` as a shell would, in `folder`; `reprise` in this process. Its exit code."""
    words = shlex.split(command)
    if words[0] == "reprise":
        before = Path.cwd()
        os.chdir(folder)
        try:
            done = CliRunner().invoke(app, words[1:], env=dict(variables or {}))
        finally:
            os.chdir(before)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        print(f"$ {command}\n{done.output}")
        return done.exit_code
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"$ {command}\n{ended.stdout}{ended.stderr}")
    return ended.returncode
