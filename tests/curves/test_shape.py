"""Where two curves part: the best hinge, found as fast for long runs."""

from __future__ import annotations

import numpy as np

from reprise.curves.checks.shape import parting


def test_the_best_hinge_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(5)
    for count in (2, 3, 4, 12, 40, 90):
        for _ in range(20):
            at = int(rng.integers(0, count))
            bend = np.maximum(np.arange(count) - at, 0) * rng.normal(0, 0.05)
            difference = bend + rng.normal(0, 0.02, count)
            misfits = []
            for start in range(max(count - 2, 1)):
                hinge = np.maximum(np.arange(count) - start, 0.0)[:, None]
                _, residual, *_ = np.linalg.lstsq(hinge, difference, rcond=None)
                misfits.append(residual[0] if len(residual) else float(difference @ difference))
            steps = np.arange(1, count + 1)
            zero = np.zeros(count)
            assert parting(difference, zero, steps) == steps[int(np.argmin(misfits))]


def test_a_run_that_leaves_late_is_told_from_one_that_leaves_early() -> None:
    steps = np.arange(1, 20_001)
    zero = np.zeros(20_000)
    for at in (100, 15_000):
        run = -1e-4 * np.maximum(steps - at, 0)
        assert abs(parting(run, zero, steps) - at) <= 1
