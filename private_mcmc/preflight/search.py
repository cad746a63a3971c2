"""Search for an adjacent pair of data sets whose one-dimensional posteriors violate the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

import numpy as np

from private_mcmc.preflight.extremes import PublicRow
from private_mcmc.preflight.peaks import Array, LogDensity
from private_mcmc.preflight.quadrature import Violation, violation
from private_mcmc.target import Target

Counts = tuple[int, ...]

_MOST_PAIRS = 60
_DECISIVE = 0.5


@dataclass(frozen=True)
class Line:
    """A coordinate whose posterior is one-dimensional for every data set made of ``rows``.

    Attributes:
        coordinate: what the number on the line is, in the model's words.
        potential: minus the log prior density on the line, up to a constant.
        rows: the rows the data sets are made of, all in the domain.
        losses: minus the log likelihood of every row on the line: ``(t,) -> (rows, t)``.
    """

    coordinate: str
    potential: Callable[[Array], Array]
    rows: tuple[PublicRow, ...]
    losses: Callable[[Array], Array]

    def log_posterior(self, counts: Counts, temper: float) -> LogDensity:
        """Log posterior density, up to a constant, of the data set with ``counts`` copies of each row."""
        weights = temper * np.asarray(counts, dtype=np.float64)
        used = np.flatnonzero(weights)

        def density(t: Array) -> Array:
            total = -self.potential(t)
            if len(used) == 0:
                return total
            with np.errstate(invalid="ignore", over="ignore"):
                return total - weights[used] @ self.losses(t)[used]

        return density


@dataclass(frozen=True)
class DataSet:
    """A public, made-up data set: rows and how often each occurs."""

    rows: tuple[tuple[PublicRow, int], ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return sum(count for _, count in self.rows)

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data."""
        return [
            {"row": {k: np.asarray(v).tolist() for k, v in row.items()}, "times": n} for row, n in self.rows
        ]


@dataclass(frozen=True)
class Found:
    """A violating pair on a line."""

    line: Line
    first: Counts
    second: Counts
    violation: Violation


def data_set(rows: Sequence[PublicRow], counts: Counts) -> DataSet:
    """The data set with these counts of these rows."""
    return DataSet(tuple((row, count) for row, count in zip(rows, counts, strict=True) if count))


def search(line: Line, *, n: int, temper: float, target: Target) -> Found | None:
    """The worst pair found with the first crowd of other rows that has one; ``None`` if none violates."""
    best: Found | None = None
    crowd: Counts | None = None
    for first, second in islice(adjacent_pairs(len(line.rows), n, target.adjacency), _MOST_PAIRS):
        before, crowd = crowd, common_rows(first, second)
        if best is not None and (before != crowd or best.violation.excess > _DECISIVE):
            break
        p, q = line.log_posterior(first, temper), line.log_posterior(second, temper)
        found = violation(p, q, target.epsilon, target.delta, n=n)
        if found is not None and (best is None or found.excess > best.violation.excess):
            best = Found(line, first, second, found)
    return best


def common_rows(first: Counts, second: Counts) -> Counts:
    """The rows that two data sets share."""
    return tuple(min(a, b) for a, b in zip(first, second, strict=True))


def adjacent_pairs(rows: int, n: int, adjacency: str) -> Iterator[tuple[Counts, Counts]]:
    """Adjacent data sets: the changed row among all ``rows``, the others alike, row 0 (nearest inert) first.

    ``replace_one``: exactly ``n`` rows. ``zero_out``: any rows may be absent. ``add_remove``: at most
    ``n`` rows and at least one in the smaller data set.
    """
    for others in _others(rows, n, adjacency):
        for index in range(rows):
            with_index = _plus(others, index)
            if adjacency == "replace_one":
                for other in range(rows):
                    if other != index:
                        yield with_index, _plus(others, other)
            else:
                yield with_index, others
                yield others, with_index


def _others(rows: int, n: int, adjacency: str) -> list[Counts]:
    nobody = (0,) * rows
    if n == 1:
        return [nobody] if adjacency != "add_remove" else []
    crowd = [tuple((n - 1) * (index == place) for index in range(rows)) for place in range(rows)]
    mixed = [
        tuple((n - 1 - half) * (index == one) + half * (index == two) for index in range(rows))
        for one, two in combinations(range(min(rows, 4)), 2)
        for half in [(n - 1) // 2]
        if half
    ]
    if adjacency == "replace_one":
        return crowd + mixed
    one = [tuple(int(index == place) for index in range(rows)) for place in range(rows)]
    return ([nobody] if adjacency == "zero_out" else one) + crowd + mixed


def _plus(counts: Counts, index: int) -> Counts:
    return tuple(count + (place == index) for place, count in enumerate(counts))
