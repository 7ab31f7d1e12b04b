"""The planner against a card: predicted and measured peak memory of Hy3-shaped models.

    python benchmarks/gpu/planner.py make OUT TOKENIZER   configs of every size, and jobs.json
    python benchmarks/gpu/planner.py inputs OUT           the configs and a job's variables alone
    python benchmarks/gpu/planner.py sglang OUT           the same for a rollout with SGLang
    python benchmarks/gpu/planner.py build ARCH           the tiny model of another shape
    python scripts/gpu/jobs.py OUT/jobs.json OUT/logs     on a GPU machine: measures them
    python benchmarks/gpu/planner.py collect OUT          what was measured, to measured.json here
    python benchmarks/gpu/planner.py compare              writes planner.json here, prints the table

TOKENIZER is a folder with a tokenizer (the rehearsal's model). docs/gpu.md has the results.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, sha256_file, write_text
from reprise.core.project import Project
from reprise.flows.target import LAYOUTS, Target
from reprise.recipe.config.compose import compose
from reprise.recipe.config.overrides import Line
from reprise.recipe.config.verltree import find_tree
from reprise.recipe.model import Model
from reprise.recipe.plan.activations import moe_workspace
from reprise.recipe.plan.memory import SERVER_BUFFERS, rollout_weights, training_memory
from reprise.recipe.setup import Setup
from reprise.rehearsal.model import ModelSettings, ensure_model, locked_versions, model_key
from reprise.rehearsal.toy import write_toy
from reprise.runs.ray.runtime_env import merge_runtime_env

ROOT = Path(__file__).resolve().parents[2]
MEASURED = Path(__file__).resolve().with_name("measured.json")
GIB = 2**30
LENGTH = 1024


class Size(NamedTuple):
    """A model's hidden width, layers, experts and vocabulary, and the tokens of a micro batch.

    The other sizes follow as in Hy3, which has 4096, 80, 192 and 120832.
    """

    hidden: int
    layers: int
    experts: int
    vocabulary: int = 32768
    tokens: int = 8192


SIZES = {
    "0.1B": Size(512, 8, 16),
    "0.3B": Size(1024, 8, 16),
    "0.8B": Size(1024, 16, 32),
    "1.7B": Size(1536, 16, 32),
    "2.9B": Size(2048, 16, 32),
    "5.4B": Size(2048, 16, 64),
    "6.7B": Size(2048, 20, 64),
    # Measured after the planner's terms had been mended by those above.
    "3.5B": Size(1536, 24, 48, 65536, 4096),
    # Hy3's own layers and vocabulary, with the experts of one of eight ranks.
    "1.8B": Size(4096, 2, 24, 120832),
    # Narrow and deep, with twice the tokens: activations outweigh the weights.
    "1.2B": Size(768, 32, 48, 65536, 16384),
}
# Offloading these would fill the host's memory, which grows slowly on such machines.
NO_OFFLOAD = {"2.9B", "5.4B", "6.7B"}
ENGINES = ("fsdp", "megatron")


def shape(size: Size) -> dict[str, Any]:
    """A config.json with Hy3's proportions."""
    hidden, layers, experts = size.hidden, size.layers, size.experts
    heads = 2 * hidden // 128
    return {
        "architectures": ["HYV3ForCausalLM"],
        "model_type": "hy_v3",
        "vocab_size": size.vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 13 * hidden // 4,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(1, heads // 8),
        "head_dim": 128,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 3 * hidden // 8,
        "expert_hidden_dim": 3 * hidden // 8,
        "first_k_dense_replace": 1,
        "router_scaling_factor": 1.5,
        "enable_moe_fp32_combine": False,
        "route_norm": True,
        "qk_norm": True,
        "moe_router_enable_expert_bias": True,
        "moe_router_use_sigmoid": True,
        "enable_lm_head_fp32": True,
        "max_position_embeddings": 4096,
        "initializer_range": 0.02,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
    }


