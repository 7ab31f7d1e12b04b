"""Parallel sizes of training: world, experts, stages, heads, recomputation, the reference."""

from __future__ import annotations

from reprise.recipe.rules.base import (
    Judgement,
    NotApplicable,
    Rule,
    Source,
    Undecided,
    choice,
    divisors,
)
from reprise.recipe.setup import Setup

__all__ = ["RULES", "SIZES", "stage_layers"]

_MEGATRON = "actor_rollout_ref.actor.megatron"
_TP = f"{_MEGATRON}.tensor_model_parallel_size"
_PP = f"{_MEGATRON}.pipeline_model_parallel_size"
_CP = f"{_MEGATRON}.context_parallel_size"
_EP = f"{_MEGATRON}.expert_model_parallel_size"
_ETP = f"{_MEGATRON}.expert_tensor_parallel_size"
_OVERRIDE = f"{_MEGATRON}.override_transformer_config"
_CORE = "Megatron-LM megatron/core"
SIZES = (
    "tensor_model",
    "pipeline_model",
    "context",
    "expert_model",
    "expert_tensor",
    "virtual_pipeline_model",
)


def _only_megatron(setup: Setup) -> None:
    if not setup.megatron:
        raise NotApplicable(
            f"the actor's engine is {setup.get('actor_rollout_ref.actor.strategy')}"
        )


def _experts(setup: Setup) -> int:
    if setup.model is None or setup.model.experts is None:
        raise Undecided("the model's number of experts is unknown (--model-config)")
    return setup.model.experts


