"""`reprise new recipe`: facts, a layout, files, and what is left to decide."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprise.core.errors import OperatorError
from reprise.core.files import write_text
from reprise.core.findings import Report
from reprise.core.project import Project
from reprise.flows.new.facts import (
    DataFacts,
    data_facts,
    machine_facts,
    model_facts,
    verl_facts,
)
from reprise.flows.new.write import KEPT, Draft, card_text, judge_text, recipe_text
from reprise.lock.model import Lock
from reprise.lock.read import read_lock
from reprise.machines.registry import Machine, machine_named
from reprise.recipe.card import Card, card_of
from reprise.recipe.config.compose import compose
from reprise.recipe.folders import recipe_folder, recipe_folders, recipe_names
from reprise.recipe.load import Loaded, load, verl_tree
from reprise.recipe.plan.estimate import MODEL_OF_TIME
from reprise.recipe.plan.search import Found, Layout, Search, search
from reprise.recipe.rules.base import Undecided
from reprise.recipe.setup import Known

__all__ = ["NewRecipe", "new_recipe"]

_NODES = (1, 2, 4, 8, 16, 32, 64)
_SEQUENCES = 2
_FIRST = Layout(1, 1, 1, 1, 1, 1, 1, True, True)
# The peak does not change which layouts fit; with it unknown they are compared at an H200's, and no
# time is told.
_ANY_PEAK = 989.0


@dataclass(frozen=True, slots=True)
class NewRecipe:
    """What is asked for; `folder` is a folder of recipes, `nodes` a fixed number of nodes."""

    name: str
    base: str
    machine: str | None = None
    model: str | None = None
    data: str | None = None
    validation: str | None = None
    folder: Path | None = None
    nodes: int | None = None
    response: int | None = None


def new_recipe(project: Project, wanted: NewRecipe) -> Report:
    """Write the recipe; `data` has its folder, the layout with two others, and what to decide.

    Nothing is written when a fact is missing or no layout fits. Raises OperatorError, CannotTell.
    """
    folder = _target(project, wanted)
    lock = read_lock(project.lock)
    card = card_of(project.recipes, wanted.base)
    machine = machine_named(wanted.machine or card.machine.profile)
    draft = _draft(project, lock, wanted, card, machine)
    report = Report("new recipe")
    found = _layouts(project, draft, card_like(draft), wanted.nodes)
    if not found:
        nodes = str(wanted.nodes or f"up to {_NODES[-1]}")
        raise OperatorError("new-recipe-layout.none", wanted.name, nodes=nodes,
                            length=draft.length, gpu_memory=draft.machine.gpu_memory)  # fmt: skip
    chosen, others = found[0], found[1:]
    draft = replace(draft, layout=chosen.layout, proposal=_proposal(draft, chosen, others))
    _write(project, folder, draft)
    report.passed("new-recipe-layout")
    report.data = {
        "folder": str(folder),
        "layout": _shown(draft, chosen),
        "others": [_shown(draft, one) for one in others],
        "lengths": {"prompt": draft.prompt, "response": draft.response, "how": draft.train.how},
        "time_is": MODEL_OF_TIME,
    }
    _open(report, draft, lock, machine, str(folder), wanted)
    return report


def _shown(draft: Draft, one: Found) -> dict[str, Any]:
    """A layout as data; its seconds are None where the peak of the GPU is unknown."""
    return one.to_json() | ({} if draft.machine.bf16_tflops else {"seconds": None})


def card_like(draft: Draft) -> Card:
    """The card of the draft, as it will be read."""
    return Card.model_validate(tomllib.loads(card_text(draft)))


def _target(project: Project, wanted: NewRecipe) -> Path:
    """The folder to write: in `folder`, else in the first outside the project, else in it."""
    plain = wanted.name.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isalnum() or not wanted.name[0].isalnum() or wanted.name != wanted.name.lower():
        raise OperatorError("new-recipe-name.form", wanted.name)
    folders = recipe_folders(project.recipes)
    home = wanted.folder or (folders[1] if len(folders) > 1 else folders[0])
    target = home.absolute() / wanted.name
    if target.exists() or recipe_folder(project.recipes, wanted.name).exists():
        raise OperatorError("new-recipe-name.exists", str(target))
    return target


def _draft(project: Project, lock: Lock, wanted: NewRecipe, card: Card, machine: Machine) -> Draft:
    """Everything but the layout."""
    if not (project.recipes / f"common/machine/{machine.name}.yaml").is_file():
        known = sorted(path.stem for path in (project.recipes / "common/machine").glob("*.yaml"))
        raise OperatorError("new-recipe-machine.no-group", machine.name, known=", ".join(known))
    part = machine_facts(project, lock, machine)
    if part.gpu_memory is None:
        raise OperatorError("new-recipe-machine.no-memory", machine.name)
    model = model_facts(project, lock, wanted.name, wanted.model, card)
    train = data_facts(project, lock, wanted.name, wanted.data or card.train, model.folder)
    val_name = f"{wanted.name}-val"
    validation = data_facts(
        project, lock, val_name, wanted.validation or card.validation, model.folder
    )
    base = load(project.root, wanted.base)
    values = base.composition.values
    kept = {key: value for key in KEPT if (value := _get(values, key)) is not None}
    if train.lock != card.train:
        # The base counted its steps for its own data.
        kept.pop("trainer.total_training_steps", None)
    prompt, prompt_from = _prompt(train, _get(values, "data.max_prompt_length"), wanted.base)
    response = wanted.response or int(_get(values, "data.max_response_length"))
    algorithm = base.known.algorithm or "GRPO"
    most = model.shape.max_positions
    if most is not None and prompt + response > most:
        raise OperatorError("new-recipe-length.too-long", wanted.name, prompt=prompt,
                            response=response, most=most, fits=most - prompt)  # fmt: skip
    return Draft(
        name=wanted.name,
        base=wanted.base,
        title=f"{model.lock}, {algorithm} on {train.lock}, {part.gpu or machine.name}",
        model=model,
        train=train,
        validation=validation,
        machine=part,
        verl=verl_facts(project, lock, machine, card),
        algorithm=base.known.algorithm,
        groups=_groups(base, machine, model.shape.family),
        kept=kept,
        prompt=prompt,
        prompt_from=prompt_from,
        response=response,
        nodes_gpus=machine.profile.slots,
        layout=_FIRST,
    )


def _get(values: Mapping[str, Any], key: str) -> Any:
    node: Any = values
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _prompt(train: DataFacts, base: Any, name: str) -> tuple[int, str]:
    """max_prompt_length and where it comes from."""
    if train.limit is None:
        return int(base), f"Decide: {name} has it; the data file is not here to be measured."
    over = f"; {train.over} of {train.rows} rows are longer" if train.over else ""
    text = f"The longest prompt has {train.longest} tokens ({train.how}){over}."
    return train.limit, text


def _groups(base: Loaded, machine: Machine, family: str) -> list[str]:
    """The defaults of the new recipe: those of every recipe, the machine's, and the base's own.

    Groups in the folder of the base itself are about its model: they are kept for its family.
    """
    own = [
        f"/{name}: {option}" if option else f"/{name}"
        for name, option in _own_groups(base)
        if base.model is not None and base.model.family == family
    ]
    algorithm = base.known.algorithm or "grpo"
    return [
        "/ppo_trainer",
        "/common/policy_loss",
        f"/algorithms: {algorithm}",
        "/common/data",
        "/common/run",
        "/common/cluster",
        "/common/tracker: none",
        "/common/placement: colocated",
        "/common/megatron",
        "optional /common/megatron_algorithm: ${algorithms}",
        *own,
        f"/common/machine/{machine.name}",
        "_self_",
    ]


def _own_groups(base: Loaded) -> list[tuple[str, str]]:
    """Files of the base's own folder that its recipe composes, as (group, option)."""
    choices = base.composition.choices
    found = []
    for path, _ in base.composition.files:
        group, _, option = path.rpartition("/")
        if not path.startswith(f"{base.name}/") or path == f"{base.name}/recipe":
            continue
        found.append((group, option) if choices.get(group) == option else (path, ""))
    return found


