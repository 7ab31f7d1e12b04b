"""Layouts of a recipe that are legal and fit, the fastest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprise.core.findings import Severity
from reprise.recipe.config.changes import Changes
from reprise.recipe.config.compose import Composition
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.model import Model, Parameters
from reprise.recipe.plan.estimate import Estimate, estimate
from reprise.recipe.plan.memory import GIB, host_bytes, rollout_memory, training_memory
from reprise.recipe.rules.base import Judgement, NotApplicable, Undecided, divisors
from reprise.recipe.rules.rollout import legal_tps
from reprise.recipe.ruleset import ALL_RULES
from reprise.recipe.setup import Known, Setup

__all__ = ["Found", "Layout", "Search", "Searched", "search"]

PLAN_ERROR = 0.072
"""The largest error of a planned peak on the sizes that its terms were fitted to (docs/gpu.md):
a layout fits when it fits with that much more."""

_ACTOR = "actor_rollout_ref.actor"
_MEGATRON = f"{_ACTOR}.megatron"
_REF = "actor_rollout_ref.ref"
_ROLLOUT = "actor_rollout_ref.rollout"
_BUDGETS = (
    f"{_ACTOR}.ppo_max_token_len_per_gpu",
    f"{_REF}.log_prob_max_token_len_per_gpu",
    f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
)
# Rules whose judgement the layout of the training changes, and the size of a server.
_TRAINING = ("recipe-parallel-", "recipe-batch-", "recipe-tokens-", "recipe-critic-sizes")
_SERVERS = ("recipe-rollout-replicas", "recipe-rollout-heads", "recipe-rollout-expert")
_MEMORY = ("recipe-memory-", "recipe-critic-memory")


@dataclass(frozen=True, slots=True)
class Layout:
    """Parallel sizes, offload, recomputation; `budget` is a micro batch's tokens on one GPU."""

    nodes: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    rollout_tp: int
    offload: bool
    recompute: bool
    budget: int | None = None

    def settings(self) -> dict[str, Any]:
        """The layout as settings of verl."""
        made: dict[str, Any] = {
            "trainer.nnodes": self.nodes,
            f"{_MEGATRON}.tensor_model_parallel_size": self.tp,
            f"{_MEGATRON}.pipeline_model_parallel_size": self.pp,
            f"{_MEGATRON}.context_parallel_size": self.cp,
            f"{_MEGATRON}.expert_model_parallel_size": self.ep,
            f"{_MEGATRON}.expert_tensor_parallel_size": self.etp,
            f"{_MEGATRON}.param_offload": self.offload,
            f"{_MEGATRON}.optimizer_offload": self.offload,
            f"{_ROLLOUT}.tensor_model_parallel_size": self.rollout_tp,
        }
        override = f"{_MEGATRON}.override_transformer_config"
        kind, method, count = ("full", "uniform", 1) if self.recompute else (None, None, None)
        made |= {
            f"{override}.recompute_granularity": kind,
            f"{override}.recompute_method": method,
            f"{override}.recompute_num_layers": count,
        }
        if self.budget is not None:
            made |= dict.fromkeys(_BUDGETS, self.budget)
        return made

    def to_json(self) -> dict[str, Any]:
        """The sizes by name."""
        names = ("nodes", "tp", "pp", "cp", "ep", "etp", "rollout_tp", "offload", "recompute")
        return {name: getattr(self, name) for name in names} | {"budget": self.budget}


@dataclass(frozen=True, slots=True)
class Found:
    """A layout that is legal and fits: GiB of a GPU in training and rollout, and its estimate."""

    layout: Layout
    training: float
    rollout: float
    cache_tokens: int
    host: float
    estimate: Estimate

    def to_json(self) -> dict[str, Any]:
        """Sizes, memory in GiB, seconds, gigabytes sent, and the settings to type."""
        return {
            **self.layout.to_json(),
            "training_gib": round(self.training, 1),
            "rollout_gib": round(self.rollout, 1),
            "cache_tokens": self.cache_tokens,
            "host_gib": round(self.host, 1),
            "seconds": round(self.estimate.seconds, 1),
            "sent_gb": round(self.estimate.sent / 1e9, 1),
            "overrides": [f"{key}={_text(value)}" for key, value in self.layout.settings().items()],
        }


