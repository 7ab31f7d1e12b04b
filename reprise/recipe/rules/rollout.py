"""The rollout servers: replicas, heads, parallel sizes, sampling."""

from __future__ import annotations

import re

from reprise.recipe.rules.base import (
    Judgement,
    NotApplicable,
    Rule,
    Source,
    Undecided,
    choice,
    choice_of,
    divisors,
)
from reprise.recipe.setup import Setup

__all__ = ["RULES", "legal_tps"]

_MANY_BATCHES = 8  # each waits for its longest answer before the next one begins

_ROLLOUT = "actor_rollout_ref.rollout"
_TP = f"{_ROLLOUT}.tensor_model_parallel_size"


def _replicas(setup: Setup, out: Judgement) -> None:
    world, group = setup.rollout_world, setup.rollout_group
    dp = setup.integer(f"{_ROLLOUT}.data_parallel_size", 1)
    pp = setup.integer(f"{_ROLLOUT}.pipeline_model_parallel_size", 1)
    names = f"TP {setup.rollout_tp} x DP {dp} x PP {pp}"
    out.show(f"{world} GPUs / ({names} = {group}) = {world / group if group else 0:g} replicas")
    if not group or world % group:
        legal = [size for size in divisors(world) if world % (size * dp * pp) == 0]
        if not legal:
            out.error(
                _TP,
                "recipe-rollout-replicas.no-legal-tp",
                world=world,
                parts=names,
                group=group,
            )
            return
        out.error(
            _TP,
            "recipe-rollout-replicas.not-divisible",
            world=world,
            parts=names,
            group=group,
            sizes=choice(legal, setup.rollout_tp),
        )
        return
    per_node = min(setup.gpus_per_node, group)
    if group % per_node:
        out.error(
            _TP,
            "recipe-rollout-replicas.partial-node",
            group=group,
            gpus_per_node=setup.gpus_per_node,
        )
    elif group > per_node:
        out.note(
            _TP,
            "recipe-rollout-replicas.spans-nodes",
            group=group,
            nodes=group // per_node,
            per_node=per_node,
        )
    if dp > 1 and setup.engine == "sglang":
        key = f"{_ROLLOUT}.data_parallel_size"
        out.warn(
            key,
            "recipe-rollout-replicas.sglang-data-parallel",
            dp=dp,
            gpus=setup.rollout_tp * dp,
            servers=world // group,
            replicas=world // (setup.rollout_tp * pp),
            tp=setup.rollout_tp,
        )
    if pp > 1:
        key = f"{_ROLLOUT}.pipeline_model_parallel_size"
        out.error(key, "recipe-rollout-replicas.pipeline-unsupported", pp=pp, engine=setup.engine)


def legal_tps(setup: Setup) -> list[int]:
    """The tensor parallel sizes that the model's heads, KV heads and experts allow.

    As in vLLM: TP divides the heads; TP divides the KV heads or is a multiple of them; TP divides
    the experts' width. Sizes that do not divide the rollout's GPUs are left out.
    Raises Undecided when the model's heads are unknown.
    """
    model = setup.model
    if model is None or not model.heads or not model.kv_heads:
        raise Undecided("the model's heads are unknown (--model-config)")
    heads, kv_heads = model.heads, model.kv_heads
    width = model.config.get("moe_intermediate_size")
    world = setup.rollout_world
    return [
        size
        for size in divisors(heads)
        if (kv_heads % size == 0 or size % kv_heads == 0)
        and (not isinstance(width, int) or width % size == 0)
        and world % size == 0
    ]


