"""Violations are found where they exist, never where they do not, and their numbers are right."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_expit

from private_mcmc.accounting import gdp
from private_mcmc.preflight.events import Violation, violation


def told_apart(p, q, epsilon: float, delta: float) -> Violation | None:
    return violation(lambda x: np.stack([p(x), q(x)]), epsilon, delta)


def normal(mean: float, sd: float):
    return lambda x: -((x - mean) ** 2) / (2 * sd**2)


def laplace(mean: float, scale: float):
    return lambda x: -np.abs(x - mean) / scale


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    m=st.floats(0.05, 6.0),
    epsilon=st.floats(0.05, 6.0),
    place=st.floats(-1e4, 1e4),
    log_sd=st.floats(-4.0, 4.0),
    slack=st.sampled_from([-1e-6, 1e-6, -0.1, 0.1]),
)
def test_two_normals_violate_exactly_above_their_divergence(m, epsilon, place, log_sd, slack) -> None:
    sd = math.exp(log_sd)
    exact = gdp.delta(m, epsilon)
    # Below this the quadrature error of both (1e-12, enlarged) is part of the comparison.
    if exact < 1e-8 * math.exp(epsilon):
        return
    found = told_apart(normal(place + m * sd, sd), normal(place, sd), epsilon, exact * (1 + slack))
    if slack > 0:
        assert found is None
    elif slack < -1e-3:
        assert found is not None
        excess = found.p_low - math.exp(epsilon) * found.q_high - exact * (1 + slack)
        assert excess == pytest.approx(-slack * exact, rel=1e-2)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("epsilon", [0.5, 0.999, 1.001, 2.0])
def test_kinks_are_integrated_soundly(scale: float, epsilon: float) -> None:
    exact = max(0.0, 1 - math.exp((epsilon - 1) / 2))
    assert told_apart(laplace(scale, scale), laplace(0, scale), epsilon, exact + 1e-7) is None
    if exact > 0:
        assert told_apart(laplace(scale, scale), laplace(0, scale), epsilon, exact * 0.99) is not None


def test_a_density_that_overflows_near_its_peak_warns_of_nothing() -> None:
    def pole(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x - 3) < 1e-3, np.inf, -((x - 3) ** 2) / 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert told_apart(pole, pole, 1.0, 1e-6) is None


def test_heavy_tails_are_integrated() -> None:
    def cauchy(mean: float):
        return lambda x: -np.log1p((x - mean) ** 2)

    def below(x: float) -> float:
        return math.atan(x) / math.pi + 0.5

    found = told_apart(cauchy(0), cauchy(3), 1.0, 1e-6)
    ((low, high),) = found.intervals
    assert found.p == pytest.approx(below(high) - below(low), rel=1e-8)
    assert found.q == pytest.approx(below(high - 3) - below(low - 3), rel=1e-8)


@pytest.mark.parametrize("distance", [10.0, 1e3, 1e6])
def test_narrow_distant_peaks_are_not_missed(distance: float) -> None:
    found = told_apart(normal(0, 1e-2), normal(distance, 1e-2), 1.0, 0.5)
    assert found.p == pytest.approx(1.0, abs=1e-9)
    assert found.q == pytest.approx(0.0, abs=1e-9)

    def two(x):
        return np.logaddexp(normal(-distance, 1e-2)(x) + math.log(100), normal(distance, 1.0)(x))

    # The second peak is as heavy as the first, whatever its height.
    mirrored = told_apart(two, lambda x: two(-x), 1.0, 0.5)
    assert mirrored.p == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("flat", [lambda x: 0 * x, log_expit, np.abs, lambda x: x * np.nan])
def test_laws_without_a_normalising_constant_and_no_numbers_refute_nothing(flat) -> None:
    assert told_apart(flat, normal(0, 1), 0.1, 1e-6) is None
    assert told_apart(normal(0, 1), flat, 0.1, 1e-6) is None


def test_equal_laws_are_never_told_apart() -> None:
    for density in (normal(3, 2), laplace(1, 4), lambda x: 30 * log_expit(x) - x**2 / 8):
        assert told_apart(density, density, 1e-9, 0.0) is None
