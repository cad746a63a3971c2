"""The search for two data sets and an event that a posterior on a line tells apart.

All pairs are compared roughly first, on a grid that follows the mass, which proves nothing: what is proposed
is then integrated with an error bound, or dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
from scipy.interpolate import Akima1DInterpolator

from private_mcmc.preflight.refute.pairs import Multiplicities, PublicRow, adjacent_pairs, common_rows
from private_mcmc.preflight.refute.quadrature_1d import Array, LogDensity, Violation, violation
from private_mcmc.target import Target

# Points ``(k,)`` to the prior's potential and every row's loss, ``(1 + rows, k)``.
Terms = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Reduction:
    """A coordinate whose posterior is known up to a constant for every data set made of ``rows``.

    Attributes:
        coordinate: what the number is, in the model's words.
        direction: ``(p,)``; the coordinate is ``direction·θ``.
        rows: the rows the data sets are made of, all in the domain.
        terms: the prior's potential and the rows' losses.
    """

    coordinate: str
    direction: Array
    rows: tuple[PublicRow, ...]
    terms: Terms


_T = np.linspace(-3.5, 3.5, 801)


@dataclass(frozen=True)
class Grid:
    """Points ``(k,)`` and the logs of their weights."""

    points: Array
    log_weight: Array


# Two adjacent data sets, and roughly ``δ(ε)`` of the first from the second.
Candidate = tuple[Multiplicities, Multiplicities, float]


def by_common_rows(
    reduction: Reduction, *, n: int, temper: float, target: Target
) -> Iterator[list[Candidate]]:
    """The pairs around every group of equal other rows, the worst first; groups without room are skipped."""
    terms = reduction.terms
    pairs = groupby(
        adjacent_pairs(len(reduction.rows), n, target.adjacency), key=lambda pair: common_rows(*pair)
    )
    for _, listed in pairs:
        around = list(listed)
        sets = sorted({counts for pair in around for counts in pair})
        weights = np.array([law_weights(counts, temper) for counts in sets])
        place = where(terms, weights)
        if place is None:
            continue
        grid = grid_at(*place)
        laws = dict(zip(sets, log_laws(terms(grid.points), weights, grid), strict=True))
        found = [(one, other, divergence(laws[one], laws[other], target.epsilon)) for one, other in around]
        # What the grid does not tell apart is equal: the order of the pairs then decides.
        yield sorted(found, key=lambda candidate: -float(f"{candidate[2]:.2g}"))


def law_weights(counts: Multiplicities, temper: float) -> Array:
    """Weights of the terms under a data set: 1 for the prior, ``w`` times the count for every row."""
    return np.array([1.0, *(temper * count for count in counts)])


def divergence(log_p: Array, log_q: Array, epsilon: float) -> float:
    """``Σ max(0, p − e^ε q)`` of two laws on one grid."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = -np.expm1(np.minimum(epsilon + log_q - log_p, 0.0))
    return float(np.sum(np.exp(log_p) * np.where(np.isfinite(log_p), share, 0.0)))


def where(terms: Terms, weights: Array) -> tuple[float, float] | None:
    """Mean and spread of the even mixture of some laws, by sums over a grid that follows the mass."""
    center, scale = 0.0, 3.0
    for _ in range(40):
        grid = grid_at(center, scale)
        logs = log_laws(terms(grid.points), weights, grid)
        if not np.all(np.isfinite(logs.max(axis=1))):
            return None
        mass = np.exp(logs).mean(axis=0)
        mean = float(mass @ grid.points)
        spread = math.sqrt(max(float(mass @ (grid.points - mean) ** 2), (0.02 * scale) ** 2))
        settled = abs(mean - center) < 0.05 * scale and abs(spread / scale - 1) < 0.05
        center, scale = mean, spread
        if settled:
            return center, scale
    return None


