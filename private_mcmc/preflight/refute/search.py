"""The search for two data sets and an event that a posterior of few dimensions tells apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from private_mcmc.preflight.refute.pairs import Multiplicities, adjacent_pairs
from private_mcmc.preflight.refute.peaks import Array, LogDensity
from private_mcmc.preflight.refute.quadrature_1d import Density, Violation, densities, violation
from private_mcmc.preflight.refute.quadrature_nd import (
    Frame,
    Tables,
    cell_masses,
    compare,
    framed,
    holds_the_mass,
    tabulate,
)
from private_mcmc.preflight.refute.scan import Candidate, Reduction, by_common_rows, law_weights, where
from private_mcmc.target import Target

# By dimension: pairs that are integrated around one group of equal rows, and how many groups.
_MOST_TRIED = {1: 3, 2: 2, 3: 2}
_MOST_GROUPS = {1: None, 2: 8, 3: 8}
_MOST_BLIND = 6


@dataclass(frozen=True, eq=False)
class Found:
    """A violating pair, and densities of one coordinate under it for a plot."""

    reduction: Reduction
    first: Multiplicities
    second: Multiplicities
    violation: Violation
    density: Density


def search(
    reduction: Reduction, *, n: int, temper: float, target: Target
) -> tuple[Found | None, list[Candidate]]:
    """A violating pair around the first group of equal other rows that has one, and the worst pairs met."""
    met: list[Candidate] = []
    most = _MOST_TRIED[reduction.dim]
    groups = by_common_rows(reduction, n=n, temper=temper, target=target)
    for candidates in islice(groups, _MOST_GROUPS[reduction.dim]):
        met += candidates[:most]
        worse = [pair for pair in candidates[:most] if pair.divergence > target.delta]
        found = certify(reduction, [(pair.first, pair.second) for pair in worse], temper, target)
        if found is not None:
            return found, met
    if met or reduction.dim > 1:
        return None, sorted(met, key=lambda pair: -pair.divergence)
    blind = islice(adjacent_pairs(len(reduction.rows), n, target.adjacency), _MOST_BLIND)
    return certify(reduction, list(blind), temper, target), met


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
            return Found(reduction, first, second, *event)
    return None


def log_posterior(reduction: Reduction, weights: Array) -> LogDensity:
    """Log density on a line, up to a constant, of the law with these weights of the terms."""
    used = np.flatnonzero(weights)

    def log_density(t: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(-(weights[used] @ reduction.terms(t[:, None])[used]))

    return log_density


def _magnitude(reduction: Reduction, weights: Array) -> LogDensity:
    """The sum of the absolute terms of ``log_posterior``, on which its rounding depends."""
    used = np.flatnonzero(weights)

    def magnitude(t: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(weights[used] @ np.abs(reduction.terms(t[:, None])[used]))

    return magnitude


def _on_axis(reduction: Reduction, weights: Array, target: Target) -> tuple[Violation, Density] | None:
    p, q = (log_posterior(reduction, law) for law in weights)
    sizes = _magnitude(reduction, weights[0]), _magnitude(reduction, weights[1])
    found = violation(p, q, target.epsilon, target.delta, sizes=sizes)
    return None if found is None else (found, densities(p, q))


def _in_cells(reduction: Reduction, weights: Array, target: Target) -> tuple[Violation, Density] | None:
    place = where(reduction.terms, weights, reduction.dim)
    entry = None if place is None else _frame(reduction, place, weights)
    if entry is None:
        return None
    frame, tables = entry
    p, q = (cell_masses(frame, tables, law) for law in weights)
    if p is None or q is None:
        return None
    found = compare(frame, p, q, target.epsilon, target.delta)
    return None if found is None else (found, frame.marginals(p, q))


def _frame(reduction: Reduction, place: tuple[Array, Array], weights: Array) -> tuple[Frame, Tables] | None:
    """A frame that holds the mass of all laws, and the terms at its nodes."""
    made: list[Tables] = []

    def fits(frame: Frame) -> bool:
        made.append(tabulate(frame, reduction.terms))
        return all(holds_the_mass(cell_masses(frame, made[-1], law)) for law in weights)

    frame = framed(*place, fits)
    return None if frame is None else (frame, made[-1])
