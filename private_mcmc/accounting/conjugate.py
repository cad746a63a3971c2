"""Exact hockey-stick divergences of conjugate posteriors, maximised over every data set and neighbour.

In each family a changed row moves one number: the posteriors of two adjacent data sets are members of
a one-parameter exponential family. Their likelihood ratio is monotone in a statistic, so the worst
event is a half line and its probabilities are two incomplete beta or gamma functions. By the same
monotonicity (Neyman, Pearson) a larger move is never less distinguishable, so only the largest move
of a row is enumerated, from every total that the other rows can have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaln, expit, gammainc, gammaincc, gammaln

Array = NDArray[np.float64]

# Relative accuracy granted to the incomplete beta and gamma functions.
_ACCURACY = 1e-9
MOST_TOTALS = 60_000


@dataclass(frozen=True)
class Worst:
    """The worst adjacent pair: ``δ(ε)`` rounded up, and the total of the other rows where it is attained.

    Attributes:
        delta: upper bound on the largest hockey-stick divergence.
        total: the statistic of the other rows (successes, or sum of counts).
        up: whether the first data set of the pair is the one with the larger statistic.
        others: the number of the other rows' trials, where it varies.
    """

    delta: float
    total: int
    up: bool
    others: int = 0


def beta_pair(a: Array, b: Array, move: float, epsilon: float, up: bool) -> Array:
    """``δ(ε)`` of ``Beta(a+move, b)`` from ``Beta(a, b+move)`` (``up``) or the reverse; arrays, rounded up.

    The log ratio is ``move·logit(x)`` plus a constant, so the worst event is ``x > t`` (``x < t``).
    """
    constant = betaln(a, b + move) - betaln(a + move, b)
    if up:
        threshold = expit((epsilon - constant) / move)
        own, other = betaincc(a + move, b, threshold), betaincc(a, b + move, threshold)
    else:
        threshold = expit(-(epsilon + constant) / move)
        own, other = betainc(a, b + move, threshold), betainc(a + move, b, threshold)
    return _rounded_up(own, other, epsilon)


def gamma_pair(shape: Array, move: float, epsilon: float, up: bool) -> Array:
    """``δ(ε)`` of ``Gamma(shape+move)`` from ``Gamma(shape)``, any common rate (``up``), or the reverse."""
    constant = gammaln(shape) - gammaln(shape + move)
    # A threshold beyond all floats is one that is never passed.
    with np.errstate(over="ignore"):
        threshold = np.exp(((epsilon if up else -epsilon) - constant) / move)
    if up:
        own, other = gammaincc(shape + move, threshold), gammaincc(shape, threshold)
    else:
        own, other = gammainc(shape, threshold), gammainc(shape + move, threshold)
    return _rounded_up(own, other, epsilon)


def beta_binomial(
    a: float, b: float, *, n: int, trials: int = 1, temper: float = 1.0, epsilon: float
) -> Worst | None:
    """One of ``n`` Binomial(``trials``) rows replaced under a Beta(``a``, ``b``) prior on the probability.

    Bernoulli rows are ``trials=1``. ``None`` if there are more than ``MOST_TOTALS`` totals to enumerate.
    """
    totals = (n - 1) * trials
    if not totals < MOST_TOTALS:
        return None
    k = np.arange(totals + 1, dtype=np.float64)
    move = temper * trials
    return _worst(
        beta_pair(a + temper * k, b + temper * (totals - k), move, epsilon, up) for up in (True, False)
    )


def dirichlet_categorical(
    concentration: tuple[float, ...], *, n: int, temper: float = 1.0, epsilon: float
) -> Worst | None:
    """One of ``n`` categorical rows replaced under a Dirichlet prior.

    Only the two categories that gain and lose a row matter: the log ratio is a function of
    ``x_i/(x_i+x_j)``, which is Beta with the counts of these two. With three or more categories the
    other rows may fall elsewhere, so every number ``s < n`` of rows in the two is enumerated.
    """
    sizes = [n - 1] if len(concentration) == 2 else list(range(n))
    if not sum(size + 1 for size in sizes) < MOST_TOTALS:
        return None
    k = np.concatenate([np.arange(size + 1, dtype=np.float64) for size in sizes])
    rest = np.concatenate([size - np.arange(size + 1, dtype=np.float64) for size in sizes])
    worst: Worst | None = None
    for a, b in sorted(
        {(a, b) for i, a in enumerate(concentration) for j, b in enumerate(concentration) if i != j}
    ):
        found = _worst([beta_pair(a + temper * k, b + temper * rest, temper, epsilon, True)])
        if found is not None and (worst is None or found.delta > worst.delta):
            worst = Worst(found.delta, int(k[found.total]), True, int(k[found.total] + rest[found.total]))
    return worst


def gamma_poisson(shape: float, *, n: int, largest: int, temper: float = 1.0, epsilon: float) -> Worst | None:
    """One of ``n`` Poisson rows, counts at most ``largest``, replaced under a Gamma prior on the rate."""
    totals = (n - 1) * largest
    if not totals < MOST_TOTALS:
        return None
    shapes = shape + temper * np.arange(totals + 1, dtype=np.float64)
    return _worst(gamma_pair(shapes, temper * largest, epsilon, up) for up in (True, False))


def beta_renyi(a: float, b: float, a2: float, b2: float, order: float) -> float:
    """Rényi divergence of order ``α > 1`` of ``Beta(a,b)`` from ``Beta(a2,b2)``; ``inf`` where it diverges.

    ``[ln B(αa+(1−α)a2, αb+(1−α)b2) − α ln B(a,b) + (α−1) ln B(a2,b2)]/(α−1)``, finite only while both
    arguments are positive.
    """
    mixed_a, mixed_b = order * a + (1 - order) * a2, order * b + (1 - order) * b2
    if not (mixed_a > 0 and mixed_b > 0):
        return math.inf
    log_ratio = betaln(mixed_a, mixed_b) - order * betaln(a, b) + (order - 1) * betaln(a2, b2)
    return float(log_ratio / (order - 1))


def beta_bernoulli_renyi(a: float, b: float, *, n: int, order: float) -> tuple[float, int, int]:
    """The largest Rényi divergence over all data sets of ``n`` Bernoulli rows and neighbours.

    Returns the divergence, the number of successes of the first data set, and the direction of the change.
    """
    cases = [
        (beta_renyi(a + k, b + n - k, a + k + way, b + n - k - way, order), k, way)
        for k in range(n + 1)
        for way in (1, -1)
        if 0 <= k + way <= n
    ]
    return max(cases, key=lambda case: case[0])


def _rounded_up(own: Array, other: Array, epsilon: float) -> Array:
    scale = math.exp(epsilon) if epsilon < 700 else math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        value = own * (1 + _ACCURACY) - np.where(other > 0, scale * other * (1 - _ACCURACY), 0.0)
    # A number that is not one (overflow of a parameter) is the trivial bound.
    value = np.where(np.isnan(value), 1.0, value)
    return np.clip(value, 0.0, 1.0)


def _worst(curves: Iterable[Array]) -> Worst | None:
    """The largest entry of the given arrays; the first of them belongs to ``up``."""
    best: Worst | None = None
    for index, deltas in enumerate(curves):
        at = int(np.argmax(deltas))
        if best is None or deltas[at] > best.delta:
            best = Worst(float(deltas[at]), at, index == 0)
    return best
