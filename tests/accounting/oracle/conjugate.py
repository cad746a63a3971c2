"""Recomputations of exact posteriors, conjugate and Normal, by SciPy's distributions, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_mcmc.records import Constants, Parts, Record

Array = NDArray[np.float64]
Part = Callable[[Array], Array]

# The accuracy that the bound grants to the incomplete functions is part of the bound.
GRANTED = 1e-9
_SLACK = 1e-12
_LEAST = 1e-300


def beta_binomial(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_beta_binomial``."""
    w, others = c["temper"], c["temper"] * (c["n"] - 1) * c["trials"]
    if adjacency == "replace_one":
        least, most = _cover((c["n"] - 1) * c["trials"])
        a, b = c["a"] + w * least, c["b"] + w * ((c["n"] - 1) * c["trials"] - most)
        return _points(c, ((a, b, w * c["trials"]),), _beta_divergences)
    if c["trials"] == 1:
        ends = ((c["a"], c["b"] + others, w), (c["b"], c["a"] + others, w))
        return _points(c, ends, _presence_divergences)
    cells = sorted({int(c["trials"] * k / min(c["trials"], 64)) for k in range(min(c["trials"], 64) + 1)})
    laws: list[tuple[Part, Part]] = []
    for low, high in zip(cells, [*(cell - 1 for cell in cells[1:]), cells[-1]], strict=True):
        won, lost = w * high, w * (c["trials"] - low)
        laws.append(
            (_presence(c["a"], c["b"] + others + lost, won), _presence(c["b"], c["a"] + others + won, lost))
        )
    return _by_parts(c, laws)


def dirichlet_categorical(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_dirichlet_categorical``."""
    alphas, w = c["concentration"], c["temper"]
    if adjacency != "replace_one":
        rest = sum(alphas) + w * (c["n"] - 1)
        return _points(c, [(alpha, rest - alpha, w) for alpha in alphas], _presence_divergences)
    total = c["n"] - 1 if len(alphas) == 2 else 0
    least, most = _cover(total)
    pairs = [(a + w * least, b + w * (total - most), w) for a, b in permutations(alphas, 2)]
    return _points(c, pairs, _beta_divergences)


def gamma_poisson(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_gamma_poisson``."""
    from scipy.stats import gamma

    count = (np.array([c["shape"]]), c["temper"] * c["largest"])
    if adjacency == "replace_one":
        return _points(c, (count,), _gamma_divergences)
    least, most = _cover(c["n"] - 1, 200)
    faster = 1 + c["temper"] / (c["rate"] + c["temper"] * least)
    shapes = c["shape"] + c["temper"] * c["largest"] * (most + 1)

    def by_rate(at: float) -> float:
        quick, slow = gamma(shapes, scale=1 / faster), gamma(shapes)
        middle = shapes * np.log(faster) / (faster - 1)
        early, late = np.maximum(middle - at / (faster - 1), 0), middle + at / (faster - 1)
        gaps = _gap(quick.cdf(early), slow.cdf(early), at), _gap(slow.sf(late), quick.sf(late), at)
        return min(1.0, max(0.0, float(np.max(gaps))))

    return _by_parts(c, [(lambda at: np.clip(_gamma_divergences(*count, at), 0.0, 1.0), each(by_rate))])


def best_split(first: Part, second: Part, at: float) -> float:
    """Both legs, where ``at`` is best split between them."""
    splits = at * np.arange(65) / 64
    ones, others, scale = first(splits), second(splits), np.exp(splits)
    offers = np.minimum(ones + scale * others[::-1], others + scale * ones[::-1])
    return min(1.0, float(np.min(offers)) * (1 + _SLACK))


def each(leg: Callable[[float], float]) -> Part:
    """A leg at many levels."""
    return lambda levels: np.array([leg(float(level)) for level in levels])


def _by_parts(c: Constants, parts: Iterable[tuple[Part, Part]]) -> list[Record]:
    parts = list(parts)
    points = [(at, max(best_split(first, second, at) for first, second in parts)) for at in c["epsilons"]]
    return [{"kind": "points", "points": tuple(points)}]


def _presence(own: float, other: float, move: float) -> Part:
    if move == 0:
        return np.zeros_like
    return lambda levels: np.clip(_presence_divergences(own, other, move, levels), 0.0, 1.0)


def _presence_divergences(own: float, other: float, move: float, epsilon: Any) -> Any:
    from scipy.stats import beta

    if other >= 1e6:
        return _gamma_divergences(np.array(own), move, epsilon)
    # log x^move at the mean of the smaller law anchors the ratio.
    anchor = own / (own + other)
    constant = beta.logpdf(anchor, own + move, other) - beta.logpdf(anchor, own, other)
    constant -= move * math.log(anchor)
    top, low = (np.minimum((sign * np.asarray(epsilon) - constant) / move, 0.0) for sign in (1, -1))
    beyond = [
        np.where(
            top > -1,
            beta.cdf(-np.expm1(top), other, shape),
            _sf(beta(shape, other), shape, np.minimum(top, -1)),
        )
        for shape in (own + move, own)
    ]
    small = [_cdf(beta(shape, other), shape, low) for shape in (own, own + move)]
    return np.maximum(_gap(beyond[0], beyond[1], epsilon), _gap(small[0], small[1], epsilon))


def _cdf(law: Any, shape: Any, log_at: Any) -> Any:
    """A Gamma or Beta distribution function: below ``e^{-60}`` a power, continued from there."""
    power = law.cdf(math.exp(-60)) * np.exp(shape * np.minimum(log_at + 60, 0.0))
    return np.where(log_at < -60, power, law.cdf(np.exp(log_at)))


def _sf(law: Any, shape: Any, log_at: Any) -> Any:
    return np.where(log_at < -60, 1 - _cdf(law, shape, log_at), law.sf(np.exp(log_at)))


def _cover(total: int, each: int = 1_000) -> tuple[Array, Array]:
    """Blocks of ``0, …, total``: single numbers, or where they are many growing by 2 % from both ends."""
    if total < 4 * each:
        single = np.arange(total + 1.0)
        return single, single
    starts, power = set(range(each)), 0
    while each * 1.02**power < total // 2:
        starts.add(int(each * 1.02**power))
        power += 1
    starts.add(total // 2)
    firsts = sorted(starts | {total - start + 1 for start in starts if start > 0})
    return np.array(firsts, dtype=np.float64), np.array([*(first - 1 for first in firsts[1:]), total], float)


def _points(c: Constants, families: Iterable[tuple[Any, ...]], divergences: Any) -> list[Record]:
    families = list(families)
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
            np.where(log_odds > 0, _cdf(turned, turned.args[0], far), _sf(law, law.args[0], near))
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
        more = [_sf(law, shape, top) for law, shape in ((upper, shapes + move), (lower, shapes))]
        less = [_cdf(law, shape, bottom) for law, shape in ((lower, shapes), (upper, shapes + move))]
    return np.maximum(_gap(more[0], more[1], epsilon), _gap(less[0], less[1], epsilon))


def _gap(own: Array, other: Array, epsilon: float | Array) -> Array:
    gap = own * (1 + GRANTED) - np.exp(epsilon) * other * (1 - GRANTED)
    least: Array = np.maximum(gap, _LEAST)
    return least
