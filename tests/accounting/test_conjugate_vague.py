"""Vague priors put mass where floats end: divergences of their posteriors are not lost there."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from private_mcmc.accounting.conjugate import beta_pair, gamma_pair, posterior_conjugate

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
