"""No row moves the data gradient by more than the clip: not by underflow, nor past what is proved of it."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Ball, Real, Rows
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.kernels import gradient as clipping
from private_mcmc.kernels.gradient import clipped_gradient, whitening
from private_mcmc.kernels.step import langevin_program
from private_mcmc.model import read
from private_mcmc.schedule import Schedule
from tests.examples_of_models import linear
from tests.schedules import FIELDS

P = 400


def moved(model, columns, clip):
    with jax.enable_x64(True):
        gradient = clipped_gradient(model, whitening(None, model.dim), clip)
        rows = jax.jit(gradient.prepare)(columns, jnp.ones(1, bool))
        return float(jnp.linalg.norm(jax.jit(gradient.total)(jnp.full(model.dim, 3.0), rows)))


@pytest.mark.some(1)
@pytest.mark.parametrize("small", [1.48e-154, 1e-154, 2e-155, 1e-200, 1e-310])
def test_a_row_whose_squares_underflow_is_clipped_as_well(small):
    rows = Rows(X=Ball(1.0, dim=P), y=Real())
    model = read(linear, rows, n=10)
    design = np.full((1, P), small)
    design[0, 0] = 1.6e-154
    with jax.enable_x64(True):
        columns = rows.project({"X": design, "y": np.array([1e300])})
    assert moved(model, columns, 1.0) <= 1.0


NUMBERS = FIELDS | dict(num_rows=10, dim=P, num_steps=2, step_size=0.1)


def test_numbers_beside_which_caps_and_sums_overflow_are_refused():
    """With a clip of 1e170 the cap of a row of zeros was infinite, and its product with them no number."""
    model = read(linear, Rows(X=Ball(1.0, dim=P), y=Real()), n=10)
    for name in ("clip", "temper", "step_size"):
        for value in (1e170, 1e-170):
            with pytest.raises(DeclarationError, match="clip, temper and step_size must lie"):
                langevin_program(model, Schedule(**NUMBERS | {name: value}))
    # A row of rate 1e-17 was drawn with probability 2^-52, 22 times as often as was charged.
    with pytest.raises(DeclarationError, match="rows would be drawn more often"):
        langevin_program(model, Schedule(**NUMBERS, rate=1e-17))


@pytest.mark.slow
def test_a_row_of_zeros_adds_nothing_under_the_largest_clip():
    model = read(linear, Rows(X=Ball(1.0, dim=P), y=Real()), n=10)
    with jax.enable_x64(True):
        columns = model.rows.project({"X": np.eye(2, P, k=-1), "y": np.array([5.0, 5.0])})
        gradient = clipped_gradient(model, whitening(None, P), 1e100)
        both, one = (gradient.prepare(columns, jnp.asarray([first, True])) for first in (True, False))
        at, total = jnp.full(P, 3.0), jax.jit(gradient.total)
        np.testing.assert_array_equal(total(at, both), total(at, one))
        assert np.linalg.norm(total(at, one)) == pytest.approx(2.0)


@pytest.fixture
def asked_anew():
    clipping.check_arithmetic.cache_clear()
    yield
    clipping.check_arithmetic.cache_clear()


def test_no_row_is_run_where_everything_counts_as_finite(asked_anew, monkeypatch):
    clipping.check_arithmetic()
    clipping.check_arithmetic.cache_clear()
    monkeypatch.setattr(clipping.jnp, "isfinite", lambda values: jnp.ones_like(values, dtype=bool))
    with pytest.raises(ReleaseError, match="XLA_FLAGS"):
        clipping.check_arithmetic()


@pytest.mark.long
def test_fast_arithmetic_without_nans_is_refused_by_the_driver():
    flags = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"
    code = """
import numpy as np, private_mcmc as pmc
from private_mcmc.models import logistic, logistic_rows
kernel, target = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, temper=0.1), pmc.Target(3.0, 1e-6)
mcmc = pmc.PrivateMCMC(kernel, rows=logistic_rows(2), target=target, release="last", num_steps=2)
mcmc.run(X=np.ones((9, 2)), y=np.ones(9, int))
"""
    fast = os.environ | {"XLA_FLAGS": f"{flags} --xla_cpu_fast_math_honor_infs=false"}
    done = subprocess.run([sys.executable, "-c", code], env=fast, capture_output=True, text=True)
    assert done.returncode != 0 and "takes every number for finite" in done.stderr
