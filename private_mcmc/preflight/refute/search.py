"""The search for two data sets and an event that a posterior of few dimensions tells apart.

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
from private_mcmc.preflight.refute.quadrature_nd import (
    FRAME_ENDS,
    Frame,
    cell_masses,
    compare,
    holds_the_mass,
    tabulate,
)
from private_mcmc.target import Target

# ``(k, dim)`` points to the prior's potential and every row's loss, ``(1 + rows, k)``.
Terms = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Reduction:
    """Coordinates whose joint posterior is known up to a constant for every data set made of ``rows``.

    Attributes:
        coordinates: what the numbers are, in the model's words.
        directions: ``(dim, p)``; coordinate ``i`` is ``directions[i]·θ``.
        rows: the rows the data sets are made of, all in the domain.
        terms: the prior's potential and the rows' losses.
    """

    coordinates: tuple[str, ...]
    directions: Array
    rows: tuple[PublicRow, ...]
    terms: Terms

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)


_SIDES = {1: 801, 2: 61, 3: 21}
_END = 3.5


@dataclass(frozen=True)
class Grid:
    """Points ``(k, dim)`` and the logs of their weights."""

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
        place = where(terms, weights, reduction.dim)
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
    t = _side(dim)
    axes = np.stack([axis.ravel() for axis in np.meshgrid(*([t] * dim), indexing="ij")], axis=1)
    weight = np.log(np.cosh(axes)).sum(axis=1) + np.log(scale).sum() + dim * math.log(t[1] - t[0])
    return Grid(center + scale * np.sinh(axes), weight)


def _side(dim: int) -> Array:
    return np.linspace(-_END, _END, _SIDES[dim])


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


# By dimension: pairs that are integrated around one group of equal rows, and how many groups.
_MOST_TRIED = {1: 3, 2: 2, 3: 2}
_MOST_GROUPS = {1: None, 2: 8, 3: 8}
_MOST_BLIND = 6


@dataclass(frozen=True, eq=False)
class Density:
    """Densities of one coordinate under two laws, for a plot: ``p``, ``q`` at the points ``x``."""

    coordinate: int
    x: Array
    p: Array
    q: Array


def densities(reduction: Reduction, weights: Array) -> Density:
    """Those of the coordinate whose laws differ most; no points where no grid holds the mass of both."""
    dim = reduction.dim
    place = where(reduction.terms, weights, dim)
    if place is None:
        return Density(0, *(np.zeros(0) for _ in range(3)))
    grid = grid_at(*place)
    laws = np.exp(log_laws(reduction.terms(grid.points), weights, grid)).reshape(2, *(_SIDES[dim],) * dim)
    each = [laws.sum(axis=tuple(1 + other for other in range(dim) if other != axis)) for axis in range(dim)]
    # What is equally far apart may differ in the last digits: the first coordinate then.
    chosen = int(np.argmax([float(f"{np.abs(p - q).sum():.6g}") for p, q in each]))
    center, scale = (float(part[chosen]) for part in place)
    t = _side(dim)
    at, widths = center + scale * np.sinh(t), scale * np.cosh(t) * (t[1] - t[0])
    inner = [np.interp([1e-3, 1 - 1e-3], np.cumsum(masses) - masses / 2, at) for masses in each[chosen]]
    x = np.linspace(min(low for low, _ in inner), max(high for _, high in inner), 241)
    logs = np.log(np.maximum(each[chosen] / widths, 1e-300))
    return Density(chosen, x, *np.exp(Akima1DInterpolator(at, logs, axis=1)(x)))


@dataclass(frozen=True, eq=False)
class Found:
    """A violating pair, and densities of one coordinate under it for a plot."""

    reduction: Reduction
    first: Multiplicities
    second: Multiplicities
    violation: Violation
    density: Density


def search(reduction: Reduction, *, n: int, temper: float, target: Target) -> tuple[Found | None, bool]:
    """A violating pair around the first group of equal other rows that has one; whether pairs were compared.

    None are in two or three dimensions where no grid holds the mass of these posteriors.
    """
    met, most = False, _MOST_TRIED[reduction.dim]
    groups = by_common_rows(reduction, n=n, temper=temper, target=target)
    for candidates in islice(groups, _MOST_GROUPS[reduction.dim]):
        met = True
        worse = [(one, other) for one, other, delta in candidates[:most] if delta > target.delta]
        found = certify(reduction, worse, temper, target)
        if found is not None:
            return found, True
    if met or reduction.dim > 1:
        return None, met
    blind = list(islice(adjacent_pairs(len(reduction.rows), n, target.adjacency), _MOST_BLIND))
    return certify(reduction, blind, temper, target), bool(blind)


def certify(
    reduction: Reduction,
    pairs: Sequence[tuple[Multiplicities, Multiplicities]],
    temper: float,
    target: Target,
) -> Found | None:
    """The first of these pairs that is integrated to violate the target."""
    integrate = _on_axis if reduction.dim == 1 else _in_cells
    for first, second in pairs:
        weights = np.array([law_weights(first, temper), law_weights(second, temper)])
        event = integrate(reduction, weights, target)
        if event is not None:
            return Found(reduction, first, second, event, densities(reduction, weights))
    return None


def log_posterior(reduction: Reduction, weights: Array, term: np.ufunc = np.negative) -> LogDensity:
    """Log density on a line, up to a constant, of the law with these weights of the terms.

    With ``np.abs`` for ``term`` the sum of their sizes, on which its rounding depends.
    """
    used = np.flatnonzero(weights)

    def log_density(t: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(weights[used] @ term(reduction.terms(t[:, None])[used]))

    return log_density


def _on_axis(reduction: Reduction, weights: Array, target: Target) -> Violation | None:
    p, q = (log_posterior(reduction, law) for law in weights)
    sizes = log_posterior(reduction, weights[0], np.abs), log_posterior(reduction, weights[1], np.abs)
    return violation(p, q, target.epsilon, target.delta, sizes=sizes)


def _in_cells(reduction: Reduction, weights: Array, target: Target) -> Violation | None:
    place = where(reduction.terms, weights, reduction.dim)
    if place is None:
        return None
    for end in FRAME_ENDS:
        frame = Frame(*place, end)
        tables = tabulate(frame, reduction.terms)
        p, q = (cell_masses(frame, tables, law) for law in weights)
        if p is not None and q is not None and holds_the_mass(p) and holds_the_mass(q):
            return compare(frame, p, q, target.epsilon, target.delta)
    return None
