"""The commands of docs/own-recipe.md and of other pages, as typed, in a fresh clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git
from models.weights import shard, tensor

from flows.test_ci import scripts
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
    """All but `make env`, whose environment is this one, and the two paths."""
    root = clone(tmp_path)
    environment = own_things(tmp_path)
    for command in COMMANDS[2:]:
        typed(command, root, environment)
    assert (root / "recipes/mine/recipe.yaml").is_file()


def clone(tmp_path: Path) -> Path:
    """What a user gets of the newest commit, with this checkout's environments."""
    root = tmp_path / "reprise"
    subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
    for name in (".venv", ".venv-rehearsal", "third_party"):
        if (ROOT / name).exists() and not (root / name).exists():
            (root / name).symlink_to(ROOT / name)
    (root / ".cache").mkdir()
    for folder in (ROOT / ".cache").glob("verl-*"):
        (root / ".cache" / folder.name).symlink_to(folder)
    return root


def typed(command: str, root: Path, environment: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(
        ["sh", "-c", command], cwd=root, env=environment, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def own_things(tmp_path: Path) -> dict[str, str]:
    """An environment that names weights and data of one's own."""
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
    return environment | {"SITE": str(tmp_path / "site.toml"), "REPRISE_RECIPES": ""}


def block(page: str, beginning: str) -> list[str]:
    """The commands of the block of a page that begins so."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (found,) = [one for one in re.findall(r"```sh\n(.*?)```", text, re.S) if beginning in one]
    return found.splitlines()


@pytest.mark.full
def test_the_commands_of_lock_add_and_of_the_search(tmp_path: Path) -> None:
    root, environment = clone(tmp_path), own_things(tmp_path)
    upstream = Upstream(tmp_path)
    upstream.commit(1)
    run_git(upstream.work, "tag", "v1.2")
    run_git(upstream.work, "push", "-q", "origin", "v1.2")
    environment["TOOL"] = f"file://{upstream.bare}"
    for command in block("lock.md", "lock add tree"):
        typed(command, root, environment)
    text = (root / "versions.lock").read_text(encoding="utf-8")
    assert all(f"[{name}]" in text for name in ("model.mine", "data.mine", "tree.tool"))
    for command in block("recipes.md", "--search"):
        assert "rollout tp" in typed(command, root, environment)


@pytest.mark.full
@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_the_steps_of_ci(tmp_path: Path, host: str) -> None:
    """The shell steps of the files, taken from them; the rehearsal is another test's."""
    root, environment = clone(tmp_path), {**os.environ, "RUNS_DIR": str(tmp_path / "runs")}
    init, commit = block("ci.md", "ci init")
    typed(init.replace("--host github", f"--host {host}"), root, environment)
    for key in ("user.name", "user.email"):
        run_git(root, "config", key, "a@example.org")
    typed(commit.replace(".github", "-A"), root, environment)
    folder = ".github/workflows" if host == "github" else ".gitlab"
    steps = scripts(host, root / folder / "reprise-qwen3-8b.yml")
    kept = [step for step in steps if not step.startswith("make") and "shape" not in step]
    assert len(kept) == 3
    for step in kept:
        # No run is there to be judged: that is not fine, and not wrong either.
        typed(step, root, environment, 2 if "--newest" in step else 0)