def _world(setup: Setup, out: Judgement) -> None:
    group = setup.tp * setup.pp * setup.cp
    names = f"TP {setup.tp} x PP {setup.pp} x CP {setup.cp}"
    if not setup.megatron:
        _ulysses(setup, out)
        return
    machine = f"{setup.nodes} nodes x {setup.gpus_per_node} GPUs = {setup.world}"
    out.show(f"{machine} = {names} = {group} x DP {setup.dp if setup.dp else '?'}")
    if setup.world % group:
        legal = [size for size in divisors(setup.world) if size % (setup.tp * setup.cp) == 0]
        pps = [size // (setup.tp * setup.cp) for size in legal]
        found: dict[str, object] = {"world": setup.world, "parts": names, "group": group}
        if pps:
            sizes = choice(pps, setup.pp)
            out.error(_PP, "recipe-parallel-world.not-divisible", sizes=sizes, **found)
        else:
            out.error(_PP, "recipe-parallel-world.no-legal-pp", **found)


def _ulysses(setup: Setup, out: Judgement) -> None:
    """FSDP: only the ranks that share a sequence divide the world."""
    keys = (
        "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    )
    key = max(keys, key=lambda one: setup.integer(one, 1))
    size, world = setup.cp, setup.world
    out.show(f"{setup.nodes} nodes x {setup.gpus_per_node} GPUs = {world} % Ulysses {size}")
    if world % size:
        sizes = choice(divisors(world), size)
        out.error(
            key, "recipe-parallel-world.ulysses", world=world, size=size, setting=key, sizes=sizes
        )


def _experts_world(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    group = setup.etp * setup.ep * setup.pp
    unset = setup.get(_ETP) is None and setup.tp > 1 and setup.ep > 1
    etp = f"ETP {setup.etp}" + (" (not set: Megatron uses TP)" if unset else "")
    names = f"{etp} x EP {setup.ep} x PP {setup.pp}"
    dp = setup.world // group if group and setup.world % group == 0 else None
    out.show(f"{setup.world} GPUs = {names} = {group} x expert DP {dp or '?'}; DP {setup.dp}")
    if dp is not None:
        return
    found: dict[str, object] = {"world": setup.world, "parts": names, "group": group}
    if unset and setup.world % (setup.ep * setup.pp) == 0:
        out.error(_EP, "recipe-parallel-experts-world.etp-not-set", **found)
        return
    fits = [ep for ep in divisors(setup.world) if setup.world % (setup.etp * ep * setup.pp) == 0]
    if setup.model is not None and setup.model.experts:
        fits = [ep for ep in fits if (setup.model.experts or 1) % ep == 0]
    if fits:
        sizes = choice(fits, setup.ep)
        out.error(_EP, "recipe-parallel-experts-world.not-divisible", sizes=sizes, **found)
    else:
        out.error(_EP, "recipe-parallel-experts-world.no-legal-ep", **found)


def _experts_divide(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if setup.ep == 1:
        raise NotApplicable("EP is 1")
    experts = _experts(setup)
    if not experts:
        raise NotApplicable("the model is dense: see recipe-parallel-dense")
    out.show(f"{experts} experts % EP {setup.ep} = {experts % setup.ep}")
    if experts % setup.ep:
        legal = [size for size in divisors(experts) if setup.world % size == 0]
        out.error(
            _EP,
            "recipe-parallel-experts-divide.not-divisible",
            experts=experts,
            ep=setup.ep,
            sizes=choice(legal, setup.ep),
        )


def _experts_gradients(setup: Setup, out: Judgement) -> None:
    """Megatron counts experts as expert parallel only with EP above 1; else their gradients are
    reduced as those of dense weights, which TP ranks with whole experts of their own do not share.
    """
    _only_megatron(setup)
    if not _experts(setup):
        raise NotApplicable("the model is dense")
    out.show(f"EP {setup.ep} > 1, or ETP {setup.etp} == TP {setup.tp}")
    if setup.ep == 1 and setup.etp != setup.tp:
        out.error(_ETP, "recipe-parallel-experts-gradients.not-shared", tp=setup.tp, etp=setup.etp)


def _dense(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if _experts(setup):
        raise NotApplicable(f"the model has {setup.model.experts if setup.model else 0} experts")
    out.show(f"dense model: EP {setup.ep} == 1, and moe_* is not overridden")
    for role in ("actor", "ref"):
        ep = setup.size("expert_model", role)
        if ep > 1:
            key = f"actor_rollout_ref.{role}.megatron.expert_model_parallel_size"
            out.error(key, "recipe-parallel-dense.experts-set", ep=ep, setting=key)
    for name in setup.override:
        if str(name).startswith("moe_"):
            out.warn(f"{_OVERRIDE}.{name}", "recipe-parallel-dense.moe-setting")


def stage_layers(setup: Setup, layers: int) -> list[int] | None:
    """Decoder layers of each pipeline stage as Megatron assigns them; None when it cannot.

    After get_num_layers_to_build of megatron/core/transformer/transformer_block.py. An explicit
    pipeline_model_parallel_layout is not read: None as well.
    """
    override, pp = setup.override, setup.pp
    if override.get("pipeline_model_parallel_layout"):
        return None
    first = override.get("num_layers_in_first_pipeline_stage")
    last = override.get("num_layers_in_last_pipeline_stage")
    if first is not None or last is not None:
        fixed = [size for size in (first, last) if size is not None]
        rest, stages = layers - sum(fixed), pp - len(fixed)
        if rest < 0 or (stages == 0 and rest) or (stages and rest % stages):
            return None
        middle = [rest // stages] * stages if stages else []
        return (
            ([first] if first is not None else []) + middle + ([last] if last is not None else [])
        )
    extra_first = bool(override.get("account_for_embedding_in_pipeline_split"))
    extra_last = bool(override.get("account_for_loss_in_pipeline_split"))
    total = layers + extra_first + extra_last
    if total % pp:
        return None
    stages_layers = [total // pp] * pp
    stages_layers[0] -= extra_first
    stages_layers[-1] -= extra_last
    return stages_layers


def _layers(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if setup.model is None or setup.model.layers is None:
        raise Undecided("the model's number of layers is unknown (--model-config)")
    layers = setup.model.layers
    if setup.override.get("pipeline_model_parallel_layout"):
        raise Undecided("pipeline_model_parallel_layout is an explicit layout: not read")
    stages = stage_layers(setup, layers)
    vpp = setup.get(f"{_MEGATRON}.virtual_pipeline_model_parallel_size")
    if stages is None or sum(stages) != layers:
        legal = [
            size for size in divisors(layers) if setup.world % (size * setup.tp * setup.cp) == 0
        ]
        out.show(f"{layers} layers over PP {setup.pp}: {layers} % {setup.pp} = {layers % setup.pp}")
        _not_divisible(setup, out, layers, legal)
        return
    out.show(f"{layers} layers over PP {setup.pp}: {_runs(stages)} per stage")
    if min(stages) < 1:
        out.error(_PP, "recipe-parallel-layers.empty-stage", layers=_runs(stages))
    if isinstance(vpp, int) and vpp > 1:
        key = f"{_MEGATRON}.virtual_pipeline_model_parallel_size"
        if setup.pp == 1:
            out.error(key, "recipe-parallel-layers.virtual-without-pp", vpp=vpp)
        elif any(size % vpp for size in stages):
            out.error(
                key,
                "recipe-parallel-layers.virtual-not-divisible",
                layers=_runs(stages),
                vpp=vpp,
                sizes=choice(divisors(min(stages)), vpp),
            )


def _not_divisible(setup: Setup, out: Judgement, layers: int, legal: list[int]) -> None:
    if not legal:
        out.error(_PP, "recipe-parallel-layers.no-legal-pp", layers=layers, pp=setup.pp)
        return
    sizes = choice(legal, setup.pp)
    last = layers - (setup.pp - 1) * -(-layers // setup.pp)
    if last > 0:
        out.error(
            _PP,
            "recipe-parallel-layers.uneven",
            layers=layers,
            pp=setup.pp,
            sizes=sizes,
            last=last,
        )
    else:
        out.error(
            _PP,
            "recipe-parallel-layers.not-divisible",
            layers=layers,
            pp=setup.pp,
            sizes=sizes,
        )


def _runs(stages: list[int]) -> str:
    return str(stages[0]) if len(set(stages)) == 1 else "/".join(map(str, stages))


def _heads(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if setup.model is None or not setup.model.heads or not setup.model.kv_heads:
        raise Undecided("the model's heads are unknown (--model-config)")
    heads, groups = setup.model.heads, setup.model.kv_heads
    out.show(f"{heads} heads % TP {setup.tp} = {heads % setup.tp}; KV heads {groups}")
    if heads % setup.tp:
        legal = [size for size in divisors(heads) if setup.world % size == 0]
        out.error(
            _TP,
            "recipe-parallel-heads.not-divisible",
            heads=heads,
            tp=setup.tp,
            sizes=choice(legal, setup.tp),
        )
    elif groups % setup.tp:
        out.warn(
            _TP,
            "recipe-parallel-heads.kv-heads",
            kv_heads=groups,
            tp=setup.tp,
            sizes=choice(divisors(groups), setup.tp),
        )


def _sequence(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if setup.tp == 1 or not _experts(setup):
        raise NotApplicable("only experts with TP > 1 need it")
    key = f"{_MEGATRON}.sequence_parallel"
    out.show(f"TP {setup.tp} with experts: sequence_parallel {setup.get(key, True)}")
    if setup.get(key, True) is False:
        out.error(key, "recipe-parallel-sequence.off")


def _reference(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    if not setup.reference:
        raise NotApplicable("the recipe does not load a reference model")
    for name in SIZES:
        key = f"actor_rollout_ref.ref.megatron.{name}_parallel_size"
        actor, ref = setup.get(f"{_MEGATRON}.{name}_parallel_size"), setup.get(key)
        if name == "expert_tensor":
            if actor is None and ref is None:
                continue  # both follow their tensor parallel sizes, which are compared
            actor, ref = actor or setup.tp, ref or setup.size("tensor_model", "ref")
        out.show(f"ref {name} {ref} == actor {actor}")
        if actor != ref:
            out.error(key, "recipe-parallel-reference.differs", ref=ref, actor=actor, setting=key)


def _recompute(setup: Setup, out: Judgement) -> None:
    _only_megatron(setup)
    kind = setup.override.get("recompute_granularity")
    method = setup.override.get("recompute_method")
    count = setup.override.get("recompute_num_layers")
    key = f"{_OVERRIDE}.recompute_num_layers"
    out.show(f"recompute_granularity={kind} recompute_method={method} recompute_num_layers={count}")
    if kind == "full":
        if method not in ("uniform", "block"):
            out.error(
                f"{_OVERRIDE}.recompute_method",
                "recipe-parallel-recompute.no-method",
                method=method,
            )
        if count is None:
            out.error(key, "recipe-parallel-recompute.no-count")
    elif count is not None or method is not None:
        out.warn(
            f"{_OVERRIDE}.recompute_granularity",
            "recipe-parallel-recompute.without-full",
            granularity=kind,
        )
    if count is None or kind != "full":
        return
    if setup.model is None or setup.model.layers is None:
        raise Undecided("the model's number of layers is unknown (--model-config)")
    stages = stage_layers(setup, setup.model.layers)
    most = max(stages) if stages else -(-setup.model.layers // setup.pp)
    out.show(f"1 <= recompute_num_layers {count} <= {most} layers of a stage")
    if not 1 <= count <= most:
        out.error(
            key,
            "recipe-parallel-recompute.count-out-of-range",
            count=count,
            most=most,
            layers=setup.model.layers,
        )


RULES = (
    Rule(
        "recipe-parallel-world", Source("utils/config.py", "n_gpus % (model_parallel_size"), _world
    ),
    Rule(
        "recipe-parallel-experts-world",
        Source(f"{_CORE}/parallel_state.py: initialize_model_parallel, expert ranks"),
        _experts_world,
    ),
    Rule(
        "recipe-parallel-experts-divide",
        Source(f"{_CORE}/transformer/transformer_config.py: num_moe_experts and EP"),
        _experts_divide,
    ),
    Rule(
        "recipe-parallel-experts-gradients",
        Source(
            f"{_CORE}/extensions/transformer_engine.py: param.allreduce (NVIDIA/Megatron-LM#5916)",
        ),
        _experts_gradients,
    ),
    Rule(
        "recipe-parallel-dense",
        Source(f"{_CORE}/transformer/transformer_config.py: EP needs num_moe_experts"),
        _dense,
    ),
    Rule(
        "recipe-parallel-layers",
        Source(f"{_CORE}/transformer/transformer_block.py: get_num_layers_to_build"),
        _layers,
    ),
    Rule(
        "recipe-parallel-heads",
        Source(f"{_CORE}/transformer/transformer_config.py: num_attention_heads and TP"),
        _heads,
    ),
    Rule(
        "recipe-parallel-sequence",
        Source(f"{_CORE}/transformer/moe/moe_layer.py: TP with experts"),
        _sequence,
    ),
    Rule(
        "recipe-parallel-reference",
        Source(
            "workers/engine/megatron/transformer_impl.py",
            "if mpu.is_initialized():",
        ),
        _reference,
    ),
    Rule(
        "recipe-parallel-recompute",
        Source(f"{_CORE}/transformer/transformer_config.py: recompute_* checks"),
        _recompute,
    ),
)
