"""How long `reprise` takes to start, as a ratio to another checkout of it.

    git worktree add /tmp/before COMMIT
    .venv/bin/python benchmarks/start/startup.py /tmp/before

Each is run by the environment of its own checkout (scripts/venv.sh operator), in turn; the figure
is processor time (user and system) of the whole command, the median of all turns, and its ratio.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "recipe check hy3": ["recipe", "check", "hy3"],
    "runs": ["runs"],
}


def seconds(root: Path, words: list[str]) -> float:
    """Processor seconds of one `reprise` of the checkout `root`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(root / ".venv" / "bin" / "python"), "-m", "reprise", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if "Traceback" in done.stderr:
        sys.exit(f"{root}: {' '.join(command)}: {done.stderr.splitlines()[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    given = parser.parse_args()
    before = given.before.resolve()
    found = {}
    for name, words in COMMANDS.items():
        turns: dict[Path, list[float]] = {before: [], ROOT: []}
        for number in range(given.turns + 1):
            for root, figures in turns.items():
                taken = seconds(root, words)
                if number:  # the first turn compiles and fills caches
                    figures.append(taken)
        then, now = (statistics.median(turns[root]) for root in (before, ROOT))
        found[name] = {"before": then, "now": now, "ratio": now / then}
        print(
            f"{name:<18} {then:.2f} s before, {now:.2f} s now, ratio {now / then:.2f}", flush=True
        )
    if given.out:
        given.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
