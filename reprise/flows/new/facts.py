"""What a new recipe is made of: the model, the data and the machine, as far as they are known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.core.project import Project
from reprise.data.check.lengths import Lengths, measure_lengths
from reprise.data.check.repeats import count_repeats
from reprise.data.check.tokens import ChatTokenizer
from reprise.data.read.reading import open_source
from reprise.data.read.scan import scan_file
from reprise.flows.data_check import data_dir
from reprise.hub.verified import Verified
from reprise.lock.model import Data, Lock
from reprise.machines.registry import Machine
from reprise.models.families import families, family
from reprise.models.fetch import weight_folder
from reprise.recipe.card import Card, MachinePart, VerlPart, card_of
from reprise.recipe.folders import recipe_names
from reprise.recipe.model import Model

__all__ = ["DataFacts", "ModelFacts", "data_facts", "machine_facts", "model_facts", "verl_facts"]

# Prompts longer than this many times the 99th percentile are outliers: the limit leaves them out.
_OUTLIER = 2
_STEP = 128
# The sizes that rules and plan read, under any of the names that a config has for them.
_KEYS = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "num_experts"),
    *("num_local_experts", "n_routed_experts", "num_experts_per_tok", "num_shared_experts"),
    *("n_shared_experts", "moe_intermediate_size", "first_k_dense_replace", "mlp_only_layers"),
    *("attention_bias", "use_qk_norm", "decoder_sparse_step", "mlp_layer_types"),
    *("max_position_embeddings", "tie_word_embeddings"),
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model's entry in the lock, its sizes and their origin; its folder if it is here."""

    lock: str
    config: dict[str, Any]
    origin: str
    folder: Path | None = None
    source: str = ""

    @property
    def shape(self) -> Model:
        """The sizes as rules and plan read them."""
        return Model(self.config, self.origin)


@dataclass(frozen=True, slots=True)
class DataFacts:
    """A data file: its entry in the lock, path below DATA_DIR, counts and lengths of prompts.

    `longest` is the longest prompt in tokens (or in the estimate that `how` names), `limit` the
    proposed max_prompt_length and `over` the rows above it; None where the file is not here.
    """

    lock: str
    path: str
    file: Path | None = None
    rows: int | None = None
    prompts: int | None = None
    longest: int | None = None
    limit: int | None = None
    over: int = 0
    how: str = ""
    sources: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def model_facts(
    project: Project, lock: Lock, name: str, given: str | None, base: Card
) -> ModelFacts:
    """The model `given`: a folder or a config.json, or an entry of the lock; else the base's.

    Sizes come from its config.json alone. Raises OperatorError or CannotTell where it is not here.
    """
    if given is None:
        return ModelFacts(base.model.lock, dict(base.model.config), "card.toml of the base")
    path = Path(given).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        folder = file.parent.absolute()
        config = _config(file)
        return ModelFacts(_entry_of(project, lock, file, folder) or name, config, str(file),
                          folder, str(folder))  # fmt: skip
    short = given.removeprefix("model.")
    if short in lock.model:
        return _locked_model(project, lock, short)
    if given.count("/") == 1 and not given.startswith((".", "~", "/")):
        raise CannotTell("new-recipe-model.on-hub", given, name=name, source=given)
    known = ", ".join(lock.model) or "none"
    raise OperatorError("new-recipe-model.not-found", given, known=known)


def _locked_model(project: Project, lock: Lock, short: str) -> ModelFacts:
    """An entry of the lock: from its folder, else from a recipe that has its sizes."""
    folder = weight_folder(project.root, short)
    if folder is not None and (folder / "config.json").is_file():
        file = folder / "config.json"
        return ModelFacts(short, _config(file), str(file), folder)
    for other in recipe_names(project.recipes):
        card = card_of(project.recipes, other)
        if card.model.lock == short and card.model.config:
            return ModelFacts(short, dict(card.model.config), f"recipe {other}")
    raise CannotTell("new-recipe-model.no-config", f"model.{short}", name=short)


def _config(file: Path) -> dict[str, Any]:
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OperatorError("recipe-model-config.not-readable", str(file), reason=error) from error
    if not isinstance(whole, dict):
        raise OperatorError("recipe-model-config.not-an-object", str(file))
    nested = whole.get("text_config")
    text = nested if isinstance(nested, dict) else whole
    found = {key: text[key] for key in _KEYS if text.get(key) is not None}
    _supported(file, whole, text)
    if lacks := Model(found, str(file)).lacks():
        raise OperatorError("new-recipe-model.sizes", str(file), lacks=lacks)
    return found


