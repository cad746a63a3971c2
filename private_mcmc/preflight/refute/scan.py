"""Which pairs of data sets to look at: all of them compared roughly, on a grid that follows the mass.

Nothing here proves anything: what is proposed is then integrated with an error bound, or dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np

from private_mcmc.preflight.refute.pairs import Multiplicities, PublicRow, adjacent_pairs, common_rows
from private_mcmc.preflight.refute.peaks import Array, LogDensity
from private_mcmc.preflight.refute.quadrature_1d import Violation, violation
from private_mcmc.target import Target

# ``(k, dim)`` points to the prior's potential and every row's loss, ``(1 + rows, k)``.
Terms = Callable[[Array], Array]

_SIDES = {1: 801, 2: 61, 3: 21}
_END = 3.5


@dataclass(frozen=True)
class Grid:
    """Points ``(k, dim)`` and the logs of their weights."""

    points: Array
    log_weight: Array


@dataclass(frozen=True)
class Candidate:
    """Two adjacent data sets, where their laws lie, and roughly ``δ(ε)`` of the first from the second."""

    first: Multiplicities
    second: Multiplicities
    grid: Grid
    divergence: float


def by_common_rows(
    terms: Terms, dim: int, rows: int, *, n: int, temper: float, target: Target
) -> Iterator[list[Candidate]]:
    """The pairs around every group of equal other rows, the worst first; groups without room are skipped."""
    pairs = groupby(adjacent_pairs(rows, n, target.adjacency), key=lambda pair: common_rows(*pair))
    for _, listed in pairs:
        around = list(listed)
        sets = sorted({counts for pair in around for counts in pair})
        weights = np.array([law_weights(counts, temper) for counts in sets])
        place = where(terms, weights, dim)
        if place is None:
            continue
        grid = grid_at(*place)
        laws = dict(zip(sets, log_laws(terms(grid.points), weights, grid), strict=True))
        found = [
            Candidate(one, other, grid, divergence(laws[one], laws[other], target.epsilon))
            for one, other in around
        ]
        # What the grid does not tell apart is equal: the order of the pairs then decides.
        yield sorted(found, key=lambda candidate: -float(f"{candidate.divergence:.2g}"))


def law_weights(counts: Multiplicities, temper: float) -> Array:
    """Weights of the terms under a data set: 1 for the prior, ``w`` times the count for every row."""
    return np.array([1.0, *(temper * count for count in counts)])


def divergence(log_p: Array, log_q: Array, epsilon: float) -> float:
    """``Σ max(0, p − e^ε q)`` of two laws on one grid."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = -np.expm1(np.minimum(epsilon + log_q - log_p, 0.0))
    return float(np.sum(np.exp(log_p) * np.where(np.isfinite(log_p), share, 0.0)))


def where(terms: Terms, weights: Array, dim: int) -> tuple[Array, Array] | None:
    """Mean and spread of the even mixture of some laws, by sums over a grid that follows the mass."""
    center, scale = np.zeros(dim), np.full(dim, 3.0)
    for _ in range(40):
        grid = grid_at(center, scale)
        logs = log_laws(terms(grid.points), weights, grid)
        if not np.all(np.isfinite(logs.max(axis=1))):
            return None
        mass = np.exp(logs).mean(axis=0)
        mean = mass @ grid.points
        spread = np.sqrt(np.maximum(mass @ (grid.points - mean) ** 2, (0.02 * scale) ** 2))
        settled = np.all(np.abs(mean - center) < 0.05 * scale) and np.all(np.abs(spread / scale - 1) < 0.05)
        center, scale = mean, spread
        if settled:
            return center, scale
    return None


def grid_at(center: Array, scale: Array) -> Grid:
    """``center + scale·sinh(t)`` on every axis, ``t`` evenly spaced."""
    dim = len(center)
    t = np.linspace(-_END, _END, _SIDES[dim])
    axes = np.stack([axis.ravel() for axis in np.meshgrid(*([t] * dim), indexing="ij")], axis=1)
    weight = np.log(np.cosh(axes)).sum(axis=1) + np.log(scale).sum() + dim * math.log(t[1] - t[0])
    return Grid(center + scale * np.sinh(axes), weight)


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


_MOST_TRIED = 3
_MOST_BLIND = 6


@dataclass(frozen=True)
class Line:
    """A coordinate whose posterior is one-dimensional for every data set made of ``rows``.

    Attributes:
        coordinate: what the number on the line is, in the model's words.
        direction: ``u``; the coordinate is ``u·θ``.
        potential: minus the log prior density on the line, up to a constant.
        rows: the rows the data sets are made of, all in the domain.
        losses: minus the log likelihood of every row on the line: ``(t,) -> (rows, t)``.
    """

    coordinate: str
    direction: Array
    potential: Callable[[Array], Array]
    rows: tuple[PublicRow, ...]
    losses: Callable[[Array], Array]

    def log_posterior(self, counts: Multiplicities, temper: float) -> LogDensity:
        """Log posterior density, up to a constant, of the data set with ``counts`` copies of each row."""
        return self._sum(counts, temper, lambda terms: terms, -1.0)

    def magnitude(self, counts: Multiplicities, temper: float) -> LogDensity:
        """The sum of the absolute terms of ``log_posterior``, on which its rounding depends."""
        return self._sum(counts, temper, np.abs, 1.0)

    def terms(self, points: Array) -> Array:
        """``(k, 1)`` points to the prior's potential and the rows' losses, ``(1 + rows, k)``."""
        return np.concatenate([self.potential(points[:, 0])[None], self.losses(points[:, 0])])

    def _sum(
        self, counts: Multiplicities, temper: float, taken: Callable[[Array], Array], sign: float
    ) -> LogDensity:
        weights = temper * np.asarray(counts, dtype=np.float64)
        used = np.flatnonzero(weights)

        def total(t: Array) -> Array:
            prior = taken(self.potential(t))
            if len(used) == 0:
                return sign * prior
            with np.errstate(invalid="ignore", over="ignore"):
                return sign * (prior + weights[used] @ taken(self.losses(t)[used]))

        return total


@dataclass(frozen=True)
class Found:
    """A violating pair on a line."""

    line: Line
    first: Multiplicities
    second: Multiplicities
    violation: Violation


def search(line: Line, *, n: int, temper: float, target: Target) -> tuple[Found | None, list[Candidate]]:
    """A violating pair around the first group of equal other rows that has one, and the worst pairs met."""
    met: list[Candidate] = []
    for candidates in by_common_rows(line.terms, 1, len(line.rows), n=n, temper=temper, target=target):
        met += candidates[:_MOST_TRIED]
        worse = [pair for pair in candidates[:_MOST_TRIED] if pair.divergence > target.delta]
        found = certify(line, [(pair.first, pair.second) for pair in worse], temper, target)
        if found is not None:
            return found, met
    if met:
        return None, sorted(met, key=lambda pair: -pair.divergence)
    blind = islice(adjacent_pairs(len(line.rows), n, target.adjacency), _MOST_BLIND)
    return certify(line, list(blind), temper, target), met


def certify(
    line: Line, pairs: Sequence[tuple[Multiplicities, Multiplicities]], temper: float, target: Target
) -> Found | None:
    """The first of these pairs that is integrated to violate the target."""
    for first, second in pairs:
        p, q = line.log_posterior(first, temper), line.log_posterior(second, temper)
        sizes = line.magnitude(first, temper), line.magnitude(second, temper)
        found = violation(p, q, target.epsilon, target.delta, sizes=sizes)
        if found is not None:
            return Found(line, first, second, found)
    return None
