"""Counts: Poisson rows need a clip or a conjugate prior, binomial and negative binomial rows do not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Counts, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry, Pair, log_sigmoid, normal

FEATURES = Rows(X=Ball(1.0, dim=2), y=Counts(10))
COUNTS = Rows(y=Counts(5))
TARGET = Target(1.0, 1e-6)


def poisson(X: Any, y: Any = None, sd: float = 1.0) -> None:
    """Poisson regression with log link."""
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ w)), obs=y)


def poisson_rate(y: Any = None, shape: float = 2.0, rate: float = 1.0) -> None:
    """One rate under a Gamma prior: conjugate."""
    lam = numpyro.sample("lam", dist.Gamma(shape, rate))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Poisson(lam), obs=y)


def negative_binomial(X: Any, y: Any = None) -> None:
    """Negative binomial regression, dispersion 2: scores bounded by the largest count."""
    w = numpyro.sample("w", dist.Normal(0, 0.5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(X @ w), 2.0), obs=y)


def binomial(X: Any, y: Any = None) -> None:
    """Ten trials with a logistic probability."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Binomial(10, logits=X @ w), obs=y)


def binomial_rate(y: Any = None) -> None:
    """Five trials of one probability under a strong Beta prior: conjugate."""
    p = numpyro.sample("p", dist.Beta(2000.0, 2000.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Binomial(5, probs=p), obs=y)


def zero_inflated(X: Any, y: Any = None) -> None:
    """Zero-inflated Poisson regression with a known share of zeros."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.ZeroInflatedPoisson(0.3, jnp.exp(X @ w)), obs=y)


def _poisson_pair(sd: float, clip: float | None = None) -> Pair:
    """One weight; the other rows have no features, one has feature 1 and count 10 or 0."""

    def loss(t: Any, count: float) -> Any:
        if clip is None:
            return np.exp(np.minimum(t, 600.0)) - count * t
        # The score e^t − count is clipped at ±clip: straight lines beyond the two knots.
        low = np.log(count - clip) if count > clip else -np.inf
        high = np.log(count + clip)
        inner = np.clip(t, low, high)
        return (
            np.exp(inner) - count * inner + clip * np.maximum(t - high, 0) - clip * np.minimum(t - inner, 0)
        )

    return Pair(
        lambda t: normal(t, sd) - loss(t, 10.0), lambda t: normal(t, sd) - loss(t, 0.0), -12 * sd, 12 * sd
    )


def _gamma_pair(shape: float, rate: float, n: int, largest: int) -> Pair:
    """The log of the rate; all counts 0 but one, which is the largest or 0."""
    total = rate + n
    return Pair(
        lambda u: (shape + largest) * u - total * np.exp(u),
        lambda u: shape * u - total * np.exp(u),
        float(np.log(shape / total)) - 40 / shape**0.5,
        float(np.log((shape + largest) / total)) + 8.0,
    )


ENTRIES = (
    # A Poisson score grows without bound with the weights.
    Entry("poisson", poisson, FEATURES, "not private", _poisson_pair(1.0)),
    # Clipped at 0.1 the rows are convex with gradient at most 0.1: 0.2-GDP.
    Entry("poisson_clipped", poisson, FEATURES, "private", _poisson_pair(1.0, 0.1), clip=0.1),
    # A Gamma(5000, 1000) prior weighs more than 5 counts: the exact divergence is small.
    Entry(
        "gamma_poisson",
        poisson_rate,
        COUNTS,
        "private",
        _gamma_pair(5000.0, 1000.0, 1000, 5),
        n=1000,
        model_args={"shape": 5000.0, "rate": 1000.0},
    ),
    # Among zeros one count of 5 shows.
    Entry(
        "gamma_poisson_weak_prior",
        poisson_rate,
        COUNTS,
        "not private",
        _gamma_pair(2.0, 1.0, 1000, 5),
        n=1000,
    ),
    # Scores at most 10 times a temper of 0.02 under a prior of precision 4: 0.2-GDP.
    Entry(
        "negative_binomial",
        negative_binomial,
        FEATURES,
        "private",
        Pair(
            lambda t: normal(t, 0.5) - 0.02 * (12 * np.logaddexp(np.log(2), t) - 10 * t),
            lambda t: normal(t, 0.5) - 0.02 * 2 * np.logaddexp(np.log(2), t),
            -6.0,
            6.0,
        ),
        temper=0.02,
    ),
    # Scores at most 10 times a temper of 0.01: 0.2-GDP.
    Entry(
        "binomial",
        binomial,
        FEATURES,
        "private",
        Pair(
            lambda t: normal(t, 1.0) + 0.1 * log_sigmoid(t),
            lambda t: normal(t, 1.0) + 0.1 * log_sigmoid(-t),
            -12.0,
            12.0,
        ),
        temper=0.01,
    ),
    # A Beta(2000, 2000) prior weighs more than 5 trials: the exact divergence is small.
    Entry(
        "binomial_rate",
        binomial_rate,
        COUNTS,
        "private",
        Pair(
            lambda t: 2005 * log_sigmoid(t) + 2995 * log_sigmoid(-t),
            lambda t: 2000 * log_sigmoid(t) + 3000 * log_sigmoid(-t),
            -2.0,
            0.0,
        ),
        n=200,
    ),
    # Behind the zeros the Poisson score is unbounded.
    Entry(
        "zero_inflated",
        zero_inflated,
        FEATURES,
        "not private",
        Pair(
            lambda t: normal(t, 1.0) - (np.exp(np.minimum(t, 600.0)) - 10 * t),
            lambda t: normal(t, 1.0) + np.log(0.3 + 0.7 * np.exp(-np.exp(np.minimum(t, 600.0)))),
            -12.0,
            12.0,
        ),
    ),
)
