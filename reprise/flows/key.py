"""What a rehearsal run is keyed by: runs of one reference agree in all of it."""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprise.core.files import sha256_text
from reprise.core.project import Project
from reprise.flows.target import Target
from reprise.lock.read import machine_hash, read_lock
from reprise.rehearsal.model import TinyModel
from reprise.rehearsal.toy import ToyData

__all__ = ["KEYS", "code_of", "recipe_key", "run_key"]

KEYS = ("lock", "recipe", "plugins", "model_sha256", "data_sha256", "steps")
"""The names of the key, in run.json and in a reference's provenance."""


def run_key(
    project: Project,
    config: Mapping[str, Any],
    model: TinyModel,
    data: ToyData,
    place: Target,
) -> dict[str, Any]:
    """The key of a run with the resolved `config`; `steps` is a number, the others are hashes."""
    return {
        "lock": machine_hash(read_lock(project.lock), place.machine),
        "recipe": recipe_key(config),
        "plugins": _plugins_key(place.python(project), _idle(config)),
        "model_sha256": model.sha256,
        "data_sha256": {"train": data.train_sha256, "val": data.val_sha256},
        "steps": int(config["trainer"]["total_training_steps"]),
    }


def recipe_key(config: Mapping[str, Any]) -> str:
    """A hash of the resolved config without what differs between runs of one reference.

    These are the seed, the number of steps (a key of its own), and paths of this machine.
    """
    value = json.loads(json.dumps(config))
    data, trainer = value["data"], value["trainer"]
    for node, name in (
        (data, "seed"),
        (data, "train_files"),
        (data, "val_files"),
        (trainer, "total_training_steps"),
        (trainer, "default_local_dir"),
    ):
        node.pop(name, None)
    return sha256_text(json.dumps(value, sort_keys=True))


def _has_critic(config: Mapping[str, Any]) -> bool:
    """Whether verl trains a critic (trainer/ppo/utils.py: need_critic)."""
    stated = (config.get("critic") or {}).get("enable")
    return config["algorithm"]["adv_estimator"] == "gae" if stated is None else bool(stated)


def _idle(config: Mapping[str, Any]) -> frozenset[str]:
    """Modules of the plug-ins that compute nothing in a run of `config`.

    They describe and check the bridges, look at what a weight update wrote, or belong to a critic
    or a rollout engine that the run does not have.
    """
    idle = {"__main__.py", "bridge.py", "bridges.py"}
    idle |= {"written.py", "written_sglang.py", "written_vllm.py"}
    if not _has_critic(config):
        idle.add("critic.py")
    if config["actor_rollout_ref"]["rollout"].get("name") != "sglang":
        idle |= {"experts.py", "experts_entry.py", "sglang_rollout.py"}
    return frozenset(idle)


def _plugins_key(python: Path, idle: frozenset[str]) -> str:
    """A hash of the installed plug-ins' code, without comments: it shapes what is measured."""
    folder = "lib/python3*/site-packages/reprise_plugins/*.py"
    sources = sorted(python.parent.parent.glob(folder))
    code = (path.read_bytes() for path in sources if path.name not in idle)
    return sha256_text("".join(code_of(text) for text in code))


def code_of(source: bytes) -> str:
    """The lines of a module without its comments, blank lines and trailing blanks.

    Of the text and not of the syntax tree, whose printed form differs between Python versions.
    """
    lines = source.decode().splitlines()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"
