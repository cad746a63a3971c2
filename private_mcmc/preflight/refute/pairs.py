"""Synthetic data sets: rows and how often each occurs, and which pairs of them are adjacent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Domain, Real, Rows
from private_mcmc.domains.persons import OWN_ROWS, Several
from private_mcmc.records import Record
from private_mcmc.report import number

PublicRow = Record

_FAR = (1.0, 1e3, 1e6)
_MOST_AXES = 12
_MOST_ROWS = 600


def extreme_rows(rows: Rows) -> list[PublicRow]:
    """Rows of the domain with at most two columns away from the value nearest zero, extremes first met first.

    Every value is in the domain by construction; nothing here is private.
    """
    values = {name: _values(domain) for name, domain in rows.columns.items()}
    if OWN_ROWS in values:
        # Persons with all their rows first, then such with one or none.
        full = np.ones(rows.columns[OWN_ROWS].event_shape, np.int64)
        values[OWN_ROWS] = [full, np.eye(1, len(full), dtype=np.int64)[0], 0 * full]
    base = {name: options[0] for name, options in values.items()}
    found: dict[bytes, PublicRow] = {}
    for row in _near(base, values):
        key = b"".join(np.asarray(row[name], dtype=np.float64).tobytes() for name in sorted(row))
        found.setdefault(key, row)
        if len(found) >= _MOST_ROWS:
            break
    return list(found.values())


def stacked(rows: Sequence[PublicRow]) -> dict[str, np.ndarray]:
    """The columns of some rows."""
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def row_words(row: PublicRow) -> str:
    """The values of a public row, long ones cut short."""
    return ", ".join(f"{name} = {_short(value)}" for name, value in row.items())


def _short(value: object) -> str:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return number(float(array))
    used = np.flatnonzero(array.ravel())
    if len(used) == 0:
        return "0"
    if len(used) == 1:
        index = ", ".join(str(i) for i in np.unravel_index(used[0], array.shape))
        return f"{number(float(array.ravel()[used[0]]))} at [{index}], else 0"
    return "(" + ", ".join(number(float(v)) for v in array.ravel()[:6]) + (", …)" if array.size > 6 else ")")


def _near(base: PublicRow, values: Mapping[str, list[Any]]) -> Iterable[PublicRow]:
    yield base
    for name, options in values.items():
        for option in options[1:]:
            yield {**base, name: option}
    for first, second in combinations(values, 2):
        for one, two in product(values[first][1:], values[second][1:]):
            yield {**base, first: one, second: two}
    far = ([options[-1], options[min(1, len(options) - 1)]] for options in values.values())
    for option in product(*far):
        yield dict(zip(values, option, strict=True))


def _values(domain: Domain) -> list[Any]:
    """The value nearest zero, then extremes."""
    if isinstance(domain, Binary):
        return [0, 1]
    if isinstance(domain, Counts):
        return [0, domain.max]
    if isinstance(domain, Categories):
        return sorted({0, 1, domain.k - 1, *range(min(domain.k, 5))})
    if isinstance(domain, Ball):
        return _along_axes(np.zeros(domain.dim), [domain.radius])
    if isinstance(domain, Real):
        if domain.dim is None:
            return [0.0, *(sign * far for far in _FAR for sign in (1.0, -1.0))]
        return _along_axes(np.zeros(domain.dim), list(_FAR))
    if isinstance(domain, Several):
        return [np.stack([value] * domain.count) for value in _values(domain.each)]
    if isinstance(domain, Box):
        return _corners(*domain.interval())
    return [np.zeros(domain.event_shape)]


def _along_axes(zero: np.ndarray, sizes: list[float]) -> list[np.ndarray]:
    found = [zero]
    for axis in range(min(len(zero), _MOST_AXES)):
        for size in sizes:
            for sign in (1.0, -1.0):
                vector = zero.copy()
                vector[axis] = sign * size
                found.append(vector)
    return found


def _corners(lo: np.ndarray, hi: np.ndarray) -> list[Any]:
    nearest = np.clip(np.zeros(lo.shape), lo, hi)
    if lo.ndim == 0:
        # A bounded score peaks inside: quarter points as well as ends.
        inner = (lo + share * (hi - lo) for share in (0.25, 0.5, 0.75))
        return list(dict.fromkeys(float(value) for value in (nearest, hi, lo, *inner)))
    found = [nearest]
    for axis in list(np.ndindex(lo.shape))[:_MOST_AXES]:
        for side in (hi, lo):
            if side[axis] != nearest[axis]:
                corner = nearest.copy()
                corner[axis] = side[axis]
                found.append(corner)
    return [*found, hi.copy(), lo.copy()]


Multiplicities = tuple[int, ...]


@dataclass(frozen=True)
class DataSet:
    """A public, synthetic data set: rows and how often each occurs."""

    rows: tuple[tuple[PublicRow, int], ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return sum(count for _, count in self.rows)

    def to_dict(self) -> list[Record]:
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
