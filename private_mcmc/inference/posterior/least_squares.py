"""Least squares of residuals that are linearised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

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
