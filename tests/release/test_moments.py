"""Second moments: one row moves them by no more than was charged, and the noise has the stated law."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Statement
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release import sums
from private_mcmc.release.sums import floored, plan_second_moments


def plan(gdp=0.5, radius=1.0, dim=3, num_rows=50, adjacency="replace_one"):
    return plan_second_moments(gdp, radius=radius, dim=dim, num_rows=num_rows, adjacency=adjacency)


def coordinates(rows, radius):
    """What the noise is added to: the upper triangle, off-diagonal entries times √2."""
    gram = sums._gram(rows, radius)
    upper = np.triu_indices(len(gram))
    return gram[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]), st.floats(0.1, 10.0))
def test_one_row_moves_the_sum_by_at_most_the_charge(seed, dim, radius):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(20, dim)) * 10.0 ** random.integers(-3, 4)
    other = rows.copy()
    other[7] = random.normal(size=dim) * 100
    without = np.delete(rows, 7, axis=0)
    for adjacency, neighbour in (("replace_one", other), ("add_remove", without)):
        charged = plan(radius=radius, dim=dim, num_rows=20, adjacency=adjacency).noise.sensitivity
        moved = np.linalg.norm(coordinates(rows, radius) - coordinates(neighbour, radius))
        assert moved <= charged


def test_orthogonal_rows_on_the_sphere_reach_the_sensitivity():
    rows, other = np.zeros((20, 3)), np.zeros((20, 3))
    rows[0, 0] = other[0, 1] = 2.0
    moved = np.linalg.norm(coordinates(rows, 2.0) - coordinates(other, 2.0))
    assert moved == pytest.approx(plan(radius=2.0).noise.sensitivity, rel=1e-9)


def test_the_rounding_allowance_covers_sums_of_many_rows():
    """Sums that lose digits: large and tiny rows mixed, against exactly rounded sums."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(30_000, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= 10.0 ** random.uniform(-8, 0, size=(30_000, 1))
    gram = sums._gram(rows, 1.0)
    errors = [
        abs(gram[i, j] - math.fsum((rows[:, i] * rows[:, j]).tolist())) for i in range(2) for j in range(2)
    ]
    assert 0 < max(errors) < sums._rounding(1.0, 2, 30_000)


def test_noise_is_symmetric_with_half_the_variance_off_the_diagonal():
    mechanism = plan(gdp=0.3, dim=60, num_rows=10)
    noise = mechanism.release(np.zeros((10, 60))).matrix
    np.testing.assert_array_equal(noise, noise.T)
    scale = mechanism.noise.scale
    assert stats.kstest(np.diag(noise), stats.norm(scale=scale).cdf).pvalue > 1e-6
    above = noise[np.triu_indices(60, 1)]
    assert stats.kstest(above, stats.norm(scale=scale / math.sqrt(2)).cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("adjacency", "dim", "factor"),
    [("replace_one", 3, math.sqrt(2)), ("replace_one", 1, 1.0), ("add_remove", 3, 1.0), ("zero_out", 3, 1.0)],
)
def test_the_statement_is_the_declared_price_and_the_noise_is_what_it_needs(adjacency, dim, factor):
    mechanism = plan(gdp=0.5, radius=2.0, dim=dim, adjacency=adjacency)
    assert mechanism.statement.gdp == pytest.approx(0.5, rel=1e-9)
    assert mechanism.statement.gdp <= 0.5 * (1 + 1e-12)
    assert mechanism.statement.adjacency == adjacency
    assert mechanism.noise.scale == pytest.approx(factor * 4.0 / 0.5, rel=1e-6)
    assert mechanism.noise.gaussian_scale >= mechanism.statement.argument.constants["scale"]
    assert mechanism.statement.verify()
    assert Statement.from_dict(mechanism.statement.to_dict()) == mechanism.statement


def test_no_private_value_raises_warns_or_spoils_the_sum():
    rows = np.ones((10, 3))
    rows[0], rows[1, 2], rows[2], rows[3] = math.nan, math.inf, 1e200, 5e-324
    mechanism = plan(gdp=1e3, num_rows=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released = mechanism.release(rows)
    clean = rows[4:] / math.sqrt(3)
    np.testing.assert_allclose(released.matrix, clean.T @ clean, atol=0.1)


def test_schema_errors_are_about_shapes_only():
    with pytest.raises(DataSchemaError, match=r"\(n, 3\)"):
        plan().release(np.zeros((10, 2)))
    with pytest.raises(DataSchemaError, match="more rows"):
        plan(num_rows=5).release(np.zeros((6, 3)))
    with pytest.raises(DeclarationError, match="rows"):
        plan(num_rows=0)
    with pytest.raises(DeclarationError, match="no useful bound"):
        plan(num_rows=10**14)


def test_flooring_keeps_what_is_above_and_lifts_what_is_below():
    released = sums.SecondMoments(np.diag([4.0, -1.0]), 1.0, plan().statement)
    np.testing.assert_allclose(floored(released.matrix, 0.5), np.diag([4.0, 0.5]), atol=1e-12)
    with pytest.raises(DeclarationError, match="positive"):
        floored(released.matrix, 0.0)
