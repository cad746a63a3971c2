"""The ε that a report gives for a conjugate posterior is the exact one, at the target's δ."""

from __future__ import annotations

import math

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import brentq
from scipy.special import betainc

from private_mcmc import Binary, Rows, Target, preflight

N = 20


def exact_epsilon(prior: float, delta: float) -> float:
    """Worst over neighbouring totals and thresholds: the likelihood ratio is monotone in θ."""
    logits = np.linspace(-60.0, 60.0, 24_001)
    low, high = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))

    def worst(epsilon: float) -> float:
        found = 0.0
        for total in range(N):
            a, b = prior + total, prior + N - total
            fewer, more = betainc(a, b, low), betainc(a + 1, b - 1, low)
            above_fewer, above_more = betainc(b, a, high), betainc(b - 1, a + 1, high)
            found = max(found, np.max(fewer - math.exp(epsilon) * more))
            found = max(found, np.max(above_more - math.exp(epsilon) * above_fewer))
        return found

    return float(brentq(lambda epsilon: worst(epsilon) - delta, 0.0, 40.0))


@pytest.mark.long
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
@pytest.mark.parametrize("uniform", [False, True])
def test_epsilon_of_a_coin_is_within_two_per_cent_of_the_exact_one(delta: float, uniform: bool) -> None:
    def coin(y=None):
        prior = dist.Uniform(0.0, 1.0) if uniform else dist.Beta(2.0, 2.0)
        p = numpyro.sample("p", prior)
        with numpyro.plate("rows", N if y is None else y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    report = preflight(coin, Rows(y=Binary()), Target(1.0, delta), n=N)
    exact = exact_epsilon(1.0 if uniform else 2.0, delta)
    assert exact * (1 - 1e-3) <= report.epsilon <= exact * 1.02
