"""Noise drawn ahead is the noise of the same steps drawn one by one, and there is no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.kernels import PrivateULA, StepKeys, langevin_program
from private_mcmc.modeling import Box, Rows, read
from tests.examples_of_models import normal_mean

ROWS = Rows(y=Box(-5.0, 5.0))


@pytest.fixture(scope="module", params=[1, 700], ids=["many steps in a group", "one step in a group"])
def noise(request):
    """States one step from zero on no rows, by step number: the noise times √(2γ)."""
    chains = request.param
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


@pytest.mark.parametrize("first", [0, 511, 512, 1000])
def test_ahead_and_now_are_the_same_numbers(noise, first):
    now, ahead = noise(first, first + np.array([0, 1, 500, 899]))
    np.testing.assert_array_equal(now, ahead)
    assert len(np.unique(now)) == now.size


def test_a_step_outside_has_no_noise_at_all(noise):
    _, ahead = noise(5_000, np.array([0, 4_000, 7_000]))
    assert np.isnan(ahead).all()
