"""The commands of a visit that concern SGLang and models of true size; visit.py runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visit import IN_PROJECT, OPERATOR, ROOT, alone, reproduce

SGLANG = str(ROOT / ".venv-gpu-sglang/bin/python")
VLLM = str(ROOT / ".venv-gpu/bin/python")
ARCHS = ("qwen3-moe", "qwen3")
RECORDED = (101, 102, 103)
# A run: trainer, SGLang's scheduler and Ray. Host memory as measured on ten at once.
# Three of 29 starts met another run's process on a port that verl had found free.
LIMITS = {"gib": 11, "host_gib": 11, "limit_s": 900, "tries": 2}
VARIABLES = "++ray_kwargs.ray_init.runtime_env.env_vars"
CAREFUL, ALL, EAGER = (f"common/sglang={name}" for name in ("careful", "all", "eager"))
NO_SEEDS = "actor_rollout_ref.rollout.engine_kwargs.sglang.enable_deterministic_inference=false"
SIZE = "qwen3-8b"
# What a run imports besides SGLang, so that a missing package is named in seconds.
IMPORTED = (
    *("verl.trainer.main_ppo", "verl.trainer.ppo.v1.agent_loop_tq", "verl.workers.engine_workers"),
    *("reprise_plugins.sglang_rollout", "reprise_plugins.sampler", "verl.experimental.reward_loop"),
    "verl.workers.rollout.sglang_rollout.async_sglang_server",
)


def variable(name: str, value: str) -> str:
    """The override that sets a variable of the job's processes, whatever the job's file says."""
    return f"{VARIABLES}.{name}='{value}'"


def trained(
    name: str,
    arch: str,
    seed: int,
    *more: str,
    engine: str = "megatron",
    good: Sequence[int] = (0, 2),
) -> dict[str, Any]:
    """`reprise reproduce` with SGLang: options and overrides in `more`."""
    place = ("--rollout", "sglang", "--arch", arch)
    row = reproduce(name, engine, seed, *more, place=place)
    return {**row, **LIMITS, "good": list(good)}


def environments(out: Path) -> list[dict[str, Any]]:
    """Both GPU environments; the second takes TransformerEngine's extension from the first."""
    made = []
    before: list[str] = []
    for rollout in ("sglang", "vllm"):
        command = ["python3", str(ROOT / "scripts/gpu/env.py"), "--engine", "megatron"]
        row = {"name": f"env-{rollout}", "command": [*command, "--rollout", rollout]}
        made.append({**row, "gib": 0, "limit_s": 420, "after": list(before)})
        before = [row["name"]]
    code = "import " + ", ".join(IMPORTED)
    row = {"name": "imports", "command": [SGLANG, "-c", code], "gib": 0, "limit_s": 180}
    variables = json.loads((out / "variables-sglang.json").read_text(encoding="utf-8"))
    made.append({**row, "env": variables, "after": ["env-sglang"]})
    return made


def parity(out: Path, arch: str) -> list[dict[str, Any]]:
    """The same tokens' log-probabilities by SGLang, vLLM, Hugging Face and verl's Megatron."""
    script = str(ROOT / "scripts/gpu/parity.py")
    model = str(ROOT / f"recipes/rehearsal/model-{arch}")
    config = str(out / f"config-sglang-{arch}.json")
    variables = json.loads((out / "variables-sglang.json").read_text(encoding="utf-8"))
    samples = str(out / f"sglang-{arch}-sample.json")
    record = out / f"sglang-{arch}-loaded"

    def job(name: str, python: str, *words: str, after: Sequence[str]) -> dict[str, Any]:
        """One part; the model's folder is known when it begins."""
        result = str(out / f"sglang-{arch}-{name}.json")
        command = [python, script, *words, "--model", model, "--out", result]
        row = {"name": f"parity-{arch}-{name}", "command": command, "gib": 8, "host_gib": 6}
        return {**row, "limit_s": 300, "env": variables, "after": list(after)}

    first = job(
        "sample",
        SGLANG,
        *("sglang", "--config", config, "--data", str(ROOT / ".cache/toy-data/train.parquet")),
        after=["imports"],
    )
    record.mkdir(parents=True, exist_ok=True)
    first["env"] = variables | {
        "REPRISE_WRITTEN": "count",
        "REPRISE_WRITTEN_DIGESTS": "1",
        "REPRISE_RUN_DIR": str(record),
    }
    given = ("--samples", samples)
    before = [first["name"]]
    return [
        first,
        job("scored", SGLANG, "sglang", "--config", config, *given, after=before),
        job("vllm", VLLM, "vllm", *given, after=[*before, "env-vllm"]),
        job("hf-float32", SGLANG, "hf", "--dtype", "float32", *given, after=before),
        job("hf-bfloat16", SGLANG, "hf", "--dtype", "bfloat16", *given, after=before),
        job("megatron", SGLANG, "megatron", "--config", config, *given, after=before),
    ]


