"""An option that would change nothing is refused, not passed over."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from reprise.cli import app


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("doctor --include a", "hosts-select"),
        ("doctor --exclude a", "hosts-select"),
        ("model check /tmp --include a", "hosts-select"),
        ("model check /tmp --host a --exclude a", "hosts-select"),
        ("model check /tmp --ssh-config /nope", "hosts-select"),
        ("model fetch hy3 /nope/m --from /tmp --mirror http://127.0.0.1:9", "model-source"),
        ("model fetch hy3 /nope/m --from /tmp --modelscope", "model-source"),
        ("model fetch hy3 /nope/m --mirror http://127.0.0.1:9 --revision main", "model-source"),
        ("data fetch --from /tmp --mirror http://127.0.0.1:9", "data-source"),
        ("setup --bundle /nope --mirror http://127.0.0.1:9", "setup-source"),
        ("recipe convert hy3 --verify /tmp", "recipe-convert-arguments"),
    ],
)
def test_an_option_that_would_change_nothing(command: str, rule: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--json"])
    assert done.exit_code == 1, done.output
    (told,) = json.loads(done.stdout)["findings"]
    assert told["rule"] == rule
    assert told["fix"]


def test_a_container_of_an_image_is_built_on_nothing_else() -> None:
    done = CliRunner().invoke(app, ["image", "run", "--image", "a", "--base", "b", "hosts"])
    assert done.exit_code == 1
    assert "names an existing one [image-base]" in done.stdout


@pytest.mark.parametrize(
    ("name", "meant"), [("verl-must", "verl-musa"), ("tree.vrl", "tree.verl"), ("nothing", "")]
)
def test_a_misspelt_entry_of_the_lock(name: str, meant: str) -> None:
    done = CliRunner().invoke(app, ["lock", "verify", name, "--json"])
    told = json.loads(done.stdout)["findings"][0]
    hint = f", did you mean {meant}" if meant else ""
    assert told["message"].startswith(f"the lock has no such entry{hint}")
