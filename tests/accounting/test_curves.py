"""Curves of single mechanisms and of their compositions, against quadrature and high precision."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from private_mcmc.accounting.curves import gdp, rdp
from private_mcmc.accounting.curves.curve import Concentrated, Gaussian, Laplace, Points, Pure
from private_mcmc.accounting.curves.product import Product, combine
from private_mcmc.errors import DeclarationError

EPSILONS = (0.0, 0.1, 0.4, 0.9, 1.5, 3.0)


def divergence(m, epsilon):
    """Of ``N(0, 1)`` and ``N(m, 1)`` at any real ``ε``: ``δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε)``."""
    if epsilon >= 0:
        return gdp.delta(m, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * gdp.delta(m, -epsilon)


def laplace_pair(level):
    def upper(x):
        return math.exp(-abs(x)) / 2

    def lower(x):
        return math.exp(-abs(x - level)) / 2

    return upper, lower


@pytest.mark.parametrize("level", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_delta_is_the_hockey_stick_divergence(level, epsilon):
    upper, lower = laplace_pair(level)
    exact = quad(
        lambda x: max(0.0, upper(x) - math.exp(epsilon) * lower(x)),
        -60,
        60 + level,
        points=[0, level, (level - epsilon) / 2],
        limit=400,
    )[0]
    assert Laplace(level).delta(epsilon) == pytest.approx(exact, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("alpha", [1.1, 2.0, 7.5, 64.0])
def test_renyi_divergences_of_pure_mechanisms(level, alpha):
    mpmath.mp.dps = 50
    e = mpmath.e**level
    up, down = e / (1 + e), 1 / (1 + e)
    response = mpmath.log(up**alpha * down ** (1 - alpha) + down**alpha * up ** (1 - alpha)) / (alpha - 1)
    assert float(response) <= Pure(level).rdp(alpha) <= float(response) * (1 + 1e-9) + 1e-13
    moment = mpmath.quad(
        lambda x: mpmath.exp(-alpha * abs(x) + (alpha - 1) * abs(x - level)) / 2, [-80, 0, level, 80 + level]
    )
    shift = mpmath.log(moment) / (alpha - 1)
    assert float(shift) * (1 - 1e-12) <= Laplace(level).rdp(alpha) <= float(shift) * (1 + 1e-6)
    assert Laplace(level).rdp(alpha) <= Pure(level).rdp(alpha) <= level


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-8, 30.0), st.floats(1.0001, 1e4))
def test_pure_renyi_bound_holds_at_extremes(level, alpha):
    value = Pure(level).rdp(alpha)
    assert 0 <= value <= min(level, alpha * level**2 / 2 * (1 + 1e-14))


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_zcdp_conversion_is_never_above_dp_accounting(rho, delta):
    orders = 1 + np.geomspace(1e-3, 1e6, 4000)
    reference, _ = rdp_privacy_accountant.compute_epsilon(orders, rho * orders, delta)
    epsilon = Concentrated(rho).epsilon(delta)
    assert epsilon <= reference * (1 + 1e-6) + 1e-9
    assert epsilon >= gdp.epsilon(math.sqrt(2 * rho), delta) * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 4.0))
def test_gaussian_and_pure_compose_exactly(m, level, epsilon):
    """Randomised response next to a Gaussian: the loss is the sum, integrated in high precision."""
    found = combine((Gaussian(m), Pure(level))).delta(epsilon)
    up = 1 / (1 + math.exp(-level))
    exact = up * divergence(m, epsilon - level) + (1 - up) * divergence(m, epsilon + level)
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-300)
    assert gdp.delta(m, epsilon) * (1 - 1e-9) <= found <= divergence(m, epsilon - level) * (1 + 1e-9)


def test_pure_levels_add_at_delta_zero_and_compose_better_above():
    together = combine((Pure(0.3), Pure(0.5), Laplace(0.2)))
    assert together.epsilon(0.0) == pytest.approx(1.0, rel=1e-12)
    many = combine((Pure(0.1),) * 10)
    assert many.epsilon(1e-6) < 1.0
    # Ten times the double nearest to 0.1 is above 1.
    assert many.delta(many.epsilon(0.0)) == 0.0
    assert many.delta(1.0) < 1e-18


def test_randomised_response_composes_as_a_binomial():
    level, count, epsilon = 0.4, 6, 1.0
    up = 1 / (1 + math.exp(-level))
    exact = sum(
        math.comb(count, k)
        * max(0.0, up**k * (1 - up) ** (count - k) - math.exp(epsilon) * up ** (count - k) * (1 - up) ** k)
        for k in range(count + 1)
    )
    assert combine((Pure(level),) * count).delta(epsilon) == pytest.approx(exact, rel=1e-9)


def test_a_hundred_pure_mechanisms_compose_as_a_binomial():
    level, count = 0.1, 100
    up = 1 / (1 + math.exp(-level))
    for epsilon in (1.0, 3.0, 5.0):
        exact = sum(
            math.comb(count, k)
            * up**k
            * (1 - up) ** (count - k)
            * -math.expm1(epsilon - (2 * k - count) * level)
            for k in range(count + 1)
            if (2 * k - count) * level > epsilon
        )
        found = combine((Pure(level),) * count).delta(epsilon)
        assert exact * (1 - 1e-9) <= found <= exact * 1.05 + 1e-12


def test_points_next_to_several_other_kinds():
    parts = (Points(((0.2, 1e-6),)), Concentrated(0.02), Gaussian(0.3))
    merged = Concentrated(0.02 + 0.045)
    assert combine(parts).delta(2.0) <= 1e-6 + merged.delta(1.8)
    assert combine(parts).delta(2.0) >= 1e-6


def test_many_pure_mechanisms_still_compose_soundly():
    levels = [0.05 * (1 + k / 20) for k in range(20)]
    curve = combine(tuple(Pure(level) for level in levels))
    assert curve.delta(sum(levels)) <= 1e-12
    variance = sum(level**2 for level in levels)
    assert curve.epsilon(1e-6) >= 0.3 * math.sqrt(variance)
    assert curve.epsilon(1e-6) <= sum(levels)


def test_approximate_points_pay_their_delta_once_each():
    curve = combine((Points(((0.2, 1e-6),)), Points(((0.3, 2e-6),)), Gaussian(0.5)))
    assert curve.delta(50.0) == pytest.approx(3e-6, rel=1e-5)
    assert curve.delta(0.5) >= combine((Pure(0.2), Pure(0.3), Gaussian(0.5))).delta(0.5)
    assert Points(((0.2, 1e-3), (1.0, 1e-6))).delta(1.0) == pytest.approx(1e-6)
    assert Points(((0.2, 1e-3),)).rdp(2.0) == math.inf


def test_discretised_gaussian_composes_with_pure_and_gaussian_by_renyi():
    parts = (Concentrated(0.08), Pure(0.3), Gaussian(0.4))
    curve = combine(parts)
    assert isinstance(curve, Product)
    assert curve.rdp(3.0) == pytest.approx(sum(part.rdp(3.0) for part in parts))
    assert curve.zcdp == pytest.approx(0.08 + 0.045 + 0.08)
    assert curve.delta(3.0) <= Concentrated(0.08 + 0.045 + 0.08).delta(3.0) * (1 + 1e-9)
    exact_if_gaussian = combine((Gaussian(math.hypot(0.4, 0.4)), Pure(0.3)))
    assert curve.delta(3.0) >= exact_if_gaussian.delta(3.0)


def test_laplace_next_to_gaussian_uses_its_own_pair():
    curve = combine((Gaussian(0.5), Laplace(2.0)))
    upper, lower = laplace_pair(2.0)
    epsilon = 1.5

    def integrand(x):
        return upper(x) * divergence(0.5, epsilon - math.log(upper(x) / lower(x)))

    exact = quad(integrand, -40, 45, points=[0, 2], limit=300)[0]
    assert exact <= curve.delta(epsilon) <= exact * (1 + 1e-3)
    assert curve.delta(epsilon) < combine((Gaussian(0.5), Pure(2.0))).delta(epsilon)


@pytest.mark.parametrize("curve", [Pure(0.8), Laplace(0.8), Points(((0.5, 1e-3),)), Concentrated(0.1)])
def test_trade_off_of_any_curve_is_a_lower_bound_within_the_square(curve):
    for alpha in (0.0, 0.01, 0.2, 0.7, 1.0):
        beta = curve.beta(alpha)
        assert 0 <= beta <= 1 - alpha + 1e-12
        for epsilon in (0.0, 0.4, 0.8):
            exact_line = 1 - curve.delta(epsilon) - math.exp(epsilon) * alpha
            assert beta >= exact_line - 0.02


def test_pure_trade_off_is_that_of_randomised_response():
    level = 0.8
    for alpha in (0.05, 0.3, 0.6):
        exact = max(0.0, 1 - math.exp(level) * alpha, math.exp(-level) * (1 - alpha))
        assert Pure(level).beta(alpha) == pytest.approx(exact, abs=1e-3)
        assert Pure(level).beta(alpha) <= exact + 1e-12


def test_bad_orders_and_levels_are_refused():
    for call in (
        lambda: Gaussian(math.nan),
        lambda: Pure(-1.0),
        lambda: Concentrated(math.nan),
        lambda: Points(()),
        lambda: Points(((1.0, 2.0),)),
        lambda: Gaussian(1.0).rdp(1.0),
        lambda: Pure(1.0).rdp(math.nan),
        lambda: Pure(1.0).beta(-0.1),
        lambda: rdp.to_delta(lambda alpha: alpha, math.nan),
    ):
        with pytest.raises(DeclarationError):
            call()