def seeds() -> list[dict[str, Any]]:
    """Three seeds of each shape, one again, a frozen actor; then the references."""
    made = []
    for seed in (*RECORDED, "again", "frozen"):
        for arch in ARCHS:
            if seed == "frozen":
                override = "actor_rollout_ref.actor.optim.lr=0"
                # FAIL is what is expected, where the reference is there already.
                row = trained(f"{arch}-frozen", arch, 201, override, good=(0, 1, 2))
            elif seed == "again":
                row = trained(f"{arch}-101-again", arch, 101)
            else:
                row = trained(f"{arch}-{seed}", arch, int(seed))
            row["after"] = ["env-sglang", f"parity-{arch}-sample"]
            made.append(row)
    for arch in ARCHS:
        name = f"baseline-{arch}"
        command = [*alone(name, ROOT), OPERATOR, "-m", "reprise", "baseline", "rehearsal"]
        command += ["--platform", "gpu", "--engine", "megatron", "--rollout", "sglang"]
        command += ["--arch", arch, "--seeds", str(len(RECORDED))]
        before = [f"{arch}-{seed}" for seed in RECORDED]
        made.append({"name": name, "command": command, **LIMITS, "after": before})
    return made


def short(
    arch: str, name: str, *more: str, steps: int = 2, engine: str = "megatron"
) -> dict[str, Any]:
    """A run of a few steps; it ends without a verdict."""
    row = trained(f"{arch}-{name}", arch, 101, f"--steps={steps}", *more, engine=engine)
    row["after"] = ["env-sglang", f"parity-{arch}-sample"]
    return {**row, "limit_s": 420}


def with_vllm(arch: str) -> dict[str, Any]:
    """The same model, prompts and trainer as ARCH-fsdp, with vLLM, and the guard on its weights."""
    model = ROOT / f"recipes/rehearsal/model-{arch}"
    more = (f"actor_rollout_ref.model.path={model}", variable("REPRISE_WRITTEN", "count"))
    row = short(arch, "fsdp-vllm", *more, steps=5, engine="fsdp")
    words = row["command"]
    words[words.index("--rollout") + 1] = "vllm"
    return {**row, "after": ["env-vllm"], "limit_s": 600}


def options() -> list[dict[str, Any]]:
    """What the recipes offer for SGLang; packed experts with FSDP; seeds without their mode."""
    digests = variable("REPRISE_WRITTEN_DIGESTS", "1")
    made = [
        # With and without the bridge; without it the guard only counts, so that step 1 is seen.
        short("qwen3-moe", "fsdp", engine="fsdp", steps=5),
        short(
            "qwen3-moe",
            "fsdp-packed",
            variable("REPRISE_EXPERTS", "packed"),
            variable("REPRISE_WRITTEN", "count"),
            engine="fsdp",
        ),
        # And as it would be in a user's run: the guard ends it.
        {
            **short(
                "qwen3-moe", "fsdp-refused", variable("REPRISE_EXPERTS", "packed"), engine="fsdp"
            ),
            "good": [1],
        },
        short("qwen3", "fsdp", engine="fsdp", steps=5),
    ]
    made += [with_vllm(arch) for arch in ARCHS]
    for arch in ARCHS:
        made += [
            short(arch, "careful", CAREFUL, digests),
            short(arch, "all", ALL, NO_SEEDS),
            short(arch, "eager", EAGER),
        ]
    made += [short("qwen3", f"without-mode-{letter}", NO_SEEDS, steps=10) for letter in ("a", "b")]
    return made


def sglang(out: Path) -> list[dict[str, Any]]:
    """The whole stage: what judges first, the options after."""
    prepare(out)
    first = environments(out)
    samples, rest = [], []
    for arch in ARCHS:
        sample, *others = parity(out, arch)
        samples.append(sample)
        rest += others
    return [*first, *samples, *seeds(), *options(), *rest]


