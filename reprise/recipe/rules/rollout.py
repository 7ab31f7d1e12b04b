"""The rollout servers: replicas, heads, parallel sizes, sampling."""

from __future__ import annotations

import re

from reprise.core.nearby import nearest_word
from reprise.recipe.rules.base import Judgement, NotApplicable, Rule, Source, Undecided, divisors
from reprise.recipe.setup import Setup

__all__ = ["RULES", "legal_tps"]

_ROLLOUT = "actor_rollout_ref.rollout"
_TP = f"{_ROLLOUT}.tensor_model_parallel_size"


def _world(setup: Setup) -> int:
    """The rollout's GPUs: a pool of its own when the trainer is separate."""
    if setup.get("trainer.v1.trainer_mode") == "separate_async":
        return setup.integer(f"{_ROLLOUT}.nnodes") * setup.integer(
            f"{_ROLLOUT}.n_gpus_per_node", setup.gpus_per_node
        )
    return setup.world


def _replicas(setup: Setup, out: Judgement) -> None:
    world, group = _world(setup), setup.rollout_group
    dp = setup.integer(f"{_ROLLOUT}.data_parallel_size", 1)
    pp = setup.integer(f"{_ROLLOUT}.pipeline_model_parallel_size", 1)
    names = f"TP {setup.rollout_tp} x DP {dp} x PP {pp}"
    out.show(f"{world} GPUs / ({names} = {group}) = {world / group if group else 0:g} replicas")
    if not group or world % group:
        legal = [size for size in divisors(world) if world % (size * dp * pp) == 0]
        out.error(
            _TP,
            "recipe-rollout-replicas.gpus-do-divide",
            world=world,
            names=names,
            group=group,
            tp=_TP,
            maps=", ".join(map(str, legal)),
        )
        return
    per_node = min(setup.gpus_per_node, group)
    if group % per_node:
        out.error(
            _TP,
            "recipe-rollout-replicas.replica-gpus-does",
            group=group,
            gpus_per_node=setup.gpus_per_node,
        )
    elif group > per_node:
        out.note(
            _TP,
            "recipe-rollout-replicas.replica-gpus-spans",
            group=group,
            group2=group // per_node,
            per_node=per_node,
        )
    if dp > 1 and setup.engine == "sglang":
        key = f"{_ROLLOUT}.data_parallel_size"
        out.warn(
            key,
            "recipe-rollout-replicas.sglang-data-parallel",
            dp=dp,
            rollout_tp=setup.rollout_tp * dp,
            world=world // group,
            setting=key,
            world2=world // (setup.rollout_tp * pp),
            rollout_tp2=setup.rollout_tp,
        )
    if pp > 1:
        key = f"{_ROLLOUT}.pipeline_model_parallel_size"
        out.error(
            key, "recipe-rollout-replicas.implemented", pp=pp, engine=setup.engine, setting=key
        )


def legal_tps(setup: Setup) -> list[int]:
    """The tensor parallel sizes that the model's heads, KV heads and experts allow.

    As vLLM has it: the heads divide; KV heads divide, or are replicated a whole number of times;
    the experts' width divides. Sizes that the rollout's GPUs do not allow are left out.
    Raises Undecided when the model's heads are not known.
    """
    model = setup.model
    if model is None or not model.heads or not model.kv_heads:
        raise Undecided("the model's heads are not known (--model-config)")
    heads, kv_heads = model.heads, model.kv_heads
    width = model.config.get("moe_intermediate_size")
    world = _world(setup)
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
        raise Undecided("the model's heads are not known (--model-config)")
    out.show(f"{model.heads} heads, {model.kv_heads} KV heads, TP {tp}: legal {legal}")
    if tp in legal:
        if tp > model.kv_heads:
            out.note(
                _TP,
                "recipe-rollout-heads.kv-heads-replicated",
                kv_heads=model.kv_heads,
                tp=tp // model.kv_heads,
            )
        return
    if model.heads % tp:
        reason = f"{model.heads} heads do not split over TP {tp}"
    elif model.kv_heads % tp and tp % model.kv_heads:
        reason = f"{model.kv_heads} KV heads neither split over TP {tp} nor repeat evenly"
    else:
        raise NotApplicable("the GPUs do not divide by TP: see recipe-rollout-replicas")
    out.error(_TP, reason, f"{_TP}={', '.join(map(str, legal))}")


def _expert_parallel(setup: Setup, out: Judgement) -> None:
    ep = setup.integer(f"{_ROLLOUT}.expert_parallel_size", 1)
    group = setup.rollout_tp * setup.integer(f"{_ROLLOUT}.data_parallel_size", 1)
    if ep == 1:
        raise NotApplicable("rollout.expert_parallel_size is 1")
    out.show(f"expert_parallel_size {ep} == TP x DP = {group}")
    if setup.engine != "trtllm" and ep != group:
        key = f"{_ROLLOUT}.expert_parallel_size"
        out.error(key, "recipe-rollout-expert-parallel.tp-x-dp", ep=ep, group=group, setting=key)


