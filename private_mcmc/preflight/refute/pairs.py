"""Made-up data sets: rows and how often each occurs, and which pairs of them are adjacent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from private_mcmc.preflight.refute.extremes import PublicRow

Multiplicities = tuple[int, ...]


@dataclass(frozen=True)
class DataSet:
    """A public, synthetic data set: rows and how often each occurs."""

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


def data_set(rows: Sequence[PublicRow], counts: Multiplicities) -> DataSet:
    """The data set with these counts of these rows."""
    return DataSet(tuple((row, count) for row, count in zip(rows, counts, strict=True) if count))


def common_rows(first: Multiplicities, second: Multiplicities) -> Multiplicities:
    """The rows that two data sets share."""
    return tuple(min(a, b) for a, b in zip(first, second, strict=True))


def adjacent_pairs(rows: int, n: int, adjacency: str) -> Iterator[tuple[Multiplicities, Multiplicities]]:
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


def _others(rows: int, n: int, adjacency: str) -> list[Multiplicities]:
    nobody = (0,) * rows
    if n == 1:
        return [nobody] if adjacency != "add_remove" else []
    common_rows = [tuple((n - 1) * (index == place) for index in range(rows)) for place in range(rows)]
    mixed = [
        tuple((n - 1 - half) * (index == one) + half * (index == two) for index in range(rows))
        for one, two in combinations(range(min(rows, 4)), 2)
        for half in [(n - 1) // 2]
        if half
    ]
    if adjacency == "replace_one":
        return common_rows + mixed
    one = [tuple(int(index == place) for index in range(rows)) for place in range(rows)]
    return ([nobody] if adjacency == "zero_out" else one) + common_rows + mixed


def _plus(counts: Multiplicities, index: int) -> Multiplicities:
    return tuple(count + (place == index) for place, count in enumerate(counts))
