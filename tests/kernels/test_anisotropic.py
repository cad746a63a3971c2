"""Noise that is not proportional to the preconditioner: exact laws, and the price of the path."""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from private_mcmc.domains import Ball, Box, Rows
from private_mcmc.kernels import AnisotropicLangevin
from tests.examples_of_models import linear
from tests.kernels.chains import run

METRICS = {"identity": None, "diagonal": (2.0, 0.5)}
NOISE = (0.5, 3.0)


def dense(diagonal):
    return np.eye(2) if diagonal is None else np.diag(diagonal)


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
