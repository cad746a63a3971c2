"""Posteriors and noise on released values: prices, grids, sensitivities attained by explicit data."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
from private_mcmc.accounting.mechanisms import second_moments_sensitivity
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average
from tests.accounting import every_statement

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


def test_laplace_is_pure_and_pays_its_grid():
    plain = acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4)
    assert plain.epsilon(0.0) == 0.5
    assert plain.gdp is None
    with pytest.raises(DeclarationError, match="scale"):
        acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4, grid=0.01)
    acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.42, grid=0.01)
    with pytest.raises(DeclarationError, match="scale"):
        acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.42, grid=0.01, dim=2)


def frobenius(rows, others):
    return np.linalg.norm(rows.T @ rows - others.T @ others)


@given(st.integers(1, 5), st.floats(0.1, 10.0), st.integers(0, 2**32 - 1))
def test_second_moment_sensitivity_bounds_random_rows(dim, radius, seed):
    random = np.random.default_rng(seed)
    one, other = random.normal(size=(2, dim))
    one, other = (radius * row / np.linalg.norm(row) * random.random() ** 0.3 for row in (one, other))
    replaced = frobenius(one[None], other[None])
    assert replaced <= second_moments_sensitivity(radius, dim, "replace_one") * (1 + 1e-12)
    assert frobenius(one[None], np.zeros((1, dim))) <= second_moments_sensitivity(radius, dim, "zero_out") * (
        1 + 1e-12
    )


def test_second_moment_sensitivity_is_attained():
    one, other = np.eye(2)[:1] * 1.7, np.eye(2)[1:] * 1.7
    assert frobenius(one, other) == pytest.approx(
        second_moments_sensitivity(1.7, 2, "replace_one"), rel=1e-12
    )
    assert second_moments_sensitivity(1.7, 1, "replace_one") == pytest.approx(1.7**2, rel=1e-12)
    assert second_moments_sensitivity(1.7, 5, "add_remove") == pytest.approx(1.7**2, rel=1e-12)


def test_half_the_variance_off_the_diagonal_is_isotropic_in_the_frobenius_norm():
    """The exact level of the vector of entries, worst over random pairs of rows, is √2R²/τ."""
    radius, noise, worst = 1.3, 2.0, 0.0
    random = np.random.default_rng(3)
    for _ in range(500):
        one, other = (radius * row / np.linalg.norm(row) for row in random.normal(size=(2, 3)))
        difference = np.outer(one, one) - np.outer(other, other)
        rows, columns = np.triu_indices(3)
        variance = np.where(rows == columns, noise**2, noise**2 / 2)
        worst = max(worst, float(np.sum(difference[rows, columns] ** 2 / variance)))
    claimed = second_moments_sensitivity(radius, 3, "replace_one") / noise
    assert 0.9 * claimed**2 <= worst <= claimed**2


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


def test_average_sensitivity_bounds_coupled_chains(rng):
    """Two chains on adjacent rows of a clipped quadratic loss, same noise: the averages stay within η."""
    item = average_schedule(num_rows=5, step_size=0.02, num_steps=80, release=Average(20))
    curvature = acc.Curvature(strong_convexity=0.7, smoothness=5.7)
    bound = acc.average_sensitivity(item, curvature)
    worst = 0.0
    for _ in range(50):
        rows = rng.uniform(-9, 9, size=5)
        other = rows.copy()
        other[0] = -9.0 if rows[0] > 0 else 9.0
        x = y = float(rng.normal())
        sums = 0.0
        for step in range(80):
            noise = float(rng.normal()) * math.sqrt(2 * 0.02)
            x += noise - 0.02 * (0.7 * x + np.clip(x - rows, -1, 1).sum())
            y += noise - 0.02 * (0.7 * y + np.clip(y - other, -1, 1).sum())
            sums += abs(x - y) if step + 1 >= 20 else 0.0
        worst = max(worst, sums / 61)
    assert 0.3 * bound < worst <= bound


def test_average_sensitivity_is_finite_only_where_steps_keep_chains_together():
    item = average_schedule()
    assert acc.average_sensitivity(item, acc.Curvature()) == math.inf
    assert acc.average_sensitivity(item, acc.Curvature(smoothness=1.0)) < math.inf
    assert acc.average_sensitivity(item, acc.Curvature(1.0, smoothness=250.0)) == math.inf


def test_burn_in_makes_the_average_dearer_and_more_chains_do_not():
    curvature = acc.Curvature(1.0, 50.0)
    levels = [acc.average_sensitivity(average_schedule(release=Average(k)), curvature) for k in (1, 20, 90)]
    assert levels == sorted(levels)
    several = acc.average_sensitivity(average_schedule(num_chains=8), curvature)
    assert several == levels[0]
