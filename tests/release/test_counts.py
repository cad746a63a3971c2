"""Counts by cell: one row moves them by no more than was charged, and the noise has the stated law."""

import math

import numpy as np
import pytest
from scipy import stats

from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release import plan_counts


@pytest.mark.parametrize(
    ("adjacency", "factor"), [("replace_one", math.sqrt(2)), ("add_remove", 1.0), ("zero_out", 1.0)]
)
def test_the_statement_is_the_declared_price_and_the_noise_is_what_it_needs(adjacency, factor):
    mechanism = plan_counts(0.3, cells=5, adjacency=adjacency)
    assert mechanism.statement.gdp == pytest.approx(0.3, rel=1e-9)
    assert mechanism.statement.gdp <= 0.3 * (1 + 1e-12)
    assert mechanism.noise.scale == pytest.approx(factor / 0.3, rel=1e-6)
    assert mechanism.noise.gaussian_scale >= mechanism.statement.argument.constants["scale"]
    assert mechanism.statement.adjacency == adjacency
    assert mechanism.statement.verify()


def test_present_rows_are_counted_and_cells_out_of_range_go_to_the_nearest():
    mechanism = plan_counts(1e6, cells=3, adjacency="replace_one")
    released = mechanism.release(np.array([0, 1, 1, 7, -4, 2]), np.array([1, 1, 1, 1, 1, 0], bool))
    np.testing.assert_allclose(released.values, [2, 2, 1], atol=1e-3)
    assert released.noise_sd == mechanism.noise.sd


def test_noise_is_gaussian_of_the_stated_scale():
    mechanism = plan_counts(0.5, cells=1500, adjacency="replace_one")
    noise = mechanism.release(np.zeros(10, int), np.zeros(10, bool)).values
    assert stats.kstest(noise, stats.norm(scale=mechanism.noise.scale).cdf).pvalue > 1e-6


def test_schema_errors_are_about_shapes_only():
    mechanism = plan_counts(0.5, cells=4, adjacency="replace_one")
    with pytest.raises(DataSchemaError, match="integer cell"):
        mechanism.release(np.zeros((3, 1), int), np.ones(3, bool))
    with pytest.raises(DataSchemaError, match="integer cell"):
        mechanism.release(np.zeros(3), np.ones(3, bool))
    with pytest.raises(DeclarationError, match="cells"):
        plan_counts(0.5, cells=0, adjacency="replace_one")
