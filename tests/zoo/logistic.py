"""Logistic regressions: one likelihood under priors and row domains that do and do not make it private."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from private_mcmc.domains import Ball, Binary, Box, Real, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry, Pair, log_sigmoid, normal

CENSUS = Rows(X=Ball(1.0, dim=9), y=Binary())
SMALL = Rows(X=Ball(1.0, dim=3), y=Binary())
TARGET = Target(3.0, 1e-6)


def logistic(X: Any, y: Any = None, sd: float = 2.0) -> None:
    """Independent normal weights."""
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def logistic_flat(X: Any, y: Any = None) -> None:
    """A flat, improper prior."""
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real_vector, (), (X.shape[1],)))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def logistic_intercept(X: Any, y: Any = None) -> None:
    """Weights and an intercept, both of sd 0.2."""
    w = numpyro.sample("w", dist.Normal(0, 0.2).expand([X.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 0.2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + b), obs=y)


def logistic_cauchy(X: Any, y: Any = None) -> None:
    """Heavy-tailed weights."""
    w = numpyro.sample("w", dist.Cauchy(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def logistic_laplace(X: Any, y: Any = None) -> None:
    """Laplace weights: convex, but nowhere strongly."""
    w = numpyro.sample("w", dist.Laplace(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def logistic_weighted(X: Any, weight: Any, y: Any = None) -> None:
    """Rows with survey weights in [0, 1], a column of their own."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]), handlers.scale(scale=weight):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def logistic_missing(X: Any, seen: Any, y: Any = None) -> None:
    """Outcomes that may be missing, masked row by row."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w).mask(seen == 1), obs=y)


def _opposite(sd: float, slope: float, temper: float = 1.0) -> Pair:
    """The weight of one feature; all other rows have no features, one row has outcome 1 or 0."""
    return Pair(
        lambda t: normal(t, sd) + temper * log_sigmoid(slope * t),
        lambda t: normal(t, sd) + temper * log_sigmoid(-slope * t),
        -12 * sd,
        12 * sd,
    )


def _cauchy_pair() -> Pair:
    # On the scale s = asinh(t) the heavy tail is exponential, and its Jacobian is cosh(s).
    def law(sign: float) -> Any:
        return lambda s: np.log(np.cosh(s)) - np.log1p(np.sinh(s) ** 2) + log_sigmoid(sign * np.sinh(s))

    return Pair(law(1.0), law(-1.0), -40.0, 40.0)


# Convex rows of gradient at most 0.16 under a prior of precision 1/4: 0.64-GDP.
_TEMPERED: dict[str, Any] = {
    "verdict": "private", "witness": _opposite(2.0, 1.0, 0.16), "n": 32_561, "target": TARGET, "temper": 0.16,
}  # fmt: skip

ENTRIES = (
    Entry("logistic_tempered", logistic, CENSUS, **_TEMPERED),
    Entry(
        "logistic_weighted",
        logistic_weighted,
        Rows(X=Ball(1.0, dim=9), weight=Box(0, 1), y=Binary()),
        **_TEMPERED,
    ),
    Entry(
        "logistic_missing", logistic_missing, Rows(X=Ball(1.0, dim=9), seen=Binary(), y=Binary()), **_TEMPERED
    ),
    # One row can move a weight of prior sd 2 by its whole scale.
    Entry("logistic", logistic, CENSUS, "not private", _opposite(2.0, 1.0), n=32_561, target=TARGET),
    # A row of unbounded features decides the sign of a weight.
    Entry(
        "logistic_unbounded",
        logistic,
        Rows(X=Real(dim=9), y=Binary()),
        "not private",
        _opposite(2.0, 1000.0),
        n=32_561,
        target=TARGET,
    ),
    # Rows without features leave the improper prior, which is no distribution.
    Entry("logistic_flat", logistic_flat, CENSUS, "not private", "improper", n=32_561, target=TARGET),
    # Designs of norm √2 under a prior of precision 25: 2√2/5-GDP.
    Entry(
        "logistic_intercept",
        logistic_intercept,
        SMALL,
        "private",
        Pair(
            lambda t: normal(t, 0.2) + 500 * log_sigmoid(t) + 500 * log_sigmoid(-t),
            lambda t: normal(t, 0.2) + 499 * log_sigmoid(t) + 501 * log_sigmoid(-t),
            -1.5,
            1.5,
        ),
        n=1000,
        target=TARGET,
    ),
    # Under a heavy-tailed prior one row's label decides the sign of a large weight.
    Entry("logistic_cauchy", logistic_cauchy, SMALL, "not private", _cauchy_pair(), n=1000, target=TARGET),
    # No theorem here covers a prior that is convex but not strongly.
    Entry(
        "logistic_laplace",
        logistic_laplace,
        SMALL,
        "unknown",
        "not strongly log-concave",
        n=1000,
        target=TARGET,
    ),
)
