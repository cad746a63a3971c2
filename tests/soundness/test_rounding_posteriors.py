"""Exact divergences of conjugate posteriors and bounds of convergence are not below the truth (mpmath)."""

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from private_mcmc.accounting import conjugate as certificates
from tests.soundness.test_rounding import above, magnitudes

ROWS, TEMPERS = st.integers(1, 4), st.one_of(st.just(1.0), magnitudes(-4, 0))
EPSILONS = st.one_of(st.sampled_from([0.0, 0.1, 1.0, 3.0]), magnitudes(-3, 1))
few = settings(max_examples=60)


def beta_cdf(a: mpf, b: mpf, x: mpf) -> mpf:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def moved(a: mpf, b: mpf, move: mpf, epsilon: mpf) -> mpf:
    """``δ(ε)`` of ``Beta(a + move, b)`` from ``Beta(a, b + move)``; its event is ``logit x > t``."""
    t = (epsilon + mpmath.log(mpmath.beta(a + move, b)) - mpmath.log(mpmath.beta(a, b + move))) / move
    x = 1 / (1 + mpmath.exp(t))
    return beta_cdf(b, a + move, x) - mpmath.exp(epsilon) * beta_cdf(b + move, a, x)


def counted(shape: mpf, move: mpf, epsilon: mpf) -> mpf:
    """``δ(ε)`` of ``Gamma(shape + move)`` and ``Gamma(shape)``, the larger of both orders."""
    gap = mpmath.loggamma(shape + move) - mpmath.loggamma(shape)
    top, low = (mpmath.exp((sign * epsilon + gap) / move) for sign in (1, -1))

    def mass(shape: mpf, first: mpf, last: mpf) -> mpf:
        return mpmath.gammainc(shape, first, last, regularized=True)

    factor = mpmath.exp(epsilon)
    more = mass(shape + move, top, mpmath.inf) - factor * mass(shape, top, mpmath.inf)
    return max(more, mass(shape, 0, low) - factor * mass(shape + move, 0, low))


@pytest.mark.slow
@few
@given(magnitudes(-3, 4), magnitudes(-3, 4), ROWS, TEMPERS, EPSILONS, st.integers(1, 30))
def test_conjugate_posteriors_of_whole_numbers(a, b, n, temper, epsilon, largest):
    facts = {"n": n, "temper": temper, "epsilons": (epsilon,)}
    one, two, w, e = mpf(a), mpf(b), mpf(temper), mpf(epsilon)
    won = [(one + w * k, two + w * (n - 1 - k)) for k in range(n)]
    exact = max(max(moved(*shapes, w, e), moved(*shapes[::-1], w, e)) for shapes in won)
    bound = certificates.posterior_conjugate("beta_binomial", a=a, b=b, trials=1, **facts)
    assert above(bound.delta(epsilon), exact)
    bound = certificates.posterior_conjugate("gamma_poisson", shape=a, largest=largest, **facts)
    assert above(bound.delta(epsilon), counted(one, w * largest, e))


SIZES = magnitudes(-9, 9)