def _supported(file: Path, whole: dict[str, Any], text: dict[str, Any]) -> None:
    """Raise CannotTell for a model that cannot be sized as its config.json alone says.

    An unknown family, another class than the family's language model, quantized weights.
    """
    known = family(text)
    if not known.counted:
        counted = ", ".join(sorted(name for name, one in families().items() if one.counted))
        named = repr(text.get("model_type", "not stated"))
        raise CannotTell("new-recipe-model.family", str(file), family=named, known=counted)
    usual = known.tensors.class_name if known.tensors is not None else ""
    stated = whole.get("architectures")
    classes = [str(one) for one in stated] if isinstance(stated, list) else []
    if usual and classes and usual not in classes:
        shown = ", ".join(classes)
        raise CannotTell("new-recipe-model.other-class", str(file), found=shown, usual=usual)
    quantized = whole.get("quantization_config") or text.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise CannotTell("new-recipe-model.quantized", str(file), method=method or "not stated")


def _entry_of(project: Project, lock: Lock, file: Path, folder: Path) -> str | None:
    """The lock's entry of a folder: the one that was found right there, else by its config."""
    for short in lock.model:
        if weight_folder(project.root, short) == folder:
            return short
    digest = sha256_file(file)
    return next((name for name, item in lock.model.items() if item.config_sha256 == digest), None)


def data_facts(
    project: Project, lock: Lock, name: str, given: str, folder: Path | None
) -> DataFacts:
    """The data file `given`, or an entry of the lock; lengths by the tokenizer in `folder`."""
    path = Path(given).expanduser()
    if path.is_file():
        digest = Verified(project.cache / "verified.json").sha256(path)
        entries = [key for key, item in lock.data.items() if item.sha256 == digest]
        entry = lock.data[entries[0]] if entries else None
        place = entry.path if entry else f"{name}/{path.name}"
        return _measured(entries[0] if entries else name, place, path, folder)
    short = given.removeprefix("data.")
    if short not in lock.data:
        known = ", ".join(lock.data) or "none"
        raise OperatorError("new-recipe-data.not-found", given, known=known)
    item: Data = lock.data[short]
    here = data_dir(project) / item.path
    if here.is_file():
        return _measured(short, item.path, here, folder)
    return DataFacts(short, item.path, rows=item.rows, prompts=item.unique_prompts)


def _measured(lock: str, place: str, path: Path, folder: Path | None) -> DataFacts:
    scan = scan_file(open_source(path))
    repeats = count_repeats(scan)
    notes: list[str] = []
    tokenizer = None
    if folder is not None:
        try:
            tokenizer = ChatTokenizer(folder)
        except CannotTell as error:
            notes.append(f"{error.where}: {error.message}")
    lengths = measure_lengths(scan, "prompt", tokenizer)
    limit, over, longest = _limit(lengths)
    return DataFacts(lock, place, path, repeats.rows, repeats.prompts, longest, limit, over,
                     lengths.how, tuple(sorted(scan.sources)), notes)  # fmt: skip


def _limit(lengths: Lengths) -> tuple[int | None, int, int | None]:
    """A limit in steps of 128 that keeps all rows but outliers; rows above it; the longest."""
    known = lengths.tokens[lengths.tokens >= 0]
    if not len(known):
        return None, 0, None
    longest, high = int(known.max()), int(np.percentile(known, 99))
    kept = high if longest > _OUTLIER * max(high, _STEP) else longest
    limit = -(-max(kept, 1) // _STEP) * _STEP
    return limit, int((known > limit).sum()), longest


def machine_facts(project: Project, lock: Lock, machine: Machine) -> MachinePart:
    """The machine part of a card: that of a recipe on this machine, else of its profile.

    A peak that neither states stays unknown.
    """
    for name in recipe_names(project.recipes):
        part = card_of(project.recipes, name).machine
        if part.profile == machine.name and part.gpu_memory is not None:
            return part
    images = [name for name, item in lock.image.items() if machine.lock in item.machines]
    least = machine.profile.memory_mib
    return MachinePart(
        profile=machine.name,
        image=images[0] if len(images) == 1 else "",
        gpu=machine.profile.gpu,
        gpu_memory=round(least / 1024, 1) if least else None,
        bf16_tflops=machine.profile.bf16_tflops,
    )


def verl_facts(project: Project, lock: Lock, machine: Machine, base: Card) -> VerlPart:
    """The lock's verl of a machine, with the release that recipes use in its place."""
    names = [
        name
        for name, tree in lock.tree.items()
        if machine.lock in tree.machines and tree.distribution == "verl"
    ]
    chosen = names[0] if names else base.verl.lock
    for name in recipe_names(project.recipes):
        part = card_of(project.recipes, name).verl
        if part.lock == chosen:
            return part
    return VerlPart(lock=chosen, release=base.verl.release)
