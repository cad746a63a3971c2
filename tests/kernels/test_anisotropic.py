"""Noise that is not proportional to the preconditioner: exact laws, and the price of the path."""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from private_mcmc import accounting
from private_mcmc.domains import Ball, Box, Rows
from private_mcmc.kernels import AnisotropicLangevin, PrivateULA
from tests.examples_of_models import linear
from tests.kernels.chains import run

METRICS = {"identity": None, "diagonal": (2.0, 0.5)}
NOISE = (0.5, 3.0)


def dense(diagonal):
    return np.eye(2) if diagonal is None else np.diag(diagonal)


def schedule_of(kernel, n, **changes):
    common = dict(adjacency="replace_one", num_rows=n, dim=2, num_steps=60, num_chains=20_000, release="last")
    return kernel.schedule(**{**common, **changes})


@pytest.mark.long
@pytest.mark.parametrize("metric", METRICS)
def test_the_stationary_law_solves_the_discrete_lyapunov_equation(rng, metric):
    """θ' = (I − γMH)θ + b + N(0, 2γS): V = FVFᵀ + 2γS; failure probability below 1e-5."""
    n, step = 30, 0.1
    X = rng.uniform(-1, 1, (n, 2)) / np.sqrt(2)
    y = X @ np.array([1.0, -2.0])
    kernel = AnisotropicLangevin(linear, step, 1e3, preconditioner=METRICS[metric], noise=NOISE)
    rows = Rows(X=Ball(1.0, dim=2), y=Box(-5.0, 5.0))
    states = run(kernel, rows, {"X": X, "y": y}, num_steps=60, num_chains=20_000).states[:, 0]
    hessian = X.T @ X + np.eye(2)
    flow = np.eye(2) - step * dense(METRICS[metric]) @ hessian
    assert np.abs(np.linalg.eigvals(flow)).max() ** 60 < 1e-3
    law = solve_discrete_lyapunov(flow, 2 * step * dense(NOISE))
    chains = len(states)
    np.testing.assert_allclose(np.cov(states.T), law, atol=5 * np.sqrt(2 / chains) * law.max())
    error = states.mean(0) - np.linalg.solve(hessian, X.T @ y)
    assert np.all(np.abs(error) < 5 * np.sqrt(np.diag(law) / chains) + 1e-2 * np.sqrt(np.diag(law)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("release", ["last", "path"])
def test_the_price_is_that_of_the_whole_path(metric, release):
    """m² = T·sup ‖S^{-1/2}γMδ‖² over ‖M^{1/2}δ‖ ≤ 2wC, the largest eigenvalue of M^{1/2}S^{-1}M^{1/2}."""
    step, clip, steps = 0.1, 0.7, 60
    kernel = AnisotropicLangevin(linear, step, clip, preconditioner=METRICS[metric], noise=NOISE)
    schedule = schedule_of(kernel, 30, num_chains=1, release=release)
    proved = accounting.Curvature(strong_convexity=1.0, smoothness=4.0)
    root = np.linalg.cholesky(dense(METRICS[metric]))
    worst = np.linalg.eigvalsh(root.T @ np.linalg.inv(dense(NOISE)) @ root)[-1]
    wanted = np.sqrt(steps * step / 2 * worst) * 2 * clip
    assert accounting.langevin_statement(schedule, proved).gdp == pytest.approx(wanted, rel=1e-6)
    assert accounting.langevin_statement(schedule, proved).gdp >= wanted


def test_noise_equal_to_the_preconditioner_is_plain_langevin():
    settings = dict(preconditioner=METRICS["diagonal"], temper=0.5)
    plain = schedule_of(PrivateULA(linear, 0.1, 1.0, **settings), 30)
    same = schedule_of(AnisotropicLangevin(linear, 0.1, 1.0, noise=METRICS["diagonal"], **settings), 30)
    proved = accounting.Curvature(strong_convexity=1.0, smoothness=4.0)
    assert accounting.langevin_statement(same, proved).gdp == pytest.approx(
        accounting.langevin_statement(plain, proved).gdp, rel=1e-6
    )
