"""What a run draws ahead is what the same steps draw one by one, and there is no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateSGLD, PrivateULA, Streams, chain_runner, langevin_program
from private_mcmc.kernels.chain import call_length
from private_mcmc.model import read
from tests.examples_of_models import normal_mean

N, ROWS = 200, Rows(y=Box(-50.0, 50.0))
KERNELS = {
    "all rows": PrivateULA(normal_mean, 0.01, 100.0),
    "poisson": PrivateSGLD(normal_mean, 0.01, 100.0, rate=0.1),
}
STREAMS = Streams(*jax.random.split(jax.random.key(5), 3))


def chain(name):
    """A chain on rows of different size (sums of other rows would differ), and its rows."""
    schedule = KERNELS[name].schedule(
        adjacency="replace_one", num_rows=N, dim=1, num_steps=800, num_chains=3, release="path"
    )
    return (
        read(normal_mean, ROWS, n=N),
        schedule,
        ({"y": jnp.sqrt(jnp.arange(1.0, N + 1))}, jnp.ones(N, bool)),
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("name", KERNELS)
def test_a_run_draws_what_its_steps_draw_one_by_one(name):
    """Some Poisson batches outgrow what is drawn ahead."""
    with jax.enable_x64(True):
        model, schedule, given = chain(name)
        runner, step = chain_runner(model, schedule), jax.jit(langevin_program(model, schedule).step)
        rows = runner.prepare(*given)
        states = runner.run(np.zeros(1), rows, STREAMS, lambda done: None)
        for k in (1, 7, 64, 511, 799):
            after = step(states[:, k - 1], k, STREAMS, rows)
            np.testing.assert_allclose(after, states[:, k], rtol=1e-12)
    assert len(np.unique(states)) == states.size


def test_a_step_beyond_what_was_drawn_has_no_noise_at_all():
    with jax.enable_x64(True):
        model, schedule, given = chain("all rows")
        runner, size = chain_runner(model, schedule), call_length(schedule)
        for count, known in ((size, True), (size + 1, False)):
            rows, zero = runner.prepare(*given), jnp.zeros((3, 1))
            u, _, _ = runner.advance(zero, 0, count, jnp.zeros((3, 0)), STREAMS, rows)
            assert np.isfinite(u).all() == known
