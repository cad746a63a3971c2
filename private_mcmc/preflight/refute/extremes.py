"""Rows at the extremes of a declared domain: where to look for a pair of data sets that leaks most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import numpy as np

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Real, Rows

PublicRow = dict[str, Any]

_FAR = (1.0, 1e3, 1e6)
_MOST_AXES = 12
_MOST_ROWS = 600


def extreme_rows(rows: Rows) -> list[PublicRow]:
    """Rows of the domain with at most two columns away from the value nearest zero, extremes first met first.

    Every value is in the domain by construction; nothing here is private.
    """
    values = {name: _values(domain) for name, domain in rows.columns.items()}
    base = {name: options[0] for name, options in values.items()}
    found: dict[bytes, PublicRow] = {}
    for row in _near(base, values):
        key = b"".join(np.asarray(row[name], dtype=np.float64).tobytes() for name in sorted(row))
        found.setdefault(key, row)
        if len(found) >= _MOST_ROWS:
            break
    return list(found.values())


def _near(base: PublicRow, values: Mapping[str, list[Any]]) -> Iterable[PublicRow]:
    yield base
    for name, options in values.items():
        for option in options[1:]:
            yield {**base, name: option}
    for first, second in combinations(values, 2):
        for one, two in product(values[first][1:], values[second][1:]):
            yield {**base, first: one, second: two}
    for option in product(
        *([options[-1], options[1 if len(options) > 1 else 0]] for options in values.values())
    ):
        yield dict(zip(values, option, strict=True))


def _values(domain: Any) -> list[Any]:
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
