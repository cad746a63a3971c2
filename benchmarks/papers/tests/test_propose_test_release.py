"""Propose-test-release: refusals where the mechanism is not private, and prices that the laws confirm."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from benchmarks.papers.propose_test_release import LowerBound, ProposeTestRelease
from benchmarks.papers.propose_test_sample import ProposeTestSample
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import laplace_noise

FAILURE = 1e-6


def sample(**changes):
    base = {
        "epsilon": 1.0,
        "delta": 1e-3,
        "x_low": 0.9,
        "x_high": 1.0,
        "prior_precision": 1.0,
        "noise_precision": 3.0,
    }
    return ProposeTestSample(**(base | changes))


@pytest.mark.some(1)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-3), (4.0, 0.3)])
def test_the_law_of_the_test_keeps_the_stated_price(epsilon, delta):
    """Pass probabilities in closed form, for every pair of adjacent counts."""
    test = LowerBound(epsilon, delta)
    law = stats.laplace(scale=laplace_noise(epsilon, 1.0).scale)
    threshold = 50

    def passes(count):
        return law.sf(threshold + test.margin - count)

    def refuses(count):
        return law.cdf(threshold + test.margin - count)

    for count in range(0, 200):
        first, second = passes(count), passes(count + 1)
        if count + 1 < threshold:
            assert max(first, second) <= delta
        assert second <= math.exp(epsilon) * first * (1 + 1e-9)
        assert refuses(count) <= math.exp(epsilon) * refuses(count + 1) * (1 + 1e-9)


def test_the_mechanism_is_not_even_called_after_a_refusal():
    guard = ProposeTestRelease(50.0, LowerBound(1.0, 1e-6), 0.5, 1e-7, "replace_one", "the number of rows")
    called = []
    assert guard.run(-1000, lambda: called.append(1)) is None
    assert not called
    assert guard.run(1000, lambda: 42) == 42
    assert guard.price == pytest.approx((1.5, 1e-6))


def hockey_stick(first, second, epsilon):
    """sup_A P(A) − e^ε Q(A) of two normal laws (mean, sd), by quadrature over where P is larger."""
    p, q = stats.norm(*first), stats.norm(*second)
    low, high = first[0] - 12 * first[1], first[0] + 12 * first[1]
    value, _ = integrate.quad(
        lambda t: max(0.0, p.pdf(t) - math.exp(epsilon) * q.pdf(t)), low, high, limit=400, points=[first[0]]
    )
    return value


def posterior(x, y, mechanism):
    precision = mechanism.prior_precision + mechanism.noise_precision * (x * x).sum()
    return mechanism.noise_precision * (x * y).sum() / precision, 1 / math.sqrt(precision)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(0, 20), st.floats(1, 1e4), st.booleans())
def test_the_certified_loss_bounds_the_exact_one_of_extreme_rows(seed, slope, count, removed):
    """Rows at the corners of the allowed set, one of them replaced or removed."""
    random = np.random.default_rng(seed)
    mechanism = sample()
    size = int(random.integers(50, 3000))
    radius = count**mechanism.rho2
    x = random.choice([mechanism.x_low, mechanism.x_high], size)
    side = random.choice([-1.0, 1.0], size, p=[0.1, 0.9])
    other_x, other_side = x.copy(), side.copy()
    other_x[0], other_side[0], x[0], side[0] = mechanism.x_low, -1.0, mechanism.x_high, 1.0
    kept = slice(1, None) if removed else slice(None)
    first = posterior(x, (slope + side * radius) * x, mechanism)
    second = posterior(other_x[kept], ((slope + other_side * radius) * other_x)[kept], mechanism)
    loss = mechanism.posterior_loss(size, count, slope)
    if loss < math.inf:
        for one, two in itertools.permutations((first, second)):
            assert hockey_stick(one, two, loss) <= mechanism.delta


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 100), st.floats(1.5, 1e6))
def test_the_certified_size_is_where_the_loss_meets_epsilon_and_more_rows_are_safer(slope, count):
    mechanism = sample()
    size = mechanism.certified_size(count, slope)
    assert mechanism.posterior_loss(size, count, slope) <= mechanism.epsilon
    assert mechanism.posterior_loss(0.99 * size, count, slope) > mechanism.epsilon
    losses = [mechanism.posterior_loss(size * factor, count, slope) for factor in (1, 1.5, 3, 100)]
    assert losses == sorted(losses, reverse=True)


def test_few_rows_no_rows_and_wild_rows_are_refusals_and_never_errors():
    mechanism = sample()
    for size in (0, 1, 30):
        assert mechanism.release(np.ones(size), np.ones(size)) is None
    wild = np.asarray([math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0] * 5)
    assert mechanism.release(wild, wild[::-1]) is None
    with pytest.raises(DataSchemaError):
        mechanism.release(np.ones(3), np.ones(4))


@pytest.mark.parametrize(
    "bad",
    [
        {"x_low": 0.0},
        {"x_low": 2.0},
        {"noise_precision": 1.0},
        {"rho1": 1.0},
        {"rho2": 0.3, "gamma1": 0.2},
        {"epsilon": math.nan},
        {"delta": 0.6},
    ],
)
def test_parameters_outside_the_theorem_are_refused(bad):
    with pytest.raises(DeclarationError, match="needs"):
        sample(**bad)
