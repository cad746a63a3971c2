"""Curves of single mechanisms and of their compositions, against quadrature and high precision."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import gdp
from private_mcmc.accounting.curves import Gaussian, Points, Pure, combine
from private_mcmc.errors import DeclarationError

EPSILONS = (0.0, 0.1, 0.4, 0.9, 1.5, 3.0)


def divergence(m, epsilon):
    """Of ``N(0, 1)`` and ``N(m, 1)`` at any real ``ε``: ``δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε)``."""
    if epsilon >= 0:
        return gdp.delta(m, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * gdp.delta(m, -epsilon)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 4.0))
def test_gaussian_and_pure_compose_exactly(m, level, epsilon):
    """Randomised response next to a Gaussian: the loss is the sum, integrated in high precision."""
    found = combine((Gaussian(m), Pure(level))).delta(epsilon)
    up = 1 / (1 + math.exp(-level))
    exact = up * divergence(m, epsilon - level) + (1 - up) * divergence(m, epsilon + level)
    assert exact <= found <= exact * 1.05 + 1e-12


def test_pure_levels_add_at_delta_zero_and_compose_better_above():
    together = combine((Pure(0.3), Pure(0.5), Pure(0.2)))
    assert together.epsilon(0.0) == pytest.approx(1.0, rel=1e-12)
    many = combine((Pure(0.1),) * 10)
    assert many.epsilon(1e-6) < 1.0
    # Ten times the double nearest to 0.1 is above 1.
    assert many.delta(many.epsilon(0.0)) == 0.0
    assert many.delta(1.0) < 1e-13


@pytest.mark.parametrize(("level", "count"), [(0.4, 6), (0.1, 100)])
def test_pure_mechanisms_compose_as_a_binomial(level, count):
    up = 1 / (1 + math.exp(-level))
    for epsilon in (1.0, 2.0, 5.0):
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


def test_approximate_points_pay_their_delta_once_each():
    curve = combine((Points(((0.2, 1e-6),)), Points(((0.3, 2e-6),)), Gaussian(0.5)))
    assert curve.delta(50.0) == pytest.approx(3e-6, rel=1e-5)
    assert curve.delta(0.5) >= combine((Pure(0.2), Pure(0.3), Gaussian(0.5))).delta(0.5)
    assert Points(((0.2, 1e-3), (1.0, 1e-6))).delta(1.0) == pytest.approx(1e-6)


def test_bad_levels_are_refused():
    for call in (
        lambda: Gaussian(math.nan),
        lambda: Pure(-1.0),
        lambda: Points(()),
        lambda: Points(((1.0, 2.0),)),
    ):
        with pytest.raises(DeclarationError):
            call()
