"""Exact divergences of conjugate posteriors agree with printed numbers, brute force and quadrature."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import conjugate
from private_mcmc.accounting.conjugate import beta_pair, gamma_pair, posterior_conjugate
from private_mcmc.errors import DeclarationError


@pytest.mark.parametrize("epsilon", [690.0, 700.0, 720.0, 800.0])
def test_weak_priors_are_told_apart_at_levels_whose_exponential_leaves_the_floats(epsilon: float) -> None:
    a = mpmath.mpf("0.01")
    with mpmath.workdps(400):
        scale = mpmath.exp(epsilon)
        own, other = (
            mpmath.betainc(b, 1 + 2 * a - b, 0, 1 / (1 + scale), regularized=True) for b in (a, a + 1)
        )
        exact = own - scale * other
    (point,) = posterior_conjugate("beta_binomial", a=0.01, b=0.01, n=1, epsilons=(epsilon,)).curves[0].points
    assert exact <= point[1] < 2 * exact


@settings(deadline=None, max_examples=25)
@given(
    a=st.floats(0.3, 20), b=st.floats(0.3, 20), n=st.integers(1, 6), trials=st.integers(1, 3),
    temper=st.floats(0.1, 1.0), epsilon=st.floats(0.01, 2.0),
)  # fmt: skip
def test_beta_binomial_covers_every_data_set_and_every_move(a, b, n, trials, temper, epsilon) -> None:
    worst = conjugate.beta_binomial(a, b, n=n, trials=trials, temper=temper, epsilon=epsilon)
    for rest, low, high in product(range((n - 1) * trials + 1), range(trials + 1), range(trials + 1)):
        if not low < high:
            continue
        fewer = a + temper * (rest + low), b + temper * (n * trials - rest - high)
        for up in (True, False):
            pair = (np.array([value]) for value in fewer)
            assert conjugate.beta_pair(*pair, temper * (high - low), epsilon, up)[0] <= worst


@settings(deadline=None, max_examples=25)
@given(
    shape=st.floats(0.3, 20), n=st.integers(1, 5), largest=st.integers(1, 4), temper=st.floats(0.1, 1.0),
    epsilon=st.floats(0.01, 2.0),
)  # fmt: skip
def test_gamma_poisson_covers_every_data_set_and_every_move(shape, n, largest, temper, epsilon) -> None:
    worst = conjugate.gamma_poisson(shape, largest=largest, temper=temper, epsilon=epsilon)
    for rest, low, high in product(range((n - 1) * largest + 1), range(largest + 1), range(largest + 1)):
        for up in (True, False):
            if low < high:
                start = np.array([shape + temper * (rest + low)])
                assert conjugate.gamma_pair(start, temper * (high - low), epsilon, up)[0] <= worst


@pytest.mark.parametrize("total", [0, 7, 3_999, 4_000, 123_456, 10**9])
def test_blocks_cover_every_total_once(total: int) -> None:
    first, last = conjugate.blocks(total)
    assert first[0] == 0 and last[-1] == total
    assert np.all(first[1:] == last[:-1] + 1) and np.all(last >= first)


def test_very_many_totals_are_covered_by_pairs_that_are_further_apart() -> None:
    """More rows can only help where each shape grows; the ends decide and are tried one by one."""
    exact = conjugate.beta_binomial(2.0, 3.0, n=3_000, epsilon=0.3)
    for n in (5_000, 10**6, 10**9):
        found = conjugate.beta_binomial(2.0, 3.0, n=n, epsilon=0.3)
        assert found == pytest.approx(exact, rel=3e-3)
    blocks = [(low, high) for low, high in zip(*conjugate.blocks(6_000), strict=True) if high > low]
    for low, high in blocks[::40]:
        bound = conjugate.beta_pair(np.array([2 + low]), np.array([3 + 6_000 - high]), 1.0, 0.3, True)
        inside = np.arange(low, high + 1)
        each = conjugate.beta_pair(2 + inside, 3 + 6_000 - inside, 1.0, 0.3, True)
        assert np.all(each <= bound * (1 + 1e-9))


def test_no_divergence_is_called_zero() -> None:
    """The privacy loss of these pairs is unbounded, so no ε makes them pure."""
    for epsilon in (30.0, 300.0, 650.0):
        assert conjugate.beta_binomial(1.0, 2.0, n=5, epsilon=epsilon) > 0
        assert conjugate.gamma_poisson(3.0, largest=4, epsilon=epsilon) > 0
    asked = {"shape": 3.0, "n": 5, "largest": 2, "temper": 0.1, "epsilons": (30.0,)}
    assert posterior_conjugate("gamma_poisson", **asked).epsilon(0.0) == math.inf


def test_small_tails_keep_their_digits() -> None:
    """Beta(2, 2) from Beta(1, 3) at ε = 30: the event ends within a few floats of 1."""
    with mpmath.workdps(60):
        odds = mpmath.exp(30) * mpmath.beta(2, 2) / mpmath.beta(1, 3)
        t = odds / (1 + odds)
        own = 1 - mpmath.betainc(2, 2, 0, t, regularized=True)
        other = 1 - mpmath.betainc(1, 3, 0, t, regularized=True)
        exact = float(own - mpmath.exp(30) * other)
    found = conjugate.beta_pair(np.array(1.0), np.array(2.0), 1.0, 30.0, True)
    assert found == pytest.approx(exact, rel=1e-7)


def test_a_prior_that_is_not_one_is_refused() -> None:
    with pytest.raises(DeclarationError, match="a=0"):
        posterior_conjugate("beta_binomial", a=0.0, b=3.0, n=200, trials=1, temper=0.5, epsilons=(0.5,))


mp = mpmath.mp.clone()
mp.dps = 30


def gamma_below(shape, log_at):
    return mp.exp(shape * log_at) / mp.gamma(shape + 1)


def beta_below(a, b, log_at):
    return mp.exp(a * log_at) / (a * mp.beta(a, b))


def rising(shape, move):
    return mp.loggamma(shape + move) - mp.loggamma(shape)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("shape", "move"), [(1e-3, 5e-4), (1e-3, 1e-4), (1e-2, 1e-3)])
def test_gamma_thresholds_below_all_floats(shape: float, move: float, epsilon: float) -> None:
    s, w, e = mp.mpf(shape), mp.mpf(move), mp.mpf(epsilon)
    at = (-e + rising(s, w)) / w
    exact = float(gamma_below(s, at) - mp.exp(e) * gamma_below(s + w, at))
    found = float(gamma_pair(np.array(shape), move, epsilon, False))
    assert exact <= found * (1 + 1e-9) <= exact * (1 + 1e-6) + 1e-8
    at = (e + rising(s, w)) / w
    if at < -60:
        exact = float(1 - gamma_below(s + w, at) - mp.exp(e) * (1 - gamma_below(s, at)))
        found = float(gamma_pair(np.array(shape), move, epsilon, True))
        assert exact <= found * (1 + 1e-9) <= exact * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("a", "b", "move"), [(1e-3, 10.0, 5e-4), (1e-3, 1e-3, 5e-4), (1e-3, 100.0, 1e-3)])
def test_beta_thresholds_below_all_floats(a: float, b: float, move: float, epsilon: float) -> None:
    own, other, w, e = mp.mpf(a), mp.mpf(b), mp.mpf(move), mp.mpf(epsilon)
    # From Beta(b, a + w): the event is x < t, t below all floats.
    at = (rising(own, w) - rising(other, w) - e) / w
    exact = float(beta_below(own, other + w, at) - mp.exp(e) * beta_below(own + w, other, at))
    found = float(beta_pair(np.array(b), np.array(a), move, epsilon, True))
    assert exact <= found * (1 + 1e-9) <= exact * (1 + 1e-6) + 1e-8


def test_a_small_temper_does_not_make_a_vague_prior_private() -> None:
    asked = {"n": 20, "epsilons": (0.1, 1.0)}
    for statement in (
        posterior_conjugate("gamma_poisson", shape=1e-3, largest=10, temper=5e-5, **asked),
        posterior_conjugate("beta_binomial", a=1e-3, b=1e-2, trials=1, temper=5e-4, **asked),
        posterior_conjugate("dirichlet_categorical", concentration=(1e-3, 0.5), temper=5e-4, **asked),
    ):
        # Half a pseudo-count of the prior's shape: e^{-ε/r - 1} or so at r = 1/2.
        assert statement.delta(1.0) > 0.01
        assert statement.verify()