def config(
    engine: str, locked: bool = False, layout: str = "one", arch: str = ""
) -> dict[str, Any]:
    """The rehearsal's resolved config on a GPU with `engine`, in `layout`, for the shape `arch`.

    `locked`: by the verl that runs there, or not at all: its workers refuse what another release's
    files say. For a prediction any will do. Raises CannotTell.
    """
    place = Target("gpu", engine, layout)
    tree = place.tree("0.9.0", Project(ROOT)) if locked else find_tree(ROOT, "verl", "0.9.0")
    lines = [Line(text) for text in place.overrides()]
    lines += [Line(f"rehearsal/arch={arch}")] if arch else []
    composed = compose("rehearsal/recipe", tree, lines, ROOT / "recipes")
    if composed.faults:
        sys.exit(str(composed.faults[0].message))
    return composed.values


def inputs(out: Path, layouts: Sequence[str] = ()) -> None:
    """Each engine's resolved config, and a job's variables for what runs without Ray.

    For each of `layouts` also the configs of Megatron with Hy3's shape and with Qwen3-MoE's.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = (ROOT / "runtime_env.yaml", Target("gpu").runtime_env(ROOT / "recipes/rehearsal"))
    variables = merge_runtime_env(ROOT, files, {})["env_vars"]
    # Ray resolves these paths in the package that it unpacks; here they are the checkout's.
    paths = [str(ROOT / path) for path in variables["PYTHONPATH"].split(":")]
    dump_json(out / "variables.json", variables | {"PYTHONPATH": ":".join(paths)})
    for engine in ENGINES:
        write_text(out / f"config-{engine}.json", json.dumps(config(engine, locked=True)))
    if layouts:
        models = {arch: str(model_of(arch)) for arch in ("hy3", "qwen3-moe")}
        dump_json(out / "models.json", models)
    for layout in layouts:
        for arch in ("", "qwen3-moe"):
            name = "-".join(["config", "megatron", layout, *([arch] if arch else [])])
            values = config("megatron", True, layout, arch)
            write_text(out / f"{name}.json", json.dumps(values))


def model_of(arch: str) -> Path:
    """The folder of the tiny model of shape `arch`; those not shipped are built there when used."""
    if arch == "hy3":
        return ROOT / "recipes/rehearsal/model"
    versions = locked_versions(ROOT / "requirements/rehearsal.txt")
    data = write_toy(ROOT / ".cache/toy-data", seed=0)
    key = model_key(ModelSettings(arch=arch), sha256_file(data.train), versions)
    return ROOT / ".cache/models" / key


def build(arch: str) -> None:
    """Build the tiny model of shape `arch` with the GPU environment's Python, if it is missing."""
    versions = locked_versions(ROOT / "requirements/rehearsal.txt")
    data = write_toy(ROOT / ".cache/toy-data", seed=0)
    python = Target("gpu", "megatron").python(Project(ROOT))
    settings = ModelSettings(arch=arch)
    made = ensure_model(ROOT / ".cache/models", python, data.train, versions, print, settings)
    print(made.path)


def sglang_inputs(out: Path) -> None:
    """As `inputs`, for the rehearsal of each Qwen3 shape with SGLang."""
    out.mkdir(parents=True, exist_ok=True)
    place = Target("gpu", "megatron", rollout="sglang")
    write_toy(Project(ROOT).cache / "toy-data", seed=0)
    files = (ROOT / "runtime_env.yaml", place.runtime_env(ROOT / "recipes/rehearsal"))
    variables = merge_runtime_env(ROOT, files, {})["env_vars"]
    paths = [str(ROOT / path) for path in variables["PYTHONPATH"].split(":")]
    dump_json(out / "variables-sglang.json", variables | {"PYTHONPATH": ":".join(paths)})
    for arch in ("qwen3", "qwen3-moe"):
        lines = [Line(text) for text in (*place.overrides(), f"rehearsal/arch={arch}")]
        composed = compose(
            "rehearsal/recipe", place.tree("0.9.0", Project(ROOT)), lines, ROOT / "recipes"
        )
        if composed.faults:
            sys.exit(str(composed.faults[0].message))
        write_text(out / f"config-sglang-{arch}.json", json.dumps(composed.values))


