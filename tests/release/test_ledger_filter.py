"""The ledger's filter: what it lets through is within the budget, also against an adaptive adversary."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Points, Statement, compose, gaussian, gdp, laplace
from private_mcmc.errors import ReleaseError
from private_mcmc.release.ledger_state import Filter
from private_mcmc.target import Target

targets = st.builds(Target, st.floats(0.01, 20), st.floats(1e-12, 0.1))


def normal(m):
    return gaussian(adjacency="replace_one", sensitivity=m, scale=1.0)


def pure(level):
    return laplace(level, adjacency="replace_one", sensitivity=level, scale=1.0)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(targets)
def test_the_whole_limit_is_worth_the_budget_and_no_more(target):
    kept = Filter.of(target)
    assert gdp.delta(math.sqrt(kept.limit), target.epsilon) <= target.delta * (1 + 1e-9)
    assert kept.epsilon_of(kept.limit) == pytest.approx(target.epsilon, rel=1e-6)
    assert kept.epsilon_of(Fraction(0)) == 0


@settings(deadline=None, max_examples=30)
@given(targets)
def test_one_gaussian_release_calibrated_to_the_budget_fits_exactly(target):
    kept = Filter.of(target)
    m = gdp.budget(target.epsilon, target.delta)
    exactly = Statement.from_dict({**normal(m).to_dict(), "curves": [{"kind": "gaussian", "m": m}]})
    assert kept.cost(exactly) == kept.limit


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.one_of(st.floats(0.01, 1).map(normal), st.floats(0.01, 1).map(pure)), min_size=1, max_size=5)
)
def test_charges_never_fall_below_the_composition_of_fixed_releases(statements):
    together = compose(*statements)
    kept = Filter.of(Target(3.0, 1e-5))
    charged = sum((kept.cost(s) for s in statements), Fraction(0))
    assert kept.epsilon_of(charged) >= together.epsilon(1e-5) * (1 - 1e-6)


@given(st.floats(1e-6, 30), st.floats(0, 1))
def test_a_pure_release_costs_the_least_gaussian_curve_below_randomised_response(level, alpha):
    m = math.sqrt(Filter.of(Target(1.0, 1e-6)).cost(pure(level)))
    beta = stats.norm.cdf(stats.norm.isf(alpha) - m)
    assert beta <= max(0.0, 1 - math.exp(level) * alpha, math.exp(-level) * (1 - alpha)) + 1e-12
    corner = 1 / (1 + math.exp(level))
    assert stats.norm.cdf(stats.norm.isf(corner) - m) == pytest.approx(corner, rel=1e-6)


def test_a_composition_without_one_curve_is_charged_part_by_part():
    mixed = compose(normal(0.3), pure(0.2))
    kept = Filter.of(Target(3.0, 1e-6))
    parts = float(kept.cost(normal(0.3)) + kept.cost(pure(0.2)))
    assert float(kept.cost(mixed)) == pytest.approx(parts, rel=1e-12)


def test_what_proves_nothing_in_the_currency_is_refused():
    points = Statement("replace_one", (Points(((0.1, 1e-9),)),), normal(1.0).argument)
    with pytest.raises(ReleaseError, match="neither Gaussian DP nor pure"):
        Filter.of(Target(1.0, 1e-6)).cost(points)


def attack(limit, epsilon, stop, runs=100_000, seed=0):
    """What an adversary gains who picks every next cost from all outputs so far.

    Spends in small steps while undecided, in large ones once suspicious, and leaves when the privacy loss
    passes ``stop``. Returns a lower bound, at confidence 1 − 2e-6, on P(L > ε) − e^ε Q(L > ε).
    """
    random = np.random.default_rng(seed)
    passed = []
    for sign in (1, -1):
        loss, left = np.zeros(runs), np.full(runs, limit)
        active = np.ones(runs, dtype=bool)
        while active.any():
            cost = np.minimum(np.where(loss > 0.5 * epsilon, 0.2, 0.05) * limit, left)
            step = sign * cost / 2 + np.sqrt(cost) * random.normal(size=runs)
            loss, left = loss + active * step, left - active * cost
            active &= (loss <= stop) & (left > 1e-9 * limit)
        passed.append(int((loss > epsilon).sum()))
    high = stats.beta.ppf(1e-6, passed[0], runs - passed[0] + 1)
    low = stats.beta.ppf(1 - 1e-6, passed[1] + 1, runs - passed[1])
    return high - math.exp(epsilon) * low


@pytest.mark.slow
def test_an_adaptive_adversary_stays_within_the_budget():
    target = Target(1.0, 0.1)
    limit = float(Filter.of(target).limit)
    stops = (1.0, 2.0, 3.0, math.inf)
    gains = [attack(limit, target.epsilon, stop) for stop in stops]
    assert max(gains) <= target.delta
    assert max(gains) > 0.8 * target.delta
    # The same attack sees through a filter that lets too much pass.
    assert max(attack(1.5 * limit, target.epsilon, stop) for stop in stops) > target.delta


@given(targets, st.fractions(0, 1))
def test_what_was_spent_is_shown_rounded_up_and_what_is_left_down(target, share):
    kept = Filter.of(target)
    spent, left = share * kept.limit, (1 - share) * kept.limit

    def shown(words):
        return Fraction(words.removesuffix("-GDP")) ** 2

    assert shown(kept.describe(spent)) >= spent * (1 - Fraction(1, 10**8))
    assert shown(kept.describe(left, left=True)) <= left * (1 + Fraction(1, 10**8))
