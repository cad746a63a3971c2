"""Kernels against known stationary laws: exact Gaussians, and NUTS on the same Huberised density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.kernels import PrivateULA, Streams, chain_runner, langevin_program
from private_mcmc.kernels.step import LangevinProgram
from private_mcmc.model import read
from private_mcmc.schedule import Average
from tests.examples_of_models import logistic, normal_mean


def final_states(model, rows, data, *, num_steps, num_chains=1, release="last", seed=0, **kernel):
    n = len(next(iter(data.values())))
    reading = read(model, rows, n=n)
    schedule = PrivateULA(model, **kernel).schedule(
        adjacency="replace_one",
        num_rows=n,
        dim=reading.dim,
        num_steps=num_steps,
        num_chains=num_chains,
        release=release,
    )
    with jax.enable_x64(True):
        columns, present = rows.project(data), jnp.ones(n, bool)
    runner = chain_runner(langevin_program(reading, schedule), schedule)
    start, steps = jax.random.split(jax.random.key(seed))
    output = runner.run(np.zeros(reading.dim), columns, present, Streams(start, steps), lambda done: None)
    return output.states


@pytest.mark.long
def test_clipped_logistic_matches_nuts_on_the_huberised_density(rng):
    """Clipping |ψ'|‖x‖ at C samples the posterior with each loss linear beyond |ψ'| = C/‖x‖."""
    n, clip = 60, 0.3
    X = rng.uniform(-1, 1, (n, 2)) / np.sqrt(2)
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)
    rows = Rows(X=Ball(1.0, dim=2), y=Binary())
    states = final_states(
        logistic,
        rows,
        {"X": X, "y": y},
        num_steps=1500,
        num_chains=400,
        step_size=0.02,
        clip=clip,
        release=tuple(range(500, 1501, 50)),
    ).reshape(-1, 2)

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
def test_declared_steps_are_the_states_of_the_path():
    data = {"y": np.linspace(-1, 1, 9)}
    rows = Rows(y=Box(-5.0, 5.0))
    common = dict(num_steps=150, num_chains=3, step_size=0.1, clip=1.0)
    path = final_states(normal_mean, rows, data, release="path", **common)
    some = final_states(normal_mean, rows, data, release=(1, 70, 150), **common)
    last = final_states(normal_mean, rows, data, release="last", **common)
    assert path.shape == (3, 150, 1)
    np.testing.assert_allclose(some, path[:, [0, 69, 149]], rtol=1e-12)
    np.testing.assert_allclose(last, path[:, -1:], rtol=1e-12)


@pytest.mark.long
def test_an_average_is_the_mean_of_the_observable_over_kept_steps_and_chains():
    n, rows = 9, Rows(y=Box(-5.0, 5.0))
    reading = read(normal_mean, rows, n=n)
    kernel = PrivateULA(normal_mean, step_size=0.1, clip=1.0)
    common = dict(adjacency="replace_one", num_rows=n, dim=1, num_steps=150, num_chains=3)
    streams = Streams(*jax.random.split(jax.random.key(0)))
    with jax.enable_x64(True):
        columns, present = rows.project({"y": np.linspace(-1, 1, n)}), jnp.ones(n, bool)

    def run(release, observable=None):
        schedule = kernel.schedule(release=release, **common)
        program: LangevinProgram = langevin_program(reading, schedule)
        runner = chain_runner(program, schedule, observable)
        return runner.run(np.zeros(1), columns, present, streams, lambda done: None)

    path = run("path").states
    average = run(Average(first=31), lambda theta: jnp.stack([theta[0], theta[0] ** 2])).average
    kept = path[:, 30:, 0]
    np.testing.assert_allclose(average, [kept.mean(), (kept**2).mean()], rtol=1e-12)
