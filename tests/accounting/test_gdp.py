"""Gaussian DP: exact values in high precision, outward rounding, inverses."""

import math

import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError


def exact_delta(m, epsilon):
    mpmath.mp.dps = 60
    m, epsilon = mpmath.mpf(m), mpmath.mpf(epsilon)
    upper = mpmath.erfc((epsilon / m - m / 2) / mpmath.sqrt(2)) / 2
    return upper - mpmath.e**epsilon * mpmath.erfc((epsilon / m + m / 2) / mpmath.sqrt(2)) / 2


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.floats(1e-9, 60.0), st.floats(0.0, 1000.0))
def test_delta_is_rounded_up_and_close(m, epsilon):
    exact = exact_delta(m, epsilon)
    found = gdp.delta(m, epsilon)
    assert found >= exact
    if exact > 1e-300:
        assert found <= exact * (1 + mpmath.mpf(1e-9))


@settings(max_examples=100, deadline=None)
@given(st.floats(60.0, 3000.0), st.floats(-6.0, 6.0))
@example(2226.3370388533913, -1.4107012396183833)
@example(2202.482763938963, 0.0037747091176525416)
def test_delta_of_levels_that_promise_nothing_is_rounded_up_too(m, away):
    epsilon = m * (m / 2 + away)
    exact = exact_delta(m, epsilon)
    assert exact <= gdp.delta(m, epsilon) <= exact * (1 + mpmath.mpf(1e-6))


@pytest.mark.parametrize(("m", "epsilon"), [(1.0, 36.5), (0.3, 11.0), (27.0, 1300.0), (5e-4, 0.018)])
def test_delta_near_1e_minus_300(m, epsilon):
    exact = exact_delta(m, epsilon)
    assert 1e-305 < exact < 1e-240
    assert exact <= gdp.delta(m, epsilon) <= exact * (1 + mpmath.mpf(1e-9))


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 40.0), st.floats(-300.0, 2.0))
def test_epsilon_is_the_inverse_rounded_up(m, log10_delta):
    delta = min(1.0, 10.0**log10_delta)
    epsilon = gdp.epsilon(m, delta)
    assert gdp.delta(m, epsilon) <= delta
    if epsilon > 0:
        assert exact_delta(m, epsilon * (1 - 1e-8)) > delta * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.0, 50.0), st.floats(1e-30, 0.9))
def test_budget_is_the_largest_level_that_meets_the_target(epsilon, delta):
    m = gdp.budget(epsilon, delta)
    assert gdp.delta(m, epsilon) <= delta
    assert exact_delta(m * (1 + 1e-8), epsilon) > delta * (1 - 1e-12)


def test_level_zero_and_infinity():
    assert gdp.delta(0.0, 0.0) == 0.0
    assert gdp.epsilon(0.0, 0.0) == 0.0
    assert gdp.delta(math.inf, 5.0) == 1.0
    assert gdp.epsilon(1.0, 0.0) == math.inf
    assert gdp.budget(1.0, 0.0) == 0.0
    assert gdp.delta(1.0, math.inf) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp.delta(math.nan, 1.0),
        lambda: gdp.delta(-1.0, 1.0),
        lambda: gdp.delta(1.0, math.nan),
        lambda: gdp.delta(1.0, -1.0),
        lambda: gdp.epsilon(1.0, math.nan),
        lambda: gdp.epsilon(1.0, 1.5),
        lambda: gdp.budget(math.nan, 1e-6),
        lambda: gdp.budget(1.0, math.nan),
        lambda: gdp.of_pure(math.nan),
    ],
)
def test_nan_and_values_out_of_range_are_refused(call):
    with pytest.raises(DeclarationError):
        call()


@pytest.mark.parametrize("delta", [5e-324, 1e-323, 1e-310])
def test_targets_among_the_smallest_floats_are_inverted(delta):
    """Between two neighbours of them bisection had no middle, and never ended."""
    assert gdp.budget(0.0, delta) <= delta * 4
    m = gdp.budget(1.0, delta)
    assert 0.01 < m < 0.05 and gdp.delta(m, 1.0) <= delta and gdp.epsilon(m, delta) <= 1.0 + 1e-9
