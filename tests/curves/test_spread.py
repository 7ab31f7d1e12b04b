"""The bounds keep their error rate, and what they claim to see they see."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reprise.curves.spread import Prior, bounds, needed_runs, split_alpha


def test_one_window_is_students_prediction_interval() -> None:
    seeds = np.array([[0.4], [0.5], [0.45], [0.55], [0.6]])
    limits = bounds(seeds, np.array([0.01]))
    error = seeds.std(ddof=1) * np.sqrt(1 + 1 / 5)
    assert limits.half[0] == pytest.approx(stats.t.isf(0.01, 4) * error)
    assert limits.freedom[0] == pytest.approx(4)


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (0.5, 1.0, 2.0), (0.3, 0.3, 2.0)])
@pytest.mark.parametrize("runs", [3, 6, 8])
def test_false_alarms_stay_under_the_rate(scales: tuple[float, ...], runs: int) -> None:
    rng = np.random.default_rng(5)
    alpha, draws, wrong = 0.05, 1500, 0
    for _ in range(draws):
        sample = rng.standard_normal((runs + 1, 3)) * scales
        limits = bounds(sample[:runs], np.full(3, alpha / 3), pooled=3)
        wrong += bool((sample[runs] < limits.mean - limits.half).any())
    assert stats.binomtest(wrong, draws, alpha, alternative="greater").pvalue > 1e-3


def test_a_loss_of_the_stated_size_is_seen_nine_times_in_ten() -> None:
    rng = np.random.default_rng(6)
    runs, draws, seen = 6, 2000, 0
    reference = bounds(np.vstack([np.linspace(-1.2, 1.2, runs)]).T, np.array([0.005]))
    shift = reference.smallest[0] / reference.deviation[0]
    for _ in range(draws):
        sample = rng.standard_normal((runs + 1, 1))
        limits = bounds(sample[:runs], np.array([0.005]))
        seen += bool(sample[runs, 0] - shift < limits.mean[0] - limits.half[0])
    assert stats.binomtest(seen, draws, 0.9).pvalue > 1e-3


def test_seeds_that_agree_exactly_and_too_few_of_them() -> None:
    limits = bounds(np.full((4, 2), 0.5), np.full(2, 0.005), pooled=2)
    assert limits.half.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="at least 2"):
        bounds(np.ones((1, 2)), np.full(2, 0.005))


def test_needed_runs_fall_with_the_margin() -> None:
    few, many = needed_runs(0.02, 0.2, 0.002), needed_runs(0.02, 0.1, 0.002)
    assert few is not None
    assert many is not None
    assert few < many
    assert needed_runs(0.02, 0.01, 0.002) is None


def test_one_run_has_the_spread_that_it_borrows() -> None:
    prior = Prior(np.array([0.1]), 8.0)
    limits = bounds(np.array([[0.5]]), np.array([0.001]), prior)
    assert limits.half[0] == pytest.approx(stats.t.isf(0.001, 8) * 0.1 * np.sqrt(2))
    five = bounds(
        np.full((5, 1), 0.5) + np.linspace(-0.1, 0.1, 5)[:, None], np.array([0.001]), prior
    )
    assert five.freedom[0] == pytest.approx(12)


def test_a_borrowed_spread_that_is_true_keeps_the_rate() -> None:
    rng = np.random.default_rng(7)
    draws, wrong, alpha = 3000, 0, 0.05
    for _ in range(draws):
        sample = rng.standard_normal((2, 4))
        limits = bounds(sample[:1], split_alpha(alpha, 3), Prior(np.ones(4), 8.0), pooled=3)
        wrong += bool((sample[1] < limits.mean - limits.half).any())
    assert split_alpha(alpha, 3).sum() == pytest.approx(alpha)
    assert stats.binomtest(wrong, draws, alpha, alternative="greater").pvalue > 1e-3
