"""The metric of a schedule: eigenvalues of ``M``, and the noise ``S`` measured in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix, Schedule


def dense(matrix: Matrix | None, dim: int, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """``matrix`` as a ``(dim, dim)`` array (``None`` is the identity).

    Raises:
        DeclarationError: unless it has that size, is symmetric and positive definite.
    """
    if matrix is None:
        return np.eye(dim)
    array = np.asarray(matrix, dtype=np.float64)
    array = np.diag(array) if array.ndim == 1 else array
    if array.shape != (dim, dim):
        raise DeclarationError(f"{name}: expected {dim} diagonal entries or a {dim}×{dim} matrix.")
    if not np.array_equal(array, array.T):
        raise DeclarationError(f"{name}: must be symmetric.")
    if not np.linalg.eigvalsh(array)[0] > 0:
        raise DeclarationError(f"{name}: must be positive definite.")
    return array


def condition_number(schedule: Schedule) -> float:
    """``λ_max(M)/λ_min(M)``."""
    if schedule.preconditioner is None:
        return 1.0
    values = np.linalg.eigvalsh(dense(schedule.preconditioner, schedule.dim, "preconditioner"))
    return float(values[-1] / values[0])


def noise_ratio(schedule: Schedule) -> tuple[float, bool]:
    """Least eigenvalue of ``M^{-1/2} (S/2γ) M^{-1/2}``, and whether ``S`` is proportional to ``M``.

    In the norm ``‖M^{-1/2}·‖`` every direction has noise variance at least ``2γ`` times the ratio.
    """
    if schedule.noise is None:
        return 1.0, True
    noise = dense(schedule.noise, schedule.dim, "noise")
    scale = dense(schedule.preconditioner, schedule.dim, "preconditioner")
    if (
        np.count_nonzero(noise - np.diag(np.diag(noise))) + np.count_nonzero(scale - np.diag(np.diag(scale)))
        == 0
    ):
        ratios = np.asarray(np.sort(np.diag(noise) / np.diag(scale)), dtype=np.float64)
    else:
        root = np.linalg.cholesky(scale)
        half = np.linalg.solve(root, noise)
        ratios = np.asarray(np.linalg.eigvalsh(np.linalg.solve(root, half.T)), dtype=np.float64)
    least, most = float(ratios[0]), float(ratios[-1])
    if not (least > 0 and math.isfinite(most)):
        raise DeclarationError("noise: must be positive definite.")
    return least * (1 - 1e-12 * schedule.dim), most - least <= 1e-12 * most
