"""Files of the real size and shape: memory and results; a smaller twin runs in every test run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.check.settings import Settings

from .inputs import verl_tree
from .large import CYCLES, PROBLEMS, cached_large, write_large

LIMIT = 400 << 20


# VmHWM begins anew with a program, other than ru_maxrss, which keeps the parent's size.
_MEASURED = """
import subprocess
import sys
from reprise.cli import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print(f"peak {peak}", file=sys.stderr)
"""


def peak(arguments: list[str]) -> tuple[int, int]:
    """Exit code and peak resident memory in bytes of one command of ours."""
    answer = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments], capture_output=True, text=True, check=False
    )
    return answer.returncode, 1024 * int(answer.stderr.split()[-1])


def test_the_twin(tmp_path: Path) -> None:
    path = write_large(tmp_path / "a.parquet", 20, 500)
    router = find_router([verl_tree(tmp_path / "tree")])
    report, (item,), _ = check_files("c", [path], [], Inputs(router, Settings(train_batch_size=64)))
    assert report.verdict.value == "ok"
    assert (item.repeats.rows, item.repeats.prompts, item.repeats.indices) == (10_000, 500, 500)
    assert (item.repeats.least, item.repeats.most) == (20, 20)
    assert report.data["files"][0]["steps_per_epoch"] == 156
    assert report.data["files"][0]["steps_per_epoch_unique"] == 7


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """More rows of about 500 bytes cost their keys and no more."""
    small = write_large(tmp_path / "small.parquet", 60, 1000)
    large = write_large(tmp_path / "large.parquet", 300, 1000)
    command = ["data", "describe", "--verl", str(verl_tree_with_config(tmp_path / "tree"))]
    (code, before), (more, after) = peak([*command, str(small)]), peak([*command, str(large)])
    assert (code, more) == (0, 0)
    grown = 240 * 1000 * 150  # bytes: 28 for the keys, the rest for hash tables over them
    assert after - before < grown + (20 << 20)


def verl_tree_with_config(folder: Path) -> Path:
    """A stand-in for verl's source that the commands take as --verl."""
    tree = verl_tree(folder)
    config = tree / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (config / "ppo_trainer.yaml").write_text("{}\n")
    return tree


@pytest.mark.full
@pytest.mark.parametrize("command", ["check", "describe"])
def test_the_real_size_in_little_memory(command: str, tmp_path: Path) -> None:
    path = cached_large()
    tree = verl_tree_with_config(tmp_path / "tree")
    code, memory = peak(["data", command, str(path), "--verl", str(tree), "--json"])
    assert code == 0
    assert memory < LIMIT
    router = find_router([tree])
    _, (item,), _ = check_files("c", [path], [], Inputs(router))
    assert item.repeats.rows == PROBLEMS * CYCLES == 1_791_700
    assert item.repeats.prompts == PROBLEMS