def _validation(setup: Setup, out: Judgement) -> None:
    node = f"{_ROLLOUT}.val_kwargs"
    sample, n = bool(setup.get(f"{node}.do_sample", False)), setup.integer(f"{node}.n", 1)
    temperature = float(setup.get(f"{node}.temperature", 0))
    loop = setup.tree.source("experimental/agent_loop/agent_loop.py") if setup.tree else None
    read = loop is None or "val_kwargs.do_sample" in loop
    out.show(f"do_sample {sample}, temperature {temperature:g}, n {n}")
    if sample and temperature <= 0:
        out.warn(
            f"{node}.temperature", "recipe-rollout-validation-sampling.do-sample-true", node=node
        )
    given = [
        f"{name}={setup.get(f'{node}.{name}')}"
        for name, default in (("temperature", 0), ("top_p", 1.0), ("top_k", -1))
        if setup.get(f"{node}.{name}", default) != default
    ]
    if given and not sample:
        effect = (
            "are not used"
            if read
            else "are used all the same: this verl's agent loop does not read do_sample, "
            "and a verl that does would answer greedily"
        )
        out.warn(
            f"{node}.do_sample",
            "recipe-rollout-validation-sampling.false-but",
            givens=", ".join(given),
            effect=effect,
            node=node,
        )
    greedy = temperature <= 0 or (read and not sample)
    if n > 1 and greedy:
        out.warn(
            f"{node}.n", "recipe-rollout-validation-sampling.greedy-answers-prompt", n=n, node=node
        )


def _validation_size(setup: Setup, out: Judgement) -> None:
    rows, prompts = setup.known.val_rows, setup.known.val_prompts
    if not rows:
        raise Undecided("the rows of the validation file are not known")
    key = f"{_ROLLOUT}.val_kwargs.n"
    if not prompts:
        out.show(f"{rows} rows x n {setup.integer(key, 1)}; repeated problems are not counted here")
        return
    n, repeats = setup.integer(key, 1), rows // prompts
    samples = repeats * n
    out.show(f"{rows} rows / {prompts} problems = {repeats} x n {n} = {samples} samples a problem")
    if repeats > 1 and n > 1:
        out.warn(
            key,
            "recipe-rollout-validation-size.validation-x-too",
            n=n,
            repeats=repeats,
            rows=rows * n,
            setting=key,
        )
    elif samples == 1 and prompts < 100:
        out.warn(
            key, "recipe-rollout-validation-size.one-sample-each", prompts=prompts, setting=key
        )


def _name(setup: Setup, out: Judgement) -> None:
    source = setup.tree.source("workers/rollout/replica.py") if setup.tree else None
    known = re.findall(r'RolloutReplicaRegistry\.register\(\s*"(\w+)"', source or "")
    if not known:
        raise Undecided("verl's list of rollout engines is not in this tree")
    key = f"{_ROLLOUT}.name"
    out.show(f"rollout.name {setup.engine} is one of {', '.join(known)}")
    if setup.get(key) is not None and setup.engine not in known:
        out.error(
            key,
            "recipe-rollout-name.verl-rollout-engine",
            engine=setup.engine,
            knowns=", ".join(known),
            setting=key,
            nearest_word=nearest_word(setup.engine, known) or known[0],
        )


def _temperature(setup: Setup, out: Judgement) -> None:
    temperature = float(setup.get(f"{_ROLLOUT}.temperature", 1.0))
    out.show(f"temperature {temperature:g} > 0")
    if temperature <= 0:
        key = f"{_ROLLOUT}.temperature"
        out.error(
            key,
            "recipe-rollout-temperature.all-responses-prompt",
            temperature=temperature,
            n=setup.n,
            setting=key,
        )


def _truncated(setup: Setup, out: Judgement) -> None:
    if setup.engine != "vllm" or not setup.get(f"{_ROLLOUT}.calculate_log_probs", False):
        raise NotApplicable("no log-probs of vLLM are compared with the trainer's")
    mode = str(setup.get(f"{_ROLLOUT}.logprobs_mode", "processed_logprobs"))
    top_p, top_k = (
        float(setup.get(f"{_ROLLOUT}.top_p", 1.0)),
        setup.integer(f"{_ROLLOUT}.top_k", -1),
    )
    out.show(f"logprobs_mode {mode}, top_p {top_p:g} = 1, top_k {top_k} = -1 (all words)")
    if mode == "processed_logprobs" and (top_p < 1 or top_k > 0):
        key = f"{_ROLLOUT}.top_p" if top_p < 1 else f"{_ROLLOUT}.top_k"
        out.warn(key, "recipe-rollout-truncated.top-p-top", top_p=top_p, top_k=top_k)
    temperature = float(setup.get(f"{_ROLLOUT}.temperature", 1.0))
    if mode == "raw_logprobs" and temperature != 1:
        key = f"{_ROLLOUT}.logprobs_mode"
        out.warn(
            key, "recipe-rollout-truncated.raw-logprobs-leave", temperature=temperature, setting=key
        )


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
