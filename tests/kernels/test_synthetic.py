"""Simulated paths are those of a run, on rows that stand for several; no run can be given weights."""

import dataclasses
import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels import Streams, chain_runner, langevin_program
from private_mcmc.kernels.gradient import clipped_gradient, whitening
from private_mcmc.kernels.synthetic import _advance, synthetic_path
from private_mcmc.model import read
from private_mcmc.planning import PathStage
from private_mcmc.schedule import Schedule
from tests.examples_of_models import bent, logistic

MODELS = {
    "affine": (logistic, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())),
    "general": (bent, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-1.0, 1.0))),
}
COUNTS = np.array([3, 1, 0, 2, 5])


def schedule(reading, num_rows, **changes):
    metric = 0.1 * np.eye(reading.dim) + 0.02
    return Schedule(
        adjacency="replace_one",
        num_rows=num_rows,
        dim=reading.dim,
        **{"step_size": 0.3, "num_steps": 130, "clip": 0.05, "temper": 0.7, "release": "path"} | changes,
        preconditioner=tuple(map(tuple, metric.tolist())),
    )


def path_of_a_run(reading, columns, chosen, key):
    """The chain that a run would be, on rows that are there as often as they are."""
    runner = chain_runner(reading, chosen)
    with jax.enable_x64(True):
        rows = runner.prepare(columns, jnp.ones(chosen.num_rows, bool))
    return runner.run(START[: chosen.dim], rows, Streams(key), lambda done: None)[0]


START = np.array([0.5, -1.0, 0.2])


@pytest.fixture(scope="module", params=MODELS)
def example(request):
    model, rows = MODELS[request.param]
    reading = read(model, rows, n=len(COUNTS))
    with jax.enable_x64(True):
        columns = rows.project(rows.synthetic(5, len(COUNTS)))
    return reading, columns, partial(synthetic_path, lambda root, clip: reading)


@pytest.mark.long
@pytest.mark.parametrize("changes", [{}, {"clip": 0.4, "step_size": 0.1, "num_steps": 70, "temper": 1.0}])
def test_a_row_of_weight_w_moves_the_chain_as_w_rows_do(example, changes):
    """The same key gives the same noise: paths agree but for the order in which rows are added."""
    reading, columns, simulated = example
    total = int(COUNTS.sum())
    repeated = {name: jnp.repeat(column, COUNTS, axis=0) for name, column in columns.items()}
    chosen, key = schedule(reading, total, **changes), jax.random.key(8)
    found = simulated(chosen, START[: reading.dim], columns, COUNTS.astype(float), key)
    assert found.shape == (chosen.num_steps, reading.dim)
    np.testing.assert_allclose(found, path_of_a_run(reading, repeated, chosen, key), rtol=1e-9, atol=1e-11)


@pytest.mark.long
def test_other_numbers_need_no_other_program(example):
    reading, columns, simulated = example
    states, programs = [], []
    for n, clip, steps in ((40, 0.2, 20), (9000, 0.3, 20), (9000, 0.3, 500)):
        chosen = schedule(reading, n, clip=clip, num_steps=steps)
        states.append(simulated(chosen, START[: reading.dim], columns, np.ones(5), jax.random.key(1)))
        programs.append(_advance._cache_size())
    assert len(set(programs)) == 1
    assert not np.allclose(states[0], states[1])
    np.testing.assert_array_equal(states[1], states[2][:20])


@pytest.mark.parametrize(
    "changes", [{"release": "last"}, {"step_size": (0.1,) * 130}, {"rate": 0.5}, {"num_chains": 2}]
)
def test_only_the_paths_of_plans_are_simulated(example, changes):
    reading, columns, simulated = example
    with pytest.raises(NotYetSupported, match="simulated"):
        simulated(schedule(reading, 11, **changes), START[: reading.dim], columns, COUNTS, jax.random.key(0))


@pytest.mark.slow
def test_rows_of_a_run_have_no_weights(example):
    """Weights are neither a field of a declaration nor a value of its arguments."""
    reading, columns, _ = example
    with jax.enable_x64(True):
        gradient = clipped_gradient(reading, whitening(None, reading.dim), 1.0, states=1)
        with pytest.raises(TypeError):
            gradient.prepare(columns, jnp.asarray(COUNTS, float), jnp.asarray(COUNTS, float))
        rows = gradient.prepare(columns, jnp.ones(len(COUNTS), bool))
        assert "weights" not in rows._fields
    for record in (Schedule, PathStage, pmc.PrivateULA, pmc.PrivateSGLD):
        assert not [field.name for field in dataclasses.fields(record) if "weight" in field.name]
    for entry in (pmc.PrivateMCMC.__init__, pmc.PrivateMCMC.run, langevin_program, chain_runner):
        assert not [name for name in inspect.signature(entry).parameters if "weight" in name]


@pytest.mark.slow
def test_presence_that_is_no_truth_value_weighs_no_row(example):
    """Numbers in place of presence, by mistake: a row adds at most the clip."""
    reading, columns, _ = example
    with jax.enable_x64(True):
        gradient = clipped_gradient(reading, whitening(None, reading.dim), 0.1, states=1)
        u = jnp.asarray(START[: reading.dim])
        with pytest.raises(TypeError):
            gradient.total(u, gradient.prepare(columns, jnp.full(len(COUNTS), 100.0)))
