"""Draws of a path are as wide as noise leaves the curvature unknown."""

import numpy as np
import pytest

from private_mcmc.planning.estimates import allowed_by_noise, floored, normal_between
from private_mcmc.release import SecondMoments, plan_second_moments

DIM, NOISE = 5, 0.55  # as of 200 pupils at ε = 3
STATEMENT = plan_second_moments(1.0, radius=1.0, dim=DIM, num_rows=200, adjacency="replace_one").statement


def symmetric(random, sd):
    lower = np.tril(random.standard_normal((DIM, DIM)), -1) / np.sqrt(2)
    return sd * (lower + lower.T + np.diag(random.standard_normal(DIM)))


def narrowest(covariance, truth):
    """The least share of the true variance that a direction is given."""
    factor = np.linalg.cholesky(truth)
    return float(np.linalg.eigvalsh(factor.T @ covariance @ factor)[0])


def test_no_direction_is_much_narrower_than_it_would_be_without_privacy():
    """Gaussian rows, whose posterior has the covariance ``H^{-1}`` exactly.

    Of 300 releases of ``H`` with noise half as large as itself, the direction that is given least has under
    half of its true variance in fewer than 40, and in more than 200 where the released matrix is believed.
    Shares of 0.045 and 0.80 are expected (of 3000 releases): fails less than once in 1e6.
    """
    random = np.random.default_rng(1)
    believed, averaged = [], []
    for _ in range(300):
        truth = floored(np.eye(DIM) + symmetric(random, 0.15), 0.3)
        released = SecondMoments(truth + symmetric(random, NOISE), NOISE, STATEMENT)
        least = 0.4 * max(np.trace(released.matrix) / DIM, NOISE)
        believed.append(narrowest(np.linalg.inv(floored(released.matrix, least)), truth))
        allowed = [np.linalg.inv(one) for one in allowed_by_noise(released)]
        averaged.append(narrowest(np.mean(allowed, axis=0), truth))
    assert np.sum(np.array(believed) < 0.5) > 200
    assert np.sum(np.array(averaged) < 0.5) < 40


@pytest.mark.parametrize("dim", [4, 12])
def test_a_direction_that_nobody_informs_may_have_next_to_nothing(dim):
    """Columns that determine each other, levels that nobody is in: intervals were less than half as wide."""
    for sd in (0.1, 0.5):
        found, truth = [], np.diag([0.0, *np.ones(dim - 1)])
        for seed in range(20):
            noise = np.tril(np.random.default_rng(seed).standard_normal((dim, dim)) * sd)
            noise = (noise + noise.T) / np.sqrt(2) * np.where(np.eye(dim) > 0, 1 / np.sqrt(2), 1 / np.sqrt(2))
            released = SecondMoments(truth + noise, sd, STATEMENT)
            allowed = [np.linalg.inv(one) for one in allowed_by_noise(released)]
            found.append(np.mean(allowed, axis=0)[0, 0])
        # A floor at a tenth of a typical curvature left a variance of ten at most.
        assert np.median(found) > 1.0 / sd


def test_without_noise_the_released_curvature_is_believed():
    truth = np.eye(DIM) + symmetric(np.random.default_rng(0), 0.2)
    released = SecondMoments(truth, 1e-9, STATEMENT)
    for one in allowed_by_noise(released):
        assert one == pytest.approx(truth, abs=1e-7)


def test_a_curvature_that_noise_hides_may_be_next_to_nothing():
    """It was the noise's own size at least, in a metric made for counts that nobody had."""
    hidden = SecondMoments(np.zeros((DIM, DIM)), 3.0, STATEMENT)
    levels = [np.trace(one) / DIM for one in allowed_by_noise(hidden)]
    assert min(levels) < 0.1 < 1 < max(levels)
    assert np.all(normal_between(-40.0, 1.0, 0.0, np.inf) > 0)
    assert normal_between(9.0, 1.0, 0.0, np.inf).mean() == pytest.approx(9.0, abs=0.02)
