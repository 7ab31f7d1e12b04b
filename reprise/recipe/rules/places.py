"""Where a run writes and reads, and the settings in its environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from reprise.core.nearby import meant_word
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided
from reprise.recipe.setup import Setup

__all__ = ["RULES", "is_secret", "masked"]

_LOGGERS = (
    "wandb",
    "mlflow",
    "swanlab",
    "vemlp_wandb",
    "tensorboard",
    "console",
    "clearml",
    "trackio",
    "file",
)
_SECRET = re.compile(r"(^|_)(api_?key|access_?key|secret(_key)?|password|passwd|token)$", re.I)
_SECRET_VALUE = re.compile(r"^(hf_|sk-|ghp_|glpat-|xox[bp]-)[A-Za-z0-9_-]{8,}$")
# What people write where a credential belongs.
_NO_SECRET = re.compile(
    r"your|x{3,}|\*{3,}|\.{3,}|<|^(none|null|empty|dummy|changeme|todo|test|token|key|api_?key"
    r"|true|false|0|1)$|_here$|fill|replace|placeholder",
    re.I,
)
# Folders that a run must not write to; nothing is opened here.
_NODES_OWN = ("/tmp/", "/dev/shm/")  # noqa: S108
# Below a role's folder, where verl puts Megatron's shards.
_PARTS = ("model", "optimizer", "extra")
_INIT = "ray_kwargs.ray_init.runtime_env"


def is_secret(name: str, value: object) -> bool:
    """Whether a setting looks like a credential in plain text (a reference `${…}` does not)."""
    if not isinstance(value, str) or not value or value.startswith(("${", "/<", "<", "$")):
        return False
    if _NO_SECRET.search(value):
        return False
    return bool(_SECRET.search(name.rsplit(".", 1)[-1]) or _SECRET_VALUE.match(value))


def masked(value: str) -> str:
    """A credential as it may be shown."""
    return "*" * min(8, max(3, len(value)))


def _absolute(value: str) -> bool:
    return PurePosixPath(value).is_absolute() or "://" in value or value.startswith("~/")


def _checkpoints(setup: Setup, out: Judgement) -> None:
    keys = ["trainer.default_local_dir", "trainer.rollout_data_dir", "trainer.validation_data_dir"]
    for key in keys:
        value = setup.get(key)
        out.show(f"{key}={value}")
        if not isinstance(value, str):
            continue
        if not _absolute(value) and not setup.known.packaged:
            out.warn(key, "recipe-paths-writes.relative-unpackaged", value=value, setting=key)
        elif not _absolute(value):
            if key == keys[0]:
                out.error(key, "recipe-paths-writes.relative-checkpoints", value=value)
            else:
                out.error(key, "recipe-paths-writes.relative-dumps", value=value, setting=key)
        elif value.startswith(_NODES_OWN):
            out.warn(key, "recipe-paths-writes.node-local", value=value, setting=key)


def _loggers(setup: Setup, out: Judgement) -> None:
    value = setup.get("trainer.logger", [])
    names = [value] if isinstance(value, str) else list(value)
    environment = setup.known.environment
    out.show(f"loggers {', '.join(map(str, names))}")
    for name in names:
        if name not in _LOGGERS:
            out.error(
                "trainer.logger",
                "recipe-paths-loggers.unknown",
                name=name,
                known=", ".join(_LOGGERS),
                meant=meant_word(str(name), _LOGGERS) or f"one of {', '.join(_LOGGERS)}",
            )
    wanted = {"file": "VERL_FILE_LOGGER_PATH", "tensorboard": "TENSORBOARD_DIR"}
    for name, variable in wanted.items():
        path = environment.get(variable, "")
        if name in names and not _absolute(path):
            shown = path or "a relative folder"
            if not setup.known.packaged:
                out.note("trainer.logger", "recipe-paths-loggers.unpackaged", name=name, path=shown)
            elif name == "file":
                out.error("trainer.logger", "recipe-paths-loggers.file-lost", path=shown)
            else:
                out.error("trainer.logger", "recipe-paths-loggers.tensorboard-lost", path=shown)
    for name, variable in (("wandb", "WANDB_MODE"), ("swanlab", "SWANLAB_MODE")):
        if name in names and not environment.get(variable):
            out.warn("trainer.logger", "recipe-paths-loggers.online", name=name, variable=variable)


def _inputs(setup: Setup, out: Judgement) -> None:
    if setup.known.shared is None:
        raise NotApplicable("the shared folders are not given (--shared)")
    folders = [PurePosixPath(folder) for folder in setup.known.shared]
    for key, value in _paths(setup):
        path = PurePosixPath(value)
        seen = any(path.is_relative_to(folder) for folder in folders)
        out.show(f"{key}={value}: {'shared' if seen else 'not known to be shared'}")
        if not seen and not value.startswith("/<"):
            out.warn(
                key,
                "recipe-paths-seen.not-shared",
                value=value,
                shared=" or ".join(setup.known.shared),
            )


def _paths(setup: Setup) -> Iterator[tuple[str, str]]:
    def walk(node: object, prefix: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, Mapping):
            for key, value in node.items():
                yield from walk(value, f"{prefix}.{key}" if prefix else str(key))
        elif isinstance(node, list):
            for value in node:
                yield from walk(value, prefix)
        elif isinstance(node, str) and node.startswith("/") and len(node) > 1:
            yield prefix, node

    yield from walk(setup.values, "")


def _data_files(setup: Setup, out: Judgement) -> None:
    if not setup.known.packaged:
        raise NotApplicable("Ray ships no folder: a relative path is as good as where it is read")
    for key in ("data.train_files", "data.val_files"):
        value = setup.get(key)
        for name in value if isinstance(value, list) else [value]:
            out.show(f"{key}: {name}")
            if isinstance(name, str) and not _absolute(name):
                out.warn(
                    key,
                    "recipe-paths-data.relative",
                    name=name,
                    setting=key,
                    file=PurePosixPath(name).name,
                )


def _merge(setup: Setup, out: Judgement) -> None:
    job = setup.known.runtime_env
    if job is None:
        raise NotApplicable("runtime_env.yaml is not given")
    mine = setup.get(_INIT, {})
    if not isinstance(mine, Mapping) or not mine:
        out.show("the config does not set a runtime environment")
        return
    env = job.get("env_vars") or {}
    if str(env.get("RAY_OVERRIDE_JOB_RUNTIME_ENV", "")) == "1":
        raise NotApplicable("RAY_OVERRIDE_JOB_RUNTIME_ENV=1: the values of the driver are used")
    file = setup.known.runtime_env_file
    both = [name for name in mine if name != "env_vars" and name in job]
    both += [f"env_vars.{name}" for name in mine.get("env_vars") or {} if name in env]
    out.show(f"set both in {file} and in {_INIT}: {', '.join(both) or 'nothing'}")
    for name in both:
        out.error(f"{_INIT}.{name}", "recipe-env-merge.set-twice", file=file, name=name)


def _secrets(setup: Setup, out: Judgement) -> None:
    count = 0

    def walk(node: object, prefix: str) -> None:
        nonlocal count
        if isinstance(node, Mapping):
            for key, value in node.items():
                walk(value, f"{prefix}.{key}" if prefix else str(key))
        elif isinstance(node, str) and is_secret(prefix, node):
            count += 1
            name = prefix.rsplit(".", 1)[-1]
            out.error(prefix, "recipe-env-secrets.plain-text", masked=masked(node), name=name)

    walk(setup.values, "")
    out.show(f"{count} credentials in the config")


def _experts(setup: Setup, out: Judgement, actor: Path, step: int) -> None:
    """Whether the optimizer has expert parallel weights on both sides or on neither.

    Tried on two GPUs with verl 220e903 and Megatron-LM 0823c731 (docs/gpu.md, Resume under another
    layout): with EP above 1 Megatron chains one optimizer more, in every form of the state.
    """
    contents = setup.get("actor_rollout_ref.actor.checkpoint.load_contents", ["optimizer"])
    file = next(actor.glob("**/transformer_config.json"), None)
    if file is None or (isinstance(contents, list) and "optimizer" not in contents):
        return
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))["expert_model_parallel_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    out.show(f"EP {saved} saved, EP {setup.ep} asked")
    if isinstance(saved, int) and (saved > 1) != (setup.ep > 1):
        key = "actor_rollout_ref.actor.megatron.expert_model_parallel_size"
        out.error(
            key, "recipe-resume-world-size.experts-differ", step=step, saved=saved, ep=setup.ep
        )


def _resume(setup: Setup, out: Judgement) -> None:
    if setup.get("trainer.resume_mode", "auto") != "auto":
        raise NotApplicable(f"resume_mode is {setup.get('trainer.resume_mode')}")
    folder = Path(str(setup.get("trainer.default_local_dir", "")))
    try:
        step = int(
            (folder / "latest_checkpointed_iteration.txt").read_text(encoding="utf-8").strip()
        )
    except FileNotFoundError:
        raise NotApplicable(f"no checkpoint found in {folder}") from None
    except (OSError, ValueError) as error:
        raise Undecided(f"the tracker of {folder} cannot be read: {error}") from None
    actor = folder / f"global_step_{step}" / "actor"
    if not actor.is_dir():
        out.error(
            "trainer.default_local_dir",
            "recipe-resume-world-size.step-missing",
            step=step,
            actor=actor,
            folder=folder,
        )
        return
    names = [path.name for path in actor.glob("model_world_size_*_rank_*.pt")]
    worlds = {int(name.split("_")[3]) for name in names}
    out.show(f"step {step}: saved with {sorted(worlds) or 'dist_ckpt'}, recipe has {setup.world}")
    if worlds and worlds != {setup.world}:
        saved = ", ".join(map(str, sorted(worlds)))
        out.error(
            "trainer.nnodes",
            "recipe-resume-world-size.ranks-differ",
            step=step,
            saved=saved,
            world=setup.world,
        )
    elif not worlds and (actor / "dist_ckpt").is_dir():
        out.note("trainer.nnodes", "recipe-resume-world-size.old-layout", step=step)
    elif not worlds and any((actor / part / "dist_ckpt").is_dir() for part in _PARTS):
        out.note(
            "trainer.nnodes",
            "recipe-resume-world-size.redistributed",
            step=step,
            folder=folder,
            world=setup.world,
        )
        _experts(setup, out, actor, step)
    if not (folder / f"global_step_{step}" / "data.pt").exists():
        out.warn(
            "trainer.default_local_dir",
            "recipe-resume-world-size.no-data-order",
            step=step,
            folder=folder,
        )


RULES = (
    Rule(
        "recipe-paths-writes",
        Source("trainer/config/ppo_trainer.yaml", "default_local_dir: checkpoints/"),
        _checkpoints,
    ),
    Rule(
        "recipe-paths-loggers",
        Source("utils/tracking.py", 'os.getenv("VERL_FILE_LOGGER_PATH"'),
        _loggers,
    ),
    Rule("recipe-paths-seen", Source("list of shared folders from reprise doctor"), _inputs),
    Rule(
        "recipe-paths-data", Source("trainer/ppo/utils.py", "def create_rl_dataset("), _data_files
    ),
    Rule(
        "recipe-env-merge",
        Source("Ray: a job's and a driver's runtime_env may not set the same key"),
        _merge,
    ),
    Rule("recipe-env-secrets", Source("utils/tracking.py", "wandb.init("), _secrets),
    Rule(
        "recipe-resume-world-size",
        Source("trainer/ppo/v1/trainer_base.py", "latest_checkpointed_iteration.txt"),
        _resume,
    ),
)
