"""Posteriors and noise on released values: prices, grids, sensitivities attained by explicit data."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average
from tests.accounting import every_statement


@given(st.floats(0.1, 5.0), st.floats(0.05, 3.0), st.floats(0.0, 4.0))
def test_normal_posteriors_attain_the_strongly_log_concave_level(mu, sensitivity, epsilon):
    """Two normal posteriors of precision μ whose means differ by Δ/μ: exactly Δ/√μ-GDP."""
    statement = acc.posterior_strongly_log_concave(sensitivity, mu, "replace_one")
    m = sensitivity / math.sqrt(mu)
    assert m <= statement.gdp <= m * (1 + 1e-14)
    assert statement.delta(epsilon) >= gdp.delta(m, epsilon) * (1 - 1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: acc.posterior_strongly_log_concave(1.0, 0.0, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(1.0, math.nan, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(math.nan, 1.0, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(1.0, math.inf, "replace_one"),
        lambda: acc.posterior_bounded_gradient(math.nan, 1.0, "replace_one"),
        lambda: acc.posterior_bounded_gradient(1.0, 0.0, "replace_one"),
    ],
)
def test_constants_that_prove_nothing_are_refused(call):
    with pytest.raises(DeclarationError):
        call()


@pytest.mark.parametrize(
    "statement",
    [
        acc.posterior_strongly_log_concave(1e-200, 1e300, "replace_one"),
        acc.posterior_bounded_gradient(1e-200, 1e300, "replace_one"),
    ],
    ids=lambda statement: statement.argument.rule,
)
def test_what_underflows_is_not_called_free(statement) -> None:
    assert statement.delta(0.0) > 0


def test_laplace_is_pure_and_pays_its_grid():
    plain = acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4)
    assert plain.epsilon(0.0) == 0.5
    assert plain.gdp is None
    with pytest.raises(DeclarationError, match="scale"):
        acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4, grid=0.01)
    acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.42, grid=0.01)
    with pytest.raises(DeclarationError, match="scale"):
        acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.42, grid=0.01, dim=2)


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0, math.inf])
def test_scales_that_are_no_scales_are_refused(bad):
    for call in (
        lambda: acc.laplace(bad, adjacency="replace_one", sensitivity=1.0, scale=1.0),
        lambda: acc.laplace(1.0, adjacency="replace_one", sensitivity=bad, scale=1.0),
        lambda: acc.laplace(1.0, adjacency="replace_one", sensitivity=1.0, scale=bad),
        lambda: acc.gaussian(adjacency="replace_one", sensitivity=bad, scale=1.0),
        lambda: acc.gaussian(adjacency="replace_one", sensitivity=1.0, scale=bad),
    ):
        with pytest.raises(DeclarationError):
            call()


average_schedule = partial(every_statement.schedule, num_rows=1, dim=1, num_steps=100, release=Average(1))


@pytest.mark.parametrize(("first", "value"), [(1, 0.744744), (51, 1.053664)])
def test_average_sensitivity_vectors(first, value):
    found = acc.average_sensitivity(average_schedule(release=Average(first)), acc.Curvature(1.0, 50.0))
    assert found == pytest.approx(value, abs=6e-7)


def test_burn_in_makes_the_average_dearer_and_more_chains_do_not():
    curvature = acc.Curvature(1.0, 50.0)
    levels = [acc.average_sensitivity(average_schedule(release=Average(k)), curvature) for k in (1, 20, 90)]
    assert levels == sorted(levels)
    several = acc.average_sensitivity(average_schedule(num_chains=8), curvature)
    assert several == levels[0]