def _heads(setup: Setup, out: Judgement) -> None:
    legal = legal_tps(setup)
    model, tp = setup.model, setup.rollout_tp
    if model is None or not model.heads or not model.kv_heads:
        raise Undecided("the model's heads are unknown (--model-config)")
    out.show(f"{model.heads} heads, {model.kv_heads} KV heads, TP {tp}: legal {legal}")
    if tp in legal:
        if tp > model.kv_heads:
            out.note(
                _TP,
                "recipe-rollout-heads.replicated",
                kv_heads=model.kv_heads,
                copies=tp // model.kv_heads,
            )
        return
    if model.heads % tp:
        sizes = choice(legal, tp)
        out.error(_TP, "recipe-rollout-heads.not-divisible", heads=model.heads, tp=tp, sizes=sizes)
    elif model.kv_heads % tp and tp % model.kv_heads:
        sizes = choice(legal, tp)
        out.error(_TP, "recipe-rollout-heads.kv-heads", kv_heads=model.kv_heads, tp=tp, sizes=sizes)
    else:
        raise NotApplicable(
            "the number of GPUs is not divisible by TP: see recipe-rollout-replicas"
        )


def _expert_parallel(setup: Setup, out: Judgement) -> None:
    ep = setup.integer(f"{_ROLLOUT}.expert_parallel_size", 1)
    group = setup.rollout_tp * setup.integer(f"{_ROLLOUT}.data_parallel_size", 1)
    if ep == 1:
        raise NotApplicable("rollout.expert_parallel_size is 1")
    out.show(f"expert_parallel_size {ep} == TP x DP = {group}")
    if setup.engine != "trtllm" and ep != group:
        key = f"{_ROLLOUT}.expert_parallel_size"
        out.error(key, "recipe-rollout-expert-parallel.differs", ep=ep, group=group)


def _validation(setup: Setup, out: Judgement) -> None:
    node = f"{_ROLLOUT}.val_kwargs"
    sample, n = bool(setup.get(f"{node}.do_sample", False)), setup.integer(f"{node}.n", 1)
    temperature = float(setup.get(f"{node}.temperature", 0))
    loop = setup.tree.source("experimental/agent_loop/agent_loop.py") if setup.tree else None
    read = loop is None or "val_kwargs.do_sample" in loop
    out.show(f"do_sample {sample}, temperature {temperature:g}, n {n}")
    if sample and temperature <= 0:
        out.warn(f"{node}.temperature", "recipe-rollout-validation-sampling.greedy", node=node)
    given = [
        f"{name}={setup.get(f'{node}.{name}')}"
        for name, default in (("temperature", 0), ("top_p", 1.0), ("top_k", -1))
        if setup.get(f"{node}.{name}", default) != default
    ]
    if given and not sample:
        key, shown = f"{node}.do_sample", ", ".join(given)
        if read:
            out.warn(key, "recipe-rollout-validation-sampling.ignored", given=shown, node=node)
        else:
            out.warn(key, "recipe-rollout-validation-sampling.still-used", given=shown, node=node)
    greedy = temperature <= 0 or (read and not sample)
    if n > 1 and greedy:
        out.warn(f"{node}.n", "recipe-rollout-validation-sampling.identical", n=n, node=node)


