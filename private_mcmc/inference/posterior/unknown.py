"""Least squares of linearised residuals, and how much there is of each synthetic row given the releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


_FITTING_STEPS, _SETTLED = 40, 1e-3


def least_squares(
    linearised: Callable[[Array], tuple[Array, Array]], start: Array
) -> tuple[Array, Array] | tuple[None, None]:
    """Levenberg's and Marquardt's method: the minimum and the Jacobian there; ``None`` where they fail."""
    at, damping = start, 0.01
    residuals, jacobian = linearised(at)
    if not (np.all(np.isfinite(residuals)) and np.all(np.isfinite(jacobian))):
        return None, None
    for _ in range(_FITTING_STEPS):
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), jacobian.T @ residuals)
        tried, other = linearised(at - step)
        before, after = float(residuals @ residuals), float(tried @ tried)
        if not (np.all(np.isfinite(tried)) and np.all(np.isfinite(other)) and after < before):
            damping = min(8 * damping, 1e6)
            continue
        at, residuals, jacobian = at - step, tried, other
        damping = max(damping / 4, 1e-8)
        if before - after < _SETTLED * max(after, 1.0):
            break
    return at, jacobian
