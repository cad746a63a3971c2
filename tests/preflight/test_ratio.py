"""Pairs with a bounded ratio: rows enforced, the posterior certified, the paper's run refuted beside it."""

from __future__ import annotations

import math

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.accounting.normal import normal_regression, posterior_normal_ratio, ratio_extremes
from private_mcmc.domains import Box, Ratio, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.model import read
from private_mcmc.preflight import preflight
from private_mcmc.preflight.conjugates import normal_facts
from private_mcmc.preflight.refute.pairs import extreme_rows
from private_mcmc.schedule import Batch, Schedule
from private_mcmc.target import Target
from tests.accounting.test_conjugate import normal_divergence

N = 400
DOMAIN = Ratio(x_low=0.9, x_high=1.8, center=N**1.22, width=N**0.1)


def regression(xy=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2**-0.5))
    with numpyro.plate("rows", xy.shape[0]):
        numpyro.sample("y", dist.Normal(slope * xy[:, 0], 1.0), obs=xy[:, 1])


def turned(xy=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2**-0.5))
    with numpyro.plate("rows", xy.shape[0]):
        numpyro.sample("y", dist.Normal(slope * xy[:, 1], 1.0), obs=xy[:, 0])


def shifted(xy=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2**-0.5))
    with numpyro.plate("rows", xy.shape[0]):
        numpyro.sample("y", dist.Normal(slope * (2 * xy[:, 0]), 1.0), obs=xy[:, 1])


def inside(domain, rows, slack=0.0):
    x, y = np.asarray(rows, np.float64).T
    ratio = np.abs(y / x - domain.center)
    return (x >= domain.x_low) & (x <= domain.x_high) & (ratio <= domain.width + slack)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.floats(width=64)] * 2), min_size=1, max_size=8),
    low=st.floats(1e-3, 10), longer=st.floats(1, 1e4), center=st.floats(-1e6, 1e6),
    width=st.floats(1e-6, 1e6),
)  # fmt: skip
def test_every_row_is_mapped_into_the_domain_and_stays_there(rows, low, longer, center, width) -> None:
    domain = Ratio(low, low * longer, center, width)
    with jax.enable_x64(True):
        mapped = np.asarray(domain.project(np.array(rows)))
        assert inside(domain, mapped).all()
        np.testing.assert_array_equal(np.asarray(domain.project(mapped)), mapped)
        assert inside(domain, domain.synthetic(np.random.default_rng(0), 20)).all()
        assert inside(domain, [row["xy"] for row in extreme_rows(Rows(xy=domain))]).all()
    bounds = domain.interval()
    assert np.all(bounds[0] <= mapped) and np.all(mapped <= bounds[1])


def test_rows_inside_stay_and_narrow_storage_keeps_the_ratio() -> None:
    domain = Ratio(0.9, 1.8, 3.0, 0.25)
    rows = np.array([[1.0, 3.0], [1.5, 4.2], [0.9, 2.8]])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(domain.project(rows), rows)
        stored = domain.project(np.array([[1.3, 99.0], [1.1, -99.0]]), np.float32)
        assert stored.dtype == np.float32 and inside(domain, stored).all()
        with pytest.raises(DeclarationError, match="lost in the rounding"):
            Ratio(0.9, 1.8, 1e7, 0.25).project(rows, np.float32)


def test_bounds_that_no_short_number_equals_are_kept_by_stored_ones() -> None:
    """The float32 numbers nearest to 0.7 and to 1.1 lie outside."""
    domain = Ratio(0.7, 1.1, 3.0, 0.25)
    with jax.enable_x64(True):
        stored = np.asarray(domain.project(np.array([[0.0, 9.0], [9.0, 9.0]]), np.float32), np.float64)
    assert stored[0, 0] >= 0.7 and stored[1, 0] <= 1.1


@pytest.mark.parametrize("bad", [(0.0, 1.0, 1.0, 1.0), (2.0, 1.0, 1.0, 1.0), (1.0, 2.0, 0.0, 0.0),
                                 (1.0, 2.0, math.nan, 1.0), (1.0, 2.0, 1e18, 1.0)])  # fmt: skip
