import math

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.utility_metrics import Score, coverage, energy_distance, score, summarise
from benchmarks.utility_reference import Reference


def folded_mean(mean: float, sd: float) -> float:
    """``E|X|`` for ``X ~ N(mean, sd²)``."""
    return sd * math.sqrt(2 / math.pi) * math.exp(-((mean / sd) ** 2) / 2) + mean * (
        1 - 2 * norm.cdf(-mean / sd)
    )


def test_energy_distance_of_normals_is_the_closed_form() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(0, 1, (4000, 1)), generator.normal(1.5, 2, (4000, 1))
    exact = 2 * folded_mean(1.5, math.sqrt(5)) - folded_mean(0, math.sqrt(2)) - folded_mean(0, math.sqrt(8))
    # 500 draws a side: a standard error of about 0.07, and fewer than 1e-6 beyond five of them.
    assert energy_distance(first, second) == pytest.approx(exact, abs=0.35)
    assert exact > 0.5


def test_energy_distance_of_one_law_from_itself_is_zero_on_average() -> None:
    generator = np.random.default_rng(1)
    values = [
        energy_distance(generator.normal(size=(40, 3)), generator.normal(size=(40, 3))) for _ in range(400)
    ]
    assert abs(np.mean(values)) < 5 * np.std(values) / math.sqrt(len(values))


def test_energy_distance_takes_a_point_mass() -> None:
    target = np.random.default_rng(2).normal(size=(5000, 1))
    exact = 2 * folded_mean(0, 1) - folded_mean(0, math.sqrt(2))
    assert energy_distance(np.zeros((1, 1)), target) == pytest.approx(exact, abs=0.15)


def test_intervals_of_exact_posteriors_cover_at_their_level() -> None:
    generator = np.random.default_rng(3)
    truth = generator.normal(size=500)
    draws = generator.normal(size=(1000, 500)) + generator.normal(size=500)
    share = coverage(draws - np.mean(draws, axis=0) + generator.normal(truth, 1.0), truth, 0.9)
    # 500 coordinates: a standard error of 0.013.
    assert share == pytest.approx(0.9, abs=0.07)
    assert coverage(draws, draws.mean(axis=0), 0.5) == 1.0
    assert coverage(draws, draws.max(axis=0) + 1.0, 0.9) == 0.0


def standard_reference(dim: int) -> Reference:
    draws = np.random.default_rng(4).normal(size=(2000, dim))
    return Reference(np.zeros(dim), np.eye(dim), draws, np.zeros(dim), np.eye(dim), 2000.0)


def test_score_is_in_reference_sds() -> None:
    reference = standard_reference(2)
    scaled = Reference(
        reference.mean, 4 * np.eye(2), 2 * reference.draws, reference.mean, 4 * np.eye(2), 2000.0
    )
    draws = np.random.default_rng(5).normal(size=(4000, 2)) * 3 + [2.0, 0.0]
    found = score(draws, scaled)
    assert found.rms == pytest.approx(math.sqrt(0.5), abs=0.1)
    assert found.sd_ratio == pytest.approx(1.5, abs=0.1)


def test_a_point_estimate_has_an_error_but_no_spread() -> None:
    found = score(np.array([[3.0, 4.0]]), standard_reference(2))
    assert found.rms == pytest.approx(math.sqrt(12.5))
    assert (found.sd_ratio, found.coverage_50, found.coverage_90) == (None, None, None)
    assert found.energy > 1.0


def test_summaries_are_root_mean_squares_of_errors_and_means_of_the_rest() -> None:
    found = summarise("rms", [3.0, 4.0])
    assert found is not None
    assert found.value == pytest.approx(math.sqrt(12.5))
    assert found.error == pytest.approx(3.5 / (2 * math.sqrt(12.5)))
    ratio = summarise("sd_ratio", [1.0, None, 2.0])
    assert ratio is not None and ratio.value == 1.5
    assert summarise("sd_ratio", [None, None]) is None
    alone = summarise("energy", [1.0])
    assert alone is not None and math.isnan(alone.error)


def test_every_metric_has_a_field() -> None:
    assert set(Score.__annotations__) == {"rms", "sd_ratio", "coverage_50", "coverage_90", "energy"}
