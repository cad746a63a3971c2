"""SGLD against its theory: on a Gaussian the covariance with batches is known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateSGLD, Streams, chain_runner, langevin_program
from private_mcmc.model import read
from tests.examples_of_models import normal_mean

N, CHAINS, STEP = 40, 20_000, 0.01
ROWS = Rows(y=Box(-5.0, 5.0))
Y = np.linspace(-3.0, 3.0, N)


def last_states(kernel, num_steps=150):
    schedule = kernel.schedule(
        adjacency="replace_one", num_rows=N, dim=1, num_steps=num_steps, num_chains=CHAINS, release="last"
    )
    runner = chain_runner(langevin_program(read(normal_mean, ROWS, n=N), schedule), schedule)
    with jax.enable_x64(True):
        columns = ROWS.project({"y": Y})
    streams = Streams(*jax.random.split(jax.random.key(7), 3))
    return runner.run(np.zeros(1), columns, jnp.ones(N, bool), streams, lambda done: None).states[:, 0, 0]


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
    states = last_states(PrivateSGLD(normal_mean, STEP, 1e3, rate=rate))
    rho = 1 - STEP * (1 + N)
    variance = (STEP**2 * c + 2 * STEP) / (1 - rho**2 - STEP**2 * a)
    plain = 2 * STEP / (1 - rho**2)
    assert variance > 1.5 * plain
    # The batches' share is not Gaussian: its kurtosis is allowed for.
    assert abs(states.var() / variance - 1) < 6 * np.sqrt(3 / CHAINS)
    assert abs(states.mean()) < 5 * np.sqrt(variance / CHAINS)
