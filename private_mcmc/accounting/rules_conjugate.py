"""Recomputations of conjugate statements: survival functions of SciPy's distributions, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Constants = Mapping[str, Any]

# The accuracy that the bound grants to the incomplete functions is part of the bound.
_GRANTED = 1e-9


def beta_binomial(adjacency: str, c: Constants, parts: Any) -> list[dict[str, Any]]:
    """The curve of ``posterior_beta_binomial``."""
    totals = np.arange((c["n"] - 1) * c["trials"] + 1, dtype=np.float64)
    w = c["temper"]
    a, b = c["a"] + w * totals, c["b"] + w * totals[::-1]
    return _points(c, ((a, b, w * c["trials"]),), _beta_divergences)


def dirichlet_categorical(adjacency: str, c: Constants, parts: Any) -> list[dict[str, Any]]:
    """The curve of ``posterior_dirichlet_categorical``."""
    alphas, n, w = c["concentration"], c["n"], c["temper"]
    sizes = [n - 1] if len(alphas) == 2 else range(n)
    k = np.concatenate([np.arange(size + 1.0) for size in sizes])
    rest = np.concatenate([np.arange(size + 1.0)[::-1] for size in sizes])
    pairs = [
        (alphas[i] + w * k, alphas[j] + w * rest, w)
        for i in range(len(alphas))
        for j in range(len(alphas))
        if i != j
    ]
    return _points(c, pairs, _beta_divergences)


def gamma_poisson(adjacency: str, c: Constants, parts: Any) -> list[dict[str, Any]]:
    """The curve of ``posterior_gamma_poisson``."""
    shapes = c["shape"] + c["temper"] * np.arange((c["n"] - 1) * c["largest"] + 1.0)
    return _points(c, ((shapes, c["temper"] * c["largest"]),), _gamma_divergences)


def _points(c: Constants, families: Iterable[tuple[Any, ...]], divergences: Any) -> list[dict[str, Any]]:
    families = list(families)
    points = []
    for epsilon in c["epsilons"]:
        largest = max(float(np.max(divergences(*family, epsilon))) for family in families)
        points.append((epsilon, min(1.0, max(0.0, largest))))
    return [{"kind": "points", "points": tuple(points)}]


def _beta_divergences(a: Array, b: Array, move: float, epsilon: float) -> Array:
    from scipy.stats import beta

    upper, lower = beta(a + move, b), beta(a, b + move)
    constant = upper.logpdf(0.5) - lower.logpdf(0.5)
    top = 1 / (1 + np.exp(-(epsilon - constant) / move))
    bottom = 1 / (1 + np.exp((epsilon + constant) / move))
    return np.maximum(
        _gap(upper.sf(top), lower.sf(top), epsilon), _gap(lower.cdf(bottom), upper.cdf(bottom), epsilon)
    )


def _gamma_divergences(shapes: Array, move: float, epsilon: float) -> Array:
    from scipy.stats import gamma

    upper, lower = gamma(shapes + move), gamma(shapes)
    constant = upper.logpdf(1.0) - lower.logpdf(1.0)
    top, bottom = np.exp((epsilon - constant) / move), np.exp((-epsilon - constant) / move)
    return np.maximum(
        _gap(upper.sf(top), lower.sf(top), epsilon), _gap(lower.cdf(bottom), upper.cdf(bottom), epsilon)
    )


def _gap(own: Array, other: Array, epsilon: float) -> Array:
    return own * (1 + _GRANTED) - math.exp(epsilon) * other * (1 - _GRANTED)
