"""Public rows at the extremes of a domain, as columns and in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from private_mcmc.domains import Ball, Domain, Rows
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
    if isinstance(domain, Several):
        return [np.stack([value] * domain.count) for value in _values(domain.each)]
    low, high = domain.interval()
    if domain.dtype.kind != "f" and not domain.event_shape:
        first, last = int(low), int(high)
        return list(dict.fromkeys([first, last, *range(first, min(last, first + 4) + 1)]))
    nearest, unbounded = np.clip(np.zeros(low.shape), low, high), not np.all(np.isfinite(high - low))
    ends = [
        np.where(np.isfinite(end), end, far)
        for size in (_FAR if unbounded else _FAR[:1])
        for end, far in ((high, size), (low, -size))
    ]
    if not domain.event_shape:
        # A bounded score peaks inside: quarter points as well as ends.
        inner = [] if unbounded else [low + share * (high - low) for share in (0.25, 0.5, 0.75)]
        return list(dict.fromkeys(float(value) for value in (nearest, *ends, *inner)))
    found = [nearest]
    for axis in list(np.ndindex(low.shape))[:_MOST_AXES]:
        for end in ends:
            if end[axis] != nearest[axis]:
                corner = nearest.copy()
                corner[axis] = end[axis]
                found.append(corner)
    return found if isinstance(domain, Ball) or unbounded else [*found, *ends]
