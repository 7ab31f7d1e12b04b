"""Record real CPU rehearsals with one defect each, and judge what was recorded.

    python benchmarks/sabotage/record.py DEFECT... [--seeds 1] [--steps 40]
    python benchmarks/sabotage/record.py --judge

DEFECT is a name of defects.py, `all` for each. A recording that exists is not made again, so an
interrupted command continues where it stopped. Each writes runs/DEFECT-SEED.jsonl and its entry in
recordings.json; a run that does not show the defect in its log, or does not end, is not recorded.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprise.core.files import dump_json, sha256_file
from reprise.core.project import find_project
from reprise.curves import Judgement, judge_run, load_reference
from reprise.curves.judge import JudgeOptions
from reprise.flows.baseline import _machine
from reprise.flows.key import KEYS
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions
from reprise.metrics import read_run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS = HERE / "runs"
RECORDINGS = HERE / "recordings.json"
REFERENCE = ROOT / "recipes/rehearsal/reference"


def names() -> list[str]:
    """The defects of defects.py, which only verl's environment can import."""
    for node in ast.parse((HERE / "defects.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "DEFECTS":
            assert isinstance(node.value, ast.Dict)
            return [str(ast.literal_eval(key)) for key in node.value.keys if key is not None]
    raise AssertionError("defects.py has no DEFECTS")


def recordings() -> dict[str, dict[str, Any]]:
    """What was recorded, by DEFECT-SEED; empty before the first recording."""
    found: dict[str, dict[str, Any]] = {}
    if RECORDINGS.is_file():
        found = json.loads(RECORDINGS.read_text(encoding="utf-8"))
    return found


def overrides(defect: str) -> tuple[str, ...]:
    """The Hydra overrides that load the defect into verl's trainer."""
    sampler = "trainer.v1.sampler"
    return (
        f"{sampler}.custom_sampler.path={HERE / 'defects.py'}",
        f"{sampler}.custom_sampler.name=SabotagedReplayBuffer",
        f"+{sampler}.sampler_kwargs.defect={defect}",
    )


def record(defect: str, seed: int, steps: int) -> str:
    """Train once with `defect` and keep the metrics; returns one line for the terminal."""
    began = time.monotonic()
    options = RehearsalOptions(seed, steps, overrides=overrides(defect), label=f"sabotage {defect}")
    ended = Rehearsal(find_project(), options).run()
    folder, state = ended.folder, ended.folder.read()
    if ended.report is not None:
        return f"not recorded, the run did not end: {ended.report.findings[0].message}"
    log = folder.log_file(1).read_text(encoding="utf-8", errors="replace")
    if f"sabotage: {defect}" not in log:
        return f"not recorded, the log does not name the defect: {folder.log_file(1)}"
    RUNS.mkdir(exist_ok=True)
    file = RUNS / f"{defect}-{seed}.jsonl"
    shutil.copyfile(folder.metrics_file(1), file)
    facts = {
        "defect": defect,
        "seed": seed,
        "steps": steps,
        "sha256": sha256_file(file),
        # The defect is in none of these: they are those of a correct run, but for the sampler.
        **{name: getattr(state, name) for name in KEYS},
        "verl": state.verl,
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": _machine(),
        "seconds": round(time.monotonic() - began),
        "run": folder.name,
    }
    dump_json(RECORDINGS, recordings() | {file.stem: facts})
    return f"recorded in {facts['seconds']} s: {file}"


def judged() -> Iterator[tuple[str, Judgement]]:
    """Each recording against the CPU's recorded seeds, by its curve alone."""
    reference = load_reference(REFERENCE)
    for name, facts in recordings().items():
        steps = min(int(facts["steps"]), reference.steps)
        options = JudgeOptions(accepted=("length",))
        yield name, judge_run(read_run(RUNS / f"{name}.jsonl"), reference, steps, options=options)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("defects", nargs="*", help="names of defects.py, or all")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 1..N of each defect")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--judge", action="store_true", help="print the verdict of each recording")
    options = parser.parse_args()
    known = names()
    chosen = known if options.defects == ["all"] else options.defects
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    for seed in range(1, options.seeds + 1):
        for defect in chosen:
            if f"{defect}-{seed}" not in recordings():
                print(f"{defect}-{seed}: {record(defect, seed, options.steps)}", flush=True)
    for name, judgement in judged() if options.judge else ():
        evidence = [c.rule for c in judgement.checks if c.state.value != "passed"]
        print(f"{name:24} {judgement.outcome.value:13} {' '.join(evidence)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
