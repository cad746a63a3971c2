"""Rows that lie elsewhere: the same sums, whoever holds them, and no key of the noise."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Ball, Binary, Rows
from private_mcmc.domains.columns import host_column
from private_mcmc.kernels import PrivateSGLD, PrivateULA, Streams, chain_runner, langevin_program
from private_mcmc.kernels.partitions import Blocks, Question, partitioned_runner, summed
from private_mcmc.model import read
from tests.examples_of_models import logistic

N = 53
ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())
KERNELS = {"all rows": PrivateULA(logistic, 0.02, 1.0), "poisson": PrivateSGLD(logistic, 0.02, 1.0, rate=0.1)}
STREAMS = Streams(*jax.random.split(jax.random.key(1), 3))


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(5)
    return {"X": random.uniform(-1.5, 1.5, (N, 2)), "y": random.integers(0, 2, N)}


def partitions(data, *edges):
    """Blocks of seven rows of each part between two edges."""
    bounds = (0, *edges, N)
    return [
        Blocks(
            {
                name: host_column(name, part)
                for name, part in ((name, column[first:last]) for name, column in data.items())
            },
            size=7,
            start=first,
        )
        for first, last in pairwise(bounds)
    ]


def chain(kernel, data, parts):
    reading = read(kernel.model, ROWS, n=N)
    schedule = kernel.schedule(
        adjacency="replace_one", num_rows=N, dim=reading.dim, num_steps=6, num_chains=2, release="path"
    )
    with jax.enable_x64(True):
        if parts is None:
            runner = chain_runner(reading, schedule)
            columns = ROWS.project({name: jnp.asarray(column) for name, column in data.items()})
            rows = runner.prepare(columns, jnp.ones(N, bool))
        else:
            runner = partitioned_runner(langevin_program(reading, schedule), schedule, ROWS.project)
            rows = runner.prepare(parts)
    return runner.run(np.zeros(reading.dim), rows, STREAMS, lambda done: None)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", KERNELS)
def test_a_chain_is_the_same_whatever_the_partitions(name, data):
    whole = chain(KERNELS[name], data, None)
    for edges in ((1, 2, 30), (0, N)):
        found = chain(KERNELS[name], data, partitions(data, *edges))
        np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(found, chain(KERNELS[name], data, partitions(data, 0, N)))


def test_sums_of_partitions_are_rounded_once(data):
    question = Question(
        lambda columns, present: columns,
        lambda columns, first: columns["X"],
        lambda found, present: np.where(present[:, None], found, 0.0).sum(axis=0),
    )
    sums = [summed(question, partitions(data, *edges)) for edges in ((), (20,), (53,))]
    for found in sums:
        np.testing.assert_allclose(found, data["X"].sum(axis=0), rtol=1e-14)
    with jax.enable_x64(True):
        nobody = Blocks({"X": host_column("X", np.zeros((0, 2)))}, size=7)
    np.testing.assert_array_equal(summed(question, [nobody]), [0.0, 0.0])
