"""Posterior certificates against exact posteriors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
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
