"""The clamp that makes the accountant's rounding slack true is in the step, far from any real gradient."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc import accounting
from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateULA, Streams, langevin_program
from private_mcmc.model import read
from tests.examples_of_models import normal_mean, observed

ROWS = Rows(y=Box(-5.0, 5.0))


def schedule_of(release, step_size=0.1, clip=1.0):
    kernel = PrivateULA(normal_mean, step_size=step_size, clip=clip)
    return kernel.schedule(
        adjacency="replace_one", num_rows=9, dim=1, num_steps=3, num_chains=1, release=release
    )


def steep(y=None):
    """A prior whose gradient is enormous."""
    mu = numpyro.sample("mu", dist.Normal(0, 1e-9))
    observed(y, dist.Normal(mu, 1.0), y)


def moved(model, schedule, start):
    """How far one step without noise-sized help moves the state."""
    reading = read(model, ROWS, n=9)
    with jax.enable_x64(True):
        program = langevin_program(reading, schedule)
        rows = program.prepare({"y": jnp.zeros(9)}, jnp.ones(9, bool))
        # Compiled as one program: one by one its operations take ten times as long to compile.
        step = jax.jit(program.step)
        after = step(jnp.full((1, 1), start), jnp.asarray(0), Streams(jax.random.key(0)), rows)
    return abs(float(after[0, 0]) - start)


@pytest.mark.slow
def test_a_path_clamps_the_gradient_at_the_limit_and_hidden_states_in_a_box_which_must_contract_do_not():
    path, kept = schedule_of("path"), replace(schedule_of("last"), within=1e20)
    assert moved(steep, path, 1.0) == pytest.approx(0.1 * accounting.gradient_limit(path), rel=1e-3)
    assert accounting.gradient_limit(kept) == np.inf
    assert moved(steep, kept, 1.0) == pytest.approx(0.1 * 1e18, rel=1e-3)


def test_the_limit_lies_beyond_a_million_clipped_rows_and_within_it_two_gradients_differ_by_the_slack():
    """Rounding a coordinate of size G costs at most G·u, four times over, for each of two runs."""
    assert accounting.gradient_limit(schedule_of("path", clip=0.01)) > 1e4 > 1_000_000 * 0.01 / 2
    schedule = schedule_of("path")
    moves = 2 * 4 * accounting.gradient_limit(schedule) * 2.0**-53
    assert moves <= 1.001e-9 * accounting.sensitivity(schedule)
