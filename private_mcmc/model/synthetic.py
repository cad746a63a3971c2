"""A few public rows that reach the extremes of every column, for checks that compile nothing to make them."""

from __future__ import annotations

import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows

# In place of the ends of columns that have none.
_FAR = 10.0


def synthetic_rows(rows: Rows, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """``count ≥ 3`` rows, the same at every call: every other one has each number at an end of its interval.

    Each number is at either end in one of them.
    """
    random = np.random.default_rng(seed)
    return {name: _column(domain, count, random) for name, domain in rows.items}


def _column(domain: Domain, count: int, random: np.random.Generator) -> np.ndarray:
    low, high = (np.clip(end, -_FAR, _FAR) if np.any(np.isinf(end)) else end for end in domain.interval())
    turns = random.random((count, *domain.event_shape))
    turns[::2] = np.round(turns[::2])
    turns[2::4] = 1.0 - turns[:-2:4]
    values: np.ndarray = low + (high - low) * turns
    if np.issubdtype(domain.dtype, np.integer):
        return np.asarray(np.rint(values), domain.dtype)
    lengths = np.linalg.norm(values.reshape(count, -1), axis=1)
    largest = domain.norm_bound
    shrink = np.where(lengths > largest, largest * (1 - 1e-15) / np.maximum(lengths, 1e-300), 1.0)
    shrink = shrink.reshape((count, *(1,) * len(domain.event_shape)))
    return np.asarray(values * shrink)
