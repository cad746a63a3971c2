"""Draws of a path are as wide as noise leaves the curvature unknown."""

import numpy as np
import pytest

from private_mcmc.planning.estimates import allowed_by_noise
from private_mcmc.release import SecondMoments, floored, plan_second_moments

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


def test_without_noise_the_released_curvature_is_believed():
    truth = np.eye(DIM) + symmetric(np.random.default_rng(0), 0.2)
    released = SecondMoments(truth, 1e-9, STATEMENT)
    for one in allowed_by_noise(released):
        assert one == pytest.approx(truth, abs=1e-7)