def make(out: Path, tokenizer: Path, names: Sequence[str]) -> None:
    """Write what the measurement of the sizes `names` needs, and its jobs."""
    inputs(out)
    jobs: list[dict[str, Any]] = []
    # The largest first: they need a card of their own.
    shapes(out, tokenizer, names)
    for name in sorted(names, reverse=True):
        for engine in (*ENGINES, "vllm"):
            jobs.append(_job(out, name, engine))
    dump_json(out / "jobs.json", jobs)


def _job(out: Path, name: str, engine: str) -> dict[str, Any]:
    python = ROOT / ".venv-gpu/bin/python"
    command = [str(python), str(ROOT / "scripts/gpu/measure.py"), "--engine", engine]
    command += ["--model", str(out / name), "--out", str(out / f"{name}-{engine}.json")]
    command += ["--tokens", str(SIZES[name].tokens)]
    if engine != "vllm":
        variants = "recompute,plain" if name in NO_OFFLOAD else "recompute,recompute+offload,plain"
        command += ["--config", str(out / f"config-{engine}.json"), "--variants", variants]
    peak = max(sum(predict(name, engine, variant).values()) for variant in ("recompute", "plain"))
    # A quarter more than planned, since the plan is what is on trial; never more than a card.
    gib = min(130.0, 4 + peak / GIB * 1.25)
    return {"name": f"{name}-{engine}", "command": command, "gib": round(gib, 1), "limit_s": 240}


def setup_of(name: str, engine: str, variant: str, layout: str = "one") -> Setup:
    """The planner's view of one measurement."""
    values = copy.deepcopy(_cached_config(engine, layout))
    values["data"] |= {"max_prompt_length": LENGTH // 2, "max_response_length": LENGTH // 2}
    node = values["actor_rollout_ref"]
    node["actor"]["ppo_max_token_len_per_gpu"] = SIZES[name].tokens
    node["actor"]["ppo_micro_batch_size_per_gpu"] = SIZES[name].tokens // LENGTH
    recompute = "recompute" in variant
    node["model"]["enable_gradient_checkpointing"] = recompute
    if engine == "megatron":
        # Sixteen layers divide; the tiny model's three do not.
        node["actor"]["megatron"]["override_transformer_config"].pop(_UNEVEN, None)
        override = node["actor"]["megatron"]["override_transformer_config"]
        for key, value in (("granularity", "full"), ("method", "uniform"), ("num_layers", 1)):
            override[f"recompute_{key}"] = value if recompute else None
    return Setup(values, None, Model(shape(SIZES[name]), "config.json"))


_CONFIGS: dict[tuple[str, str], dict[str, Any]] = {}
_UNEVEN = "num_layers_in_first_pipeline_stage"


def _cached_config(engine: str, layout: str) -> dict[str, Any]:
    if (engine, layout) not in _CONFIGS:
        _CONFIGS[engine, layout] = config(engine, layout=layout)
    return _CONFIGS[engine, layout]


def predict(
    name: str, engine: str, variant: str, tokens: int = 0, layout: str = "one"
) -> dict[str, int]:
    """Bytes by term, without the context of CUDA and the buffers of the libraries.

    `tokens` of vLLM's batch, where they are not the size's own.
    """
    if engine == "vllm":
        model = Model(shape(SIZES[name]), "config.json")
        counts = model.parameters()
        assert counts is not None
        work = moe_workspace(model, counts, tokens or SIZES[name].tokens, 1, LENGTH)
        return {
            "weights": rollout_weights(model, counts, 1),
            "activations of a batch": work,
            "the server's buffers": SERVER_BUFFERS,
        }
    terms = dict(training_memory(setup_of(name, engine, variant, layout)).terms)
    terms.pop("context and buffers", None)
    return terms


def collect(out: Path) -> None:
    """Put every result of `out` into measured.json, beside those of other visits."""
    files = [*out.glob("*B-fsdp.json"), *out.glob("*B-megatron.json"), *out.glob("*B-vllm*.json")]
    found = {path.stem: json.loads(path.read_text()) for path in files}
    known = json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}
    dump_json(MEASURED, dict(sorted({**known, **found}.items())))


