"""Rows clipped coordinate by coordinate: what a row adds, what the path costs, what is refused."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.domains import Box, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import AnisotropicLangevin
from private_mcmc.kernels.gradient import boxed_gradient, whitening
from private_mcmc.model import read
from private_mcmc.schedule import Average
from tests import schedules
from tests.examples_of_models import linear

CLIPS, METRIC, NOISE = (2.0, 0.3), (1.0, 4.0), (2.0, 0.6)
ROWS = Rows(X=Box(np.full(2, -30.0), np.full(2, 30.0)), y=Box(-90.0, 90.0))


schedule = partial(
    schedules.schedule, num_rows=50, num_steps=7, clip=5.0, clips=CLIPS, preconditioner=METRIC, noise=NOISE
)


@pytest.mark.parametrize(
    ("adjacency", "rows"), [("replace_one", 2.0), ("zero_out", 1.0), ("add_remove", 1.0)]
)
def test_the_price_is_that_of_the_farthest_corner(adjacency, rows):
    """Every corner ``δ`` of the box, ``T‖S^{-1/2}γwMδ‖²``, with no formula of the library."""
    statement = accounting.langevin_statement(schedule(adjacency=adjacency, temper=0.5))
    spread = 2 * 0.01 * np.array(NOISE)
    corners = [np.array(signs) * rows * 0.5 * np.array(CLIPS) for signs in product((-1, 1), repeat=2)]
    worst = max(7 * np.sum((0.01 * np.array(METRIC) * corner) ** 2 / spread) for corner in corners)
    assert statement.gdp == pytest.approx(np.sqrt(worst), rel=1e-8)
    assert statement.gdp >= np.sqrt(worst)
    assert statement.verify()


def test_the_optimal_noise_costs_less_than_any_other_of_its_trace_and_less_than_under_a_norm_clip():
    bounds, trace = np.array([10.0, 1.0]), 2.0

    def square(noise, **clips):
        kernel = AnisotropicLangevin(linear, step_size=0.01, noise=tuple(noise), **clips)
        made = kernel.schedule(
            adjacency="zero_out", num_rows=9, dim=2, num_steps=4, num_chains=1, release="path"
        )
        return accounting.langevin_statement(made).gdp ** 2

    best = trace * bounds / bounds.sum()
    assert square(best, clips=bounds) == pytest.approx(1.21, rel=1e-7)
    assert square((1.0, 1.0), clips=bounds) == pytest.approx(2.02, rel=1e-7)
    assert square((1.0, 1.0), clip=10.0) == pytest.approx(2.0, rel=1e-7)
    assert square(best, clip=10.0) == pytest.approx(11.0, rel=1e-7)
    for share in (0.5, 0.8, 0.95):
        assert square((trace * share, trace * (1 - share)), clips=bounds) >= 1.21


@pytest.mark.slow
def test_every_coordinate_of_every_row_is_inside_its_clip_and_rows_that_are_no_numbers_add_nothing(rng):
    X, y = rng.normal(size=(40, 2)) * [1.0, 5.0], rng.normal(size=40) * 20
    X[3, 0], X[7, 1] = np.nan, np.inf
    reading = read(linear, ROWS, n=40)
    with jax.enable_x64(True):
        change = whitening(METRIC, 2)
        gradient = boxed_gradient(reading, change, CLIPS)
        columns = {"X": jnp.asarray(X), "y": jnp.asarray(y)}
        present = np.ones(40, bool)
        present[[0, 9]] = False
        theta = np.array([0.3, -0.2])
        total = gradient.total(
            change.from_parameter(jnp.asarray(theta)), gradient.prepare(columns, jnp.asarray(present))
        )
    plain = -((y - X @ theta)[:, None]) * X
    wanted = np.clip(plain, -np.array(CLIPS), CLIPS)[present & np.isfinite(plain).all(axis=1)]
    np.testing.assert_allclose(total, np.sqrt(METRIC) * wanted.sum(axis=0), rtol=1e-10, atol=1e-12)
    assert np.nanmax(np.abs(plain[:, 1])) > CLIPS[1]


def test_rounding_has_room_in_the_coordinate_that_a_row_moves_least():
    whole = accounting.gradient_limit(schedule(clips=None))
    boxed = accounting.gradient_limit(schedule())
    least = min(2 * np.sqrt(m) * c for m, c in zip(METRIC, CLIPS, strict=True))
    assert boxed == pytest.approx(whole * least / 10.0, rel=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        *({"clips": clips} for clips in ((1.0,), (1.0, 0.0), (1.0, np.nan), (1.0, np.inf))),
        {"preconditioner": ((1.0, 0.1), (0.1, 1.0)), "noise": None},
        {"rate": 0.1},
        {"release": Average()},
        {"clip": 1.0},
    ],
)
def test_what_has_no_proof_for_a_box_is_refused(changes):
    with pytest.raises(DeclarationError, match="clips"):
        schedule(**changes)


def test_a_kernel_takes_a_clip_of_the_norm_or_of_each_coordinate():
    with pytest.raises(DeclarationError, match="one of them"):
        AnisotropicLangevin(linear, 0.1, 1.0, clips=CLIPS)
    with pytest.raises(DeclarationError, match="clip"):
        AnisotropicLangevin(linear, 0.1).schedule(
            adjacency="replace_one", num_rows=9, dim=2, num_steps=1, num_chains=1, release="path"
        )


@pytest.mark.slow
def test_no_posterior_is_promised_for_a_box():
    """The schedule that a driver decides on is the one that runs; the posterior is not what it samples."""
    declared = dict(rows=ROWS, target=pmc.Target(3.0, 1e-5), release="path", num_steps=3)
    kernel = AnisotropicLangevin(linear, step_size=1e-3, clips=(1.0, 0.2))
    assert pmc.PrivateMCMC(kernel, **declared, guarantee="run").decide(5).schedule.clips == (1.0, 0.2)
    with pytest.raises(DeclarationError, match="guarantee='run'"):
        pmc.PrivateMCMC(kernel, **declared).decide(5)
