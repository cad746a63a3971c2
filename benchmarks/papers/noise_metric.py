"""Norms of steps and projections in the metric of the noise, where it is not that of ``M``.

The table of moduli needs ``S = 2γM``. For any other noise covariance only the path bound is
certified, unless a contraction in the norm ``‖S^{-1/2}·‖`` is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from private_mcmc.accounting.rounding import FloatArray
from private_mcmc.accounting.steps import dense
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix

MatrixLike = Sequence[float] | Sequence[Sequence[float]] | FloatArray


def covariance(values: MatrixLike, name: str = "noise") -> FloatArray:
    """A full symmetric positive definite matrix from a diagonal or from rows.

    Raises:
        DeclarationError: if it is not symmetric, not positive definite or not finite.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise DeclarationError(f"{name}: every entry must be finite.")
    return dense(cast(Matrix, matrix), len(matrix), name)


def is_diagonal(matrix: FloatArray) -> bool:
    """Whether every entry off the diagonal is exactly zero."""
    return bool((matrix == np.diag(np.diag(matrix))).all())


def operator_norm(matrix: MatrixLike, noise: MatrixLike) -> float:
    """``‖S^{-1/2} A S^{1/2}‖``, the Lipschitz constant of ``x → Ax`` in the noise metric, rounded up."""
    spread, vectors = np.linalg.eigh(covariance(noise))
    root = (vectors * np.sqrt(spread)) @ vectors.T
    inverse = (vectors / np.sqrt(spread)) @ vectors.T
    slack = 1 + 1e-13 * len(spread) * math.sqrt(float(spread[-1] / spread[0]))
    return float(np.linalg.norm(inverse @ np.asarray(matrix, dtype=np.float64) @ root, 2)) * slack


def diagonal_step_gap(
    step_size: float,
    preconditioner: Sequence[float],
    noise: MatrixLike,
    curvature_low: Sequence[float],
    curvature_high: Sequence[float],
) -> float:
    """``1 − ρ_S`` of ``x − γM∇U(x)`` where ``M``, ``S`` and every admissible Hessian are diagonal.

    Diagonal matrices commute, so ``ρ_S = max_i max(|1 − γM_i μ_i|, |1 − γM_i L_i|)`` whatever ``S`` is.

    Assumptions:
        the potential is a sum of one-coordinate functions, ``μ_i ≤ ∂_i²U ≤ L_i``, for every data set.

    Raises:
        DeclarationError: if ``S`` is not diagonal or the bounds are not finite and ordered.
    """
    if not is_diagonal(covariance(noise)):
        raise DeclarationError(
            "noise: not diagonal, so no contraction in its metric is proved; release the path."
        )
    low, high = np.asarray(curvature_low, dtype=np.float64), np.asarray(curvature_high, dtype=np.float64)
    scale = step_size * np.asarray(preconditioner, dtype=np.float64)
    if not ((scale > 0).all() and (low <= high).all() and np.isfinite(low).all() and np.isfinite(high).all()):
        raise DeclarationError("diagonal_step_gap: needs γM > 0 and finite bounds with low ≤ high.")
    gaps = np.minimum(scale * low, 2.0 - scale * high)
    return float(np.min(gaps - 2.0**-50 * (1 + np.abs(scale * high) + np.abs(scale * low))))