@dataclass(frozen=True, slots=True)
class Search:
    """What may vary, and the limits: GPU and host memory in GiB, TFLOPS of the dense bf16 peak.

    `nodes` are the numbers of nodes to try. With `sequences`, the tokens of a micro batch follow
    CP so that it holds as many of the longest sequences; without, they stay the recipe's.
    """

    gpu_memory: float
    tflops: float
    host_memory: float | None = None
    nodes: tuple[int, ...] = ()
    sequences: int | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """The fastest layouts, and how many were tried, and are legal and fit."""

    found: list[Found]
    tried: int
    fit: int


def search(composition: Composition, model: Model, known: Known, wanted: Search) -> Searched:
    """Layouts of a Megatron-LM recipe that the rules allow and that fit.

    TP stays within a node; each layout gets the smallest rollout server that fits. Ordered by the
    estimated time, then by bytes sent, then without offload first. Raises Undecided for another
    engine and for a model whose shape is not known.
    """
    tree = composition.tree
    base = Setup(composition.values, tree, model, known)
    counts = model.parameters()
    if counts is None:
        raise Undecided(f"{model.origin}: {model.lacks()}")
    if not base.megatron:
        raise Undecided("layouts are searched for Megatron-LM, and the recipe trains with FSDP")
    changes, found, tried = Changes(composition), list[Found](), 0
    for nodes in wanted.nodes or (base.nodes,):
        servers = _servers(base, nodes)
        for sizes in _sizes(base, model, counts, nodes, wanted.sequences):
            tried += 4
            setups = {
                layout: Setup(_with(composition.values, layout), tree, model, known)
                for layout in (replace(sizes, recompute=again) for again in (False, True))
            }
            # The memory first: most of what is left out does not fit, and the rules take longer.
            rooms = {one: it for one, it in setups.items() if _room(it, wanted.gpu_memory)}
            if not rooms or _errors(next(iter(rooms.values())), _TRAINING):
                continue
            for layout, setup in rooms.items():
                for offload in (False, True):
                    one = replace(layout, offload=offload)
                    found += _served(setup, model, counts, one, servers, wanted)
    found.sort(key=_order)
    return Searched(_confirmed(found, changes, tree, model, known), tried, len(found))


def _served(
    setup: Setup,
    model: Model,
    counts: Parameters,
    layout: Layout,
    servers: list[int],
    wanted: Search,
) -> list[Found]:
    """The layout with the smallest rollout server that fits; empty when none does."""
    for size in servers:
        chosen = replace(layout, rollout_tp=size)
        made = Setup(_with(setup.values, chosen), setup.tree, model, setup.known)
        one = _fits(made, model, counts, chosen, wanted)
        if one is not None and not _errors(made, _SERVERS):
            return [one]
    return []


def _order(one: Found) -> tuple[Any, ...]:
    layout = one.layout
    return (
        round(one.estimate.seconds, 1),
        one.estimate.sent,
        layout.offload,
        layout.rollout_tp,
        -one.cache_tokens,
    )


