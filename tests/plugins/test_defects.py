"""The defects of benchmarks/sabotage on small batches, with the real verl."""

import subprocess
from collections.abc import Callable

import pytest

from .conftest import PROBES, REPOSITORY, result

pytestmark = pytest.mark.rehearsal


def test_each_defect_breaks_one_thing(
    rehearse: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = rehearse(PROBES / "defects.py", REPOSITORY / "benchmarks/sabotage", VERL_PLATFORM="cpu")
    found = result(run)
    correct = found["none"]
    assert correct["advantages"][0] == [0.75, 0.75, 0.75, 0]
    signs = found["advantage-sign"]["advantages"]
    assert signs == [[-value for value in row] for row in correct["advantages"]]
    assert found["advantage-of-next"]["advantages"] == [
        [-0.5, -0.5, -0.5, 0],
        [0.25, 0.25, 0, 0],
        [-1, 0, 0, 0],
        [0.75, 0.75, 0.75, 0.75],
    ]
    assert found["reward-tenfold"]["rewards"][0] == [10, 0, 10, 0]
    assert found["mask-late"]["advantages"] == correct["advantages"]
    assert [sum(row) for row in found["mask-late"]["response_mask"]] == [2, 1, 0, 3]
    inverted = [
        value != usual
        for rewards in found["reward-noise"]["rewards"]
        for value, usual in zip(rewards, [1, 0, 1, 0], strict=True)
    ]
    assert 0 < sum(inverted) < 36 * 0.5
    assert {value for row in found["reward-noise"]["rewards"] for value in row} == {0, 1}
    assert found["rate"] == 1e-4
    assert found["sent"] == list(range(1, 10))
    assert (found["before"], found["after"]) == (1.0, 1.3)
