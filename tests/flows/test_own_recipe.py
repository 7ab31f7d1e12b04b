"""The page docs/own-recipe.md: its commands, as typed, on a copy of the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from models.weights import shard, tensor

from flows.test_new import CONFIG, ROOT, data
from reprise.models.tables import expected_tensors

PAGE = (ROOT / "docs/own-recipe.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 128}


def test_the_page_has_at_most_eight_commands() -> None:
    assert len([part for line in COMMANDS for part in line.split("&&")]) <= 8
    assert COMMANDS[0].startswith("git clone") and COMMANDS[1].startswith("export MODEL=")


@pytest.mark.full
def test_the_commands_lead_to_a_checked_recipe(tmp_path: Path) -> None:
    """All but the clone, and the two paths, which are those of this test."""
    root = tmp_path / "reprise"
    (root / ".cache").mkdir(parents=True)
    names = ("requirements", "runtime_env.yaml", ".venv", ".venv-rehearsal", "third_party")
    for name in names:
        if (ROOT / name).exists():
            (root / name).symlink_to(ROOT / name)
    subprocess.run(["cp", "-r", ROOT / "recipes", ROOT / "versions.lock", root], check=True)
    for folder in (ROOT / ".cache").glob("verl-*"):
        (root / ".cache" / folder.name).symlink_to(folder)
    weights = tmp_path / "weights"
    weights.mkdir()
    config = {**CONFIG, **TINY, "num_attention_heads": 8, "num_key_value_heads": 8}
    table = expected_tensors(config)
    assert table is not None
    shapes = {name: tensor(*shape) for name, shape in table.wanted.items()}
    shard(weights / "model.safetensors", {n: s for n, s in shapes.items() if n != "lm_head.weight"})
    (weights / "config.json").write_text(json.dumps(config))
    train = data(tmp_path / "train.parquet", [300] * 1000)
    environment = {**os.environ, "MODEL": str(weights), "DATA": str(train)}
    (tmp_path / "site.toml").write_text("")
    environment |= {"SITE": str(tmp_path / "site.toml"), "REPRISE_RECIPES": ""}
    for command in COMMANDS[2:]:
        done = subprocess.run(
            ["sh", "-c", command], cwd=root, env=environment, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (root / "recipes/mine/recipe.yaml").is_file()