def prepare(out: Path) -> None:
    """A job's variables and each shape's resolved config, for what runs without Ray."""
    out.mkdir(parents=True, exist_ok=True)
    script = str(ROOT / "benchmarks/gpu/planner.py")
    subprocess.run([OPERATOR, script, "sglang", str(out)], env=IN_PROJECT, check=True)
    borrow(ROOT.parent / "site", ROOT.parent / "site-sglang")


def borrow(vllm: Path, sglang: Path) -> None:
    """Link cachetools into a site tree of SGLang that was packed before its requirements named it.

    verl's llm_server.py imports it, and vLLM's tree beside it has it.
    """
    if sglang.is_dir() and not (sglang / "cachetools").exists():
        for path in vllm.glob("cachetools*"):
            (sglang / path.name).symlink_to(path)


def real(out: Path) -> list[dict[str, Any]]:
    """Qwen3-8B's true size on one GPU: five steps; then a checkpoint of fewer layers, saved and
    loaded."""
    out.mkdir(parents=True, exist_ok=True)
    folder = ROOT.parent / "real"
    made = [
        built("real-model", folder / SIZE),
        built("real-model-8-layers", folder / f"{SIZE}-8", "--layers", "8"),
    ]
    whole = sized(out, "real-8b", folder / SIZE, "--steps=5", variable("OMP_NUM_THREADS", "16"))
    # Of host memory, GiB: weights and reference 31, the optimizer's state 92, another copy of the
    # master weights and their gradients 61, processes.
    large = {"gib": 134, "host_gib": 205, "limit_s": 900, "first": True}
    made.append({**whole, **large, "after": ["real-model"]})
    checkpoints = folder / "checkpoints"
    saved = f"trainer.default_local_dir={checkpoints}"
    small = folder / f"{SIZE}-8"
    before = "real-model-8-layers"
    # Loaded and not saved again: the disk holds one such checkpoint beside the models.
    for name, steps, often, mode in (("save", 2, 2, "disable"), ("load", 3, -1, "auto")):
        more = (f"--steps={steps}", saved, f"trainer.save_freq={often}")
        more += (f"trainer.resume_mode={mode}",)
        row = sized(out, f"real-{name}", small, *more, variable("OMP_NUM_THREADS", "16"))
        made.append({**row, "gib": 90, "host_gib": 80, "limit_s": 420, "after": [before]})
        before = row["name"]
    # The master weights on the host as well, which the recipes do not ask for.
    key = "++actor_rollout_ref.actor.optim.override_optimizer_config.use_precision_aware_optimizer"
    threads = variable("OMP_NUM_THREADS", "16")
    row = sized(out, "real-8b-precise", folder / SIZE, "--steps=2", f"{key}=true", threads)
    made.append({**row, **large, "first": False, "after": ["real-model"]})
    return made


def both(out: Path) -> list[dict[str, Any]]:
    """Both stages as one list: the true size as soon as the seeds have left it room."""
    tiny, large = sglang(out), real(out)
    recorded = [row["name"] for row in seeds() if not row["name"].startswith("baseline")]
    for row in large:
        if row["name"] in ("real-model", "real-model-8-layers"):
            row["after"] = ["env-sglang"]
        if row["name"].startswith("real-8b"):
            row["once"] = recorded
    split = next(i for i, row in enumerate(tiny) if row["name"] == f"baseline-{ARCHS[0]}")
    return [*tiny[:split], *large, *tiny[split:]]


def built(name: str, folder: Path, *more: str) -> dict[str, Any]:
    """Make a model of true widths with random weights."""
    script = str(ROOT / "scripts/gpu/real_model.py")
    card = str(ROOT / f"recipes/{SIZE}/card.toml")
    command = [SGLANG, script, str(folder), "--card", card, *more]
    return {"name": name, "command": command, "gib": 20, "host_gib": 8, "limit_s": 240}


def sized(out: Path, name: str, model: Path, *more: str) -> dict[str, Any]:
    """A run of `model` with rehearsal/size=8b, with what it holds once a second."""
    data = str(model / "train.parquet")
    row = trained(
        name,
        "qwen3",
        1,
        "rehearsal/size=8b",
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={data}",
        f"data.val_files={data}",
        # Memory allocated before and after each phase, in the job's log.
        variable("VERL_LOGGING_LEVEL", "DEBUG"),
        *more,
    )
    watch = [OPERATOR, str(ROOT / "scripts/gpu/watch.py"), str(out / f"{name}-held.json")]
    return {**row, "command": [*watch, "--disk", str(ROOT.parent), "--", *row["command"]]}
