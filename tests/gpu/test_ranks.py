"""The ranks of one command: their variables, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANKS = ROOT / "scripts/gpu/ranks.py"


def ranks(count: int, text: str, cards: str = "4,7") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RANKS), str(count), "sh", "-c", text]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": cards}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_each_rank_has_its_own_gpu_and_they_meet_at_one_port() -> None:
    done = ranks(2, "echo $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES at $MASTER_PORT")
    lines = sorted(done.stdout.splitlines())
    assert done.returncode == 0
    assert [line.partition(" at ")[0] for line in lines] == ["0 of 2 on 4", "1 of 2 on 7"]
    assert len({line.partition(" at ")[2] for line in lines}) == 1


@pytest.mark.parametrize(("text", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_a_rank_that_fails_is_the_result_and_ends_the_others(text: str, code: int) -> None:
    began = time.monotonic()
    done = ranks(2, f'if [ "$RANK" = 1 ]; then {text}; fi; sleep 100')
    assert done.returncode == code
    assert time.monotonic() - began < 90


def test_more_ranks_than_gpus_are_refused() -> None:
    done = ranks(3, "true")
    assert done.returncode == 2
    assert "3 ranks, but CUDA_VISIBLE_DEVICES=4,7" in done.stderr
