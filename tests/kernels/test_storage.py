"""Rows held in float32: bounds hold for what is stored, and sums are those of float64."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.accounting.langevin.sensitivity import CLIP_SLACK
from private_mcmc.domains import Ball, Binary, Box, Real, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import PrivateSGLD, PrivateULA, Streams, chain_runner, langevin_program
from private_mcmc.kernels.gradient.clipped import clipped_gradient
from private_mcmc.kernels.gradient.clipping import whitening, widened
from private_mcmc.kernels.step import narrowed, stored
from private_mcmc.model import read
from tests.examples_of_models import bent, logistic

N = 700
MODELS = {
    "affine": (logistic, Rows(X=Ball(1.0, dim=3), y=Binary())),
    "general": (bent, Rows(X=Ball(1.0, dim=3), y=Box(-0.1, 2.0))),
}
MATRIX = ((2.0, 0.3, 0.0), (0.3, 1.0, 0.1), (0.0, 0.1, 0.5))


@pytest.mark.long
@given(st.lists(st.floats(-1e30, 1e30), min_size=1))
def test_no_entry_grows(values):
    with jax.enable_x64(True):
        wide = jnp.asarray(values)
        small = narrowed(wide)
        assert small.dtype == jnp.float32
        found = np.asarray(small.astype(jnp.float64))
    assert np.all(np.abs(found) <= np.abs(values))
    np.testing.assert_allclose(found, values, rtol=2e-7, atol=2.0**-125)


@pytest.mark.long
def test_a_row_beyond_the_largest_float32_stays_within_its_clip():
    """An unbounded column may hold it once the preconditioner or the model has scaled it."""
    reading = read(logistic, Rows(X=Real(2), y=Binary()), n=3)
    gradient = stored(clipped_gradient(reading, whitening((100.0, 100.0), 2), 0.4, states=1), "float32")
    with jax.enable_x64(True):
        columns = {
            "X": jnp.array([[3e38, -3e38], [1.0, 0.0], [0.0, 1.0]], jnp.float32),
            "y": jnp.ones(3, int),
        }
        for present in (jnp.arange(3) == 0, jnp.arange(3) == 1):
            total = gradient.total(jnp.array([0.1, 0.2]), gradient.prepare(columns, present))
            assert np.linalg.norm(total) <= 0.4


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("matrix", [None, MATRIX], ids=["plain", "preconditioned"])
@pytest.mark.parametrize("states", [1, None], ids=["whole", "selected"])
def test_the_sum_is_the_float64_sum_of_the_stored_rows(name, matrix, states):
    """In float64 the relative error of a sum of 700 rows is some 1e-13; in float32 it would be 1e-6."""
    model, rows = MODELS[name]
    reading = read(model, rows, n=N)
    change = whitening(matrix, 3) if reading.dim == 3 else whitening(None, reading.dim)
    gradient = stored(clipped_gradient(reading, change, 0.4, states), "float32")
    with jax.enable_x64(True):
        columns = rows.project(rows.synthetic(0, N), "float32")
        prepared = gradient.prepare(columns, jnp.ones(N, bool))
        u = jnp.linspace(-1.0, 1.0, reading.dim)
        total = np.asarray(gradient.total(u, prepared))
        assert total.dtype == np.float64
        held = [leaf.dtype for leaf in jax.tree.leaves(prepared) if leaf.size >= 3 * N]
        assert held == [np.float32]
        wide = jax.tree.map(lambda leaf: widened({"": leaf})[""], prepared)
        np.testing.assert_allclose(total, gradient.total(u, wide), rtol=1e-12)
        every = clipped_gradient(reading, change, 0.4, states=1)
        exact = every.total(u, every.prepare(widened(columns), jnp.ones(N, bool)))
        np.testing.assert_allclose(total, exact, atol=1e-6 * N * 0.4)
        # One row adds at most its clip.
        one = gradient.total(u, gradient.prepare(columns, jnp.arange(N) == 5))
        assert np.linalg.norm(one) <= 0.4 * (1 + CLIP_SLACK)


@pytest.mark.long
def test_a_run_with_rows_in_float32_is_nearly_that_with_rows_in_float64():
    rng = np.random.default_rng(2)
    data = {"X": rng.uniform(-1, 1, (N, 3)) / 2, "y": rng.integers(0, 2, N)}
    model, rows = MODELS["affine"]

    seeded = pmc.Execution(unsafe_seed=True, generator="threefry2x32")

    def draws(kernel, **settings):
        mcmc = pmc.PrivateMCMC(kernel, rows=rows, target=pmc.Target(9.0, 1e-6), release="path", num_steps=8,
                               guarantee="run", progress_bar=False,
                               execution=replace(seeded, **settings))  # fmt: skip
        mcmc.run(rng_key=3, **data)
        return mcmc

    wide = draws(PrivateULA(model, 1e-3, 1.0))
    for other in (
        narrow := draws(PrivateULA(model, 1e-3, 1.0, storage="float32"), curator=True),
        draws(PrivateULA(model, 1e-3, 1.0, storage="float32"), rows_on_device=300),
    ):
        difference = np.abs(other.get_samples()["w"] - wide.get_samples()["w"])
        assert 0 < difference.max() < 1e-6
        assert other.statement.gdp == wide.statement.gdp
        assert "float32" in str(other.statement.argument.assumptions)
        assert other.statement.verify()
    np.testing.assert_array_equal(narrow.curator.clipped_shares.unsafe_value(), [0.0])


@pytest.mark.long
def test_batches_of_narrow_rows_run():
    model, rows = MODELS["general"]
    kernel = PrivateSGLD(model, 1e-3, 1.0, rate=0.05, storage="float32")
    reading = read(model, rows, n=N)
    schedule = kernel.schedule(
        adjacency="add_remove", num_rows=N, dim=reading.dim, num_steps=3, num_chains=2, release="last"
    )
    runner = chain_runner(langevin_program(reading, schedule), schedule)
    streams = Streams(*jax.random.split(jax.random.key(0), 3))
    with jax.enable_x64(True):
        columns = rows.project(rows.synthetic(0, N), "float32")
    found = runner.run(np.zeros(reading.dim), columns, jnp.ones(N, bool), streams, lambda done: None).states
    assert np.isfinite(found).all()


@pytest.mark.slow
def test_the_price_does_not_depend_on_the_storage():
    common = dict(adjacency="replace_one", num_rows=N, dim=3, num_steps=5, num_chains=1, release="path")
    prices = [
        accounting.langevin_statement(PrivateULA(logistic, 0.1, 1.0, storage=storage).schedule(**common)).gdp
        for storage in ("float64", "float32")
    ]
    assert prices[0] == prices[1]
    tested = pmc.PrivateMCMC(
        PrivateULA(logistic, 0.1, 1.0, storage="float32"),
        rows=MODELS["affine"][1],
        target=pmc.Target(9.0, 1e-6),
        release="last",
        num_steps=2,
        guarantee=pmc.ProposedCurvature(at_least=1.0, gdp=0.1, failure=1e-9),
    )
    with pytest.raises(DeclarationError, match="float32"):
        tested.decide(N)
    with pytest.raises(DeclarationError, match="storage"):
        PrivateULA(logistic, 0.1, 1.0, storage="float16").schedule(**common)
