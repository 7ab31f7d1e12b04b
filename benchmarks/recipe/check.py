"""What `reprise recipe check` costs, against Hydra composing the same config and nothing else.

    .venv/bin/python benchmarks/recipe/check.py [--repeats 5] [--model hy3] [--out results.json]
    .venv/bin/python benchmarks/recipe/check.py --script RUN.sh --verl VERL

With --script it is the check of a launch script, against Hydra composing verl's own config.

Both arms are whole processes and alternate; the first of each is thrown away. The bare arm imports
Hydra and composes the recipe once, from the same files. Wall and processor seconds (user and
system) are medians; on a busy machine the processor seconds and the ratio are what to look at.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BARE = """
import sys
from hydra import compose, initialize_config_dir
with initialize_config_dir(config_dir=sys.argv[1], version_base=None):
    compose(sys.argv[2], overrides=["hydra.searchpath=[file://" + sys.argv[3] + "]"])
"""


def measure(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process, which must not end by a traceback."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, env=os.environ
    )
    if "Traceback" in done.stderr:
        raise SystemExit(done.stderr)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", default="hy3")
    parser.add_argument("--script", type=Path)
    parser.add_argument("--verl", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from reprise.recipe.load import Inputs, load

    tree = load(ROOT, options.model, inputs=Inputs(verl=options.verl)).tree
    recipe, folder = f"{options.model}/recipe", ROOT / "recipes"
    check = [sys.executable, "-m", "reprise", "recipe", "check"]
    if options.script:
        recipe, folder = "ppo_trainer", tree.config
        check += ["--script", str(options.script)]
    else:
        check += [options.model]
    if options.verl:
        check += ["--verl", str(options.verl)]
    arms = {
        "check": check,
        "bare": [sys.executable, "-c", BARE, str(folder), recipe, str(tree.config)],
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(options.repeats + 1):
        for name, command in arms.items():
            taken[name].append(measure(command))
    results: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(check[2:]),
        "verl": tree.label(),
        "cores": os.cpu_count(),
        "repeats": options.repeats,
    }
    for name, values in taken.items():
        results[name] = {
            "wall_s": round(statistics.median(wall for wall, _ in values[1:]), 2),
            "wall_least_s": round(min(wall for wall, _ in values[1:]), 2),
            "cpu_s": round(statistics.median(used for _, used in values[1:]), 2),
        }
    pairs = zip(taken["check"][1:], taken["bare"][1:], strict=True)
    results["cpu_ratio"] = round(statistics.median(a[1] / b[1] for a, b in pairs), 2)
    results["load_1min"] = round(os.getloadavg()[0], 1)
    text = json.dumps(results, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
