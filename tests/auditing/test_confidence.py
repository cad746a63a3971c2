"""Lower bounds with confidence: coverage against binomial draws, and mechanisms of known privacy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from private_mcmc.accounting import gdp
from private_mcmc.auditing.auditing import (
    bound_at_best,
    clopper_pearson_upper,
    epsilon_from_errors,
    gdp_from_errors,
)


@given(st.integers(1, 400), st.floats(0, 1), st.floats(1e-9, 0.4))
def test_the_upper_limit_covers_the_probability_exactly_as_often_as_promised(trials, p, failure):
    """Summed over every count, not sampled: P(limit < p) ≤ failure."""
    counts = np.arange(trials + 1)
    misses = clopper_pearson_upper(counts, trials, failure) < p
    assert binom.pmf(counts[misses], trials, p).sum() <= failure * (1 + 1e-6)


@given(st.integers(2, 400), st.data(), st.floats(1e-9, 0.4))
def test_the_upper_limit_is_the_probability_at_which_so_few_errors_become_unlikely(trials, data, failure):
    errors = data.draw(st.integers(0, trials - 1))
    limit = float(clopper_pearson_upper(errors, trials, failure))
    assert binom.cdf(errors, trials, limit) == pytest.approx(failure, rel=1e-4)


def test_limits_at_no_errors_and_at_errors_only():
    assert clopper_pearson_upper(0, 100, 0.05) == pytest.approx(1 - 0.05**0.01, rel=1e-8)
    assert clopper_pearson_upper(100, 100, 0.05) == 1.0


@given(st.floats(0.05, 4), st.floats(-6, 6), st.floats(0, 0.2))
def test_no_test_of_a_gaussian_mechanism_proves_more_than_its_curve(m, threshold, delta):
    """Exact errors of every threshold: m is attained, ε never exceeds the curve."""
    false_positive, false_negative = norm.sf(threshold), norm.cdf(threshold - m)
    assert gdp_from_errors(false_positive, false_negative) == pytest.approx(m, abs=1e-6)
    assert epsilon_from_errors(false_positive, false_negative, delta) <= gdp.epsilon(m, delta) + 1e-9


def test_the_best_threshold_of_a_gaussian_mechanism_attains_its_curve():
    m, delta = 1.5, 0.01
    thresholds = np.linspace(-6, 8, 20_001)
    errors = norm.sf(thresholds), norm.cdf(thresholds - m)
    assert epsilon_from_errors(*errors, delta).max() == pytest.approx(gdp.epsilon(m, delta), rel=1e-5)


def test_bounds_fail_no_more_often_than_promised(rng):
    """20,000 repeated audits of a 1-GDP mechanism at failure probability 0.05."""
    m, trials, failure, repeats = 1.0, 400, 0.05, 20_000
    threshold = 1.2
    errors = [
        clopper_pearson_upper(rng.binomial(trials, error, repeats), trials, failure / 2)
        for error in (norm.sf(threshold), norm.cdf(threshold - m))
    ]
    true_epsilon = float(epsilon_from_errors(norm.sf(threshold), norm.cdf(threshold - m), 0.0))
    allowed = failure + 5 * math.sqrt(failure / repeats)
    assert np.mean(gdp_from_errors(*errors) > m) <= allowed
    assert np.mean(epsilon_from_errors(*errors, 0.0) > true_epsilon) <= allowed


def gaussian_scores(rng, m, size):
    return rng.normal(0, 1, size), rng.normal(m, 1, size)


def bounds(scores, delta):
    """Of ε and of m."""
    epsilon = bound_at_best(scores, 3e-7, lambda *errors: epsilon_from_errors(*errors, delta))
    return epsilon, bound_at_best(scores, 3e-7, gdp_from_errors)


def test_a_two_gdp_mechanism_is_measured_to_nine_tenths_with_forty_thousand_outputs(rng):
    """The bound is below m except with probability 1e-6, and above 0.9 m."""
    epsilon, m = bounds(gaussian_scores(rng, 2.0, 40_000), 1e-5)
    assert 0.9 * 2.0 < m <= 2.0
    assert 0 < epsilon <= gdp.epsilon(2.0, 1e-5)
    at_one = bounds(gaussian_scores(rng, 2.0, 40_000), gdp.delta(2.0, 1.0))[0]
    assert 0.8 < at_one <= 1.0


def test_outputs_that_do_not_depend_on_the_data_prove_nothing(rng):
    assert bounds(gaussian_scores(rng, 0.0, 10_000), 1e-5) == (0.0, 0.0)


def test_the_threshold_is_never_chosen_on_the_outputs_it_is_tested_on(rng):
    """A score that separates the chosen half perfectly and the tested half not at all proves nothing."""
    size = 5_000
    first, second = (np.r_[chosen * np.ones(size), rng.integers(0, 2, size)] for chosen in (0.0, 1.0))
    assert bounds((first, second), 0.0) == (0.0, 0.0)
