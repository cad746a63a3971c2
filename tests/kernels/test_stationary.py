"""Kernels against known stationary laws: exact Gaussians, and NUTS on the same Huberised density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.kernels import PrivateULA
from private_mcmc.schedule import Average
from tests.examples_of_models import logistic, normal_mean
from tests.kernels.chains import run


@pytest.mark.long
def test_clipped_logistic_matches_nuts_on_the_huberised_density(rng):
    """Clipping |ψ'|‖x‖ at C samples the posterior with each loss linear beyond |ψ'| = C/‖x‖."""
    n, clip = 60, 0.3
    X = rng.uniform(-1, 1, (n, 2)) / np.sqrt(2)
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)
    rows = Rows(X=Ball(1.0, dim=2), y=Binary())
    times = tuple(range(500, 1501, 50))
    kernel = PrivateULA(logistic, step_size=0.02, clip=clip)
    chains = run(kernel, rows, {"X": X, "y": y}, num_steps=1500, num_chains=400, release=times)
    states = chains.states.reshape(-1, 2)

    with jax.enable_x64(True):
        reach = jnp.minimum(clip / jnp.linalg.norm(jnp.asarray(X), axis=1), 1 - 1e-12)
        knee = jnp.log(1 / reach - 1)
        sign = jnp.asarray(2.0 * y - 1)

        def potential(w):
            margin = sign * (jnp.asarray(X) @ w)
            linear = jax.nn.softplus(-knee) + reach * (knee - margin)
            return jnp.sum(jnp.where(margin < knee, linear, jax.nn.softplus(-margin))) + w @ w / 8

        nuts = MCMC(NUTS(potential_fn=potential), num_warmup=500, num_samples=8000, progress_bar=False)
        nuts.run(jax.random.key(2), init_params=jnp.zeros(2))
        wanted = np.asarray(nuts.get_samples())
    # ULA's own bias is below 1.5 % of a variance here; sampling errors are about 1 % of a sd.
    np.testing.assert_allclose(states.mean(0), wanted.mean(0), atol=0.06 * wanted.std(0).max())
    np.testing.assert_allclose(states.std(0), wanted.std(0), rtol=0.06)


@pytest.mark.long
def test_declared_steps_and_averages_are_those_of_the_path():
    def kept(release, observable=None):
        kernel, data = PrivateULA(normal_mean, step_size=0.1, clip=1.0), {"y": np.linspace(-1, 1, 9)}
        rows, changes = Rows(y=Box(-5.0, 5.0)), {"num_steps": 150, "num_chains": 3}
        return run(kernel, rows, data, observable=observable, release=release, **changes)

    path = kept("path").states
    assert path.shape == (3, 150, 1)
    np.testing.assert_allclose(kept((1, 70, 150)).states, path[:, [0, 69, 149]], rtol=1e-12)
    np.testing.assert_allclose(kept("last").states, path[:, -1:], rtol=1e-12)
    average = kept(Average(first=31), lambda theta: jnp.stack([theta[0], theta[0] ** 2])).average
    late = path[:, 30:, 0]
    np.testing.assert_allclose(average, [late.mean(), (late**2).mean()], rtol=1e-12)
