"""SGLD against its theory: on a Gaussian the covariance with batches is known in closed form."""

import numpy as np
import pytest

from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateSGLD
from tests.examples_of_models import normal_mean
from tests.kernels.chains import run

N, CHAINS, STEP = 40, 20_000, 0.01
ROWS = Rows(y=Box(-5.0, 5.0))
Y = np.linspace(-3.0, 3.0, N)


def poisson(q):
    """Var of (1/q)Σ s_i g_i(θ) with g_i = θ − y_i: ((1 − q)/q) Σ g_i²; its θ² part is ((1 − q)/q)·n."""
    return (1 - q) / q * N, (1 - q) / q * np.sum(Y**2)


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.1, 0.5], ids=["gathered", "masked"])
def test_the_variance_of_sgld_is_that_of_its_batches_on_a_gaussian(rate):
    """θ' = θ − γ((1 + n)θ − Σy + e(θ)) + N(0, 2γ): Var fixed point; mean 0; failure probability below 1e-6.

    V = ((1 − γ(1+n))² + γ²a)V + γ²c + 2γ, with Var e = aθ² + c.
    """
    a, c = poisson(rate)
    kernel = PrivateSGLD(normal_mean, STEP, 1e3, rate=rate)
    states = run(kernel, ROWS, {"y": Y}, num_steps=150, num_chains=CHAINS).states[:, 0, 0]
    rho = 1 - STEP * (1 + N)
    variance = (STEP**2 * c + 2 * STEP) / (1 - rho**2 - STEP**2 * a)
    plain = 2 * STEP / (1 - rho**2)
    assert variance > 1.5 * plain
    # The batches' share is not Gaussian: its kurtosis is allowed for.
    assert abs(states.var() / variance - 1) < 6 * np.sqrt(3 / CHAINS)
    assert abs(states.mean()) < 5 * np.sqrt(variance / CHAINS)
