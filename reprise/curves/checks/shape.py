"""How two curves differ: by a lag, or from a step on."""

from __future__ import annotations

import numpy as np

from reprise.metrics.table import FloatArray, IntArray

__all__ = ["lag", "parting"]


def lag(run: FloatArray, reference: FloatArray, noise: float) -> int | None:
    """Steps by which `run` trails `reference` (both shape (n,), same steps); None if no lag fits.

    `noise` = standard deviation of one step's difference. A lag fits when the curves differ
    clearly as they stand and no longer once `run` is moved; at most 15 % of n are tried.
    """
    count = len(run)
    if count < 12 or not noise > 0:
        return None

    def score(shift: int) -> tuple[float, float]:
        rest = run[shift:] - reference[: count - shift]
        return float(np.sqrt(np.mean(rest**2))), float(rest.mean() / noise * np.sqrt(len(rest)))

    best = min(range(count * 15 // 100 + 1), key=lambda shift: abs(score(shift)[1]))
    spread, drift = score(best)
    if best and abs(score(0)[1]) > 3 and abs(drift) < 2 and spread < 1.25 * noise:
        return best
    return None


def parting(run: FloatArray, reference: FloatArray, steps: IntArray) -> int:
    """The step from which `run` leaves `reference`: the best hinge through their difference."""
    difference = run - reference
    count = len(run)
    # For the hinge max(i - start, 0), by start: its product with the difference (twice summed from
    # the end) and with itself. The best hinge explains most: O(n), long runs have 20,000 steps.
    tails = np.cumsum(difference[::-1])[::-1]
    products = np.append(np.cumsum(tails[:0:-1])[::-1], 0.0)
    rest = np.arange(count - 1, -1, -1, dtype=np.float64)
    squares = rest * (rest + 1) * (2 * rest + 1) / 6
    explained = products**2 / np.maximum(squares, 1.0)
    return int(steps[int(np.argmax(explained[: max(count - 2, 1)]))])
