"""A step mixes no types of numbers by JAX's own rules: where it widens them is written out.

NumPyro's distributions rely on those rules, so that they are strict for the kernels alone: a model that was
read is a program of primitives. Shapes are checked by their types (``tests/conftest.py``).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.kernels import AnisotropicLangevin, PrivateSGLD, PrivateULA, Streams, langevin_program
from private_mcmc.model import read
from tests.examples_of_models import bent, logistic

N, CHAINS = 6, 2
ROWS = {
    logistic: pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary()),
    bent: pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-1.0, 1.0)),
}
KERNELS = {
    "full": lambda m, p: PrivateULA(m, 0.01, 1.0),
    "varying steps": lambda m, p: PrivateULA(m, (0.01, 0.02, 0.01), 1.0),
    "diagonal metric": lambda m, p: PrivateULA(m, 0.01, 1.0, preconditioner=(0.5,) * p),
    "full metric": lambda m, p: PrivateULA(m, 0.01, 1.0, preconditioner=np.eye(p) + 0.1),
    "noise of its own": lambda m, p: AnisotropicLangevin(m, 0.01, 1.0, noise=(0.02, 0.03, 0.04)[:p]),
    "Poisson": lambda m, p: PrivateSGLD(m, 0.01, 1.0, rate=0.5),
}


@functools.cache
def reading_of(model):
    return read(model, ROWS[model], n=N)


@pytest.mark.some(4)
@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("name", KERNELS)
def test_a_step_promotes_nothing(model, name):
    reading = reading_of(model)
    kernel = KERNELS[name](model, reading.dim)
    schedule = kernel.schedule(
        adjacency="replace_one", num_rows=N, dim=reading.dim, num_steps=3, num_chains=CHAINS, release="last"
    )
    program = langevin_program(reading, schedule)

    def step(u, columns, present, steps, batches):
        keys = Streams(steps, None if schedule.rate is None else batches)
        return program.step(u, jnp.asarray(1), keys, program.prepare(columns, present))

    with jax.enable_x64(True):
        key = jax.random.key(0)
        columns = reading.rows.project(reading.rows.synthetic(0, N))
        given = jnp.zeros((CHAINS, reading.dim)), columns, jnp.ones(N, dtype=bool), key, key
        with jax.numpy_dtype_promotion("strict"):
            assert jax.eval_shape(step, *given).shape == (CHAINS, reading.dim)
