"""Search for an adjacent pair of data sets whose one-dimensional posteriors violate the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from private_mcmc.preflight.refute.extremes import PublicRow
from private_mcmc.preflight.refute.pairs import Multiplicities, adjacent_pairs
from private_mcmc.preflight.refute.peaks import Array, LogDensity
from private_mcmc.preflight.refute.quadrature_1d import Violation, violation
from private_mcmc.preflight.refute.scan import Candidate, by_common_rows
from private_mcmc.target import Target

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
    """A violating pair around the first group of equal rows of other rows that has one, and the worst pairs met so far."""
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
