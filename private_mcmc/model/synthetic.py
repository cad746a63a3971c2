"""A few public rows that reach the extremes of every column, for checks that compile nothing to make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows

_GOLDEN, _SHIFT = (5**0.5 - 1) / 2, 2**0.5 - 1
# In place of the ends of columns that have none.
_FAR = 10.0


def made_up_rows(rows: Rows, count: int) -> dict[str, npt.NDArray[Any]]:
    """``count ≥ 3`` rows, the same at every call: every other one has each number at an end of its interval.

    Each number is at either end in one of them.
    """
    sizes = [int(np.prod(domain.event_shape, dtype=np.int64)) for _, domain in rows.items]
    starts = np.cumsum([1, *sizes])
    return {
        name: _column(domain, count, int(start))
        for (name, domain), start in zip(rows.items, starts[:-1], strict=True)
    }


def _column(domain: Domain, count: int, start: int) -> npt.NDArray[Any]:
    low, high = (np.clip(end, -_FAR, _FAR) if np.any(np.isinf(end)) else end for end in domain.interval())
    size = int(np.prod(domain.event_shape, dtype=np.int64))
    # Multiples of an irrational number spread over the interval; every element begins elsewhere.
    turns = (np.arange(1, count + 1)[:, None] * _GOLDEN + (np.arange(size) + start) * _SHIFT) % 1.0
    turns[::2] = np.round(turns[::2])
    turns[2::4] = 1.0 - turns[:-2:4]
    turns = turns.reshape((count, *domain.event_shape))
    values: npt.NDArray[Any] = low + (high - low) * turns
    if np.issubdtype(domain.dtype, np.integer):
        return np.asarray(np.rint(values), domain.dtype)
    lengths = np.linalg.norm(values.reshape(count, -1), axis=1)
    largest = domain.norm_bound
    shrink = np.where(lengths > largest, largest * (1 - 1e-15) / np.maximum(lengths, 1e-300), 1.0)
    shrink = shrink.reshape((count, *(1,) * len(domain.event_shape)))
    return np.asarray(values * shrink)