def _layouts(project: Project, draft: Draft, card: Card, nodes: int | None) -> list[Found]:
    """The cheapest layout and two others: the fewest nodes, then the estimated time.

    Others are the next that differs in a parallel size, and the fastest on twice the nodes.
    """
    tree = verl_tree(project.root, card, None, lambda _: None)
    memory = draft.machine.gpu_memory
    assert memory is not None, "refused by `_draft`"
    peak = draft.machine.bf16_tflops or _ANY_PEAK
    known = Known(rows=draft.train.rows, prompts=draft.train.prompts, gpu_memory=memory,
                  bf16_tflops=draft.machine.bf16_tflops, val_rows=draft.validation.rows,
                  val_prompts=draft.validation.prompts)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="reprise-new-") as made:
        (Path(made) / draft.name).mkdir()
        write_text(Path(made) / draft.name / "recipe.yaml", recipe_text(draft))
        composed = compose(f"{draft.name}/recipe", tree, [], Path(made), (project.recipes,))
    found: list[Found] = []
    for count in [nodes] if nodes else _NODES:
        wanted = Search(memory, peak, draft.machine.host_memory, (count,), _SEQUENCES)
        try:
            some = search(composed, draft.model.shape, known, wanted).found
        except Undecided as error:
            raise OperatorError("new-recipe-layout.undecided", draft.name, reason=error) from error
        if found and some:
            return [*found[:2], some[0]]
        if some and not found:
            found = _distinct(some)
            if nodes:
                return found[:3]
    return found[:3]