def rows(measurements: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a size, engine and variant: predicted, measured, and by how much it is off."""
    for name in SIZES:
        for engine in ENGINES:
            found = measurements.get(f"{name}-{engine}")
            if found is None:
                continue
            for variant, measured in found["variants"].items():
                terms = predict(name, engine, variant)
                row = {"size": name, "engine": engine, "variant": variant, "predicted": dict(terms)}
                row |= {"parameters": found["parameters"], "measured": measured}
                row["predicted_total"] = sum(terms.values())
                if "peak_forward_backward" in measured:
                    peak = max(measured["peak_forward_backward"], measured["peak_optimizer"])
                    row["off"] = sum(terms.values()) / peak - 1
                yield row


def served(measurements: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What vLLM was measured to hold, its KV cache apart, with what was predicted."""
    for name in sorted(measurements):
        if "-vllm" in name:
            found = dict(measurements[name])
            found["predicted"] = predict(found["model"], "vllm", "", found["tokens"])
            found["found"] = found["variants"]["generate"]["peak"] - found["kv_cache"]
            found["off"] = sum(found["predicted"].values()) / found["found"] - 1
            yield found


def compare() -> None:
    """Print the table and write planner.json."""
    measurements = json.loads(MEASURED.read_text())
    table = list(rows(measurements))
    rollout = list(served(measurements))
    for row in table:
        measured = row["measured"]
        if "off" not in row:
            print(f"{row['size']:>5} {row['engine']:8} {row['variant']:18} {measured}"[:120])
            continue
        print(
            f"{row['size']:>5} {row['engine']:8} {row['variant']:18} "
            f"planned {row['predicted_total'] / GIB:7.2f}  forward and backward "
            f"{measured['peak_forward_backward'] / GIB:7.2f}  optimizer "
            f"{measured['peak_optimizer'] / GIB:7.2f}  off {100 * row['off']:+5.1f} %"
        )
    for found in rollout:
        size = f"{found['model']:>5} vllm {found['tokens']:6}"
        planned = sum(found["predicted"].values()) / GIB
        text = f"planned {planned:7.2f}  found, without the cache {found['found'] / GIB:7.2f}"
        print(f"{size}  {text}  off {100 * found['off']:+5.1f} %")
    dump_json(MEASURED.with_name("planner.json"), {"training": table, "rollout": rollout})


def shapes(out: Path, tokenizer: Path, names: Sequence[str]) -> None:
    """A folder with config.json and tokenizer for each of the sizes `names`."""
    for name in names:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "config.json", json.dumps(shape(SIZES[name]), indent=1))
        for file in tokenizer.glob("*token*"):
            shutil.copy(file, folder)


def main() -> None:
    """Make the inputs, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("make", "inputs", "sglang", "build", "collect", "compare"))
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("tokenizer", type=Path, nargs="?")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, help="default: all")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=[], help="for inputs")
    options = parser.parse_args()
    if options.what == "compare":
        compare()
        return
    if options.out is None:
        parser.error("name a folder")
    try:
        if options.what == "make":
            if options.tokenizer is None:
                parser.error("make needs a folder with a tokenizer")
            make(options.out.absolute(), options.tokenizer, options.sizes or list(SIZES))
        elif options.what == "inputs":
            inputs(options.out.absolute(), options.layouts)
            if options.sizes:
                tokenizer = ROOT / "recipes/rehearsal/model"
                shapes(options.out.absolute(), tokenizer, options.sizes)
        elif options.what == "sglang":
            sglang_inputs(options.out.absolute())
        elif options.what == "build":
            build(str(options.out))
        else:
            collect(options.out.absolute())
    except OperatorError as error:
        sys.exit(f"error {error.where}: {error.message}\n    fix: {error.fix}")


if __name__ == "__main__":
    main()
