"""What data files cost, against the guide's way and against a bare scan, in the same run.

    .venv/bin/python benchmarks/data/files.py [--repeats 3] [--file FILE] [--out results.json]

fetch:  the locked file from huggingface_hub's cache into its place, hashed (a process of ours),
        against loading it with `datasets` and writing it again as the guide does (a process of the
        rehearsal's environment): wall seconds, processor seconds, peak memory, bytes written.
again:  the same once more, where the file is there and was checked before: whole process.
scan:   the structural check (every rule on every row, repeats, conflicts) against reading the same
        columns with PyArrow and nothing else: wall and processor seconds, without imports.
tokens: the distinct prompts tokenised with the rehearsal's tokenizer, timed apart.
memory: peak memory of `reprise data check` and `describe` as whole commands.

The arms alternate. The file has DAPO-Math-17k's shape (tests/data/large.py); it is made once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from reprise.core.files import dump_json
from reprise.hub.verified import hash_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from data.hub_server import REVISION, Behaviour, serving  # noqa: E402
from data.large import cached_large  # noqa: E402

REHEARSAL = ROOT / ".venv-rehearsal" / "bin" / "python"

FETCH = """
import sys
from pathlib import Path
from reprise.data.fetch import Places, Wanted, fetch
from reprise.hub.huggingface import Hub
from reprise.hub.verified import Verified
cache, target, sha, size, revision = sys.argv[1:]
wanted = Wanted("a", "org/set", revision, "data/a.parquet", Path(target), sha, int(size), 1791700)
done = fetch(wanted, Places([Hub("http://127.0.0.1:9", Path(cache))]),
             Verified(Path(target).with_suffix(".json")))
assert done.how == {how!r}, done
"""
GUIDE = """
import sys
import datasets
source, target, cache = sys.argv[1:]
data = datasets.load_dataset("parquet", data_files=source, cache_dir=cache)["train"]
data.to_parquet(target)
"""
# VmHWM begins anew with a program, other than ru_maxrss, which keeps the parent's size.
PEAK = """
import atexit, sys
@atexit.register
def told():
    with open("/proc/self/status") as status:
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print("peak", peak, file=sys.stderr)
"""
COMMAND = """
from reprise.cli import main
main()
"""
CLOCK = """
import resource, sys, time
from pathlib import Path
def measured(work):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    before, cpu = time.perf_counter(), usage.ru_utime + usage.ru_stime
    work()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(time.perf_counter() - before, usage.ru_utime + usage.ru_stime - cpu)
"""
BARE = (
    CLOCK
    + """
import pyarrow.parquet as pq
def work():
    rows = 0
    columns = ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(columns=columns):
        rows += batch.num_rows
    assert rows == 1791700
measured(work)
"""
)
CHECK = (
    CLOCK
    + """
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
router = find_router([Path(sys.argv[2])])
def work():
    report, _, _ = check_files("check", [Path(sys.argv[1])], [], Inputs(router))
    assert report.verdict.value == "ok"
measured(work)
"""
)
TOKENS = """
import sys
from pathlib import Path
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.check.tokens import ChatTokenizer
inputs = Inputs(find_router([Path(sys.argv[2])]), tokenizer=ChatTokenizer(Path(sys.argv[3])))
report, _, _ = check_files("check", [Path(sys.argv[1])], [], inputs)
print(report.data["files"][0]["seconds"]["tokens"])
"""


def run(code: str, arguments: list[str], python: str = sys.executable) -> dict[str, float]:
    """Wall and processor seconds and peak memory (MiB) of one Python program."""
    started = time.perf_counter()
    child = subprocess.Popen(
        [python, "-c", PEAK + code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert child.stderr is not None
    told = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"failed: {told.decode()[-500:]}")
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "memory_mib": int(told.split()[-1]) / 1024,
    }


def printed(command: list[str]) -> list[float]:
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in answer.stdout.split()]


def fetch_arms(file: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """The cache is filled once, by huggingface_hub from a local server; then the arms alternate."""
    cache = folder / "cache"
    with serving(Behaviour({"data/a.parquet": file.read_bytes()})) as endpoint:
        hf_hub_download("org/set", "data/a.parquet", repo_type="dataset", revision=REVISION,
                        endpoint=endpoint, cache_dir=cache)  # fmt: skip
    sha, size = hash_file(file), file.stat().st_size
    arms: dict[str, list[dict[str, float]]] = {"ours": [], "guide": []}
    again: list[float] = []
    written: list[int] = []
    for turn in range(repeats):
        place = folder / f"ours-{turn}"
        place.mkdir()
        arguments = [str(cache), str(place / "a.parquet"), sha, str(size), REVISION]
        arms["ours"].append(run(FETCH.replace("{how!r}", "'hard link'"), arguments))
        again.append(run(FETCH.replace("{how!r}", "'present'"), arguments)["seconds"])
        place = folder / f"guide-{turn}"
        place.mkdir()
        arguments = [str(file), str(place / "a.parquet"), str(place / "cache")]
        arms["guide"].append(run(GUIDE, arguments, str(REHEARSAL)))
        written.append(sum(p.stat().st_size for p in place.rglob("*") if p.is_file()))
        shutil.rmtree(place)
    return {
        **summary(arms, "ours", "guide"),
        "again_seconds": statistics.median(again),
        "guide_bytes_written": statistics.median(written),
    }


def summary(arms: dict[str, list[dict[str, float]]], first: str, second: str) -> dict[str, Any]:
    """Medians of each arm, and how much of the second the first costs."""
    medians = {
        name: {key: statistics.median(item[key] for item in items) for key in items[0]}
        for name, items in arms.items()
    }
    ratios = {key: medians[first][key] / medians[second][key] for key in medians[first]}
    return {"runs": arms, "median": medians, f"{first}_over_{second}": ratios}


def scan_arms(file: Path, tree: Path, repeats: int) -> dict[str, Any]:
    arms: dict[str, list[dict[str, float]]] = {"check": [], "bare": []}
    for _ in range(repeats):
        for name, code in (("bare", BARE), ("check", CHECK)):
            wall, cpu = printed([sys.executable, "-c", code, str(file), str(tree)])
            arms[name].append({"seconds": wall, "cpu_seconds": cpu})
    return summary(arms, "check", "bare")


def main() -> None:
    """Run all arms and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verl", type=Path, help="verl's source; default: the rehearsal's")
    parser.add_argument("--tokenizer", type=Path, help="a model folder, for the token pass")
    chosen = parser.parse_args()
    file = chosen.file or cached_large()
    sites = sorted((ROOT / ".venv-rehearsal" / "lib").glob("python3.*/site-packages"))
    tree = chosen.verl or sites[0]
    results: dict[str, Any] = {"file_bytes": file.stat().st_size}
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        results["fetch"] = fetch_arms(file, Path(folder), chosen.repeats)
    results["scan"] = scan_arms(file, tree, chosen.repeats)
    for command in ("check", "describe"):
        arguments = ["data", command, str(file), "--verl", str(tree), "--json"]
        results[f"memory_{command}_mib"] = run(COMMAND, arguments)["memory_mib"]
    if chosen.tokenizer:
        arguments = [str(file), str(tree), str(chosen.tokenizer)]
        results["token_seconds"] = printed([sys.executable, "-c", TOKENS, *arguments])[0]
    if chosen.out:
        dump_json(chosen.out, results)
    shown = {key: value for key, value in results.items() if key not in ("fetch", "scan")}
    shown |= {
        key: {name: value for name, value in results[key].items() if name != "runs"}
        for key in ("fetch", "scan")
    }
    print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()