def _distinct(found: list[Found]) -> list[Found]:
    """Layouts that differ in a parallel size, in their order."""
    kept: dict[tuple[int, ...], Found] = {}
    for one in found:
        sizes = one.layout
        kept.setdefault((sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.etp), one)
    return list(kept.values())


def _proposal(draft: Draft, chosen: Found, others: list[Found]) -> list[str]:
    """The comment above the parallel sizes."""
    shown = [f"others that fit: {'; '.join(_short(one) for one in others)}"] if others else []
    timed = "" if draft.machine.bf16_tflops else " (in order of time; the peak is unknown)"
    return [f"Proposed{timed}: {_short(chosen)}", *shown]


def _short(one: Found) -> str:
    it = one.layout
    sizes = f"nodes {it.nodes} TP {it.tp} PP {it.pp} CP {it.cp} EP {it.ep} ETP {it.etp}"
    flags = [name for name in ("offload", "recompute") if getattr(it, name)]
    memory = f"({one.training:.0f} GiB in training, {one.rollout:.0f} in rollout)"
    return " ".join((sizes, f"rollout TP {it.rollout_tp}", *flags, memory))


def _write(project: Project, folder: Path, draft: Draft) -> None:
    """All files, under their final name at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".reprise-new-", dir=folder.parent) as made:
        new = Path(made) / folder.name
        new.mkdir()
        write_text(new / "card.toml", card_text(draft))
        write_text(new / "recipe.yaml", recipe_text(draft))
        write_text(new / "judge.toml", judge_text(draft))
        source = _runtime_env(project, draft)
        if source is not None:
            shutil.copyfile(source, new / "runtime_env.yaml")
        new.rename(folder)


def _runtime_env(project: Project, draft: Draft) -> Path | None:
    """The variables of a recipe on the same machine, the base's first."""
    for name in (draft.base, *recipe_names(project.recipes)):
        file = recipe_folder(project.recipes, name) / "runtime_env.yaml"
        profile = card_of(project.recipes, name).machine.profile
        if profile == draft.machine.profile and file.is_file():
            return file
    return None


def _open(
    report: Report, draft: Draft, lock: Lock, machine: Machine, folder: str, wanted: NewRecipe
) -> None:
    """What the operator still has to do or decide, each as a finding."""
    missing = [("model", draft.model.lock, draft.model.source or "SOURCE")]
    files = (draft.train, draft.validation)
    missing += [("data", item.lock, str(item.file or "FILE")) for item in files]
    for kind, name, source in dict.fromkeys(missing):
        entry = lock.entry(f"{kind}.{name}")
        if entry is None:
            report.warn("new-recipe-lock.missing", f"{kind}.{name}", kind=kind, name=name,
                        source=source, machine=machine.name)  # fmt: skip
        elif machine.lock not in entry.machines:
            report.warn("new-recipe-lock.other-machine", f"{kind}.{name}", machine=machine.lock)
    if draft.machine.bf16_tflops is None:
        report.warn("new-recipe-machine.no-peak", machine.name, file=f"{folder}/card.toml")
    for note in (*draft.train.notes, *draft.validation.notes):
        report.warn("new-recipe-length.estimated", draft.name, reason=note)
    report.note("new-recipe-decide.lines", f"{folder}/recipe.yaml", name=wanted.name)
