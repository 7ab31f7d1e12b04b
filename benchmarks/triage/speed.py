"""What triage costs on the logs of many ranks, against plain `re` in the same run.

    .venv/bin/python benchmarks/triage/speed.py [--ranks 16] [--megabytes 8] [--out results.json]

The set is made of what verl, vLLM and Ray print: metrics, engine lines, configuration, warnings,
progress bars, caught tracebacks; one rank fails, the others time out. 2 GB: --ranks 40
--megabytes 50; a whole job: --ranks 128 --megabytes 50.

triage: the whole of `examine`, in a process of its own: processor seconds, MB/s, peak memory.
re:     the first megabytes searched with one alternation of the same patterns' literals, as plain
        Python would find the candidates, without judging them. The ratio is triage's speed over
        this one's.
copy:   the bytes read and their lines counted: what no reader can avoid.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reprise.core.files import dump_json
from reprise.triage.patterns import load_library

_PART = 4 << 20
CHILD = """
import json, resource, sys, time
from pathlib import Path
from reprise.triage.engine import examine
begun = time.process_time()
found = examine([Path(sys.argv[1])])
root = found.diagnosis.root
print(json.dumps({
    "seconds": time.process_time() - begun, "bytes": found.size, "lines": found.lines,
    "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    "category": found.diagnosis.category,
    "root": [root.first.file, root.first.line] if root else None,
}))
"""


def worker_lines(rank: int, rng: random.Random, caught: bool) -> list[str]:
    """About 60 kB of one rank's log: two steps of a run that goes well."""
    prefix = f"(WorkerDict pid={4000 + rank}, ip=10.8.{rank // 8}.{rank % 8 + 1}) "
    keys = [f"actor/metric_{n}/mean" for n in range(60)]
    lines = []
    for step in range(2):
        lines += [
            f"{prefix}  'option_{n}': {{'value': {rng.random():.6f}, 'name': 'x{n}'}},"
            for n in range(300)
        ]
        lines += [
            f"{prefix}INFO 08-02 10:{step:02d}:{n % 60:02d} [loggers.py:{n}] Engine 000: Avg "
            f"prompt throughput: {rng.random() * 9000:.1f} tokens/s, running {n} reqs"
            for n in range(150)
        ]
        lines.append(f"{prefix}/opt/venv/lib/x.py:45: UserWarning: failed over to slow path")
        lines.append("".join(f"\rTraining Progress: {n}%|#    |" for n in range(20)))
        if caught:
            lines += [
                f"{prefix}Traceback (most recent call last):",
                *(f'{prefix}  File "/opt/venv/a{n}.py", line {n}, in call' for n in range(12)),
                f"{prefix}TimeoutError: tool did not answer",
            ]
        values = " - ".join(f"{key}:{rng.random():.5f}" for key in keys)
        lines.append(f"(TaskRunnerV1 pid=900) step:{step} - {values}")
    return lines


def make(folder: Path, ranks: int, size: int, every: int = 8) -> None:
    """One file a rank. Rank 3 runs out of memory, the others wait for it in vain."""
    for rank in range(ranks):
        rng = random.Random(rank)
        blocks = [
            ("\n".join(worker_lines(rank, rng, caught)) + "\n").encode() for caught in (True, False)
        ]
        path = folder / f"n{rank // 8:02d}" / f"worker-{rank}.err"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            written = 0
            step = 2
            while written < size:
                # Steps go on, so that what was caught before them is known as recovered.
                block = blocks[step % every != 0]
                data = block.replace(b"step:1 ", b"step:%d " % step)
                written += file.write(data)
                step += 1
            file.write(end_of(rank))


def end_of(rank: int) -> bytes:
    """How a rank's log ends."""
    if rank == 3:
        text = "[rank3]: 2026-08-02 10:30:11,733 torch.OutOfMemoryError: CUDA out of memory. "
        return (text + "Tried to allocate 9.40 GiB.\n").encode()
    return (
        f"[rank{rank}]:[E802 11:00:12.100 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=1800000) ran for 1800044 milliseconds before timing out.\n"
    ).encode()


def plain(files: list[Path]) -> dict[str, float]:
    """The candidates of the first megabytes with `re`."""
    literals = sorted({text for p in load_library().patterns for text in p.literals})
    pattern = re.compile("|".join(map(re.escape, literals)).encode())
    data = b"".join(path.read_bytes()[: _PART // 2] for path in files[:2])
    begun = time.process_time()
    hits = sum(1 for _ in pattern.finditer(data))
    seconds = time.process_time() - begun
    return {"bytes": len(data), "seconds": seconds, "hits": hits, "mb_s": len(data) / 1e6 / seconds}


def copy(files: list[Path]) -> dict[str, float]:
    """Read the files and count their lines."""
    begun, size, lines = time.process_time(), 0, 0
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 21):
                size += len(block)
                lines += block.count(b"\n")
    seconds = time.process_time() - begun
    return {"bytes": size, "seconds": seconds, "mb_s": size / 1e6 / seconds}


def main() -> None:
    """Make the set, time the arms, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--every", type=int, default=8, help="one caught traceback a step of these")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.ranks, options.megabytes * 1_000_000, options.every)
        files = sorted(folder.rglob("*.err"))
        runs = []
        for _ in range(options.repeats):
            ran = subprocess.run(
                [sys.executable, "-c", CHILD, name], capture_output=True, text=True, check=True
            )
            run = json.loads(ran.stdout)
            run["mb_s"] = run["bytes"] / 1e6 / run["seconds"]
            reference = plain(files)
            run |= {"re_mb_s": reference["mb_s"], "copy_mb_s": copy(files)["mb_s"]}
            run["ratio"] = run["mb_s"] / run["re_mb_s"]
            runs.append(run)
            print(
                f"triage {run['mb_s']:.0f} MB/s (peak {run['peak_kib'] / 1024:.0f} MiB), re "
                f"{run['re_mb_s']:.1f} MB/s, ratio {run['ratio']:.0f}, copy "
                f"{run['copy_mb_s']:.0f} MB/s, root {run['root']} {run['category']}"
            )
    dump_json(
        options.out,
        {
            "ranks": options.ranks,
            "megabytes": options.megabytes,
            "every": options.every,
            "runs": runs,
        },
    )


if __name__ == "__main__":
    main()
