"""What a job loads, as hashes: code, data, model, packages; compared before a later attempt.

The composed recipe and the lock are compared by themselves (config.yaml, versions.lock).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reprise.core.errors import CannotTell
from reprise.core.files import dump_json, sha256_file
from reprise.core.findings import Report
from reprise.flows.train.job import TrainJob
from reprise.lock.installed import query
from reprise.recipe.folders import OUTSIDE
from reprise.recipe.plan.plan import setup_of
from reprise.runs.ray.working_dir import Upload
from reprise.runs.state.folder import RunFolder

__all__ = [
    "FILE",
    "MOST_SHOWN",
    "Change",
    "changes",
    "fingerprint",
    "same_inputs",
    "write_fingerprint",
]

FILE = "fingerprint.json"
RULE = "train-changed"
# What Python, Hydra or a tokenizer reads; texts for people change nothing.
_LOADED = frozenset(
    {".py", ".pyx", ".so", ".sh", ".json", ".jinja", ".j2", ".yaml", ".yml", ".cfg", ".model"}
)
_SMALL = 16 * 2**20
"""Files of a model up to this size are hashed; of larger ones (weights) the size counts."""
MOST_SHOWN = 12
"""So many differences are shown one by one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: `then` and `now` are hashes, sizes or versions; None: absent."""

    name: str
    then: str | None
    now: str | None


def fingerprint(task: TrainJob, package: Upload) -> dict[str, str]:
    """Name to hash, size or version of what the job of `task` loads, as far as it is here.

    `package` is what Ray will pack.

    Names begin with code/, data/, model/ or package/. What lies on the nodes only is left out.
    """
    found = dict(_code(task, package))
    found |= dict(_data(task))
    found |= dict(_model(task))
    found |= dict(_packages(Path(task.python)))
    return found


def write_fingerprint(folder: RunFolder, task: TrainJob, package: Upload) -> None:
    """Keep the fingerprint in the run folder, where a later attempt is compared with it."""
    dump_json(folder.path / FILE, fingerprint(task, package))


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """What differs, by name. Kinds that only one side could see at all are left out."""
    kinds = {name.partition("/")[0] for name in then} & {name.partition("/")[0] for name in now}
    return [
        Change(name, then.get(name), now.get(name))
        for name in sorted({*then, *now})
        if name.partition("/")[0] in kinds and then.get(name) != now.get(name)
    ]


def same_inputs(report: Report, folder: RunFolder, task: TrainJob, package: Upload) -> list[Change]:
    """Report what differs from the first attempt, file by file; returns all of it."""
    path = folder.path / FILE
    try:
        then = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        report.warn("train-changed.no-fingerprint", str(path))
        return []
    except (OSError, ValueError) as error:
        report.unknown("train-changed.unreadable", str(path), reason=str(error), run=folder.name)
        return []
    found = changes(then, fingerprint(task, package))
    for change in found[:MOST_SHOWN]:
        known = {"then": _short(change.then), "now": _short(change.now)}
        report.failed("train-changed.input", change.name, **known)
    if len(found) > MOST_SHOWN:
        report.failed("train-changed.more", folder.name, count=len(found) - MOST_SHOWN)
    return found


def _short(value: str | None) -> str:
    """A hash by its first digits, as git does; anything else whole."""
    if value is None:
        return "absent"
    return value[:12] if len(value) == 64 else value


def _code(task: TrainJob, package: Upload) -> Iterator[tuple[str, str]]:
    root = task.project.root
    recipes = task.project.recipes
    for name in sorted(package.files):
        path = root / name
        if path.suffix not in _LOADED or _of_another_recipe(path, recipes, task.name):
            continue
        yield f"code/{name}", sha256_file(path)
    folder = "lib/python3*/site-packages/reprise_plugins/*.py"
    for path in sorted(Path(task.python).parent.parent.glob(folder)):
        yield f"code/reprise_plugins/{path.name}", sha256_file(path)


def _of_another_recipe(path: Path, recipes: Path, own: str) -> bool:
    outside = recipes.parent / OUTSIDE
    if path.is_relative_to(outside):
        return path.relative_to(outside).parts[0] != own
    if not path.is_relative_to(recipes):
        return False
    first = path.relative_to(recipes).parts[0]
    return first != own and (recipes / first / "card.toml").is_file()


def _data(task: TrainJob) -> Iterator[tuple[str, str]]:
    data: Mapping[str, Any] = task.values.get("data") or {}
    for key in ("train_files", "val_files"):
        named = data.get(key) or []
        for text in [named] if isinstance(named, str) else named:
            path = Path(str(text))
            if path.is_file():
                yield f"data/{path}", sha256_file(path)


def _model(task: TrainJob) -> Iterator[tuple[str, str]]:
    folder = Path(str(setup_of(task.loaded).get("actor_rollout_ref.model.path") or ""))
    if not folder.is_absolute() or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            size = path.stat().st_size
            yield f"model/{path.name}", sha256_file(path) if size <= _SMALL else f"{size} bytes"


def _packages(python: Path) -> Iterator[tuple[str, str]]:
    if not python.is_absolute() or not python.is_file():
        return
    try:
        installed = query(python)
    except CannotTell:
        return
    for name, distribution in sorted(installed.distributions.items()):
        yield f"package/{name}", distribution.version