def _sizes(
    base: Setup, model: Model, counts: Parameters, nodes: int, sequences: int | None
) -> Iterator[Layout]:
    """Candidates whose sizes divide heads, layers, experts and the GPUs."""
    per_node = base.gpus_per_node
    world = nodes * per_node
    heads, kv_heads = model.heads or 1, model.kv_heads or 1
    for tp in divisors(per_node):
        if heads % tp or kv_heads % tp:
            continue
        for pp in divisors(counts.layers):
            if world % (tp * pp):
                continue
            for cp in divisors(world // (tp * pp)):
                budget = None if sequences is None else -(-sequences * base.length // cp)
                for ep, etp in _experts(counts, world // pp, tp):
                    yield Layout(nodes, tp, pp, cp, ep, etp, 1, False, False, budget)


def _experts(counts: Parameters, ranks: int, tp: int) -> list[tuple[int, int]]:
    if not counts.experts:
        return [(1, 1)]
    pairs = [(ep, etp) for ep in divisors(counts.experts) for etp in sorted({1, tp})]
    # recipe-parallel-experts-gradients: with EP 1 the experts are split as the rest.
    return [(ep, etp) for ep, etp in pairs if ranks % (ep * etp) == 0 and (ep > 1 or etp == tp)]


def _servers(base: Setup, nodes: int) -> list[int]:
    """Legal sizes of a rollout server."""
    values = _put(base.values, "trainer.nnodes", nodes)
    return legal_tps(Setup(values, base.tree, base.model, base.known))


def _with(values: Mapping[str, Any], layout: Layout) -> Mapping[str, Any]:
    """The values with the layout; the reference model follows the actor, as in verl's config."""
    made = values
    for key, value in layout.settings().items():
        made = _put(made, key, value)
        if key.startswith(_MEGATRON):
            made = _put(made, key.replace(_ACTOR, _REF, 1), value)
    return made


def _put(values: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """A copy with one key set; only the mappings on the way are copied."""
    head, _, rest = key.partition(".")
    if not rest:
        return {**values, head: value}
    below = values.get(head)
    return {**values, head: _put(below if isinstance(below, Mapping) else {}, rest, value)}


def _room(setup: Setup, gpu_memory: float) -> bool:
    """Whether the training fits; False for layers that do not divide over the stages."""
    try:
        return training_memory(setup).total * (1 + PLAN_ERROR) <= gpu_memory * GIB
    except Undecided:
        return False


def _errors(setup: Setup, names: tuple[str, ...]) -> bool:
    """Whether one of the rules refuses the layout, or warns that it does not fit."""
    rules = (rule for rule in ALL_RULES if rule.id.startswith(names))
    return any(_refuses(rule.judge, rule.id, setup) for rule in rules)


def _refuses(judge: Callable[[Setup, Judgement], None], rule: str, setup: Setup) -> bool:
    out = Judgement()
    try:
        judge(setup, out)
    except (NotApplicable, Undecided):
        return False
    worst = (Severity.ERROR, Severity.WARNING) if "memory" in rule else (Severity.ERROR,)
    return any(problem.severity in worst for problem in out.problems)


def _fits(
    setup: Setup, model: Model, counts: Parameters, layout: Layout, wanted: Search
) -> Found | None:
    training = training_memory(setup).total / GIB
    memory, tokens = rollout_memory(setup, wanted.gpu_memory)
    host = host_bytes(setup).total / GIB
    time = estimate(setup, model, counts, wanted.tflops)
    small = wanted.host_memory is not None and host > wanted.host_memory
    over = memory.total * (1 + PLAN_ERROR) / GIB > wanted.gpu_memory
    if over or small or tokens < setup.length or time is None:
        return None
    return Found(layout, training, memory.total / GIB, tokens, host, time)


_CONFIRMED = 20


def _confirmed(
    found: list[Found], changes: Changes, tree: VerlTree, model: Model, known: Known
) -> list[Found]:
    """The first layouts, each composed with its settings and judged again."""
    kept: list[Found] = []
    for one in found[:_CONFIRMED]:
        texts = {key: _text(value) for key, value in one.layout.settings().items()}
        values = changes.values(texts)
        every = (*_TRAINING, *_SERVERS, *_MEMORY)
        if values is not None and not _errors(Setup(values, tree, model, known), every):
            kept.append(one)
    return kept


def _text(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
