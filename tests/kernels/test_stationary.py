"""Kernels against known stationary laws: exact Gaussians, and NUTS on the same Huberised density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.linalg import solve_discrete_lyapunov

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.kernels import AnisotropicLangevin, PrivateSGLD, PrivateULA
from private_mcmc.schedule import Average
from tests.examples_of_models import linear, logistic, normal_mean
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
    states = chains.reshape(-1, 2)

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

    path = kept("path")
    assert path.shape == (3, 150, 1)
    np.testing.assert_allclose(kept((1, 70, 150)), path[:, [0, 69, 149]], rtol=1e-12)
    np.testing.assert_allclose(kept("last"), path[:, -1:], rtol=1e-12)
    average = kept(Average(first=31), lambda theta: jnp.stack([theta[0], theta[0] ** 2]))
    late = path[:, 30:, 0]
    np.testing.assert_allclose(average, [late.mean(), (late**2).mean()], rtol=1e-12)


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
    states = run(kernel, rows, {"X": X, "y": y}, num_steps=60, num_chains=20_000)[:, 0]
    hessian = X.T @ X + np.eye(2)
    flow = np.eye(2) - step * dense(METRICS[metric]) @ hessian
    assert np.abs(np.linalg.eigvals(flow)).max() ** 60 < 1e-3
    law = solve_discrete_lyapunov(flow, 2 * step * dense(NOISE))
    chains = len(states)
    np.testing.assert_allclose(np.cov(states.T), law, atol=5 * np.sqrt(2 / chains) * law.max())
    error = states.mean(0) - np.linalg.solve(hessian, X.T @ y)
    assert np.all(np.abs(error) < 5 * np.sqrt(np.diag(law) / chains) + 1e-2 * np.sqrt(np.diag(law)))


N, CHAINS, STEP = 40, 20_000, 0.01
ROWS = Rows(y=Box(-5.0, 5.0))
Y = np.linspace(-3.0, 3.0, N)


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.1, 0.5], ids=["gathered", "masked"])
def test_the_variance_of_sgld_is_that_of_its_batches_on_a_gaussian(rate):
    """θ' = θ − γ((1 + n)θ − Σy + e(θ)) + N(0, 2γ): Var fixed point; mean 0; failure probability below 1e-6.

    V = ((1 − γ(1+n))² + γ²a)V + γ²c + 2γ, with Var e = aθ² + c.
    """
    # Var of (1/q)Σ s_i g_i(θ) with g_i = θ − y_i: ((1 − q)/q) Σ g_i²; its θ² part is ((1 − q)/q)·n.
    a, c = (1 - rate) / rate * np.array([N, np.sum(Y**2)])
    kernel = PrivateSGLD(normal_mean, STEP, 1e3, rate=rate)
    states = run(kernel, ROWS, {"y": Y}, num_steps=150, num_chains=CHAINS)[:, 0, 0]
    rho = 1 - STEP * (1 + N)
    variance = (STEP**2 * c + 2 * STEP) / (1 - rho**2 - STEP**2 * a)
    plain = 2 * STEP / (1 - rho**2)
    assert variance > 1.5 * plain
    # The batches' share is not Gaussian: its kurtosis is allowed for.
    assert abs(states.var() / variance - 1) < 6 * np.sqrt(3 / CHAINS)
    assert abs(states.mean()) < 5 * np.sqrt(variance / CHAINS)