def test_a_domain_that_is_none_is_refused(bad) -> None:
    with pytest.raises(DeclarationError, match="Ratio"):
        Ratio(*bad)


def test_the_declaration_is_read_back() -> None:
    rows = Rows(xy=DOMAIN)
    assert Rows.from_dict(rows.to_dict()) == rows


@pytest.mark.slow
@settings(max_examples=300)
@given(
    data=st.data(), alpha=st.floats(0.1, 50), beta=st.floats(0.01, 5), n=st.integers(1, 6),
    center=st.floats(-20, 20), width=st.floats(0.01, 3), epsilon=st.floats(0.05, 2.0),
)  # fmt: skip
def test_the_bound_covers_every_data_set(data, alpha, beta, n, center, width, epsilon) -> None:
    x_low, x_high = 0.6, 1.5
    ends = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
    others = data.draw(st.lists(st.tuples(ends, ends), min_size=n - 1, max_size=n - 1))
    posteriors = []
    for _ in range(2):
        shares = np.array([*others, (data.draw(ends), data.draw(ends))])
        x = x_low + shares[:, 0] * (x_high - x_low)
        y = x * (center + (2 * shares[:, 1] - 1) * width)
        precision = alpha + beta * np.sum(x**2)
        posteriors.append((beta * np.sum(x * y) / precision, precision))
    found = ratio_extremes(alpha, beta, x_low=x_low, x_high=x_high, center=center, width=width, n=n)
    assert (
        normal_divergence(*posteriors[0], *posteriors[1], epsilon)
        <= normal_regression(found, epsilon) + 1e-12
    )


def test_the_largest_shift_is_reached_where_nothing_pulls_the_mean() -> None:
    """Two rows at the ends of the ratio and of x, none beside them: the bound is attained."""
    found = ratio_extremes(1.0, 1.0, x_low=1.0, x_high=1.0, center=0.0, width=2.0, n=5)
    assert found.shift == pytest.approx(4.0 / 6 * math.sqrt(6), rel=1e-9)
    assert found.ratio == pytest.approx(1.0)


def test_only_the_two_entries_of_the_pair_are_recognised() -> None:
    assert normal_facts(read(regression, Rows(xy=DOMAIN), n=N)).ratio == DOMAIN
    assert normal_facts(read(turned, Rows(xy=DOMAIN), n=N)).ratio is None
    assert normal_facts(read(shifted, Rows(xy=DOMAIN), n=N)).ratio is None
    assert normal_facts(read(regression, Rows(xy=Box((0.9, 0), (1.8, 1))), n=N)).ratio is None


@pytest.mark.long
def test_one_report_certifies_the_posterior_and_refutes_the_run() -> None:
    """Heller and Fetaya's regression and its domain: private where sampled exactly, not after 30 epochs."""
    target = Target(8.0, 1e-3)
    run = Schedule(
        adjacency="replace_one", num_rows=N, dim=1, step_size=0.5 / (2 + N * 1.8**2) ** 2, num_steps=30 * N,
        clip=1e12, release="last", batch=Batch(scheme="cyclic", size=1),
    )  # fmt: skip
    alone = preflight(regression, Rows(xy=DOMAIN), target, n=N)
    assert alone.verdict == "private"
    report = preflight(regression, Rows(xy=DOMAIN), target, n=N, schedule=run)
    assert report.verdict == "unknown" and report.unclipped == alone.certificates[0]
    assert report.unclipped.verify()
    assert report.run.refuted and report.run.interim > 50 * report.unclipped.epsilon(1e-3)
    words = [block.word for block in report.report.blocks[:2]]
    assert words == ["the run is not private", "the posterior, unclipped: private"]
    assert report.to_dict()["unclipped"]["argument"]["rule"] == "posterior.normal_ratio"


def test_constants_out_of_range_are_refused() -> None:
    given = {"x_low": 1.0, "x_high": 2.0, "center": 0.0, "width": 1.0, "n": 5, "epsilons": (1.0,)}
    for change in ({"width": 0.0}, {"x_low": 3.0}, {"center": math.inf}, {"n": 0}):
        with pytest.raises(DeclarationError, match="bounded ratio"):
            posterior_normal_ratio(1.0, 1.0, **{**given, **change})
