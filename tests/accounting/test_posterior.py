"""Posterior certificates against exact posteriors."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import accounting as acc
from private_mcmc.accounting.curves import gdp
from private_mcmc.errors import DeclarationError

EPSILONS = (0.0, 0.3, 1.0, 2.5)


@given(st.floats(0.1, 5.0), st.floats(0.05, 3.0), st.floats(0.0, 4.0))
def test_normal_posteriors_attain_the_strongly_log_concave_level(mu, sensitivity, epsilon):
    """Two normal posteriors of precision μ whose means differ by Δ/μ: exactly Δ/√μ-GDP."""
    statement = acc.posterior_strongly_log_concave(sensitivity, mu, "replace_one")
    m = sensitivity / math.sqrt(mu)
    assert m <= statement.gdp <= m * (1 + 1e-14)
    assert statement.delta(epsilon) >= gdp.delta(m, epsilon) * (1 - 1e-12)


def logistic_posterior(rows, prior, clip, grid):
    """A log-concave posterior with bounded scores on a grid: U = μθ²/2 + Σ C log(1 + e^{x θ})."""
    potential = prior * grid**2 / 2 + sum(clip * np.logaddexp(0.0, x * grid) for x in rows)
    weights = np.exp(-(potential - potential.min()))
    return weights / weights.sum()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_logistic_posteriors_stay_below_the_certificate(epsilon):
    grid, clip, prior = np.linspace(-12, 12, 20_001), 1.4, 0.8
    statement = acc.posterior_strongly_log_concave(
        acc.row_sensitivity(clip, 1.0, "replace_one"), prior, "replace_one"
    )
    for others in ((1, 1, -1), (1, -1, 1), (-1, -1, -1), ()):
        laws = [logistic_posterior((*others, mine), prior, clip, grid) for mine in (1, -1)]
        for a, b in (laws, laws[::-1]):
            exact = float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)))
            assert exact <= statement.delta(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounded_gradients_without_convexity_stay_below_the_certificate(epsilon):
    """A sinusoidal likelihood: only |∇| ≤ B and the prior's curvature are known."""
    grid, prior, bound, frequency = np.linspace(-9, 9, 20_001), 1.0, 0.9, 3.0
    statement = acc.posterior_bounded_gradient(bound, prior, "replace_one")
    for first, second in ((0.0, math.pi), (0.3, 2.1), (1.0, 4.0)):
        laws = []
        for phase in (first, second):
            potential = prior * grid**2 / 2 + bound / frequency * np.sin(frequency * grid + phase)
            weights = np.exp(-(potential - potential.min()))
            laws.append(weights / weights.sum())
        for a, b in (laws, laws[::-1]):
            exact = float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)))
            assert exact <= statement.delta(epsilon)


@given(st.floats(0.05, 4.0), st.floats(0.01, 0.99), st.floats(1.05, 60.0))
def test_bounded_log_likelihood_covers_every_exponential_tilt(bound, share, alpha):
    """Posterior ratio e^{g}/E e^{g} with osc g ≤ b: pure b and b²/8-zCDP, here for two-point laws."""
    statement = acc.posterior_bounded(bound, "replace_one")
    tilt = np.exp(np.array([bound, 0.0]))
    q = np.array([share, 1 - share])
    p = q * tilt / np.sum(q * tilt)
    assert np.max(np.abs(np.log(p / q))) <= bound * (1 + 1e-12)
    divergence = math.log(np.sum(p**alpha * q ** (1 - alpha))) / (alpha - 1)
    assert divergence <= statement.rdp(alpha) * (1 + 1e-9) + 1e-12
    for epsilon in (0.0, bound / 3, bound / 2):
        exact = float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))
        assert exact <= statement.delta(epsilon) * (1 + 1e-9) + 1e-15


def test_beta_posterior_inside_the_bounded_certificate():
    """Clamped log likelihood of a Bernoulli row, θ in [0.2, 0.8]: the exact ratio of truncated betas."""
    mpmath.mp.dps = 20
    low, high = mpmath.mpf("0.2"), mpmath.mpf("0.8")
    bound = float(2 * mpmath.log(high / low))
    statement = acc.posterior_bounded(bound, "replace_one")
    assert statement.epsilon(0.0) == pytest.approx(bound)

    def mass(ones, zeros, top):
        return mpmath.quad(lambda x: x**ones * (1 - x) ** zeros, [low, top])

    for ones in range(3):
        for point in (0.3, 0.5, 0.7):
            one = mass(ones + 1, 2 - ones, point) / mass(ones + 1, 2 - ones, high)
            other = mass(ones, 3 - ones, point) / mass(ones, 3 - ones, high)
            assert abs(float(mpmath.log(one / other))) <= bound


@pytest.mark.slow
def test_bounded_range_is_better_than_its_pure_level_at_positive_delta():
    statement = acc.posterior_bounded(0.5, "add_remove")
    assert statement.epsilon(0.0) == 0.5
    total = acc.compose(*(acc.posterior_bounded(0.1, "add_remove"),) * 100)
    assert total.epsilon(1e-6) < 3.5
    assert total.zcdp == pytest.approx(100 * 0.01 / 8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: acc.posterior_bounded(math.nan, "replace_one"),
        lambda: acc.posterior_bounded(-1.0, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(1.0, 0.0, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(1.0, math.nan, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(math.nan, 1.0, "replace_one"),
        lambda: acc.posterior_strongly_log_concave(1.0, math.inf, "replace_one"),
        lambda: acc.posterior_bounded_gradient(math.nan, 1.0, "replace_one"),
        lambda: acc.posterior_bounded_gradient(1.0, 0.0, "replace_one"),
        lambda: acc.posterior_bounded(1.0, "neighbours"),
    ],
)
def test_constants_that_prove_nothing_are_refused(call):
    with pytest.raises(DeclarationError):
        call()


@pytest.mark.parametrize(
    "statement",
    [
        acc.posterior_bounded(1e-200, "replace_one"),
        acc.posterior_strongly_log_concave(1e-200, 1e300, "replace_one"),
        acc.posterior_bounded_gradient(1e-200, 1e300, "replace_one"),
    ],
    ids=lambda statement: statement.argument.rule,
)
def test_what_underflows_is_not_called_free(statement) -> None:
    assert statement.delta(0.0) > 0


@pytest.mark.parametrize("range_b", [1e200, math.inf])
def test_ranges_beyond_the_squares_of_floats_are_still_statements(range_b: float) -> None:
    assert acc.posterior_bounded(range_b, "replace_one").epsilon(1e-6) >= 0.5 * range_b
