"""Chains of a kernel, run as the driver runs them, without a statement or a release."""

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.kernels import Streams, chain_runner
from private_mcmc.model import read

STREAMS = Streams(*jax.random.split(jax.random.key(7), 3))


def run(kernel, rows, data, streams=STREAMS, present=True, observable=None, **changes):
    """What is kept of a run from zero on ``data``; ``changes`` are those of the schedule."""
    n = len(next(iter(data.values())))
    reading = read(kernel.model, rows, n=n)
    fields = {
        "adjacency": "replace_one",
        "num_rows": n,
        "dim": reading.dim,
        "num_chains": 1,
        "release": "last",
    }
    schedule = kernel.schedule(**(fields | changes))
    runner = chain_runner(reading, schedule, observable)
    with jax.enable_x64(True):
        given = runner.prepare(rows.project(data), jnp.full(n, present))
    return runner.run(np.zeros(reading.dim), given, streams, lambda done: None)