def grid_at(center: float, scale: float) -> Grid:
    """``center + scale·sinh(t)``, ``t`` evenly spaced."""
    weight = np.log(np.cosh(_T)) + math.log(scale) + math.log(_T[1] - _T[0])
    return Grid(center + scale * np.sinh(_T), weight)


def log_laws(terms: Array, weights: Array, grid: Grid) -> Array:
    """Log probabilities of the grid's cells under every row of ``weights``; ``−∞`` where one is NaN."""
    used = np.flatnonzero(weights.any(axis=0))
    with np.errstate(invalid="ignore", over="ignore"):
        logs = grid.log_weight - weights[:, used] @ terms[used]
    logs = np.where(np.isnan(logs), -np.inf, logs)
    top = logs.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        total: Array = logs - top - np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
    return total


# Pairs that are integrated around one group of equal rows, and where no grid holds the mass.
_MOST_TRIED, _MOST_BLIND = 3, 6


@dataclass(frozen=True, eq=False)
class Density:
    """Densities of the coordinate under two laws, for a plot: ``p``, ``q`` at the points ``x``."""

    x: Array
    p: Array
    q: Array


def densities(reduction: Reduction, weights: Array) -> Density:
    """Those of the coordinate; no points where no grid holds the mass of both laws."""
    place = where(reduction.terms, weights)
    if place is None:
        return Density(*(np.zeros(0) for _ in range(3)))
    grid = grid_at(*place)
    laws = np.exp(log_laws(reduction.terms(grid.points), weights, grid))
    inner = [np.interp([1e-3, 1 - 1e-3], np.cumsum(masses) - masses / 2, grid.points) for masses in laws]
    x = np.linspace(min(low for low, _ in inner), max(high for _, high in inner), 241)
    logs = np.log(np.maximum(laws / np.exp(grid.log_weight), 1e-300))
    return Density(x, *np.exp(Akima1DInterpolator(grid.points, logs, axis=1)(x)))


@dataclass(frozen=True, eq=False)
class Found:
    """A violating pair, and densities of the coordinate under it for a plot."""

    reduction: Reduction
    first: Multiplicities
    second: Multiplicities
    violation: Violation
    density: Density


def search(reduction: Reduction, *, n: int, temper: float, target: Target) -> tuple[Found | None, bool]:
    """A violating pair around the first group of equal other rows that has one; whether any were compared."""
    met = False
    for candidates in by_common_rows(reduction, n=n, temper=temper, target=target):
        met = True
        worse = [(one, other) for one, other, delta in candidates[:_MOST_TRIED] if delta > target.delta]
        found = certify(reduction, worse, temper, target)
        if found is not None:
            return found, True
    if met:
        return None, True
    blind = list(islice(adjacent_pairs(len(reduction.rows), n, target.adjacency), _MOST_BLIND))
    return certify(reduction, blind, temper, target), bool(blind)


def certify(
    reduction: Reduction,
    pairs: Sequence[tuple[Multiplicities, Multiplicities]],
    temper: float,
    target: Target,
) -> Found | None:
    """The first of these pairs that is integrated to violate the target."""
    for first, second in pairs:
        weights = np.array([law_weights(first, temper), law_weights(second, temper)])
        p, q = (log_posterior(reduction, law) for law in weights)
        sizes = log_posterior(reduction, weights[0], np.abs), log_posterior(reduction, weights[1], np.abs)
        event = violation(p, q, target.epsilon, target.delta, sizes=sizes)
        if event is not None:
            return Found(reduction, first, second, event, densities(reduction, weights))
    return None


def log_posterior(reduction: Reduction, weights: Array, term: np.ufunc = np.negative) -> LogDensity:
    """Log density, up to a constant, of the law with these weights of the terms.

    With ``np.abs`` for ``term`` the sum of their sizes, on which its rounding depends.
    """
    used = np.flatnonzero(weights)

    def log_density(t: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(weights[used] @ term(reduction.terms(t)[used]))

    return log_density
