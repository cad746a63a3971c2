"""Mixing, bias and concentration constants against exact Gaussian chains."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import mixing
from benchmarks.papers import moduli as papers
from private_mcmc.errors import DeclarationError


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0.1, 5), st.floats(0.3, 20), st.floats(1, 10))
def test_at_the_mixing_time_the_shift_bound_gives_half(exponent, constant, diameter, slack):
    step = min(1 / (mixing.step_threshold(exponent, constant, diameter) * slack), diameter**2)
    steps, distance = mixing.mixing_time(0.5, step, exponent, constant, diameter)
    assert distance.total_variation == 0.5
    phi = papers.weakly_smooth(step, exponent, constant)
    if steps > 300_000:
        return
    square = papers.two_starts_constant(1.0, float(phi.h), math.sqrt(2 * step), diameter, steps)
    assert math.sqrt(square / 2 / 2) <= 0.5 * (1 + 1e-9)  # Pinsker: TV² ≤ KL/2, KL ≤ m²/2


@pytest.mark.parametrize("ratio", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_bias_is_above_the_exact_one_of_a_quadratic(ratio, share):
    mu, smooth = 1.0, ratio
    step = share * 2 / (mu + smooth)
    # ULA on N(0, 1/a) has stationary variance 1/(a(1 − γa/2))
    exact = math.sqrt(
        sum((1 / math.sqrt(a * (1 - step * a / 2)) - 1 / math.sqrt(a)) ** 2 for a in (mu, smooth))
    )
    assert mixing.bias(step, mu, smooth, 2) >= exact
    with pytest.raises(DeclarationError, match="at most"):
        mixing.bias(1.01 * 2 / (mu + smooth), mu, smooth, 2)


@pytest.mark.parametrize("burn_in", [0, 5, 200])
@pytest.mark.parametrize("kept", [1, 10, 300])
def test_concentration_dominates_the_exact_standard_deviation_of_an_average(burn_in, kept):
    step, mu = 0.05, 1.0
    rho, total = 1 - step * mu, burn_in + kept
    weights = [
        sum(rho ** (n - j) for n in range(max(j, burn_in + 1), total + 1)) / kept for j in range(1, total + 1)
    ]
    sd = math.sqrt(2 * step * sum(w * w for w in weights))
    allowed = mixing.concentration(step, step * mu, 1.0, kept, 0.05)
    assert allowed >= 1.96 * sd


def test_constants_of_assumptions_3_8_and_3_9_hold_on_a_quadratic():
    step, mu, start, kept, burn_in, failure = 0.05, 1.0, 2.0, 400, 20, 0.01
    target, sensitivity = 0.7, 0.4  # U = (x − 0.7)²/2; the other data set moves the minimum by 0.4
    rng = np.random.default_rng(0)
    x, total = np.full(20_000, start), np.zeros(20_000)
    for n in range(1, burn_in + kept + 1):
        x = x - step * (x - target) + math.sqrt(2 * step) * rng.normal(size=x.size)
        total += x if n > burn_in else 0.0
    # W_1 from a point to N(target, 1/(1 − γ/2)) is at most |start − target| + its mean deviation
    start_distance = abs(start - target) + math.sqrt(2 / math.pi / (1 - step / 2))
    known = mixing.by_convergence(
        step_size=step,
        strong_convexity=mu,
        smoothness=mu,
        dim=1,
        lipschitz=1.0,
        kept=kept,
        burn_in=burn_in,
        start_distance=start_distance,
        sensitivity=sensitivity,
        failure=failure,
    )
    missed = np.mean(np.abs(total / kept - target) > known.accuracy)
    assert missed <= failure  # fails with probability below 1e-9 if the bound holds
    assert known.posterior_change >= sensitivity / mu
    assert known.posterior_change == pytest.approx(0.4)
