"""How much there is of each synthetic row, given matrices that are linear in it, and what is left unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

# The least share of its weight that a row keeps.
_LEAST_WEIGHT = 0.05


def conditioned(
    weights: Array, moving: Array, seen: Sequence[Array], released: Sequence[Array]
) -> tuple[Array, Array]:
    """Weights ``w(1 + φe)`` at the most likely ``e ~ N(0, I)``, and deviations of what is left of ``e``.

    Args:
        weights: ``w``, ``(rows,)``.
        moving: ``φ``, ``(rows, functions)``.
        seen: what one person of every row adds to each release, over its noise's sd, ``(rows, entries)``.
        released: over its noise's sd, ``(entries,)``.
    """
    if not seen:
        return weights, moving - weights @ moving / weights.sum()
    adds, found = np.concatenate(seen, axis=1), np.concatenate(released)
    centred, factor = _factored(weights, moving, adds)
    off = (weights[:, None] * centred).T @ adds @ (found - weights @ adds)
    effects = np.linalg.solve(factor.T, np.linalg.solve(factor, off))
    changed = weights * np.maximum(1 + centred @ effects, _LEAST_WEIGHT)
    weights = changed * (weights.sum() / changed.sum())
    centred, factor = _factored(weights, moving, adds)
    return weights, np.asarray(np.linalg.solve(factor, centred.T).T)


def _factored(weights: Array, moving: Array, adds: Array) -> tuple[Array, Array]:
    """``φ`` less its mean, and a factor of the precision of ``e``."""
    centred = moving - weights @ moving / weights.sum()
    jacobian = (weights[:, None] * centred).T @ adds
    return centred, np.linalg.cholesky(np.eye(len(jacobian)) + jacobian @ jacobian.T)