def _validation_size(setup: Setup, out: Judgement) -> None:
    rows, prompts = setup.known.val_rows, setup.known.val_prompts
    if not rows:
        raise Undecided("the number of rows of the validation file is unknown")
    key = f"{_ROLLOUT}.val_kwargs.n"
    most, batch = setup.integer("data.val_max_samples", -1), setup.integer("data.val_batch_size")
    used = min(rows, most) if most > 0 else rows
    if 0 < batch < used:
        out.show(f"{used} rows in batches of {batch}: {-(-used // batch)} one after another")
        if used >= _MANY_BATCHES * batch:
            out.warn(
                "data.val_batch_size",
                "recipe-rollout-validation-size.many-batches",
                batches=-(-used // batch),
                batch=batch,
                rows=used,
            )
    if not prompts:
        out.show(f"{rows} rows x n {setup.integer(key, 1)}; repeated problems are not counted")
        return
    n, repeats = setup.integer(key, 1), rows // prompts
    samples = repeats * n
    out.show(
        f"{rows} rows / {prompts} problems = {repeats} x n {n} = {samples} samples per problem"
    )
    if repeats > 1 and n > 1:
        out.warn(
            key, "recipe-rollout-validation-size.too-large", n=n, repeats=repeats, rows=rows * n
        )
    elif samples == 1 and prompts < 100:
        out.warn(key, "recipe-rollout-validation-size.noisy", prompts=prompts)


def _name(setup: Setup, out: Judgement) -> None:
    source = setup.tree.source("workers/rollout/replica.py") if setup.tree else None
    known = re.findall(r'RolloutReplicaRegistry\.register\(\s*"(\w+)"', source or "")
    if not known:
        raise Undecided("verl's list of rollout engines is not in this tree")
    key = f"{_ROLLOUT}.name"
    out.show(f"rollout.name {setup.engine} is one of {', '.join(known)}")
    if setup.engine == "???":  # Hydra's mark for a value that must be given
        out.error(key, "recipe-rollout-name.not-set", fix=choice_of(key, "", known))
    elif setup.get(key) is not None and setup.engine not in known:
        out.error(
            key,
            "recipe-rollout-name.verl-rollout-engine",
            engine=setup.engine,
            knowns=", ".join(known),
            fix=choice_of(key, setup.engine, known),
        )


def _temperature(setup: Setup, out: Judgement) -> None:
    temperature = float(setup.get(f"{_ROLLOUT}.temperature", 1.0))
    out.show(f"temperature {temperature:g} > 0")
    if temperature <= 0:
        key = f"{_ROLLOUT}.temperature"
        out.error(key, "recipe-rollout-temperature.zero", temperature=temperature, n=setup.n)


def _truncated(setup: Setup, out: Judgement) -> None:
    if setup.engine != "vllm" or not setup.get(f"{_ROLLOUT}.calculate_log_probs", False):
        raise NotApplicable("log-probs of vLLM are not compared with those of the trainer")
    mode = str(setup.get(f"{_ROLLOUT}.logprobs_mode", "processed_logprobs"))
    top_p, top_k = (
        float(setup.get(f"{_ROLLOUT}.top_p", 1.0)),
        setup.integer(f"{_ROLLOUT}.top_k", -1),
    )
    out.show(f"logprobs_mode {mode}, top_p {top_p:g} = 1, top_k {top_k} = -1 (all tokens)")
    if mode == "processed_logprobs" and (top_p < 1 or top_k > 0):
        key = f"{_ROLLOUT}.top_p" if top_p < 1 else f"{_ROLLOUT}.top_k"
        out.warn(key, "recipe-rollout-truncated.log-probs-differ", top_p=top_p, top_k=top_k)
    temperature = float(setup.get(f"{_ROLLOUT}.temperature", 1.0))
    if mode == "raw_logprobs" and temperature != 1:
        key = f"{_ROLLOUT}.logprobs_mode"
        out.warn(key, "recipe-rollout-truncated.raw-log-probs", temperature=temperature)


RULES = (
    Rule(
        "recipe-rollout-name",
        Source("workers/rollout/replica.py", 'RolloutReplicaRegistry.register("vllm"'),
        _name,
    ),
    Rule(
        "recipe-rollout-replicas",
        Source("workers/engine_workers.py", "assert self.world_size % infer_world_size == 0"),
        _replicas,
    ),
    Rule("recipe-rollout-heads", Source("vLLM 0.23.0 config/parallel and model checks"), _heads),
    Rule(
        "recipe-rollout-expert-parallel",
        Source(
            "workers/config/rollout.py",
            "assert self.expert_parallel_size == (self.tensor_model_parallel_size",
        ),
        _expert_parallel,
    ),
    Rule(
        "recipe-rollout-validation-sampling",
        Source(
            "experimental/agent_loop/agent_loop.py",
            'sampling_params["temperature"] = config.val_kwargs.temperature',
        ),
        _validation,
    ),
    Rule(
        "recipe-rollout-validation-size",
        Source("trainer/ppo/v1/trainer_base.py", "def _validate"),
        _validation_size,
    ),
    Rule(
        "recipe-rollout-temperature",
        Source("workers/config/rollout.py", "temperature:"),
        _temperature,
    ),
    Rule(
        "recipe-rollout-truncated",
        Source("trainer/config/rollout/rollout.yaml", "logprobs_mode: processed_logprobs"),
        _truncated,
    ),
)
