"""How far one row moves a vector of averages, value by value and jointly.

With ``e`` the distance between the coupled chains' averages (in ``‖M^{-1/2}·‖``), a value of slope ``a`` in
``θ`` moves by at most ``√(aᵀMa) e``, an ``ℓ``-Lipschitz one by ``ℓ √λ_max(M) e``, and one kept in ``[a, b]``
by ``b − a``. Every value is measured in units of its own bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix, Schedule

FloatArray = npt.NDArray[np.float64]
_UP = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class Slopes:
    """Values with ``|f_j(θ) − f_j(θ')| ≤ |A_j·(θ − θ')|``: affine maps, and 1-Lipschitz functions of them.

    Attributes:
        matrix: ``A``, shape ``(d, p)``.
    """

    matrix: FloatArray


@dataclass(frozen=True)
class Lipschitz:
    """``size`` values, jointly ``ℓ``-Lipschitz from ``‖·‖_2`` on the unconstrained space to ``‖·‖_2``."""

    size: int
    constant: float


@dataclass(frozen=True, eq=False)
class Movement:
    """What one row can change.

    Attributes:
        units: each value's own sensitivity, shape ``(d,)``.
        slopes: each value's Lipschitz constant in ``‖M^{-1/2}·‖``, shape ``(d,)``; ``inf`` if unknown.
        l1: joint L1 sensitivity of the values divided by their units.
        l2: the same in L2.
    """

    units: FloatArray
    slopes: FloatArray
    l1: float
    l2: float


def movement(schedule: Schedule, distance: float, part: Slopes | Lipschitz, ranges: FloatArray) -> Movement:
    """Sensitivities of one declared item; ``ranges`` holds each value's ``b − a`` (``inf`` if none).

    Raises:
        DeclarationError: for a value with neither a finite range nor a finite Lipschitz bound.
    """
    if isinstance(part, Slopes):
        gram = _gram(part.matrix, schedule.preconditioner)
        slopes = np.sqrt(np.diag(gram)) * _UP
    else:
        gram = None
        slopes = np.full(
            part.size, part.constant * math.sqrt(_largest_eigenvalue(schedule.preconditioner)) * _UP
        )
    # A constant value moves by nothing, however far the chains are apart.
    moves = np.where(slopes == 0, 0.0, np.where(slopes > 0, slopes, 1.0) * distance)
    bounds = np.minimum(moves, ranges)
    if not np.all(bounds < math.inf):
        raise DeclarationError(
            "nothing bounds how far one row moves this expectation: the chain has no proved contraction or "
            "the function no Lipschitz constant. Give bounds=(a, b): the value is clamped to them."
        )
    units = np.where(bounds > 0, bounds, max(float(bounds.max()), np.finfo(float).tiny ** 0.5))
    capped = ranges < moves
    if gram is not None:
        free = np.flatnonzero(~capped)
        scale = np.where(slopes > 0, slopes, 1.0)[free]
        correlation = gram[np.ix_(free, free)] / np.outer(scale, scale) * _UP**2
        l1, l2 = _coordinatewise(correlation)
        count = int(capped.sum())
        return Movement(units, slopes, (l1 + count) * _UP, math.hypot(l2, math.sqrt(count)) * _UP)
    # Each value moves by at most one unit, all together by at most the largest ratio in L2.
    joint = min(math.sqrt(len(units)), float(np.max(moves / units)))
    return Movement(units, slopes, min(len(units), math.sqrt(len(units)) * joint) * _UP, joint * _UP)


def together(movements: tuple[Movement, ...]) -> Movement:
    """Several items side by side."""
    return Movement(
        np.concatenate([m.units for m in movements]),
        np.concatenate([m.slopes for m in movements]),
        math.fsum(m.l1 for m in movements) * _UP,
        math.sqrt(math.fsum(m.l2**2 for m in movements)) * _UP,
    )


def _coordinatewise(correlation: FloatArray) -> tuple[float, float]:
    """L1 and L2 norms of ``D^{-1/2} A M^{1/2}`` over the unit ball, given ``D^{-1/2} A M Aᵀ D^{-1/2}``.

    ``max_s ‖M^{1/2}AᵀD^{-1/2}s‖²`` over sign vectors ``s`` is at most ``Σ|correlation_ij|``.
    """
    if correlation.size == 0:
        return 0.0, 0.0
    largest = max(0.0, float(np.linalg.eigvalsh(correlation)[-1]))
    total = float(np.abs(correlation).sum())
    return math.sqrt(total), math.sqrt(min(total, largest * _UP))


def _gram(matrix: FloatArray, metric: Matrix | None) -> FloatArray:
    """``A M Aᵀ``."""
    if metric is None:
        product: FloatArray = matrix @ matrix.T
        return product
    array = np.asarray(metric, dtype=np.float64)
    scaled = matrix * array if array.ndim == 1 else matrix @ array
    product = scaled @ matrix.T
    return product


def _largest_eigenvalue(metric: Matrix | None) -> float:
    if metric is None:
        return 1.0
    array = np.asarray(metric, dtype=np.float64)
    return float(array.max() if array.ndim == 1 else np.linalg.eigvalsh(array)[-1])
