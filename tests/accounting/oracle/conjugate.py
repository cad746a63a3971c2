"""Recomputations of exact posteriors, conjugate and Normal, by SciPy's distributions, pair by pair."""

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_mcmc.records import Constants, Record
from tests.accounting.oracle.constants import Parts

Array = NDArray[np.float64]

# The accuracy that the bound grants to the incomplete functions is part of the bound.
GRANTED = 1e-9
_LEAST = 1e-300


def beta_binomial(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_beta_binomial``."""
    w, total = c["temper"], (c["n"] - 1) * c["trials"]
    ones = np.arange(total + 1.0)
    family = (c["a"] + w * ones, c["b"] + w * (total - ones), w * c["trials"])
    return _points(adjacency, c, [family], _beta_divergences)


def dirichlet_categorical(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_dirichlet_categorical``."""
    alphas, w = c["concentration"], c["temper"]
    total = c["n"] - 1 if len(alphas) == 2 else 0
    ones = np.arange(total + 1.0)
    pairs = [(a + w * ones, b + w * (total - ones), w) for a, b in permutations(alphas, 2)]
    return _points(adjacency, c, pairs, _beta_divergences)


def gamma_poisson(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_gamma_poisson``."""
    count = (np.array([c["shape"]]), c["temper"] * c["largest"])
    return _points(adjacency, c, [count], _gamma_divergences)


def _points(adjacency: str, c: Constants, families: list[tuple[Any, ...]], divergences: Any) -> list[Record]:
    if adjacency != "replace_one":
        raise ValueError("for a row replaced alone")
    points = []
    for epsilon in c["epsilons"]:
        largest = max(float(np.max(divergences(*family, epsilon))) for family in families)
        points.append((epsilon, min(1.0, max(0.0, largest))))
    return [{"kind": "points", "points": tuple(points)}]


def _beta_divergences(a: Array, b: Array, move: float, epsilon: float | Array) -> Array:
    from scipy.stats import beta

    a, b = np.minimum(a, 1e7), np.minimum(b, 1e7)
    upper, lower = beta(a + move, b), beta(a, b + move)
    constant = upper.logpdf(0.5) - lower.logpdf(0.5)
    found = []
    for (one, other), mirrored, sign in (
        ((upper, lower), (beta(b, a + move), beta(b + move, a)), 1),
        ((beta(b + move, a), beta(b, a + move)), (lower, upper), -1),
    ):
        # The odds beyond which one law is e^ε more likely; at odds above 1 the mirrored law is read.
        log_odds = (epsilon - sign * constant) / move
        near, far = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
        own, rest = (
            np.where(log_odds > 0, turned.cdf(np.exp(far)), law.sf(np.exp(near)))
            for law, turned in zip((one, other), mirrored, strict=True)
        )
        found.append(_gap(own, rest, epsilon))
    worst: Array = np.maximum(*found)
    return worst


def _gamma_divergences(shapes: Array, move: float, epsilon: float | Array) -> Array:
    from scipy.stats import gamma

    upper, lower = gamma(shapes + move), gamma(shapes)
    constant = upper.logpdf(1.0) - lower.logpdf(1.0)
    top, bottom = (epsilon - constant) / move, (-epsilon - constant) / move
    with np.errstate(over="ignore"):
        more = [law.sf(np.exp(top)) for law in (upper, lower)]
        less = [law.cdf(np.exp(bottom)) for law in (lower, upper)]
    return np.maximum(_gap(*more, epsilon), _gap(*less, epsilon))


def _gap(own: Array, other: Array, epsilon: float | Array) -> Array:
    gap = own * (1 + GRANTED) - np.exp(epsilon) * other * (1 - GRANTED)
    least: Array = np.maximum(gap, _LEAST)
    return least
