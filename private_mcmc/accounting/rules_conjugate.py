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
_SLACK = 1e-12


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


def normal_regression(adjacency: str, c: Constants, parts: Any) -> list[dict[str, Any]]:
    """The curve of ``posterior_normal_regression``: the same two legs, by SciPy's distributions."""
    from scipy.stats import chi2, norm

    alpha, beta, radius, n = c["precision"], c["noise"], c["radius"], c["n"]
    top = (n - 1) * radius**2
    s = np.concatenate([[0.0], np.geomspace(top * 1e-12, top, 4000)]) if top > 0 else np.zeros(2)
    reach = np.minimum((s[1:] * (n - 1)) ** 0.5, (n - 1) * radius)
    least = alpha + beta * s[:-1]
    means = beta * c["response"] * reach / least
    moves = 2 * beta * radius * (c["response"] + radius * means) / least
    shift = float(np.max(moves * (alpha + beta * (s[1:] + radius**2)) ** 0.5)) * (1 + _SLACK)
    ratio = (1 + beta * radius**2 / alpha) * (1 + _SLACK)

    def by_shift(at: float) -> float:
        return float(norm.sf(at / shift - shift / 2) - np.exp(at + norm.logsf(at / shift + shift / 2)))

    def by_scale(at: float) -> float:
        gap = math.log(ratio) / 2
        wide = 2 * (at + gap) / (ratio - 1)
        best = float(chi2.sf(wide, 1) - math.exp(at) * chi2.sf(wide * ratio, 1))
        if gap > at:
            narrow = 2 * (gap - at) / (ratio - 1)
            best = max(best, float(chi2.cdf(narrow * ratio, 1) - math.exp(at) * chi2.cdf(narrow, 1)))
        return min(1.0, max(0.0, best) + 1e-13)

    points = []
    for epsilon in c["epsilons"]:
        splits = [(epsilon * k / 64, epsilon * (1 - k / 64)) for k in range(65)]
        offers = [
            min(by_shift(a) + math.exp(a) * by_scale(b), by_scale(b) + math.exp(b) * by_shift(a))
            for a, b in splits
        ]
        points.append((epsilon, min(1.0, min(offers) * (1 + _SLACK))))
    return [{"kind": "points", "points": tuple(points)}]


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
    with np.errstate(over="ignore"):
        top, bottom = np.exp((epsilon - constant) / move), np.exp((-epsilon - constant) / move)
    return np.maximum(
        _gap(upper.sf(top), lower.sf(top), epsilon), _gap(lower.cdf(bottom), upper.cdf(bottom), epsilon)
    )


def _gap(own: Array, other: Array, epsilon: float) -> Array:
    return own * (1 + _GRANTED) - math.exp(epsilon) * other * (1 - _GRANTED)
