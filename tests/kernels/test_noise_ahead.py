"""What is drawn ahead is what the same steps draw one by one, and there is no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateSGLD, PrivateULA, StepKeys, langevin_program
from private_mcmc.model import read
from tests.examples_of_models import normal_mean

ROWS = Rows(y=Box(-5.0, 5.0))


@pytest.fixture(scope="module")
def noise():
    """States one step from zero on no rows, by step number: the noise times √(2γ)."""
    chains = 3
    schedule = PrivateULA(normal_mean, step_size=0.5, clip=1.0).schedule(
        adjacency="add_remove", num_rows=3, dim=1, num_steps=10**6, num_chains=chains, release="last"
    )
    with jax.enable_x64(True):
        program = langevin_program(read(normal_mean, ROWS, n=3), schedule)
        rows = program.prepare({"y": jnp.zeros(3)}, jnp.zeros(3, bool))
        keys, zero = StepKeys(jax.random.key(5)), jnp.zeros((chains, 1))

        @jax.jit
        def now(steps):
            return jax.vmap(lambda k: program.step(zero, k, keys, rows))(steps)

        @jax.jit
        def ahead(first, steps):
            drawn = program.ahead(keys, first, 900)
            return jax.vmap(lambda k: program.step(zero, k, drawn, rows))(steps)

        def both(first, steps):
            with jax.enable_x64(True):
                return np.asarray(now(jnp.asarray(steps))), np.asarray(ahead(first, jnp.asarray(steps)))

        yield both


@pytest.mark.some(1)
@pytest.mark.parametrize("first", [0, 511, 512, 1000])
def test_ahead_and_now_are_the_same_numbers(noise, first):
    now, ahead = noise(first, first + np.array([0, 1, 500, 899]))
    np.testing.assert_array_equal(now, ahead)
    assert len(np.unique(now)) == now.size


@pytest.mark.some(1)
def test_a_step_outside_has_no_noise_at_all(noise):
    _, ahead = noise(5_000, np.array([0, 4_000, 7_000]))
    assert np.isnan(ahead).all()


@pytest.mark.long
@pytest.mark.parametrize("options", [dict(rate=0.1), dict(scheme="fixed", batch_size=20)])
def test_batches_ahead_and_now_are_the_same_rows(options):
    """Rows of different size: sums of other rows would differ. Some Poisson batches outgrow what is drawn."""
    n = 200
    schedule = PrivateSGLD(normal_mean, 0.5, 100.0, **options).schedule(
        adjacency="replace_one", num_rows=n, dim=1, num_steps=10**6, num_chains=2, release="last"
    )
    with jax.enable_x64(True):
        program = langevin_program(read(normal_mean, Rows(y=Box(-50.0, 50.0)), n=n), schedule)
        rows = program.prepare({"y": jnp.sqrt(jnp.arange(1.0, n + 1))}, jnp.ones(n, bool))
        keys, zero = StepKeys(jax.random.key(5), jax.random.key(6)), jnp.zeros((2, 1))

        @jax.jit
        def now(k):
            return program.step(zero, k, keys, rows)

        @jax.jit
        def ahead(steps):
            drawn = program.ahead(keys, 300, 800)
            return jax.vmap(lambda k: program.step(zero, k, drawn, rows))(steps)

        steps = 300 + np.arange(800)
        drawn = np.asarray(ahead(jnp.asarray(steps)))
        for k in (300, 307, 555, 1099):
            np.testing.assert_allclose(now(k), drawn[k - 300], rtol=1e-12)
        assert len(np.unique(drawn)) == drawn.size
