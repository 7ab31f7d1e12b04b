"""Parallel sizes on several GPUs: what a visit found, judged, as layouts.json and tables.

    python benchmarks/gpu/layouts.py OUT [RUNS]

OUT is the folder of `scripts/gpu/visit.py layouts|resume|active|four`; RUNS the folder of its runs
(default: runs/ of the project). Runs of the tiny Hy3 are judged by the seeds recorded on one GPU.
What was not run has no row.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import planner

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json
from reprise.curves.judge import JudgeOptions, judge_run
from reprise.curves.reference import Reference, load_reference
from reprise.metrics import read_run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REFERENCE = ROOT / "recipes/rehearsal/reference-gpu-megatron"
REWARD = "critic/rewards/mean"
DIFFERENCE = "training/rollout_probs_diff_mean"
SIZE = "0.8B"


def metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """The metrics of a run's attempts, by step."""
    found: dict[int, dict[str, Any]] = {}
    for file in sorted((folder / "metrics").glob("attempt-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[int(row["step"])] = row["data"]
    return found


def median(steps: Mapping[int, Mapping[str, Any]], name: str) -> float | None:
    """The median over the steps that have the metric; None where none has."""
    values = [data[name] for data in steps.values() if name in data]
    return statistics.median(values) if values else None


def runs(folder: Path, reference: Reference) -> Iterator[dict[str, Any]]:
    """A row for each run in a layout: its curve in brief, and for Hy3 the verdict."""
    for path in sorted(folder.glob("*/*/run.json")):
        state = json.loads(path.read_text(encoding="utf-8"))
        if state.get("layout") in (None, "one"):
            continue
        steps = metrics(path.parent)
        trained = [step for step in steps if step > 0]
        row = {name: state.get(name) for name in ("layout", "arch", "seed", "state", "label")}
        row |= {"run": path.parent.name, "steps": max(trained, default=0)}
        row |= {"of": state.get("steps"), "first_step": min(trained, default=0)}
        row["rewards"] = [steps[step].get(REWARD) for step in trained[:3]]
        row["probs_diff_median"] = median(steps, DIFFERENCE)
        row["seconds_a_step"] = median(steps, "timing_s/step")
        row["actor_gib"] = median(steps, "actor/perf/max_memory_allocated_gb")
        alone = state.get("recipe_one_gpu")
        row["only_the_layout_differs"] = alone == reference.provenance.get("recipe")
        if state.get("arch") in (None, "hy3") and trained:
            row |= verdict(path.parent, reference)
        yield row


def verdict(folder: Path, reference: Reference) -> dict[str, Any]:
    """The outcome of the project's judge, and the checks that are not passed."""
    try:
        rows = read_run(folder)
        reached = min(int(rows.training_steps().max()), reference.steps)
        # Other sizes are another recipe by name; the row says whether anything else differs.
        options = JudgeOptions(accepted=("length", "recipe"))
        judged = judge_run(rows, reference, reached, options=options)
    except OperatorError as error:
        return {"outcome": None, "reason": str(error.message)}
    checks = {check.rule: check.state.value for check in judged.report("layouts").checks}
    left = {rule: state for rule, state in checks.items() if state != "passed"}
    return {"outcome": judged.outcome.value, "open": left, "text": judged.text().splitlines()}


def exports(out: Path) -> Iterator[dict[str, Any]]:
    """A row for each rank: the export against the checkpoint, log-probabilities against one GPU."""
    for path in sorted(out.glob("weights-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        name, _, rank = path.stem.partition("-rank")
        arch, _, layout = name.removeprefix("weights-").rpartition("-")
        row = {"arch": arch, "layout": layout, "rank": int(rank or 0), **found["round_trip"]}
        alone = out / f"weights-{arch}-one.json"
        if layout != "one" and alone.is_file() and found["logprobs"]:
            there = json.loads(alone.read_text(encoding="utf-8"))["logprobs"]
            pairs = zip(found["logprobs"], there, strict=True)
            gaps = [abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True)]
            row |= {"tokens": len(gaps), "log_mean": statistics.fmean(gaps), "log_max": max(gaps)}
        yield row


def memory(out: Path) -> Iterator[dict[str, Any]]:
    """Planned and measured peak of each layout and variant: the fullest of its GPUs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(out.glob(f"{SIZE}-megatron-*.json")):
        layout = path.stem.removeprefix(f"{SIZE}-megatron-").partition("-rank")[0]
        found.setdefault(layout, []).append(json.loads(path.read_text(encoding="utf-8")))
    for layout, ranks in found.items():
        for variant in ranks[0]["variants"]:
            measured = [one["variants"].get(variant, {}) for one in ranks]
            peaks = [
                max(one["peak_forward_backward"], one["peak_optimizer"])
                for one in measured
                if "peak_forward_backward" in one
            ]
            terms = planner.predict(SIZE, "megatron", variant, layout=layout)
            row = {"layout": layout, "variant": variant, "ranks": len(ranks), "peaks": peaks}
            row |= {"predicted": terms, "predicted_total": sum(terms.values())}
            if peaks and len(peaks) == len(ranks):
                row["off"] = sum(terms.values()) / max(peaks) - 1
            yield row


def resumed(out: Path) -> Iterator[dict[str, Any]]:
    """A row for each pair of layouts and form; ranks that disagree are both shown."""
    for path in sorted(out.glob("load-*.json")):
        if "-rank" in path.stem:
            continue
        files = [path, *sorted(out.glob(f"{path.stem}-rank*.json"))]
        ranks = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        first = ranks[0]
        row = {"form": first["form"], "saved": first["from"]}
        row["loaded"] = first["config"].removeprefix("config-megatron-")
        row["states"] = [one["state"] for one in ranks]
        row["errors"] = [one["error"] for one in ranks if "error" in one]
        for part in ("weights", "after_next", "one_step"):
            if part in first:
                row[part] = first[part]
        yield row


def cell(row: Mapping[str, Any] | None) -> str:
    """What a pair of layouts came to, in a few words."""
    if row is None:
        return "not run"
    if row["errors"]:
        return f"refused: {row['errors'][0][:80]}"
    if "after_next" not in row:
        return f"stopped: {'/'.join(row['states'])}"
    whole = row["weights"]
    if whole["equal"] < whole["keys"] or whole["one_side_only"]:
        return f"weights differ: {whole['keys'] - whole['equal']} of {whole['keys']}"
    return f"resumed; next step off by {row['after_next']['largest']:.1e}"


def matrix(rows: Sequence[Mapping[str, Any]], form: str) -> Iterator[str]:
    """The lines of a table: saved under (rows), loaded under (columns)."""
    by_pair = {(row["saved"], row["loaded"]): row for row in rows if row["form"] == form}
    names = sorted({name for pair in by_pair for name in pair})
    yield f"| {form} | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for saved in names:
        cells = [cell(by_pair.get((saved, loaded))) for loaded in names]
        yield f"| {saved} | " + " | ".join(cells) + " |"


def show(found: Mapping[str, Any]) -> None:
    """Print the tables."""
    for row in found["runs"]:
        said = row.get("outcome") or row.get("reason") or "no reference"
        left = " ".join(row.get("open", {}))
        print(
            f"{row['arch'] or 'hy3':10} {row['layout']:14} step {row['steps']}/{row['of']} "
            f"{said} {left} rewards {row['rewards']} probs diff {row['probs_diff_median']} "
            f"{row['seconds_a_step']} s/step"
        )
    for row in found["weights"]:
        print(
            f"{row['arch']:10} {row['layout']:8} rank {row['rank']}: {row['keys_sent']} of "
            f"{row['keys_in_checkpoint']} keys, missing {len(row['missing'])}, extra "
            f"{len(row['extra'])}, equal {row['equal_to_the_rounded_checkpoint']}, largest "
            f"{row['largest_error']:.2g} (rounding {row['largest_rounding']:.2g}); log-probs "
            f"{row.get('log_mean')}, {row.get('log_max')}"
        )
    for row in found["memory"]:
        off = f"{100 * row['off']:+.1f} %" if "off" in row else "incomplete"
        peaks = " ".join(f"{peak / planner.GIB:.2f}" for peak in row["peaks"])
        planned = row["predicted_total"] / planner.GIB
        print(f"{row['layout']:8} {row['variant']:10} planned {planned:.2f}  {peaks} GiB  {off}")
    for form in sorted({row["form"] for row in found["resume"]}):
        print("\n".join(matrix(found["resume"], form)))
    for name, job in found.get("jobs", {}).items():
        if job["state"] != "ok" or job.get("code"):
            print(f"command {name}: {job['state']}, exit code {job.get('code')}")
    for name in ("killed", "all_reduce"):
        if name in found:
            print(name, json.dumps(found[name])[:1500])


def gather(out: Path, folder: Path) -> dict[str, Any]:
    """All of it, as plain values."""
    found: dict[str, Any] = {
        "runs": list(runs(folder, load_reference(REFERENCE))),
        "weights": list(exports(out)),
        "memory": list(memory(out)),
        "resume": list(resumed(out)),
    }
    if (out / "killed.json").is_file():
        found["killed"] = json.loads((out / "killed.json").read_text(encoding="utf-8"))
    if (out / "all-reduce.log").is_file():
        lines = (out / "all-reduce.log").read_text(encoding="utf-8").splitlines()
        found["all_reduce"] = [line for line in lines if line.startswith("=")]
    if (out / "jobs.done.json").is_file():
        found["jobs"] = json.loads((out / "jobs.done.json").read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Gather, write and print."""
    if not arguments or not Path(arguments[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[1]) if len(arguments) > 1 else ROOT / "runs"
    found = gather(Path(arguments[0]), folder)
    dump_json(HERE / "layouts.json", found)
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
