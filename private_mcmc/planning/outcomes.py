"""Which outcomes a synthetic row may have: the declared values of the rows' one scalar column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.domains import Rows
from private_mcmc.errors import NotYetSupported

_MOST_VALUES = 257


def possible_outcomes(rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Every value of the outcome, or up to 257 evenly spaced ones, by the name of its column.

    Raises:
        NotYetSupported: if the rows do not have exactly one scalar column, or it is unbounded.
    """
    scalar = [name for name, domain in rows.items if domain.event_shape == ()]
    if len(scalar) != 1:
        raise NotYetSupported(f"plans need rows with one scalar column, the outcome; these have {scalar}.")
    return {scalar[0]: _values(rows, scalar[0])}


def _values(rows: Rows, name: str) -> npt.NDArray[Any]:
    domain = rows.columns[name]
    lo, hi = (float(bound) for bound in domain.interval())
    if not math.isfinite(hi - lo):
        raise NotYetSupported(f"column {name!r} is unbounded: declare Box(lo, hi) to plan for it.")
    if np.issubdtype(domain.dtype, np.integer):
        return np.unique(np.linspace(lo, hi, min(int(hi - lo) + 1, _MOST_VALUES)).round()).astype(
            domain.dtype
        )
    return np.linspace(lo, hi, _MOST_VALUES)
